package cassandra

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// hold is an owner's hold on a stream: a journal.Stream.
type hold struct {
	reader
	acquired journal.Info
	fence    int64
	imported bool

	mu     sync.Mutex
	tail   bucketHead // as of what is known to be stored
	opened bool       // tail's bucket is open, and named in the head of the stream
	open   bool       // the outcome of an append was unknown
	missed bool       // something was stored that this owner has not noted
	begun  []uint64   // buckets that the ledger does not know yet
	doubt  []int64    // slots of parts whose writing has failed
	// recent are the bodies that this owner has appended to tail's bucket, behind seq recentFrom.
	recent     []bodyRow
	recentFrom uint64

	// turn is held around each change of the head of the stream (never while a hook is called); it guards what follows.
	turn   turn
	ledger ledger

	dropping, dropped atomic.Bool
}

var _ journal.Stream = (*hold)(nil)

// ledger is what an owner knows of the head of its stream, as it was stored last.
type ledger struct {
	stale   bool // an outcome was unknown: to be read again
	rev     int64
	low     uint64
	base    uint64 // buckets that begin before it belong to earlier lives
	dir     directory
	slot    int64          // the lowest that was never used
	writing map[int64]bool // slots of parts that are being written
	buckets buckets
}

func newHold(j *Journal, info journal.Info, imported bool, fence int64, now *head, b bucketHead) *hold {
	h := &hold{
		reader: reader{j: j, name: info.Name, key: j.key(info.Name)}, acquired: info, fence: fence, imported: imported,
		tail: b, opened: b.fence == fence, recentFrom: b.end, turn: make(turn, 1),
	}
	h.ledger.writing = map[int64]bool{}
	h.ledger.take(now)
	return h
}

// take replaces what is known by what a head says.
func (l *ledger) take(now *head) {
	l.low, l.base, l.dir, l.slot = now.low, now.base.end, now.parts, max(l.slot, now.slot)
	l.buckets, l.stale, l.rev = buckets{}, false, now.rev
}

// turn is a lock that is waited for no longer than a context lasts.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }

// Acquired returns the stream's state at Acquire.
func (h *hold) Acquired() journal.Info { return h.acquired }

// end returns the end of what is known to be stored.
func (h *hold) end() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tail.end
}

// usable refuses changes by a hold that has ended.
func (h *hold) usable(ctx context.Context) error {
	if h.released.Load() {
		return journal.ErrClosed
	}
	return h.j.writable(ctx)
}

// change makes one change of the head of the stream: in its turn, prepare looks at the ledger and returns the compare-and-sets
// to make as one, and what takes them into the ledger once they are stored. prepare may return none: then only the fence is
// checked.
func (h *hold) change(ctx context.Context, op string, prepare func(l *ledger, rev int64) (stmts []statement, done func(), err error)) error {
	if err := h.usable(ctx); err != nil {
		return err
	}
	return h.j.write(ctx, op, h.name, func() error {
		if err := h.turn.take(ctx); err != nil {
			return err
		}
		defer h.turn.give()
		l := &h.ledger
		if err := h.refresh(ctx, l); err != nil {
			return err
		}
		rev := rand.Int64()
		stmts, done, err := prepare(l, rev)
		if err != nil {
			return err
		}
		if len(stmts) == 0 {
			stmts, rev = []statement{{cqlRaise, []any{h.fence, h.key, h.fence}}}, l.rev
		}
		applied, at, err := h.j.casAll(ctx, stmts)
		if err != nil {
			l.stale = true
			return err
		}
		if !applied && (at.int("fence") != h.fence || at.int("rev") != rev) {
			return h.refused(ctx, l)
		}
		l.rev = rev
		if done != nil {
			done()
		}
		return nil
	})
}

