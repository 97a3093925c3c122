package segment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelIndex is what an index is, in the simplest form.
type modelIndex struct {
	slots []slot
	segs  map[uint64]*segment // by first seq
}

func (m *modelIndex) tidy(low uint64) {
	m.slots = slices.DeleteFunc(m.slots, func(s slot) bool { return s.live(low) == 0 })
}

// §12: the packed index does what a plain list does: records are found, bodies die, metas go, records move; what is alive in each segment is
// counted right; a checkpoint keeps all of it.
func TestIndexAgainstModel(t *testing.T) {
	s := seed(t, 11)
	for i := range uint64(30 * soak) {
		rng := rand.New(rand.NewPCG(s+i, 1))
		w := &indexWalk{T: t, what: fmt.Sprintf("seed %d", s+i), rng: rng, low: 1, l: ledger{}, m: modelIndex{segs: map[uint64]*segment{}}}
		for n := range 8 {
			w.segs = append(w.segs, &segment{number: uint64(n + 1)})
		}
		for range 400 {
			w.step()
		}
		w.compare()
		w.x.clear(w.low, w.l)
		w.l.settle()
		for _, seg := range w.segs {
			if n := seg.live.Load(); n != 0 {
				t.Fatalf("%s: %d bytes are alive in segment %d of nothing", w.what, n, seg.number)
			}
		}
	}
}

type indexWalk struct {
	*testing.T
	what string
	rng  *rand.Rand
	x    index
	m    modelIndex
	l    ledger
	segs []*segment
	at   int // segment that is written to
	off  int64
	end  uint64
	low  uint64
}

func (w *indexWalk) place(n int64) (*segment, int64) {
	if w.rng.IntN(60) == 0 {
		w.at, w.off = w.at+1, 0
	}
	off := w.off
	w.off += n
	return w.segs[w.at%len(w.segs)], off
}

func (w *indexWalk) step() {
	switch r := w.rng.IntN(20); {
	case r < 12:
		s := slot{first: w.end + 1, count: 1 + w.rng.Uint64N(3), meta: 76 + w.rng.Uint32N(50), body: w.rng.Uint32N(3) * 100}
		s.alive = s.body > 0
		var seg *segment
		seg, s.off = w.place(s.entry() + int64(s.body))
		w.end = s.last()
		w.x.add(seg, &s, w.low, w.l)
		w.m.slots = append(w.m.slots, s)
		w.m.segs[s.first] = seg
	case r < 16:
		from := 1 + w.rng.Uint64N(w.end+1)
		to := min(from+w.rng.Uint64N(1+w.end/uint64(1+w.rng.IntN(30))), w.end)
		w.x.discard(from, to, w.low, w.l)
		for i := range w.m.slots {
			if s := &w.m.slots[i]; s.first >= from && s.last() <= to {
				s.alive = false
			}
		}
		w.m.tidy(w.low)
	case r < 17:
		low := w.x.lowAfter(w.low+w.rng.Uint64N(20), w.end)
		if low > w.low {
			w.x.raise(w.low, low, w.l)
			w.low = low
			w.m.tidy(low)
		}
	case len(w.m.slots) > 0:
		w.move()
	}
	if w.rng.IntN(40) == 0 {
		w.compare()
	}
}

// move moves some records, as emptying a segment does, or a replay of it from the middle on.
func (w *indexWalk) move() {
	for i := w.rng.IntN(len(w.m.slots)); i < len(w.m.slots) && w.rng.IntN(10) > 0; i++ {
		s := w.m.slots[i]
		if !s.alive {
			s.body = 0
		}
		seg, off := w.place(s.entry() + int64(s.body))
		s.off = off
		if from := w.x.move(seg, s, w.low, w.l); from != w.m.segs[s.first] {
			w.Fatalf("%s: seq %d was moved from %v", w.what, s.first, from)
		}
		w.m.slots[i], w.m.segs[s.first] = s, seg
	}
}

func (w *indexWalk) compare() {
	w.Helper()
	b := w.x.append(nil)
	c := cursor{b: b}
	again := c.index(func(n uint64) *segment { return w.segs[n-1] })
	if c.short || len(c.b) > 0 {
		w.Fatalf("%s: the encoded index does not decode", w.what)
	}
	live := map[*segment]int64{}
	for _, s := range w.m.slots {
		live[w.m.segs[s.first]] += s.live(w.low)
		for _, x := range []*index{&w.x, &again} {
			seg, got, ok := x.get(s.first)
			if !ok || got != s || seg != w.m.segs[s.first] {
				w.Fatalf("%s: seq %d: %+v, %v, want %+v", w.what, s.first, got, ok, s)
			}
		}
	}
	w.l.settle()
	for _, seg := range w.segs {
		if seg.live.Load() != live[seg] {
			w.Fatalf("%s: %d bytes are alive in segment %d, want %d", w.what, seg.live.Load(), seg.number, live[seg])
		}
	}
	var last uint64
	for i, b := range w.x.blocks {
		if b.first <= last || b.dead(w.low) {
			w.Fatalf("%s: block %d of seqs %d to %d behind %d, low %d", w.what, i, b.first, b.last, last, w.low)
		}
		last = b.last
	}
}

// G8: what is in memory of a backlog follows the number of records, and is some bytes for each.
func TestIndexIsSmall(t *testing.T) {
	x, seg, l := index{}, &segment{number: 1}, ledger{}
	const n = 200_000
	off := int64(headerBlock)
	for i := range uint64(n) { // one message of 100 B a record
		s := slot{first: i + 1, count: 1, off: off, meta: 120, body: 110, alive: true}
		x.add(seg, &s, 1, l)
		off += 512
	}
	size := 0
	for _, b := range x.blocks {
		size += cap(b.data) + 112
	}
	if each := float64(size) / n; each > 9 {
		t.Errorf("%.1f bytes a record, want at most 9", each)
	}
}
