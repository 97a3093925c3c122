package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
)

// Disk is a file system in memory that a power cut can be tried on, and the store on it.
type Disk interface {
	// Open opens the store of the disk, which is made if there is none, with sizes of its own that are drawn from rng and small, so that
	// files become full often. before is called before each operation of the file system, concurrently: whether it is a sync, and
	// whether it changes something. It may be nil. A store that opens with a loss is an error.
	Open(rng *rand.Rand, before func(sync, changes bool)) (journal.Journal, error)
	// Crash returns what a power cut at this moment leaves: of what was not synced, so many percent. The disk itself goes on as it is.
	// Nobody opened a store on what it returns.
	Crash(percent int, rng *rand.Rand) Disk
}

// soaking tells whether full counts are asked for.
func soaking() bool { return os.Getenv("HOLDFAST_SOAK") == "1" }

// seeds returns the seeds of a random test: HOLDFAST_SEED alone, or n from own on.
func seeds(t *testing.T, own uint64, n int) []uint64 {
	t.Helper()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		one, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HOLDFAST_SEED: %v", err)
		}
		own, n = one, 1
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = own + uint64(i)
	}
	t.Logf("seeds %d to %d", own, own+uint64(n)-1)
	return out
}

// TestPowerCut proves §12, G1, G2, G3, G6 of a broker on the store: a power cut at any operation of the file system, while senders,
// receivers, snapshots, discards, moves and purges are at work. What was not synced is lost, or half of it. It runs 10 seeds, 200 with
// HOLDFAST_SOAK=1, or the one of HOLDFAST_SEED.
func TestPowerCut(t *testing.T, newDisk func() Disk) {
	n := 10
	if soaking() {
		n = 200
	}
	var seen sights
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(t, 1, n) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				powerCuts(t, seed, newDisk(), &usual, &seen)
			})
		}
	})
	if os.Getenv("HOLDFAST_SEED") != "" || t.Failed() {
		return
	}
	t.Logf("%d cuts, %d of them in a recovery; %d queues were recovered from a snapshot, %d began behind discarded metas",
		seen.cuts.Load(), seen.early.Load(), seen.snapshots.Load(), seen.discarded.Load())
	// What a few seeds meet depends on the speed of the machine.
	if seen.cuts.Load() < int64(n) || soaking() && (seen.early.Load() == 0 || seen.snapshots.Load() == 0 || seen.discarded.Load() == 0) {
		t.Error("the seeds did not meet what they are meant to meet")
	}
}

// TestPowerCutRelocating proves §4 of a broker on the store: a power cut while survivors of thinly populated records are stored anew, and the
// records are discarded. It runs 2 seeds, 40 with HOLDFAST_SOAK=1, or the one of HOLDFAST_SEED.
func TestPowerCutRelocating(t *testing.T, newDisk func() Disk) {
	n := 2
	if soaking() {
		n = 40
	}
	var seen sights
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(t, 1, n) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				powerCuts(t, seed, newDisk(), &pinning, &seen)
			})
		}
	})
	if os.Getenv("HOLDFAST_SEED") != "" || t.Failed() {
		return
	}
	t.Logf("%d cuts, %d relocations were found behind them", seen.cuts.Load(), seen.relocated.Load())
	if soaking() && seen.relocated.Load() == 0 {
		t.Error("the seeds did not meet what they are meant to meet")
	}
}

// profile is what a run does.
type profile struct {
	queues []string // in the order in which messages move between them
	body   int      // bytes, at most
	ops    float64  // of the file system until the cut, on average
	sends  float64  // until the cut, at most, on average
	least  float64  // of the two
	pins   int      // in 1,000: messages that stay
	batch  int      // messages that are in flight at least
}

var (
	usual   = profile{queues: []string{failing, keyed, mixed, dead}, body: 400, ops: 600, sends: 3000}
	pinning = profile{queues: []string{pinned}, body: 48 << 10, ops: 1e9, sends: 500, least: 2000, pins: 80, batch: many}
)

// sights are what the seeds of a test met.
type sights struct{ cuts, early, snapshots, discarded, relocated atomic.Int64 }

// powerCuts runs one seed: some lives that end with a cut, and one that ends well.
func powerCuts(t *testing.T, seed uint64, fs Disk, pr *profile, seen *sights) {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := newHistory(t, seed, pr.body)
	cuts := 1 + rng.IntN(3)
	for range cuts {
		w := &world{profile: pr, h: h, rng: rng, fs: fs, seen: seen}
		fs = w.untilCut()
		if t.Failed() {
			break
		}
	}
	w := &world{profile: pr, h: h, rng: rng, fs: fs, seen: seen}
	w.untilEmpty()
	t.Logf("seed %d: %d cuts, %s", seed, cuts, h.counts())
}

// untilEmpty judges what is there, takes everything out, and closes and opens once more.
func (w *world) untilEmpty() {
	w.open(nil)
	w.judge()
	got := map[place]bool{}
	for _, name := range w.queues {
		if w.pins == 0 {
			w.drain(name, got)
		}
	}
	w.close()
	if w.h.t.Failed() {
		return
	}
	for p, f := range w.h.fates {
		if w.pins == 0 && f.stored && !f.deleted && !f.mayBeGone {
			w.h.errorf("G2: %v, stored as %v, was never handed out", p, f.id)
		}
	}
	again := &world{profile: w.profile, h: w.h, rng: w.rng, fs: w.fs, seen: w.seen}
	again.open(nil)
	again.judge()
	again.close()
}

// drain takes everything out of a queue.
func (w *world) drain(name string, got map[place]bool) {
	q := w.b.Queue(name)
	r, err := q.NewReceiver(holdfast.ReceiverOptions{Visibility: time.Minute})
	if err != nil {
		w.h.errorf("receiver: %v", err)
		return
	}
	defer func() {
		if err := r.Close(w.ctx); err != nil {
			w.h.errorf("close receiver: %v", err)
		}
	}()
	for end := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
		ds, err := r.Receive(ctx, 100)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			w.h.errorf("receive from queue %s: %v", name, err)
			return
		}
		for _, d := range ds {
			p, ok := w.h.delivered(w.life, d)
			if !ok {
				continue
			}
			if got[p] {
				w.h.errorf("G3: %v was handed out twice", p)
			}
			got[p] = true
			w.h.tryDelete(p)
		}
		if err := r.Ack(w.ctx, ds...); err != nil {
			w.h.errorf("ack in queue %s: %v", name, err)
			return
		}
		for _, d := range ds {
			if p, ok := w.h.parse(d.Body); ok {
				w.h.deletedOne(w.life, p)
			}
		}
		if len(ds) > 0 {
			continue
		}
		info, err := q.Describe(w.ctx)
		if err != nil && !errors.Is(err, holdfast.ErrNoQueue) {
			w.h.errorf("describe queue %s: %v", name, err)
			return
		}
		if err != nil || info.Stats.Depth == 0 {
			return
		}
		if time.Now().After(end) {
			w.h.errorf("G2: queue %s cannot be drained: %+v", name, info.Stats)
			return
		}
	}
}
