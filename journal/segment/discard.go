package segment

import (
	"context"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// Discards ride in the next batch, whoever's it is. What they discard is gone for readers at once; its space is counted as free once
// the batch is durable.

// manyRanges is how many do not wait for the next append.
const manyRanges = 256

// DiscardBodies gives back bodies. It makes no write of its own and is not durable on return.
func (h *hold) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return h.discard(ctx, "discard bodies of", func(st *stream) {
		d := &st.discards
		for _, r := range ranges {
			r.To = min(r.To, st.acked.end) // what comes later is not touched
			if r.From = max(r.From, 1); r.From > r.To {
				continue
			}
			st.index.discard(r.From, r.To, st.acked.low, d.ledger)
			if n := len(d.ranges); n > 0 && d.ranges[n-1].To+1 == r.From {
				// Two ranges side by side may not hold what lies across both, but nothing of it can have become
				// discarded in between: a record is only ever inside one of them, or alive in both.
				if !st.index.across(r.From) {
					d.ranges[n-1].To = r.To
					continue
				}
			}
			d.ranges = append(d.ranges, r)
		}
	})
}

// across tells whether a record holds both seq-1 and seq.
func (x *index) across(seq uint64) bool {
	i := x.find(seq)
	if i == len(x.blocks) || x.blocks[i].first >= seq {
		return false
	}
	var buf [blockSlots]slot
	for _, s := range x.blocks[i].slots(&buf) {
		if s.first < seq && s.last() >= seq {
			return true
		}
	}
	return false
}

// DiscardMeta gives back metas. It makes no write of its own and is not durable on return.
func (h *hold) DiscardMeta(ctx context.Context, low uint64) error {
	return h.discard(ctx, "discard metas of", func(st *stream) {
		low := st.index.lowAfter(low, st.acked.end)
		if low <= st.acked.low {
			return
		}
		d := &st.discards
		st.index.raise(st.acked.low, low, d.ledger)
		st.acked.low, d.low = low, low
	})
}

// discard runs a discard under the stream's mutex.
func (h *hold) discard(ctx context.Context, what string, f func(st *stream)) error {
	err := h.check(ctx)
	if err == nil {
		err = h.j.refuse()
	}
	if hook := h.j.opts.hook; err == nil && hook != nil {
		if e := hook(ctx, what, h.name, false); e != nil {
			err = fmt.Errorf("%w: not sent: %w", journal.ErrUnknown, e)
		}
	}
	if err == nil {
		err = h.discardNow(f)
	}
	if hook := h.j.opts.hook; err == nil && hook != nil {
		if e := hook(ctx, what, h.name, true); e != nil {
			err = fmt.Errorf("%w: no answer: %w", journal.ErrUnknown, e)
		}
	}
	if err != nil {
		return h.fail(what, err)
	}
	return nil
}

func (h *hold) discardNow(f func(st *stream)) error {
	st := h.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := h.fencedLocked(); err != nil {
		return err
	}
	f(st)
	if !st.discards.empty() {
		h.j.q.discard(st, len(st.discards.ranges) > manyRanges)
	}
	return nil
}

// again applies discards that are in no durable batch to an index that was read from the store anew.
func (d *discards) again(st *stream) {
	l := ledger{}
	for _, r := range d.ranges {
		st.index.discard(r.From, min(r.To, st.acked.end), st.acked.low, l)
	}
	if low := st.index.lowAfter(d.low, st.acked.end); d.low > 0 && low > st.acked.low {
		st.index.raise(st.acked.low, low, l)
		st.acked.low, d.low = low, low
	}
	d.ledger = l
}
