// Package memory keeps a broker process small. It is for programs, not for libraries: what it sets holds for the whole process.
//
// A broker's memory is mostly frames of messages that pass through, which live for milliseconds. At Go's default (GOGC=100) twice the
// live bytes are used before they are collected; half of that costs a few percent of CPU. Where little is alive, though, half of it is used up many times a
// second, and each collection looks at every queue and every goroutine anew: so more is used in between, up to 64 MiB. The storage engine Pebble has its memtables and
// cache outside the Go heap; the C library would spread those over up to eight arenas a core, each of which keeps what was freed: it gets
// two by importing this package. Without cgo, that engine takes its memory from the Go heap.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcPercent replaces GOGC's default.
	gcPercent = 50
	// leastBytes is what may be allocated between two collections even if that is more than gcPercent of what is alive, and mostPercent bounds what that
	// comes to: a broker with little to do stays small.
	leastBytes  = 64 << 20
	mostPercent = 150
)

// Tune sets what the environment (GOGC) does not; so does the import with MALLOC_ARENA_MAX.
func Tune() {
	if _, ok := os.LookupEnv("GOGC"); ok {
		return
	}
	t := &tuner{sample: liveBytes(), percent: gcPercent}
	debug.SetGCPercent(t.percent)
	t.again()
}

// tuner adapts the percentage to what is alive, after each collection.
type tuner struct {
	sample  []metrics.Sample
	percent int
	told    func(percent int) // after each call, of a test; may be nil
}

// liveBytes asks for what the last collection found alive.
func liveBytes() []metrics.Sample { return []metrics.Sample{{Name: "/gc/heap/live:bytes"}} }

// mark is what the next collection finds dead. It is not so small that it would share its memory with others.
type mark struct{ _ [4]*mark }

// again has the next collection call tune.
func (t *tuner) again() { runtime.SetFinalizer(&mark{}, func(*mark) { t.tune() }) }

func (t *tuner) tune() {
	metrics.Read(t.sample)
	// Setting it stops all goroutines for a moment, so that small changes are left out.
	if p := percentFor(t.sample[0].Value.Uint64()); p < t.percent*7/8 || p > t.percent*9/8 {
		t.percent = p
		debug.SetGCPercent(p)
	}
	t.again()
	if t.told != nil {
		t.told(t.percent)
	}
}

// percentFor returns GOGC for so many live bytes.
func percentFor(live uint64) int {
	if live == 0 {
		return mostPercent
	}
	return int(min(max(gcPercent, leastBytes*100/live), mostPercent))
}
