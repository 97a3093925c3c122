package memory

import (
	"runtime"
	"testing"
)

// What may be used between two collections is half of what is alive, and at least 64 MiB, but little where nothing is alive.
func TestPercentFollowsWhatIsAlive(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 1600}, {1 << 20, 1600}, {4 << 20, 1600}, {8 << 20, 800}, {64 << 20, 100}, {128 << 20, 50}, {1 << 30, 50}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d %%", c.live>>20, got, c.want)
		}
	}
}

// The percentage is adapted after each collection, not only after the first.
func TestTuneFollows(t *testing.T) {
	t.Setenv("GOGC", "") // it is put back
	tuned := make(chan int, 1)
	hold := make([]byte, 64<<20)
	tn := &tuner{sample: liveBytes(), percent: 1, told: func(p int) { tuned <- p }}
	tn.again()
	runtime.GC()
	if p := <-tuned; p > 100 {
		t.Errorf("%d %% with 64 MiB alive", p)
	}
	runtime.KeepAlive(hold)
	hold = nil
	for range 2 { // what was freed is not counted from the second on
		runtime.GC()
		if p := <-tuned; p > 100 {
			return
		}
	}
	t.Error("the percentage stayed as it was")
}
