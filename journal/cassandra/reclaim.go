package cassandra

import (
	"context"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// work is a deletion of what the head of the stream says is dead. It changes nothing that anybody reads, needs no fence, and may be repeated.
type work struct {
	b     *bucket
	whole bool  // the bucket with its row, or else
	spans spans // bodies in it
	bytes int64 // of these
}

// tidy deletes what is dead. What it cannot delete now is tried again by a later discard, or a later owner.
func (h *hold) tidy(ctx context.Context) {
	for _, w := range h.findWork(ctx) {
		if h.delete(ctx, &w) != nil {
			return
		}
		if h.turn.take(ctx) != nil {
			return
		}
		h.ledger.done(&w)
		h.turn.give()
	}
}

// findWork lists what to delete.
func (h *hold) findWork(ctx context.Context) []work {
	if h.turn.take(ctx) != nil {
		return nil
	}
	defer h.turn.give()
	l := &h.ledger
	if l.stale || h.loadBuckets(ctx, l) != nil {
		return nil
	}
	end := h.end()
	var all []work
	list := l.buckets.list
	for i, b := range list {
		last := l.endOf(i, end)
		newest := i+1 == len(list)
		if b.start < l.base {
			all = append(all, work{b: b, whole: true})
			continue
		}
		if b.due && last < l.low && !newest {
			if !b.all && h.catchUp(ctx, b, last) != nil {
				return all
			}
			if b.all || len(b.live) == 0 {
				all = append(all, work{b: b, whole: true})
				continue
			}
			b.due = false
		}
		none := b.all || b.loaded && len(b.live) == 0
		if len(b.pending) > 0 && (b.bytes >= cutBytes || none && b.bytes >= cutAllBytes) {
			all = append(all, work{b: b, spans: slices.Clone(b.pending), bytes: b.bytes})
		}
	}
	l.buckets.unload()
	return all
}

// unload forgets live bodies, if many are known.
func (s *buckets) unload() {
	loaded := 0
	for _, b := range s.list {
		if b.loaded && len(b.live) > 0 {
			loaded++
		}
	}
	for i := 0; loaded > keepLoaded && i+1 < len(s.list); i++ {
		if b := s.list[i]; b.loaded && len(b.live) > 0 {
			b.loaded, b.live = false, nil
			loaded--
		}
	}
}

// delete does the work in the store.
func (h *hold) delete(ctx context.Context, w *work) error {
	start := int64(w.b.start)
	if !w.whole {
		return h.j.write(ctx, "delete bodies", h.name, func() error {
			for _, r := range w.spans {
				for _, stmt := range []string{cqlCutRecords, cqlCutBodies} {
					if err := h.j.exec(ctx, stmt, h.key, start, int64(r.From), int64(min(r.To, math.MaxInt64))); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := h.dropBucket(ctx, start); err != nil {
		return err
	}
	// The rows of dead buckets between two that are kept are one tombstone.
	if err := h.turn.take(ctx); err != nil {
		return err
	}
	before, behind := int64(-1), int64(math.MaxInt64)
	list := h.ledger.buckets.list
	for i, b := range list {
		if b == w.b {
			if i > 0 {
				before = int64(list[i-1].start)
			}
			if i+1 < len(list) {
				behind = int64(list[i+1].start)
			}
		}
	}
	h.turn.give()
	if behind == math.MaxInt64 {
		return nil // the ledger was read anew
	}
	return h.dropRows(ctx, before, behind)
}

func (h *hold) dropBucket(ctx context.Context, start int64) error {
	return h.j.write(ctx, "delete bucket", h.name, func() error {
		if err := h.j.exec(ctx, cqlDropRecords, h.key, start); err != nil {
			return err
		}
		return h.j.exec(ctx, cqlDropBodies, h.key, start)
	})
}

// dropRows deletes the rows of the buckets between two starts.
func (h *hold) dropRows(ctx context.Context, after, before int64) error {
	return h.j.write(ctx, "forget buckets", h.name, func() error {
		return h.j.exec(ctx, cqlDropRows, h.key, after, before)
	})
}

// done takes finished work into the ledger.
func (l *ledger) done(w *work) {
	if w.whole {
		l.buckets.list = slices.DeleteFunc(l.buckets.list, func(b *bucket) bool { return b == w.b })
		return
	}
	b := w.b
	b.bytes = max(0, b.bytes-w.bytes)
	b.pending = slices.DeleteFunc(b.pending, func(r journal.Range) bool { return slices.Contains(w.spans, r) })
}

// bury deletes all of a stream that was dropped at end, as far as it goes: the next owner goes on with it.
func (h *hold) bury(ctx context.Context, end uint64, dir directory) {
	var starts []int64
	it := h.j.session.Query(cqlBuckets, h.key, int64(0)).PageSize(1000).IterContext(ctx)
	for start := int64(0); it.Scan(&start, nil); {
		if uint64(start) < end {
			starts = append(starts, start)
		}
	}
	if it.Close() != nil {
		return
	}
	for _, start := range starts {
		if h.dropBucket(ctx, start) != nil {
			return
		}
	}
	if len(starts) > 0 && h.dropRows(ctx, -1, int64(end)) != nil {
		return
	}
	for _, slot := range dir.trash {
		if h.dropPart(ctx, slot) != nil {
			return
		}
	}
}
