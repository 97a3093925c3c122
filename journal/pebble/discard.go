package pebble

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// Discards ride in the next batch, whoever's it is. A body whose record is still in a
// memtable is deleted by a point tombstone that vanishes together with it, before anything is written
// to a table. For those that did get into tables, range tombstones over what is dead without a
// gap are written now and then: the engine drops tables that one covers without reading them.

// discards are a stream's discards that are not in the store yet. Under the stream's mutex.
type discards struct {
	runs []deadRun // of bodies, not in a batch yet
	done []deadRun // in a batch, but not applied: hidden from readers like runs
	low  uint64    // metas before it are to go; 0: none
	gone int64     // bytes of all metas before low

	areas []deadArea // where all bodies are dead, ascending, apart from one another
}

// deadRun is bodies that follow one another and are dead.
type deadRun struct {
	from, to uint64 // first seq of the first, last seq of the last
	gap      uint64 // seqs before from that have no body
	bytes    int64
	spans    []span // of each; nil if there are many
}

// deadArea is seqs that have no live body.
type deadArea struct {
	from, to uint64
	bytes    int64 // dead in it since the last range tombstone over it
}

const (
	manySpans = 64  // a run of more is deleted by a range tombstone
	manyRuns  = 256 // so many do not wait for the next append
	maxAreas  = 64
)

// tombBytes is how much has to die in an area before a range tombstone is written over it.
func (j *Journal) tombBytes() int64 { return int64(j.opts.MemTableBytes) / 4 }

// DiscardBodies gives back bodies. It makes no write of its own and is not durable on
// return.
func (h *hold) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return h.discard(ctx, "discard bodies of", func(e *engine) error {
		h.st.discarding.Lock() // so that no body is found dead by two calls
		defer h.st.discarding.Unlock()
		runs, err := h.deadRuns(ctx, e, ranges)
		if err != nil {
			return err
		}
		h.st.mu.Lock()
		defer h.st.mu.Unlock()
		if err := h.fencedLocked(); err != nil {
			return err
		}
		d := &h.st.discards
		d.runs = append(d.runs, runs...)
		if len(runs) > 0 {
			h.j.q.discard(h.st, len(d.runs) > manyRuns)
		}
		return nil
	})
}

// DiscardMeta gives back metas. It makes no write of its own and is not durable on return.
func (h *hold) DiscardMeta(ctx context.Context, low uint64) error {
	return h.discard(ctx, "discard metas of", func(e *engine) error {
		h.st.mu.Lock()
		err, info := h.fencedLocked(), h.st.acked
		h.st.mu.Unlock()
		if low = min(low, info.end+1); err != nil || low <= info.low {
			return err
		}
		gone := info.metaTotal
		if low <= info.end {
			if low, gone, err = h.metaBoundary(e, low); err != nil {
				return err
			}
		}
		h.st.mu.Lock()
		defer h.st.mu.Unlock()
		if err := h.fencedLocked(); err != nil {
			return err
		}
		if d := &h.st.discards; low > d.low && low > h.st.acked.low {
			d.low, d.gone = low, gone
			h.st.acked.low = low
			h.j.q.discard(h.st, false)
		}
		return nil
	})
}

// discard runs a discard: f, with the engine, and the hooks.
func (h *hold) discard(ctx context.Context, what string, f func(*engine) error) error {
	err := h.check(ctx)
	if err == nil {
		err = h.j.refuse()
	}
	hook := h.j.opts.hook
	if err == nil && hook != nil {
		if err = hook(ctx, what, h.name, false); err != nil {
			err = fmt.Errorf("%w: not sent: %w", journal.ErrUnknown, err)
		}
	}
	if err == nil {
		err = h.j.reading(ctx, func() error {
			e, err := h.j.use()
			if err != nil {
				return err
			}
			defer e.leave()
			return f(e)
		})
	}
	if err == nil && hook != nil {
		if err = hook(ctx, what, h.name, true); err != nil {
			err = fmt.Errorf("%w: no answer: %w", journal.ErrUnknown, err)
		}
	}
	if err != nil {
		return h.fail(what, err)
	}
	return nil
}

// metaBoundary returns where the record begins that holds seq low, and the bytes of metas before it.
func (h *hold) metaBoundary(e *engine, low uint64) (uint64, int64, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{
		LowerBound: prefixKey(kindMeta, h.st.no), UpperBound: prefixEnd(kindMeta, h.st.no),
	})
	if err != nil {
		return 0, 0, e.readError(h.name, low, "read meta", err)
	}
	defer it.Close() //nolint:errcheck // what it found is told by Error
	if !it.SeekLT(seqKey(kindMeta, h.st.no, low+1)) {
		err := it.Error()
		if err == nil {
			err = fmt.Errorf("record missing: %w", journal.ErrCorrupt)
		}
		return 0, 0, e.readError(h.name, low, "read meta", err)
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return 0, 0, e.readError(h.name, low, "read meta", err)
	}
	hdr, _, gone, err := openMeta(v)
	if err != nil {
		return 0, 0, e.readError(h.name, low, "read meta", err)
	}
	return hdr.First, gone, nil
}