// refresh reads the ledger again where an outcome was unknown: what was under way of an earlier change either is in it, or has
// another revision to replace than it will find.
func (h *hold) refresh(ctx context.Context, l *ledger) error {
	h.mu.Lock()
	doubt := h.doubt
	h.doubt = nil
	if h.missed {
		l.stale, h.missed = true, false
	}
	h.mu.Unlock()
	var err error
	if l.stale {
		err = h.reread(ctx, l)
	}
	l.settle(doubt)
	return err
}

func (h *hold) reread(ctx context.Context, l *ledger) error {
	now, err := h.j.readHead(ctx, h.key, true)
	if err != nil {
		return unknown(err)
	}
	if now.fence != h.fence {
		return h.fencedBy(&now)
	}
	l.take(&now)
	return nil
}

// refused says why the head of the stream refused a change.
func (h *hold) refused(ctx context.Context, l *ledger) error {
	l.stale = true
	now, err := h.j.readHead(ctx, h.key, true)
	if err != nil {
		return unknown(err)
	}
	return h.fencedBy(&now)
}

// fencedBy is the error of a change that the head of the stream has refused.
func (h *hold) fencedBy(now *head) error {
	switch {
	case now.fence == h.fence+1:
		return fmt.Errorf("%w: the stream was dropped by this owner", journal.ErrClosed)
	case now.fence == h.fence:
		return unknown(errors.New("an earlier change has taken effect late"))
	}
	return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, now.epoch())
}

// Release ends the hold.
func (h *hold) Release() error {
	h.released.Store(true)
	return nil
}

// Drop discards the stream and ends the hold. It raises the fence in both heads at first, as Acquire does, so that appends of its own that
// are still under way have no effect in the stream's next life.
func (h *hold) Drop(ctx context.Context) error {
	if h.dropped.Load() {
		return nil // repeated because its first outcome was unknown to the caller
	}
	if h.released.Load() && !h.dropping.Load() {
		return h.failed("drop", journal.ErrClosed)
	}
	if err := h.j.writable(ctx); err != nil {
		return h.failed("drop", err)
	}
	tried := h.dropping.Swap(true)
	if err := h.drop(ctx, tried); err != nil {
		if !errors.Is(err, journal.ErrUnknown) {
			h.dropping.Store(tried)
		}
		return h.failed("drop", err)
	}
	h.dropped.Store(true)
	h.released.Store(true)
	return nil
}

func (h *hold) drop(ctx context.Context, tried bool) error {
	mine := h.fence + 1
	raised := false
	if err := h.j.write(ctx, "drop", h.name, func() (err error) {
		raised, _, err = h.j.cas(ctx, cqlRaise, mine, h.key, h.fence)
		return err
	}); err != nil {
		return err
	}
	now, err := h.j.readHead(ctx, h.key, true)
	if err != nil {
		return unknown(err)
	}
	if now.fence != mine {
		return h.dropOvertaken(&now, tried || raised)
	}
	if now.dropped {
		return nil
	}
	b, err := h.j.raiseBucket(ctx, h.key, &now, mine)
	if err != nil {
		return unknown(err)
	}
	if now.fence != mine || b.fence != mine {
		return h.dropOvertaken(&now, true)
	}
	dir := now.parts.dropped()
	applied := false
	if err := h.j.write(ctx, "dropped", h.name, func() (err error) {
		applied, _, err = h.j.cas(ctx, cqlDropped, int64(b.end+1), int64(b.end), int64(b.crc), b.time, dir.encode(nil), h.key, mine)
		return err
	}); err != nil {
		return err
	}
	if !applied {
		if now, err = h.j.readHead(ctx, h.key, true); err != nil {
			return unknown(err)
		}
		if now.fence != mine || !now.dropped {
			return h.dropOvertaken(&now, true)
		}
	}
	h.bury(ctx, b.end, dir)
	return nil
}

// dropOvertaken says what became of a drop, when the stream has another owner.
func (h *hold) dropOvertaken(now *head, tried bool) error {
	if tried && now.uid != h.acquired.UID {
		return nil // the life of the stream that was to be dropped is over
	}
	return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, now.epoch())
}

func (h *hold) failed(what string, err error) error { return failed(what, h.name, err) }
