package memory

import (
	"runtime"
	"testing"
)

// What may be used between two collections is half of what is alive, or up to 64 MiB if that is not more than one and a half of it.
func TestPercentFollowsWhatIsAlive(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 150}, {1 << 20, 150}, {40 << 20, 150}, {64 << 20, 100}, {128 << 20, 50}, {1 << 30, 50}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d %%", c.live>>20, got, c.want)
		}
	}
}

// The percentage is adapted after each collection, not only after the first.
func TestTuneFollows(t *testing.T) {
	t.Setenv("GOGC", "") // it is put back
	tuned := make(chan int, 1)
	hold := make([]byte, 128<<20)
	tn := &tuner{sample: liveBytes(), percent: 1, told: func(p int) {
		select { // never waiting: there is one goroutine for all finalizers
		case tuned <- p:
		default:
		}
	}}
	tn.again()
	runtime.GC()
	if p := <-tuned; p > 60 {
		t.Errorf("%d %% with 128 MiB alive", p)
	}
	runtime.KeepAlive(hold)
	for range 20 { // what was freed is not counted from the second on
		runtime.GC()
		if p := <-tuned; p > 100 {
			return
		}
	}
	t.Error("the percentage stayed as it was")
}
