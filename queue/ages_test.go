package queue

import (
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// The time of storing is known late by no more than 1/64 of the age or 8 ms, never early, in a bounded number of samples (design §7,
// retention and oldest age).
func TestAges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a ages
		var at []int64 // by seq-1
		now := int64(1e12)
		for range rapid.IntRange(1, 30).Draw(t, "bursts") {
			step := rapid.SampledFrom([]int64{0, 1, 9, 1000, 86_400_000}).Draw(t, "step")
			n := rapid.IntRange(1, 400).Draw(t, "n")
			for range n {
				now += step
				at = append(at, now)
				a.add(uint64(len(at)), now)
			}
		}
		for x := 0; x < len(at); x += 1 + len(at)/100 {
			got := a.of(uint64(x + 1))
			if late := got - at[x]; late < 0 || late > max(ageWidth, (now-at[x])/64) {
				t.Fatalf("message of %d ms ago: %d ms late", now-at[x], late)
			}
		}
		for _, back := range []int64{-1, 0, 5, 1000, 3_600_000, 1 << 40} {
			// All up to it are that old, and not many that are older are left out.
			to := a.before(now - back)
			if to > 0 && at[to-1] > now-back {
				t.Fatalf("before %d ms ago: up to %d, which is of %d ms ago", back, to, now-at[to-1])
			}
			sure := sort.Search(len(at), func(i int) bool { return at[i] > now-back-max(ageWidth, (now-at[i])/64) })
			if int(to) < sure {
				t.Fatalf("before %d ms ago: up to %d, want %d at least", back, to, sure)
			}
		}
		a.trim(uint64(len(at)))
		if got := a.of(uint64(len(at))); got < at[len(at)-1] {
			t.Fatalf("the newest, after trimming: %d", got)
		}
	})
}

func TestAgesStaySmall(t *testing.T) {
	var a ages
	now := int64(1e12)
	for seq := range uint64(2_000_000) {
		now += 10
		a.add(seq+1, now)
		if len(a.s) > 2*maxSamples {
			t.Fatalf("%d samples after %d messages", len(a.s), seq+1)
		}
	}
}
