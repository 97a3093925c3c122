package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// accept does what a consumer does with one message of a whole and valid envelope.
func accept(t *Table, k Key, seq, floor uint64, now int64) (*Window, Outcome) {
	w, _ := t.Open(k, floor, now)
	o := w.Outcome(seq)
	if o == Fresh {
		t.Accept(w, seq)
	}
	return w, o
}

func state(w *Window) string {
	list := func(next func(uint64) (uint64, bool)) string {
		var s []string
		for seq, ok := next(0); ok; seq, ok = next(seq + 1) {
			s = append(s, fmt.Sprint(seq))
		}
		return "{" + strings.Join(s, " ") + "}"
	}
	return fmt.Sprintf("contiguous %d above %s in progress %s", w.contiguous, list(w.NextAbove), list(w.NextInProgress))
}

// Design §6: "after 1, 3 → contiguous 1, above {3}; after 2 → contiguous 3, above {}."
func TestWindowExampleOfTheDesign(t *testing.T) {
	tab := NewTable(0, 0)
	k := key(1)
	for _, c := range []struct {
		seq  uint64
		want string
	}{
		{1, "contiguous 1 above {} in progress {}"},
		{3, "contiguous 1 above {3} in progress {}"},
		{2, "contiguous 3 above {} in progress {}"},
	} {
		w, o := accept(tab, k, c.seq, 1, 0)
		if o != Fresh || !tab.Settle(w, c.seq, true, 0) {
			t.Fatalf("seq %d: %v", c.seq, o)
		}
		if got := state(w); got != c.want {
			t.Errorf("after %d: %s, want %s", c.seq, got, c.want)
		}
	}
}

// Design §6: "An envelope at or beyond floor + MaxWindow is malformed; that bounds above." At that bound the
// two sets hold exactly MaxWindow bits.
func TestWindowSpanIsBounded(t *testing.T) {
	if CheckEnvelope(key(1), 7, 7+MaxWindow, 7+MaxWindow) == nil {
		t.Error("floor + MaxWindow was not refused")
	}
	if f := CheckEnvelope(key(1), 7, 7, 7+MaxWindow-1); f != nil {
		t.Error(f)
	}
	tab := NewTable(0, 0)
	w, _ := accept(tab, key(1), 7+MaxWindow-1, 7, 0)
	tab.Settle(w, 7+MaxWindow-1, true, 0)
	if n := len(w.above.words); n != MaxWindow/64 {
		t.Errorf("%d words", n)
	}
}

// Design §6: each wire limit. The error names the field (G11).
func TestCheckEnvelope(t *testing.T) {
	long := strings.Repeat("x", MaxIDBytes)
	ok := Key{long, long}
	if f := CheckEnvelope(ok, MaxSeq, MaxSeq, MaxSeq); f != nil {
		t.Error(f)
	}
	if f := CheckEnvelope(ok, 10, 3, 4); f != nil {
		t.Error("below the floor is settled, not malformed:", f)
	}
	for _, c := range []struct {
		field              string
		key                Key
		floor, first, last uint64
	}{
		{"producer id", Key{"", "i"}, 1, 1, 1},
		{"producer id", Key{long + "x", "i"}, 1, 1, 1},
		{"incarnation", Key{"p", ""}, 1, 1, 1},
		{"incarnation", Key{"p", long + "x"}, 1, 1, 1},
		{"seq", ok, 1, 0, 1},
		{"seq", ok, MaxSeq, MaxSeq, MaxSeq + 1},
		{"seq", ok, 1, math.MaxUint64, math.MaxUint64},
		{"seq", ok, 1, 3, 2},
		{"seq", ok, 1, 1, MaxWindow + 1},
		{"floor", ok, 0, 1, 1},
		{"floor", ok, MaxSeq + 1, 1, 1},
	} {
		f := CheckEnvelope(c.key, c.floor, c.first, c.last)
		if f == nil || f.Field != c.field {
			t.Errorf("floor %d, %d…%d: fault %v, want one of %s", c.floor, c.first, c.last, f, c.field)
		}
	}
}

// naiveTable is the specification of Table by lists and maps, with no index at all.
type naiveTable struct {
	entries []*naiveEntry // in order of use
	max     int
	ttl     int64
	closed  []map[Key]uint64 // the newer generation first
}

type naiveEntry struct {
	id      string
	windows []*naiveWindow
}

type naiveWindow struct {
	key       Key
	below     uint64 // all lower ones are settled
	marks     map[uint64]bool
	progress  map[uint64]bool
	unsettled int
	used      int64
	dropped   bool
	real      *Window
}

func (e *naiveEntry) unsettled() (n int) {
	for _, w := range e.windows {
		n += w.unsettled
	}
	return n
}

func (w *naiveWindow) raise(below uint64) {
	w.below = max(w.below, below)
	for w.marks[w.below] {
		w.below++
	}
}

func (w *naiveWindow) outcome(seq uint64) Outcome {
	switch {
	case seq < w.below || w.marks[seq]:
		return Known
	case w.progress[seq]:
		return InProgress
	}
	return Fresh
}

