package pebble

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// stream is what is known of a stream in memory. All of it was, or is about to be, in
// the store.
type stream struct {
	name string
	no   uint32

	mu sync.Mutex
	// next is the state with everything that the committer has put into a batch.
	next head
	// acked is the state that readers see: what was acknowledged. ackedAt is the batch that it is of.
	acked   head
	ackedAt uint64
	sure    head // what is on stable storage
	owner   *hold

	discards   discards
	discarding sync.Mutex // taken before mu

	// Of the committer alone:
	named   bool           // the name's row was written
	dirty   uint64         // the batch that the head has to be written into
	bodyEnd uint64         // the last seq of the last record that has a body, 0 if not known
	parts   map[string]int // sizes of the rows of parts; nil: not loaded
}

func newStream(name string, no uint32) *stream {
	st := &stream{name: name, no: no}
	st.next.low, st.acked.low = 1, 1
	return st
}

func (st *stream) info() journal.Info {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.acked.info(st.name)
}

// ack shows readers the state that batch n left.
func (st *stream) ack(h head, n uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if n < st.ackedAt {
		return
	}
	if h.uid == st.acked.uid {
		h.low = max(h.low, st.acked.low) // raised by a discard that is not in a batch yet
	}
	st.acked, st.ackedAt = h, n
}

// hold is an owner's hold on a stream: a journal.Stream.
type hold struct {
	reader
	st       *stream
	acquired journal.Info
	imports  bool // records have the epochs of their source
	dropped  atomic.Bool

	// Under st.mu:
	last   *journal.Header // the last record that this hold stored, if any
	fenced bool
	endAt  head // the stream's state when fenced
}

var _ journal.Stream = (*hold)(nil)

// Acquired returns the stream's state at Acquire.
func (h *hold) Acquired() journal.Info { return h.acquired }

// hook is called around each change; see journaltest.Hook.
type hook = func(ctx context.Context, op, stream string, after bool) error

func (h *hold) fail(what string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, h.name, err)
}

// change runs a change of the stream.
func (h *hold) change(ctx context.Context, what string, o *op) error {
	err := h.check(ctx)
	if err == nil {
		err = h.j.refuse()
	}
	if err == nil {
		o.h = h
		err = h.j.do(ctx, o)
	}
	if err != nil {
		return h.fail(what, err)
	}
	return nil
}

// Append stores a record. Those of all streams that wait are written together and share a sync.
//
// A record without a body (acknowledgements, deletes, leases) is still accepted where one
// with a body is refused with ErrFull; see [Options.ReserveBytes].
func (h *hold) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	begin := time.Now()
	check := journal.CheckAppend
	if h.imports {
		check = journal.CheckImported
	}
	err := check(h.acquired, h.j.Limits(), after, rec)
	if err != nil {
		return h.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	if err = h.check(ctx); err == nil {
		err = h.j.refuse()
	}
	if err == nil {
		err = h.j.do(ctx, &op{kind: opAppend, h: h, after: after, rec: rec})
	}
	if err != nil {
		return h.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	if f := h.j.opts.OnAppend; f != nil {
		f(time.Since(begin))
	}
	return nil
}

// WritePart stores a copy of data.
func (h *hold) WritePart(ctx context.Context, name string, data []byte) error {
	if err := journal.CheckPart(h.j.Limits(), name, data); err != nil {
		return h.fail("write to", err)
	}
	return h.change(ctx, fmt.Sprintf("write part %q of", name), &op{kind: opWritePart, name: name, data: data})
}

// DeleteParts deletes parts, durably.
func (h *hold) DeleteParts(ctx context.Context, names []string) error {
	return h.change(ctx, "delete parts of", &op{kind: opDeleteParts, names: names})
}

// Drop discards the stream and ends the hold.
func (h *hold) Drop(ctx context.Context) error {
	if h.dropped.Load() {
		return nil // repeated because its first outcome was unknown to the caller
	}
	return h.change(ctx, "drop", &op{kind: opDrop})
}

// Release ends the hold.
func (h *hold) Release() error {
	h.released.Store(true)
	return nil
}

// fencedLocked returns why the hold has no say any more, or nil.
func (h *hold) fencedLocked() error {
	st := h.st
	switch {
	case h.acquired.Epoch != st.next.epoch || h.acquired.UID != st.next.uid:
		return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, st.next.epoch)
	case st.next.dropped:
		return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)
	}
	return nil
}
