package embedded

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// The queues of a run, in the order in which messages move between them.
const (
	failing = "failing" // its messages fail often, and go to dead
	keyed   = "keyed"
	mixed   = "mixed"  // priorities, delays, short TTLs, purges
	pinned  = "pinned" // a few of its messages stay
	dead    = "dead"
)

// ttl is the time to live, or the delay, of some messages in mixed.
const ttl = 200 * time.Millisecond

// world is one life of a store and the broker on it.
type world struct {
	*profile
	h    *history
	rng  *rand.Rand
	fs   Disk
	seen *sights

	left   atomic.Int64 // how many more sends there are to be before the cut, at most
	enough func()
	// What senders of batches may be ahead of receivers, in batches.
	room    chan struct{}
	settled atomic.Int64
	life    int
	j       journal.Journal
	b       *broker.Broker
	ctx     context.Context //holdfast:allow context: the life of all senders and receivers of a world
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// open opens the journal and the broker, with thresholds that make everything happen often. before is called before each operation of the
// file system; it may be nil.
func (w *world) open(before func(sync, changes bool)) {
	t := w.h.t
	t.Helper()
	w.life, w.room = w.h.life, make(chan struct{}, 8)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	var err error
	if w.j, err = w.fs.Open(w.rng, before); err != nil {
		w.h.errorf("G1: open journal: %v", err)
		t.FailNow()
	}
	w.verify()
	w.b, err = broker.Open(w.ctx, w.j, broker.Options{
		Logger: log, CacheBytes: 1 << 10 << w.rng.IntN(12),
		Persistent: persistent.Options{
			MaxBatchBytes: 1 << 10 << w.rng.IntN(8), MaxPendingBytes: 1 << 20,
			SnapshotBytes: 200 + w.rng.Int64N(4000), SnapshotEvents: 10 + w.rng.Int64N(200),
		},
	})
	if err != nil {
		w.h.errorf("open broker: %v", err)
		t.FailNow()
	}
}

// close ends everything.
func (w *world) close() {
	w.cancel()
	w.work.Wait()
	if err := errors.Join(w.b.Close(context.Background()), w.j.Close()); err != nil {
		w.h.errorf("close: %v", err)
	}
}

// untilCut runs a life up to a cut, and returns what the cut has left.
func (w *world) untilCut() Disk {
	// The cut comes with an operation of the file system, or with the next one after so many sends.
	target := atomic.Int64{}
	target.Store(int64(1 + w.rng.IntN(20)))
	if w.least > 0 || w.rng.IntN(5) > 0 {
		target.Store(int64(20 + w.rng.ExpFloat64()*w.ops))
	}
	w.left.Store(int64(w.least + w.rng.ExpFloat64()*w.sends))
	w.enough = func() { target.Store(0) }
	percent, rng := w.rng.IntN(5)*25, rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	var left Disk
	off := make(chan struct{})
	ops := atomic.Int64{}
	cut := func() {
		w.h.cut(func() { left = w.fs.Crash(percent, rng) })
		close(off)
	}
	var once sync.Once
	early := atomic.Bool{}
	opening := atomic.Bool{}
	opening.Store(true)
	// What is acknowledged too early is acknowledged before a sync, mostly, and memory is too fast to see that.
	slow := time.Duration(w.rng.IntN(4)) * time.Millisecond
	w.open(func(sync, changes bool) {
		if sync && slow > 0 {
			<-time.After(slow)
		}
		if changes && ops.Add(1) >= target.Load() {
			once.Do(func() {
				early.Store(opening.Load())
				cut()
			})
		}
	})
	w.judge()
	opening.Store(false)
	w.load()
	select {
	case <-off:
	case <-time.After(20 * time.Second):
		once.Do(cut) // a slow machine
		<-off
	}
	w.close()
	w.seen.cuts.Add(1)
	if early.Load() {
		w.seen.early.Add(1)
	}
	return left
}

// peek lists a queue.
func (w *world) peek(name string) (all []found) {
	for from := uint64(0); ; {
		page, err := w.b.Queue(name).Peek(w.ctx, holdfast.PeekOptions{From: from, Limit: 1000, Bodies: true})
		if errors.Is(err, holdfast.ErrNoQueue) {
			return nil
		}
		if err != nil {
			w.h.errorf("peek queue %s: %v", name, err)
			w.h.t.FailNow()
		}
		for _, m := range page {
			all = append(all, found{m, name})
			from = m.Seq + 1
		}
		if len(page) < 100 { // those that went meanwhile are left out
			return sorted(all)
		}
	}
}

// verify verifies what the cut has left.
func (w *world) verify() {
	for _, name := range w.queues {
		v, err := broker.Verify(w.ctx, w.j, broker.StreamName(name), nil)
		if err = errors.Join(append(v.Faults, err)...); err != nil {
			w.h.errorf("verify queue %s: %v", name, err)
		}
		if v.Snapshot > 0 {
			w.seen.snapshots.Add(1)
		}
		if v.Info.Low > 1 {
			w.seen.discarded.Add(1)
		}
	}
}

// judge compares what the queues hold with what is known.
func (w *world) judge() {
	var all []found
	for _, name := range w.queues {
		all = append(all, w.peek(name)...)
		info, err := w.b.Queue(name).Describe(w.ctx)
		if errors.Is(err, holdfast.ErrNoQueue) {
			continue
		}
		if err != nil {
			w.h.errorf("describe queue %s: %v", name, err)
			w.h.t.FailNow()
		}
		w.h.judgeConfig(name, configNumber(info.Config))
		s := info.Stats
		if s.Sent != s.Depth+s.Acked+s.Expired+s.Purged+s.Dropped+s.DeadLettered+s.Redriven {
			w.h.errorf("G2: the ways out of queue %s do not add up: %+v", name, s)
		}
	}
	w.h.judge(all, w.peek(failing))
	if w.pins > 0 {
		w.countRelocations()
	}
}

// countRelocations counts records with survivors of others.
func (w *world) countRelocations() {
	r, err := w.j.Open(w.ctx, broker.StreamName(pinned))
	if err != nil {
		w.h.errorf("open stream: %v", err)
		return
	}
	for rec, err := range r.ReadMeta(w.ctx, 1, math.MaxUint64) {
		if err != nil {
			w.h.errorf("read stream: %v", err)
			return
		}
		if rec.Kind != journal.KindEvents {
			continue
		}
		for e, err := range broker.ReadEvents(rec) {
			if err != nil {
				w.h.errorf("read events: %v", err)
				return
			}
			if e.Event.Kind == queue.KindRelocated {
				w.seen.relocated.Add(1)
			}
		}
	}
}
