package timeset

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"pgregory.net/rapid"
)

// Members come up never early, and late by no more than 1/64 of the distance or 8 ms (design §7, Index).
func TestDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index
		due := map[uint64]int64{}
		now, seq := int64(1e12), uint64(1)
		var clone *Index
		var cloned uint64
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				at := now + rapid.SampledFrom([]int64{-5, 0, 3, 100, 999, 64_000, 3_600_000, 30 * 86_400_000}).Draw(t, "in")
				n := rapid.SampledFrom([]uint64{1, 1, 3, 20, 5000}).Draw(t, "n")
				x.Add(now, at, seq, seq+n)
				for s := seq; s < seq+n; s++ {
					due[s] = at
				}
				if n == 1 {
					if end, ok := x.Find(seq); !ok || end < at {
						t.Fatalf("Find(%d) = %d, %v", seq, end, ok)
					}
				}
				seq += n
			case 3:
				clone = x.Clone()
				cloned = clone.Len()
			case 4:
				var keep seqset.Set
				for s := range due {
					if s%3 > 0 {
						keep.Add(s)
					} else {
						delete(due, s)
					}
				}
				x.Retain(&keep)
			case 5:
				first, ok := x.First()
				if ok != (len(due) > 0) {
					t.Fatalf("First: %v with %d members", ok, len(due))
				}
				now = max(now, first) + rapid.Int64Range(0, 100).Draw(t, "later")
				pop(t, &x, due, now)
			}
			if x.Len() != uint64(len(due)) {
				t.Fatalf("Len %d, want %d", x.Len(), len(due))
			}
			if clone != nil && clone.Len() != cloned {
				t.Fatal("the clone changed")
			}
		}
		if clone != nil {
			n := uint64(0)
			clone.Buckets(func(_ int64, members *seqset.Set) bool {
				n += members.Len()
				return true
			})
			if n != cloned {
				t.Fatalf("the clone has %d members, want %d", n, cloned)
			}
		}
	})
}

func pop(t *rapid.T, x *Index, due map[uint64]int64, now int64) {
	for {
		end, _ := x.First()
		got, ok := x.Pop(now)
		if !ok {
			break
		}
		for lo, hi := range got.All() {
			for s := lo; s < hi; s++ {
				at, ok := due[s]
				if !ok {
					t.Fatalf("%d comes up, but is no member", s)
				}
				delete(due, s)
				if end < at || end > now {
					t.Fatalf("%d, due at %d, comes up at %d, at %d", s, at, end, now)
				}
			}
		}
	}
	for s, at := range due {
		if late := now - at; late > 65_536 || at < now-8 && late > 0 && late > 30*86_400_000/64 {
			t.Fatalf("%d is due since %d ms", s, late)
		}
	}
}

func TestWidth(t *testing.T) {
	var x Index
	fine := Index{MaxWidth: 256}
	for range 10_000 {
		now := rand.Int64N(1 << 40)
		left := rand.Int64N(1 << rand.Int64N(36))
		end := x.end(now+left, now)
		late := end - now - left
		if late < 0 || late >= max(8, min(left/64, 65_536)) && late >= 8 {
			t.Fatalf("due in %d ms: %d ms late", left, late)
		}
		// Restoring a snapshot puts a bucket where it was, whatever time it is.
		var restored Index
		restored.Load(end, 1, 2)
		restored.Buckets(func(again int64, _ *seqset.Set) bool {
			if again != end {
				t.Fatalf("bucket %d moves to %d", end, again)
			}
			return true
		})
		if late := fine.end(now+left, now) - now - left; late < 0 || late >= 256 {
			t.Fatalf("due in %d ms: %d ms late, of 256", left, late)
		}
	}
}

// Members that come one by one, so many that a bucket changes its form, all come up, and a clone keeps those that it had (design §7, Index).
func TestManySingleMembers(t *testing.T) {
	const n, cloneAt = 40_000, 30_001
	var x Index
	var clone *Index
	for i := range uint64(n) {
		if i == cloneAt {
			clone = x.Clone()
		}
		x.Add(0, 60_000, 3*i, 3*i+1+i%2) // now and then two together
	}
	for _, c := range []struct {
		x    *Index
		runs uint64
	}{{&x, n}, {clone, cloneAt}} {
		if at, ok := c.x.Find(3 * (c.runs - 1)); !ok || at < 60_000 {
			t.Errorf("the last of %d is due at %d, %v", c.runs, at, ok)
		}
		due, ok := c.x.Pop(1 << 20)
		if !ok || c.x.Len() != 0 {
			t.Fatalf("of %d runs, %d members are left", c.runs, c.x.Len())
		}
		i := uint64(0)
		for lo, hi := range due.All() {
			if lo != 3*i || hi != 3*i+1+i%2 {
				t.Fatalf("run %d is %d…%d", i, lo, hi)
			}
			i++
		}
		if i != c.runs {
			t.Errorf("%d runs came up, want %d", i, c.runs)
		}
	}
}
