package seqset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the naive set.
type model map[uint64]bool

func (m model) run(from, limit uint64) (lo, hi uint64, ok bool) {
	keys := slices.Sorted(maps.Keys(m))
	i, _ := slices.BinarySearch(keys, from)
	if i == len(keys) || keys[i] >= limit {
		return 0, 0, false
	}
	lo, hi = keys[i], keys[i]+1
	for i++; i < len(keys) && keys[i] == hi && hi < limit; i++ {
		hi++
	}
	return lo, hi, true
}

func check(s *Set, m model) error {
	if s.Len() != uint64(len(m)) {
		return fmt.Errorf("Len %d, want %d", s.Len(), len(m))
	}
	n := 0
	last := uint64(0)
	for lo, hi := range s.All() {
		if n > 0 && lo <= last {
			return fmt.Errorf("run %d…%d touches or overlaps the one before, which ends at %d", lo, hi, last)
		}
		for x := lo; x < hi; x++ {
			if !m[x] {
				return fmt.Errorf("%d is a member", x)
			}
			n++
		}
		last = hi
	}
	if n != len(m) {
		return fmt.Errorf("All yields %d members, want %d", n, len(m))
	}
	for i := range s.pages {
		p := &s.pages[i]
		if p.n <= 0 || p.runs != nil && p.bits != nil || len(p.runs) == 1 || i > 0 && p.key <= s.pages[i-1].key {
			return fmt.Errorf("page %d is not well-formed: %+v", i, p)
		}
	}
	return nil
}

// Every operation gives what a map gives, in all three forms of a page, and clones stay as they were (design §7, Index).
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		m := model{}
		var clone Set
		var cloned model
		// Around a page boundary, so that runs cross it.
		base := rapid.SampledFrom([]uint64{0, 5 << 16, 1<<40 - 1<<16}).Draw(t, "base")
		if rapid.Bool().Draw(t, "holes") {
			for x := base; x < base+2200; x += 2 {
				s.Add(x)
				m[x] = true
			}
		}
		point := rapid.Custom(func(t *rapid.T) uint64 {
			return base + rapid.Uint64Range(0, 2500).Draw(t, "x") + rapid.SampledFrom([]uint64{0, 1<<16 - 1500}).Draw(t, "near")
		})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			lo := point.Draw(t, "lo")
			hi := lo + rapid.SampledFrom([]uint64{0, 1, 1, 2, 64, 300, 2000}).Draw(t, "len")
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				want := uint64(0)
				for x := lo; x < hi; x++ {
					if !m[x] {
						m[x] = true
						want++
					}
				}
				if got := s.AddRange(lo, hi); got != want {
					t.Fatalf("AddRange(%d, %d) = %d, want %d", lo, hi, got, want)
				}
			case 2, 3:
				want := uint64(0)
				for x := lo; x < hi; x++ {
					if m[x] {
						delete(m, x)
						want++
					}
				}
				if got := s.RemoveRange(lo, hi); got != want {
					t.Fatalf("RemoveRange(%d, %d) = %d, want %d", lo, hi, got, want)
				}
			case 4:
				clone, cloned = s.Clone(), maps.Clone(m)
			case 5:
				query(t, &s, m, lo, hi)
			}
			if err := check(&s, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := check(&clone, cloned); err != nil {
			t.Fatalf("clone: %v", err)
		}
	})
}

func query(t *rapid.T, s *Set, m model, lo, hi uint64) {
	want := uint64(0)
	for x := lo; x < hi; x++ {
		if m[x] {
			want++
		}
	}
	if got := s.Count(lo, hi); got != want {
		t.Fatalf("Count(%d, %d) = %d, want %d", lo, hi, got, want)
	}
	if got := s.Any(lo, hi); got != (want > 0) {
		t.Fatalf("Any(%d, %d) = %v, want %d members", lo, hi, got, want)
	}
	if got := s.Contains(lo); got != m[lo] {
		t.Fatalf("Contains(%d) = %v", lo, got)
	}
	glo, ghi, gok := s.NextRun(lo, hi)
	wlo, whi, wok := m.run(lo, hi)
	if glo != wlo || ghi != whi || gok != wok {
		t.Fatalf("NextRun(%d, %d) = %d, %d, %v, want %d, %d, %v", lo, hi, glo, ghi, gok, wlo, whi, wok)
	}
	least, ok := s.Min()
	if wlo, _, wok := m.run(0, ^uint64(0)); least != wlo || ok != wok {
		t.Fatalf("Min() = %d, %v, want %d, %v", least, ok, wlo, wok)
	}
	most, ok := s.Max()
	if keys := slices.Sorted(maps.Keys(m)); ok != (len(keys) > 0) || ok && most != keys[len(keys)-1] {
		t.Fatalf("Max() = %d, %v", most, ok)
	}
}