// deadRuns finds the bodies that lie in the ranges.
func (h *hold) deadRuns(ctx context.Context, e *engine, ranges []journal.Range) ([]deadRun, error) {
	h.st.mu.Lock()
	err, end := h.fencedLocked(), h.st.acked.end
	h.st.mu.Unlock()
	if err != nil {
		return nil, err
	}
	no := h.st.no
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: prefixKey(kindBody, no), UpperBound: seqKey(kindBody, no, end+1)})
	if err != nil {
		return nil, e.readError(h.name, 0, "list bodies", err)
	}
	defer it.Close() //nolint:errcheck // what it found is told by Error
	var runs []deadRun
	for _, r := range ranges {
		if r.From > r.To {
			continue
		}
		var run deadRun
		n := 0
		for ok := it.SeekGE(seqKey(kindBody, no, r.From)); ok; ok = it.Next() {
			s, err := parseBodyKey(it.Key())
			if err != nil {
				return nil, e.readError(h.name, r.From, "list bodies", err)
			}
			if s.last > r.To {
				break
			}
			if n++; n%1024 == 0 {
				if err := h.check(ctx); err != nil {
					return nil, err
				}
			}
			if in(runs, s.first) || h.hidden(s.first) {
				runs = appendRun(runs, run)
				run = deadRun{}
				continue
			}
			run.add(s)
		}
		if err := it.Error(); err != nil {
			return nil, e.readError(h.name, r.From, "list bodies", err)
		}
		runs = appendRun(runs, run)
	}
	return runs, nil
}

func appendRun(runs []deadRun, r deadRun) []deadRun {
	if r.to == 0 {
		return runs
	}
	return append(runs, r)
}

func (r *deadRun) add(s span) {
	if r.to == 0 {
		*r = deadRun{from: s.first, gap: s.gap, spans: make([]span, 0, 1)}
	}
	r.to = s.last
	r.bytes += s.bytes()
	if r.spans != nil {
		if r.spans = append(r.spans, s); len(r.spans) > manySpans {
			r.spans = nil
		}
	}
}

func (h *hold) hidden(first uint64) bool {
	h.st.mu.Lock()
	defer h.st.mu.Unlock()
	return h.st.discards.hides(first)
}

// hides tells whether the body of the record that begins at first is dead, but perhaps
// still in the store.
func (d *discards) hides(first uint64) bool {
	return in(d.runs, first) || in(d.done, first)
}

func in(runs []deadRun, first uint64) bool {
	return slices.ContainsFunc(runs, func(r deadRun) bool { return r.from <= first && first <= r.to })
}

// stagedDiscards is what a batch has of a stream's discards.
type stagedDiscards struct {
	st   *stream
	runs []deadRun
	low  uint64
	gone int64
}

// stageDiscardsLocked puts the stream's discards into the batch.
func (st *stream) stageDiscardsLocked(u *unit, tombBytes int64) {
	d := &st.discards
	if len(d.runs) == 0 && d.low == 0 {
		return
	}
	u.touch(st)
	for i := range d.runs {
		r := &d.runs[i]
		st.next.bodyBytes -= r.bytes
		for _, s := range r.spans {
			must(u.b.SingleDelete(s.key(st.no), nil))
		}
		if r.spans == nil {
			must(u.b.DeleteRange(seqKey(kindBody, st.no, r.from), seqKey(kindBody, st.no, r.to+1), nil))
			d.bury(r, 0)
		} else if a := d.bury(r, r.bytes); a.bytes >= tombBytes {
			a.bytes = 0
			must(u.b.DeleteRange(seqKey(kindBody, st.no, a.from), seqKey(kindBody, st.no, a.to+1), nil))
		}
	}
	if d.low > st.next.low {
		must(u.b.DeleteRange(seqKey(kindMeta, st.no, st.next.low), seqKey(kindMeta, st.no, d.low), nil))
		st.next.low, st.next.metaGone = d.low, d.gone
	}
	u.discards = append(u.discards, stagedDiscards{st, d.runs, d.low, d.gone})
	d.done = append(d.done, d.runs...)
	d.runs, d.low, d.gone = nil, 0, 0
}

// bury adds a run to the areas and returns the one that it is in.
func (d *discards) bury(r *deadRun, bytes int64) *deadArea {
	a := deadArea{from: r.from - r.gap, to: r.to, bytes: bytes}
	i, _ := slices.BinarySearchFunc(d.areas, a.from, func(x deadArea, from uint64) int {
		if x.to+1 < from {
			return -1
		}
		return 1
	})
	n := i
	for ; n < len(d.areas) && d.areas[n].from <= a.to+1; n++ {
		a.from, a.to = min(a.from, d.areas[n].from), max(a.to, d.areas[n].to)
		a.bytes += d.areas[n].bytes
	}
	d.areas = slices.Replace(d.areas, i, n, a)
	if len(d.areas) > maxAreas {
		// The area that is worth least is forgotten, but not the one just made.
		least := -1
		for k := range d.areas {
			if k != i && (least < 0 || d.areas[k].bytes < d.areas[least].bytes) {
				least = k
			}
		}
		d.areas = slices.Delete(d.areas, least, least+1)
		if least < i {
			i--
		}
	}
	return &d.areas[i]
}

// applied lets go of what readers now find deleted.
func (s stagedDiscards) applied() {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	d := &s.st.discards
	d.done = slices.DeleteFunc(d.done, func(r deadRun) bool {
		return slices.ContainsFunc(s.runs, func(x deadRun) bool { return x.from == r.from })
	})
}

// again puts back what was in a batch that failed.
func (s stagedDiscards) again() {
	s.applied()
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	d := &s.st.discards
	d.runs = append(d.runs, s.runs...)
	if s.low > d.low {
		d.low, d.gone = s.low, s.gone
	}
}