func (m *naiveTable) window(k Key) (*naiveEntry, *naiveWindow) {
	for _, e := range m.entries {
		if e.id != k.Producer {
			continue
		}
		for _, w := range e.windows {
			if w.key == k {
				return e, w
			}
		}
		return e, nil
	}
	return nil, nil
}

func (m *naiveTable) drop(e *naiveEntry, w *naiveWindow) {
	w.dropped = true
	e.windows = slices.DeleteFunc(e.windows, func(x *naiveWindow) bool { return x == w })
	if len(e.windows) == 0 {
		m.entries = slices.DeleteFunc(m.entries, func(x *naiveEntry) bool { return x == e })
	}
}

func (m *naiveTable) touch(e *naiveEntry) {
	m.entries = append(slices.DeleteFunc(m.entries, func(x *naiveEntry) bool { return x == e }), e)
}

func (m *naiveTable) open(k Key, floor uint64, now int64) (w *naiveWindow, evicted int) {
	e, w := m.window(k)
	if e == nil {
		for len(m.entries) >= m.max {
			i := max(0, slices.IndexFunc(m.entries, func(e *naiveEntry) bool { return e.unsettled() == 0 }))
			victim := m.entries[i]
			for len(victim.windows) > 0 {
				m.drop(victim, victim.windows[0])
			}
			evicted++
		}
		e = &naiveEntry{id: k.Producer}
	}
	if w == nil {
		if len(e.windows) == 1+MaxEarlier {
			earlier := slices.Clone(e.windows[1:])
			slices.Reverse(earlier)
			slices.SortStableFunc(earlier, func(a, b *naiveWindow) int {
				if (a.unsettled > 0) != (b.unsettled > 0) {
					return min(a.unsettled, 1) - min(b.unsettled, 1)
				}
				return int(a.used - b.used)
			})
			m.drop(e, earlier[0])
		}
		w = &naiveWindow{key: k, below: 1, marks: map[uint64]bool{}, progress: map[uint64]bool{}}
		for _, c := range m.closed {
			if last, ok := c[k]; ok {
				w.raise(last + 1)
			}
			delete(c, k)
		}
		e.windows = slices.Insert(e.windows, 0, w)
	}
	m.touch(e)
	w.used = now
	w.raise(floor)
	return w, evicted
}

type pending struct {
	w   *naiveWindow
	seq uint64
}

// A random walk of envelopes, settlements, sweeps and closes beside the naive model: outcomes, evictions,
// what is dropped and what is left are the same.
func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &naiveTable{max: rapid.IntRange(1, 4).Draw(t, "budget"), ttl: rapid.Int64Range(1, 30).Draw(t, "ttl"),
			closed: []map[Key]uint64{{}, {}}}
		tab := NewTable(m.max, m.ttl)
		drops := 0
		tab.OnDrop = func(w *Window) {
			drops++
			if w.unsettled == 0 || !w.Dropped() {
				t.Fatal("OnDrop of a window with nothing in progress")
			}
		}
		var open []pending
		now := int64(0)
		drawKey := func() Key {
			return Key{fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "producer")), fmt.Sprint("i", rapid.IntRange(0, 6).Draw(t, "incarnation"))}
		}
		t.Repeat(map[string]func(*rapid.T){
			"envelope": func(t *rapid.T) {
				k, floor := drawKey(), rapid.Uint64Range(1, 20).Draw(t, "floor")
				seq := rapid.Uint64Range(1, floor+20).Draw(t, "seq")
				w, evicted := tab.Open(k, floor, now)
				mw, mEvicted := m.open(k, floor, now)
				if evicted != mEvicted {
					t.Fatalf("evicted %d, want %d", evicted, mEvicted)
				}
				mw.real = w
				if o := w.Outcome(seq); o != mw.outcome(seq) {
					t.Fatalf("%v seq %d is %v, want %v", k, seq, o, mw.outcome(seq))
				} else if o == Fresh {
					tab.Accept(w, seq)
					mw.progress[seq] = true
					mw.unsettled++
					open = append(open, pending{mw, seq})
				}
			},
			"settle": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing in progress")
				}
				i, done := rapid.IntRange(0, len(open)-1).Draw(t, "which"), rapid.Bool().Draw(t, "done")
				p := open[i]
				open = slices.Delete(open, i, i+1)
				if tab.Settle(p.w.real, p.seq, done, now) == p.w.dropped {
					t.Fatal("Settle disagrees on what was dropped")
				}
				if p.w.dropped {
					return
				}
				delete(p.w.progress, p.seq)
				p.w.unsettled--
				p.w.used = now
				if done && p.seq >= p.w.below {
					p.w.marks[p.seq] = true
					p.w.raise(0)
				}
				e, _ := m.window(p.w.key)
				m.touch(e)
			},
			"sweep": func(t *rapid.T) {
				now += rapid.Int64Range(0, 20).Draw(t, "step")
				m.closed = []map[Key]uint64{{}, m.closed[0]}
				expired := 0
				for _, e := range slices.Clone(m.entries) {
					for _, w := range slices.Clone(e.windows) {
						if w.unsettled == 0 && now-w.used >= m.ttl {
							m.drop(e, w)
						}
					}
					if len(e.windows) == 0 {
						expired++
					}
				}
				if got := tab.Sweep(now); got != expired {
					t.Fatalf("expired %d, want %d", got, expired)
				}
			},
			"close": func(t *rapid.T) {
				k, floor := drawKey(), rapid.Uint64Range(1, 20).Draw(t, "floor")
				e, w := m.window(k)
				if tab.Close(k, floor) != (w != nil) {
					t.Fatal("Close disagrees")
				}
				if w != nil {
					w.raise(floor)
					m.closed[0][k] = w.below - 1
					m.touch(e)
					m.drop(e, w)
				}
			},
			"": func(t *rapid.T) {
				if tab.Len() != len(m.entries) {
					t.Fatalf("%d entries, want %d", tab.Len(), len(m.entries))
				}
				for _, e := range m.entries {
					if *tab.Current(e.id).Key() != e.windows[0].key {
						t.Fatalf("current of %s", e.id)
					}
					for _, w := range e.windows {
						got := tab.Lookup(w.key)
						if got == nil || got.contiguous != w.below-1 || got.unsettled != w.unsettled {
							t.Fatalf("%v: %+v, want below %d", w.key, got, w.below)
						}
						for seq := uint64(1); seq < 60; seq++ {
							if got.Outcome(seq) != w.outcome(seq) {
								t.Fatalf("%v seq %d is %v, want %v", w.key, seq, got.Outcome(seq), w.outcome(seq))
							}
						}
					}
				}
				for i := range 7 {
					k := Key{"p0", fmt.Sprint("i", i)}
					last, ok := m.closed[0][k]
					if !ok {
						last, ok = m.closed[1][k]
					}
					if got, found := tab.Closed(k); got != last || found != ok {
						t.Fatalf("Closed(%v) = %d %v, want %d %v", k, got, found, last, ok)
					}
				}
			},
		})
	})
}