func TestNextCommonRun(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var a, b Set
		ma, mb := model{}, model{}
		for range 30 {
			lo := r.Uint64N(400)
			hi := lo + r.Uint64N(20)
			s, m := &a, ma
			if r.IntN(2) == 0 {
				s, m = &b, mb
			}
			s.AddRange(lo, hi)
			for x := lo; x < hi; x++ {
				m[x] = true
			}
		}
		both := model{}
		for x := range ma {
			if mb[x] {
				both[x] = true
			}
		}
		from := uint64(0)
		for {
			glo, ghi, gok := NextCommonRun(&a, &b, from, 300)
			wlo, whi, wok := both.run(from, 300)
			if glo != wlo || ghi != whi || gok != wok {
				t.Fatalf("NextCommonRun(%d) = %d, %d, %v, want %d, %d, %v", from, glo, ghi, gok, wlo, whi, wok)
			}
			if !gok {
				break
			}
			from = ghi
		}
	}
}

// A page that is full is a single run again, whatever it was.
func TestFullPage(t *testing.T) {
	var s Set
	for x := uint64(0); x < 3*pageSize; x += 3 {
		s.Add(x)
	}
	if s.pages[1].bits == nil {
		t.Fatal("a page with every third seq is no bitmap")
	}
	other := s.Frozen()
	if other.AddRange(0, 10); s.Contains(1) || s.Len() != pageSize {
		t.Error("a change of what was made of a frozen set changes that")
	}
	if n := s.AddRange(100, 3*pageSize); n != 3*pageSize-100-(pageSize-34) {
		t.Errorf("added %d", n)
	}
	if p := &s.pages[1]; !p.single() || p.n != pageSize {
		t.Errorf("page of %d members: %+v", p.n, p)
	}
	if !s.Remove(2*pageSize-1) || s.Remove(2*pageSize-1) || s.Contains(2*pageSize-1) {
		t.Error("removed not at all, or twice")
	}
	if x, ok := s.Next(2*pageSize - 1); !ok || x != 2*pageSize {
		t.Errorf("next %d", x)
	}
	if s.Clear(); s.Len() != 0 || s.Any(0, 1<<63) {
		t.Error("not cleared")
	}
}

func TestHighest(t *testing.T) {
	var s Set
	s.AddRange(1<<64-5, 1<<64-1)
	if s.Len() != 4 || !s.Contains(1<<64-2) {
		t.Fatalf("%d members", s.Len())
	}
	if n := s.RemoveRange(0, 1<<64-1); n != 4 || s.Len() != 0 {
		t.Fatalf("removed %d", n)
	}
}

// What a queue does with a batch of 500: added, found, consumed, with two seqs of other events between batches.
func BenchmarkBatch500(b *testing.B) {
	for _, backlog := range []int{0, 200, 20_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			b.ReportAllocs()
			var live, ready Set
			head, tail := uint64(1), uint64(1)
			add := func() {
				live.AddRange(tail, tail+500)
				ready.AddRange(tail, tail+500)
				tail += 502
			}
			for range backlog {
				add()
			}
			for b.Loop() {
				add()
				lo, hi, _ := ready.NextRun(0, 1<<63)
				ready.RemoveRange(lo, hi)
				live.RemoveRange(head, head+500)
				head += 502
			}
		})
	}
}

func BenchmarkRandomRemove(b *testing.B) {
	perm := rand.Perm(100_000)
	b.ReportAllocs()
	for b.Loop() {
		var s Set
		s.AddRange(0, 100_000)
		for _, x := range perm {
			s.Remove(uint64(x))
		}
	}
}
