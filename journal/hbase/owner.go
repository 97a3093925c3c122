package hbase

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// owner is a hold on a stream.
type owner struct {
	reader
	acquired journal.Info
	nonce    uint64
	fence    fence // of the parts
	// importing is set on a hold of Import, whose records have the epochs of their source.
	importing bool

	dropped atomic.Bool
	stamps  atomic.Uint64 // time stamps of parts that were used
	ids     atomic.Uint64 // numbers of discards that were used

	mu            sync.Mutex // never held during a call
	cur           entry      // the newest head of the own epoch that is known
	metas, bodies uint64     // see head
	doubt         uint32     // CRC of the record whose last append ended as unknown, 0 if none did
	finished      []column   // discards in the stream's row that are done and can be deleted
	index         bodyIndex
}

var _ journal.Stream = (*owner)(nil)

// Acquired returns the stream's state at Acquire.
func (o *owner) Acquired() journal.Info { return o.acquired }

// Release ends the hold.
func (o *owner) Release() error {
	o.released.Store(true)
	return nil
}

func (o *owner) fail(what string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, o.name, err)
}

// known returns the newest head of the own epoch that is known.
func (o *owner) known() entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cur
}

// advance remembers a newer head of the own epoch.
func (o *owner) advance(e *entry) {
	o.learn(e)
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.rev > o.cur.rev {
		o.cur = *e
	}
}

// bucketAt is chain.at, without a call where the owner knows.
func (o *owner) bucketAt(ctx context.Context, seq uint64) (*entry, error) {
	if e := o.known(); seq >= e.first && (!e.closed || seq <= e.end) {
		return &e, nil
	}
	return o.at(ctx, seq)
}

// refresh reads the stream's head, and returns an error if the stream has another owner or was dropped.
func (o *owner) refresh(ctx context.Context) (entry, error) {
	e, err := o.last(ctx)
	switch {
	case err != nil:
		return entry{}, err
	case e == nil:
		return entry{}, &journal.CorruptError{Stream: o.name, What: "it has no bucket any more"}
	case e.nonce != o.nonce:
		return entry{}, o.fencedError(e.epoch)
	}
	o.advance(e)
	if e.dropped {
		return entry{}, errDropped
	}
	return o.known(), nil
}

// update changes the head in a fenced step. f makes the new one and tells whether there is anything to change; it may be
// called several times.
func (o *owner) update(ctx context.Context, op string, f func(ctx context.Context, h *head) (bool, error)) error {
	lost := 0
	for {
		e := o.known()
		h := e.head
		change, err := f(ctx, &h)
		if err != nil {
			return err
		}
		if !change {
			_, err := o.refresh(ctx) // still the owner?
			return notRefused(err)
		}
		if e.closed {
			err = o.roll(ctx, op)
		} else {
			var done bool
			if done, err = o.replace(ctx, op, &e, h); done {
				return nil
			}
		}
		if err != nil {
			if lost++; lost == tries || givenUp(ctx, err) {
				return unknown(err)
			}
			pause(ctx, lost)
		}
		if _, err := o.refresh(ctx); err != nil {
			return notRefused(err)
		}
	}
}

// notRefused makes what is no answer an unknown outcome.
func notRefused(err error) error {
	if err == nil || isRefusal(err) {
		return err
	}
	return unknown(err)
}

// replace puts h in place of the open head e.
func (o *owner) replace(ctx context.Context, op string, e *entry, h head) (bool, error) {
	var ch change
	o.mu.Lock()
	h.metas, h.bodies = max(h.metas, o.metas), max(h.bodies, o.bodies)
	o.mu.Unlock()
	h.rev++
	raw := h.encode()
	ch.put(colHead, raw)
	if h.closed || h.dropped {
		ch.put(colFence, closedFence)
	}
	done, err := o.j.swap(ctx, op, o.name, bucketRow(o.base, e.first), colHead, e.raw, &ch)
	if done {
		o.advance(&entry{h, raw})
	}
	return done, err
}

// roll makes the bucket behind the closed one that is the last.
func (o *owner) roll(ctx context.Context, op string) error {
	e := o.known()
	if !e.closed {
		return nil
	}
	h := e.head
	h.startBucket()
	h.rev++
	raw := h.encode()
	var ch change
	ch.put(colHead, raw)
	ch.put(colFence, bucketFence(h.epoch, h.nonce))
	done, err := o.j.swap(ctx, op, o.name, bucketRow(o.base, h.first), colHead, nil, &ch)
	if done {
		o.index.begin(h.first)
		o.advance(&entry{h, raw})
	}
	return err
}

// Drop discards the stream: the head is marked first, in a fenced step, then parts and records go. What a crash leaves of
// them is deleted by whoever acquires the stream again.
func (o *owner) Drop(ctx context.Context) error {
	if o.dropped.Load() {
		return nil // repeated because its first outcome was unknown to the caller
	}
	if err := o.check(ctx); err != nil {
		return o.fail("drop", err)
	}
	err := o.update(ctx, "drop", func(_ context.Context, h *head) (bool, error) {
		h.dropped, h.low = true, h.end+1
		// One that never had a record is used on by the next life.
		h.closed = !h.empty()
		return true, nil
	})
	if errors.Is(err, errDropped) {
		err = nil
	}
	if err == nil {
		err = o.dropData(ctx)
	}
	if err != nil {
		return o.fail("drop", err)
	}
	o.dropped.Store(true)
	o.released.Store(true)
	return nil
}

func (o *owner) dropData(ctx context.Context) error {
	mine := o.fence
	mine.dropped = true
	var ch change
	ch.delete(int64(mine.base+stampSpan-1), column{family: familyParts})
	ch.put(colFence, mine.encode())
	err := retry(ctx, func() error {
		// Refused: done by an earlier try, or the stream lives again and its owner has done it.
		_, err := o.j.swap(ctx, "drop parts", o.name, o.base, colFence, o.fence.encode(), &ch)
		return err
	})
	if err == nil {
		e := o.known()
		err = o.j.sweepDropped(ctx, o.chain, &e)
	}
	if err != nil {
		return unknown(err)
	}
	return nil
}
