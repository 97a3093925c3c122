package cassandra

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// bodyRow is a body in a bucket.
type bodyRow struct {
	first, last uint64
	size        uint32
}

// bucket is what an owner knows of the bodies of a bucket. Rows are read when they are first needed.
type bucket struct {
	start uint64
	all   bool  // marked as without a live body, for ever
	gone  spans // the mark: first seqs of discarded bodies

	loaded bool
	seen   uint64    // live is complete up to here
	live   []bodyRow // ascending

	due     bool  // it may have no live body, which was not looked at yet
	pending spans // discarded, and not deleted yet
	bytes   int64 // of them
}

// buckets are those of a stream, ascending.
type buckets struct {
	known bool
	list  []*bucket
}

const (
	// changesAtOnce bounds how many buckets are marked by one change.
	changesAtOnce = 64
	// keepLoaded bounds of how many buckets an owner knows the live bodies.
	keepLoaded = 128
	// cutBytes and cutAllBytes are how many bytes of discarded bodies a bucket holds before they are deleted: while others are alive in it, and
	// when none is. Each deletion is a tombstone that is read over until the bucket is dropped.
	cutBytes    = 1 << 20
	cutAllBytes = 64 << 10
)

// loadBuckets reads which buckets there are, with their marks.
func (h *hold) loadBuckets(ctx context.Context, l *ledger) error {
	h.mu.Lock()
	begun := h.begun
	h.begun = nil
	h.mu.Unlock()
	if l.buckets.known {
		for _, start := range begun {
			if n := len(l.buckets.list); n == 0 || l.buckets.list[n-1].start < start { // not read with the others
				l.buckets.list = append(l.buckets.list, &bucket{start: start, loaded: true, seen: start, due: true})
			}
		}
		return nil
	}
	var list []*bucket
	it := h.j.session.Query(cqlBuckets, h.key, int64(0)).PageSize(1000).IterContext(ctx)
	var start int64
	var mark []byte
	var damaged error
	for it.Scan(&start, &mark) {
		b := &bucket{start: uint64(start), due: true}
		if b.gone, b.all, damaged = decodeGone(mark); damaged != nil {
			break
		}
		b.pending = slices.Clone(b.gone) // of an owner before, or unknown: it costs little to delete them again
		list = append(list, b)
	}
	if err := it.Close(); err != nil {
		return unknown(h.j.ended(ctx, h.j.o.rights(err)))
	}
	l.buckets = buckets{known: damaged == nil, list: list}
	return damaged
}

// endOf returns the last seq of the i-th bucket.
func (l *ledger) endOf(i int, end uint64) uint64 {
	if i+1 < len(l.buckets.list) {
		return l.buckets.list[i+1].start
	}
	return end
}

// catchUp completes what is known of a bucket's live bodies, up to its end.
func (h *hold) catchUp(ctx context.Context, b *bucket, end uint64) error {
	if b.loaded && b.seen >= end {
		return nil
	}
	h.mu.Lock()
	recent, from := h.recent, h.recentFrom
	newest := h.tail.start == b.start
	h.mu.Unlock()
	if newest && b.loaded && b.seen >= from {
		for _, r := range recent { // ascending, and only ever appended to
			if r.first > b.seen && r.last <= end {
				b.live = append(b.live, r)
			}
		}
		b.seen = end
		return nil
	}
	if !b.loaded {
		b.live, b.seen = nil, b.start
	}
	it := h.j.session.Query(cqlBodyRows, h.key, int64(b.start), int64(b.seen), int64(end)).PageSize(1000).IterContext(ctx)
	var seq int64
	var header []byte
	for it.Scan(&seq, &header) {
		hd, err := journal.ParseHeader(header)
		if err != nil {
			hd = journal.Header{First: uint64(seq), Count: 1} // found by who reads it
		}
		if !b.gone.has(hd.First) {
			b.live = append(b.live, bodyRow{hd.First, hd.Last(), hd.BodyLen})
		}
	}
	if err := it.Close(); err != nil {
		b.loaded = false
		return unknown(h.j.ended(ctx, h.j.o.rights(err)))
	}
	b.loaded, b.seen = true, end
	return nil
}

// DiscardBodies marks bodies as gone.
func (h *hold) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	end := h.end()
	for more := true; more; {
		more = false
		err := h.change(ctx, "discard bodies", func(l *ledger, rev int64) ([]statement, func(), error) {
			marks, err := h.findDead(ctx, l, ranges, end)
			if err != nil {
				return nil, nil, err
			}
			if len(marks) > changesAtOnce {
				marks, more = marks[:changesAtOnce], true
			}
			var stmts []statement
			for i := range marks {
				stmts = append(stmts, statement{cqlSetGone, []any{marks[i].encode(), rev, h.key, int64(marks[i].b.start), h.fence, l.rev}})
			}
			return stmts, func() {
				for i := range marks {
					marks[i].take()
				}
			}, nil
		})
		if err != nil {
			return h.failed("discard bodies of", h.j.ended(ctx, err))
		}
	}
	h.tidy(ctx)
	return nil
}

