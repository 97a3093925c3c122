package column

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// Sizes and keys are those of a map; clones stay as they were, dropped pages take nothing (G8).
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, clone Sizes
		var k, kclone Keys
		sizes, keys := map[uint64]uint32{}, map[uint64]uint64{}
		cloned := map[uint64]uint32{}
		next := uint64(1)
		var dropped uint64
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := rapid.SampledFrom([]uint64{1, 3, 500, 5000}).Draw(t, "n")
			each := rapid.Bool().Draw(t, "each")
			var run []byte
			if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
				for x := next; x < next+n; x++ {
					keys[x] = x * 7
					run = binary.LittleEndian.AppendUint64(run, x*7)
				}
				k.AppendRun(next, run)
			}
			for i := range n {
				x, size := next+i, uint32(100)
				if each {
					size = uint32(rapid.IntRange(0, 3).Draw(t, "size"))
					s.Append(x, x+1, size)
				}
				sizes[x] = size
				if n < 10 && run == nil {
					keys[x] = x * 7
					k.Append(x, x*7)
				}
			}
			if !each {
				s.Append(next, next+n, 100)
			}
			lo := rapid.Uint64Range(next, next+n-1).Draw(t, "lo")
			hi := rapid.Uint64Range(lo, next+n).Draw(t, "hi")
			checkRange(t, &s, sizes, lo, hi)
			for x := next; x < next+n; x += 1 + n/50 {
				if got := k.At(x); got != keys[x] {
					t.Fatalf("key of %d is %d, want %d", x, got, keys[x])
				}
			}
			next += n + rapid.SampledFrom([]uint64{0, 2, 100, 9000}).Draw(t, "gap")
			switch rapid.IntRange(0, 4).Draw(t, "then") {
			case 0:
				clone, kclone = *s.Clone(), *k.Clone()
				cloned = map[uint64]uint32{lo: sizes[lo]}
			case 1:
				dropped = rapid.Uint64Range(dropped, next).Draw(t, "drop")
				s.Drop(0, dropped)
				k.Drop(0, dropped)
				if left := next/pageSize - dropped/pageSize + 2; s.Pages() > int(left) || k.Pages() > int(left) {
					t.Fatalf("%d pages and %d pages of keys are left for %d seqs", s.Pages(), k.Pages(), next-dropped)
				}
			}
		}
		for x, size := range cloned {
			if got := clone.At(x); got != size {
				t.Fatalf("clone: size of %d is %d, want %d", x, got, size)
			}
			if got := kclone.At(x); got != keys[x] {
				t.Fatalf("clone: key of %d is %d, want %d", x, got, keys[x])
			}
		}
	})
}

func checkRange(t *rapid.T, s *Sizes, sizes map[uint64]uint32, lo, hi uint64) {
	sum := uint64(0)
	budget := rapid.Uint64Range(0, 100*(hi-lo)+1).Draw(t, "budget")
	fit, fitSum, full := uint64(0), uint64(0), false
	for x := lo; x < hi; x++ {
		size := uint64(sizes[x])
		sum += size
		if full = full || fitSum+size > budget; !full {
			fit++
			fitSum += size
		}
	}
	if got := s.Sum(lo, hi); got != sum {
		t.Fatalf("Sum(%d, %d) = %d, want %d", lo, hi, got, sum)
	}
	if f, b := s.Fit(lo, hi, budget); f != fit || b != fitSum {
		t.Fatalf("Fit(%d, %d, %d) = %d, %d, want %d, %d", lo, hi, budget, f, b, fit, fitSum)
	}
	if lo < hi && s.At(lo) != sizes[lo] {
		t.Fatalf("At(%d) = %d, want %d", lo, s.At(lo), sizes[lo])
	}
}