// Design §6, budget, and "A million distinct producer ids cost at most the budget".
func TestTableFlood(t *testing.T) {
	tab := NewTable(0, 0)
	w, _ := accept(tab, key(-1), 1, 1, 0) // in progress all the while: goes last
	total := 200_000
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		total = 1_000_000
	}
	evictions := 0
	for i := range total {
		k := Key{fmt.Sprint("flood-", i), "x"}
		win, n := tab.Open(k, 1, int64(i))
		evictions += n
		tab.Accept(win, 1)
		tab.Settle(win, 1, true, int64(i))
		if i%3 == 0 {
			tab.Close(k, 2)
		}
	}
	if tab.Len() > DefaultMaxProducers || len(tab.closed)+len(tab.older) > MaxClosed {
		t.Fatalf("%d entries, %d closed", tab.Len(), len(tab.closed)+len(tab.older))
	}
	if want := total + 1 - (total+2)/3 - tab.Len(); evictions != want {
		t.Errorf("%d evictions, want %d", evictions, want)
	}
	if w.Dropped() {
		t.Error("the entry in progress did not go last")
	}
}

// Issue: "a window of 65,536 arriving in random order, repeated to a million, stays linear." The time for a
// message over sixteen full windows in random order is compared with the time in order, in one run.
func BenchmarkWindow(b *testing.B) {
	orders := map[string]func() []int{
		"in order": func() []int {
			p := make([]int, MaxWindow)
			for i := range p {
				p[i] = i
			}
			return p
		},
		"random order": func() []int { return rand.New(rand.NewPCG(1, 2)).Perm(MaxWindow) },
	}
	for _, name := range []string{"in order", "random order"} {
		b.Run(name, func(b *testing.B) {
			perm := orders[name]()
			b.ReportAllocs()
			for b.Loop() {
				tab := NewTable(0, 0)
				base := uint64(1)
				for range 16 {
					for _, i := range perm {
						seq := base + uint64(i)
						w, _ := tab.Open(key1, base, 0)
						if w.Outcome(seq) != Fresh {
							b.Fatal("not fresh")
						}
						tab.Accept(w, seq)
						tab.Settle(w, seq, true, 0)
					}
					base += MaxWindow
				}
				if w := tab.Lookup(key1); w.Contiguous() != base-1 || w.Above() != 0 {
					b.Fatal(state(w))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(16*MaxWindow), "ns/message")
		})
	}
}

var key1 = key(1)

// The same as a test that does not depend on the machine: four windows in random order, each settled as it
// comes, need a handful of allocations, not one per message.
func TestWindowRandomOrderDoesNotThrash(t *testing.T) {
	perm := rand.New(rand.NewPCG(1, 2)).Perm(MaxWindow)
	allocs := testing.AllocsPerRun(1, func() {
		tab := NewTable(0, 0)
		for base := uint64(1); base < 4*MaxWindow; base += MaxWindow {
			for _, i := range perm {
				w, _ := accept(tab, key1, base+uint64(i), base, 0)
				tab.Settle(w, base+uint64(i), true, 0)
			}
		}
	})
	if allocs > 100 {
		t.Errorf("%v allocations for four windows", allocs)
	}
}