// mark is a change of a bucket's mark.
type mark struct {
	b          *bucket
	live, dead []bodyRow
	gone       spans
	all        bool
}

// findDead finds the live bodies that lie wholly inside one of the ranges.
func (h *hold) findDead(ctx context.Context, l *ledger, ranges []journal.Range, end uint64) ([]mark, error) {
	if err := h.loadBuckets(ctx, l); err != nil {
		return nil, err
	}
	list := l.buckets.list
	touched := map[int][]journal.Range{}
	for _, r := range ranges {
		r.From, r.To = max(r.From, 1), min(r.To, end)
		if r.From > r.To {
			continue
		}
		i, _ := slices.BinarySearchFunc(list, r.From, func(b *bucket, seq uint64) int { return cmp.Compare(b.start, seq) })
		for i = max(i-1, 0); i < len(list) && list[i].start < r.To; i++ {
			if !list[i].all {
				touched[i] = append(touched[i], r)
			}
		}
	}
	var marks []mark
	for i := range list {
		inside := touched[i]
		if len(inside) == 0 {
			continue
		}
		b := list[i]
		bucketEnd := l.endOf(i, end)
		if err := h.catchUp(ctx, b, bucketEnd); err != nil {
			return nil, err
		}
		m := mark{b: b}
		for _, row := range b.live {
			if slices.ContainsFunc(inside, func(r journal.Range) bool { return r.From <= row.first && row.last <= r.To }) {
				m.dead = append(m.dead, row)
			} else {
				m.live = append(m.live, row)
			}
		}
		if len(m.dead) == 0 {
			continue
		}
		m.gone = merge(b.gone, m.dead, m.live)
		m.all = len(m.live) == 0 && i+1 < len(list)
		if marks = append(marks, m); len(marks) > changesAtOnce {
			break
		}
	}
	return marks, nil
}

func (m *mark) encode() []byte {
	if m.all {
		return allGone
	}
	return m.gone.encode()
}

// take takes the change into what is known, once it is stored.
func (m *mark) take() {
	b := m.b
	b.pending = merge(b.pending, m.dead, m.live)
	for _, row := range m.dead {
		b.bytes += int64(row.size)
	}
	b.live, b.gone, b.all = m.live, m.gone, m.all
	if m.all {
		b.gone = nil
	}
	b.due = b.due || len(m.live) == 0
}

// merge adds bodies to a set, whose ranges grow together where nothing is alive between them.
func merge(s spans, dead, live []bodyRow) spans {
	all := slices.Clone(s)
	for _, row := range dead {
		all = append(all, journal.Range{From: row.first, To: row.first})
	}
	slices.SortFunc(all, func(a, b journal.Range) int { return cmp.Compare(a.From, b.From) })
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 {
			i, _ := slices.BinarySearchFunc(live, out[n-1].To, func(row bodyRow, seq uint64) int { return cmp.Compare(row.first, seq) })
			if i == len(live) || live[i].first > r.From {
				out[n-1].To = max(out[n-1].To, r.To)
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// DiscardMeta raises the lowest seq whose meta is kept.
func (h *hold) DiscardMeta(ctx context.Context, low uint64) error {
	end := h.end()
	low = min(low, end+1)
	err := h.change(ctx, "discard metas", func(l *ledger, rev int64) ([]statement, func(), error) {
		if low <= l.low {
			return nil, nil, nil
		}
		kept := low
		if low <= end {
			var err error
			if kept, err = h.recordOf(ctx, l, low); err != nil {
				return nil, nil, err
			}
		}
		if kept <= l.low {
			return nil, nil, nil
		}
		return []statement{{cqlSetLow, []any{int64(kept), rev, h.key, h.fence, l.rev}}}, func() { l.low = kept }, nil
	})
	if err != nil {
		return h.failed("discard metas of", h.j.ended(ctx, err))
	}
	h.tidy(ctx)
	return nil
}

// recordOf returns the first seq of the record that holds seq.
func (h *hold) recordOf(ctx context.Context, l *ledger, seq uint64) (uint64, error) {
	if err := h.loadBuckets(ctx, l); err != nil {
		return 0, err
	}
	list := l.buckets.list
	i, _ := slices.BinarySearchFunc(list, seq, func(b *bucket, seq uint64) int { return cmp.Compare(b.start, seq) })
	if i == 0 {
		return 0, unknown(fmt.Errorf("no bucket holds seq %d", seq))
	}
	r, found, err := h.j.read(ctx, cqlLastMeta, h.key, int64(list[i-1].start), int64(min(seq, math.MaxInt64)))
	if err != nil {
		return 0, unknown(err)
	}
	if found {
		if hd, err := journal.ParseHeader(r.bytes("header")); err == nil && hd.Last() >= seq {
			return hd.First, nil
		}
	}
	return seq, nil
}
