package segment

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// stream is what is known of a stream in memory. All of it was, or is about to be, in the store.
type stream struct {
	name string
	no   uint32

	mu sync.Mutex
	// next is the state with everything that the committer has put into a batch.
	next head
	// acked is the state that readers see: what was acknowledged. ackedAt is the batch that it is of; index and parts are of the same.
	acked   head
	ackedAt uint64
	sure    head // what is on stable storage
	unacked int  // batches with changes of the stream that are not in acked
	index   index
	parts   map[string]part
	damage  *LossError // what is missing, nil: nothing
	owner   *hold

	discards discards
}

// part is where a part is.
type part struct {
	seg     *segment
	off     int64 // of the entry
	payload uint32
	size    uint32
	op      uint64 // of the stream, that wrote it
}

func (p *part) bytes() int64 { return entryHeaderSize + int64(p.payload) + int64(p.size) }

// discards are what was discarded and is in no batch yet. Readers do not see it any more.
type discards struct {
	ranges []journal.Range
	low    uint64
	ledger ledger
}

func (d *discards) empty() bool { return len(d.ranges) == 0 && d.low == 0 }

func newStream(name string, no uint32) *stream {
	st := &stream{name: name, no: no, parts: map[string]part{}}
	st.next.low, st.acked.low = 1, 1
	st.discards.ledger = ledger{}
	return st
}

func (st *stream) info() journal.Info {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.acked.info(st.name)
}

// hold is an owner's hold on a stream: a journal.Stream.
type hold struct {
	reader
	st       *stream
	acquired journal.Info
	// importing is set on a hold of Import, whose records have the epochs of their source.
	importing bool
	dropped   atomic.Bool

	// Under st.mu:
	last   *journal.Header // the last record that this hold stored, if any
	fenced bool
	endAt  head // the stream's state when fenced
}

var (
	_ journal.Stream  = (*hold)(nil)
	_ journal.Starter = (*hold)(nil)
)

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
// A record without a body (acknowledgements, deletes, leases) is still accepted where one with a body is refused with ErrFull; see
// [Options.ReserveBytes].
func (h *hold) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	begin := time.Now()
	err := h.mayAppend(ctx, after, rec)
	if err == nil {
		err = h.j.do(ctx, &op{kind: opAppend, h: h, after: after, rec: rec})
	}
	return h.appended(begin, after, err)
}

// StartAppend begins what Append does, and has done called with the outcome.
func (h *hold) StartAppend(after uint64, rec *journal.Record, done func(error)) {
	if h.j.opts.hook != nil { // it may wait
		go func() { done(h.Append(context.Background(), after, rec)) }()
		return
	}
	begin := time.Now()
	err := h.mayAppend(context.Background(), after, rec)
	if err == nil {
		o := &op{kind: opAppend, h: h, after: after, rec: rec, told: func(err error) { done(h.appended(begin, after, err)) }}
		h.j.started.add(o)
		if h.j.q.put(o) || !h.j.started.take(o) {
			return
		}
		err = journal.ErrClosed
	}
	done(h.appended(begin, after, err))
}

// mayAppend checks what can be checked before the record is put into a batch.
func (h *hold) mayAppend(ctx context.Context, after uint64, rec *journal.Record) error {
	check := journal.CheckAppend
	if h.importing {
		check = journal.CheckImported
	}
	if err := check(h.acquired, h.j.Limits(), after, rec); err != nil {
		return err
	}
	if err := h.check(ctx); err != nil {
		return err
	}
	return h.j.refuse()
}

// appended notes the outcome of an append, and returns it.
func (h *hold) appended(begin time.Time, after uint64, err error) error {
	if err != nil {
		return h.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	if f := h.j.opts.OnAppend; f != nil {
		f(time.Since(begin))
	}
	return nil
}

// WritePart stores data.
func (h *hold) WritePart(ctx context.Context, name string, data []byte) error {
	if err := journal.CheckPart(h.j.Limits(), name, data); err != nil {
		return h.fail("write to", err)
	}
	return h.change(ctx, fmt.Sprintf("write part %q of", name), &op{kind: opWritePart, name: name, data: data})
}

// DeleteParts deletes parts, durably.
func (h *hold) DeleteParts(ctx context.Context, names []string) error {
	for _, n := range names {
		if err := journal.CheckName("part", n); err != nil {
			return h.fail("delete parts of", err)
		}
	}
	return h.change(ctx, "delete parts of", &op{kind: opDeleteParts, names: names})
}

// Drop discards the stream and ends the hold.
func (h *hold) Drop(ctx context.Context) error {
	if h.dropped.Load() {
		return nil // repeated because its first outcome was unknown to the caller
	}
	if err := h.change(ctx, "drop", &op{kind: opDrop}); err != nil {
		return err
	}
	h.dropped.Store(true)
	h.released.Store(true)
	return nil
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
