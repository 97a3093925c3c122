package records

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The set is what a map is; clones stay as they were.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		model := map[uint64]uint32{}
		var clone *Set
		var cloned map[uint64]uint32
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x := rapid.Uint64Range(0, 40).Draw(t, "x") + rapid.SampledFrom([]uint64{0, 1<<16 - 20, 5 << 16}).Draw(t, "near")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				b := rapid.Uint32Range(0, 1000).Draw(t, "bytes")
				s.Add(x, b)
				model[x] = b
			case 2:
				_, had := model[x]
				if s.Remove(x) != had {
					t.Fatalf("Remove(%d) is %v", x, !had)
				}
				delete(model, x)
			case 3:
				clone, cloned = s.Clone(), maps.Clone(model)
			}
			compare(t, &s, model, x)
			if clone != nil {
				compare(t, clone, cloned, x)
			}
		}
	})
}

func compare(t *rapid.T, s *Set, model map[uint64]uint32, x uint64) {
	starts := slices.Sorted(maps.Keys(model))
	i, ok := slices.BinarySearch(starts, x)
	next, nok := s.Next(x)
	if nok != (i < len(starts)) || nok && (next.Start != starts[i] || next.Bytes != model[next.Start]) {
		t.Fatalf("Next(%d) = %v, %v", x, next, nok)
	}
	if !ok {
		i--
	}
	found, fok := s.Find(x)
	if fok != (i >= 0) || fok && (found.Start != starts[i] || found.Bytes != model[found.Start]) {
		t.Fatalf("Find(%d) = %v, %v", x, found, fok)
	}
	sum := uint64(0)
	for _, b := range model {
		sum += uint64(b)
	}
	if s.Len() != len(model) || s.Bytes() != sum {
		t.Fatalf("%d records of %d bytes, want %d of %d", s.Len(), s.Bytes(), len(model), sum)
	}
	var all []uint64
	s.Each(10, 1<<16+10, func(r Record) { all = append(all, r.Start) })
	starts = slices.DeleteFunc(starts, func(x uint64) bool { return x < 10 || x >= 1<<16+10 })
	if !slices.Equal(all, starts) {
		t.Fatalf("Each: %v, want %v", all, starts)
	}
}
