package segment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
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

// §12, G1, G2, G3, G6: a power cut at any operation of the file system, while senders, receivers, snapshots, discards, moves and purges
// are at work. What was not synced is lost, or half of it.
func TestQueuePowerCut(t *testing.T) {
	n := 10
	if soaking() {
		n = 200
	}
	var seen sights
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(t, 1, n) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				powerCuts(t, seed, &usual, &seen)
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

// §4: a power cut while survivors of thinly populated records are stored anew, and the records are discarded.
func TestQueuePowerCutRelocating(t *testing.T) {
	n := 2
	if soaking() {
		n = 40
	}
	var seen sights
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(t, 1, n) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				powerCuts(t, seed, &pinning, &seen)
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
func powerCuts(t *testing.T, seed uint64, pr *profile, seen *sights) {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := newHistory(t, seed, pr.body)
	fs := vfs.NewMem()
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

// world is one life of a store and the broker on it.
type world struct {
	*profile
	h    *history
	rng  *rand.Rand
	fs   *vfs.Mem
	seen *sights

	left   atomic.Int64 // how many more sends there are to be before the cut, at most
	enough func()
	// What senders of batches may be ahead of receivers, in batches.
	room    chan struct{}
	settled atomic.Int64
	life    int
	j       *segment.Journal
	b       *broker.Broker
	ctx     context.Context //holdfast:allow context: the life of all senders and receivers of a world
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// open opens the journal and the broker, with thresholds that make everything happen often.
func (w *world) open(fs vfs.FS) {
	t := w.h.t
	t.Helper()
	w.life, w.room = w.h.life, make(chan struct{}, 8)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	log := slog.New(slog.DiscardHandler)
	var err error
	w.j, err = segment.Open("store", segment.Options{
		FS: fs, SegmentBytes: 64<<10 + w.rng.IntN(512<<10), MaxPartBytes: 2048 + w.rng.IntN(16<<10), MaxRecordBytes: 4 << 20, Logger: log})
	if err != nil {
		w.h.errorf("open journal: %v", err)
		t.FailNow()
	}
	if loss := w.j.Loss(); loss != nil {
		w.h.errorf("G1: the journal reports a loss: %v", loss)
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
func (w *world) untilCut() *vfs.Mem {
	// The cut comes with an operation of the file system, or with the next one after so many sends.
	target := atomic.Int64{}
	target.Store(int64(1 + w.rng.IntN(20)))
	if w.least > 0 || w.rng.IntN(5) > 0 {
		target.Store(int64(20 + w.rng.ExpFloat64()*w.ops))
	}
	w.left.Store(int64(w.least + w.rng.ExpFloat64()*w.sends))
	w.enough = func() { target.Store(0) }
	percent, rng := w.rng.IntN(5)*25, rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	var left *vfs.Mem
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
	w.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == "sync" && slow > 0 {
			<-time.After(slow)
		}
		if op.Changes() && ops.Add(1) >= target.Load() {
			once.Do(func() {
				early.Store(opening.Load())
				cut()
			})
		}
		return nil
	})
	w.open(w.fs)
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

// config makes the n-th configuration of a queue: the number is in MaxBytes, which is never reached.
func config(name string, n uint64) queue.Config {
	c := queue.Config{MaxBytes: 1<<40 + int64(n), VisibilityTimeout: time.Second, RetryFirst: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond}
	switch name {
	case failing:
		c.MaxDeliveries, c.DeadLetter = 2, dead
	case keyed:
		c.MaxMessages = 200
	}
	return c
}

func configNumber(c queue.Config) uint64 { return uint64(max(0, c.MaxBytes-1<<40)) }

func (w *world) configure(name string) {
	n := w.h.tryConfig(name)
	err := w.b.Queue(name).Configure(w.ctx, config(name, n))
	if errors.Is(err, holdfast.ErrNoQueue) {
		err = w.b.Queue(name).Create(w.ctx, config(name, n))
	}
	if err == nil {
		w.h.configured(w.life, name, n)
	} else if w.ctx.Err() == nil {
		w.h.errorf("configure queue %s: %v", name, err)
	}
}

// load sets senders and receivers to work, until the context ends.
func (w *world) load() {
	for _, name := range w.queues {
		w.configure(name)
	}
	for i, name := range w.queues {
		if name == dead {
			continue
		}
		for s := range 2 {
			seed := w.rng.Uint64()
			w.work.Go(func() { w.sender(name, string(rune('a'+s)), rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		for range 2 {
			seed := w.rng.Uint64()
			w.work.Go(func() { w.receiver(name, rand.New(rand.NewPCG(seed, 0))) })
		}
	}
	seed := w.rng.Uint64()
	w.work.Go(func() { w.admin(rand.New(rand.NewPCG(seed, 0))) })
	if slices.Contains(w.queues, keyed) {
		w.work.Go(func() { w.consumer(keyed) })
	}
}

// sender sends until the end, from where an earlier life of it has come to.
func (w *world) sender(name, who string, rng *rand.Rand) {
	s, err := w.b.Queue(name).NewSender(holdfast.SenderOptions{ProducerID: who, Incarnation: "one", MaxInFlight: max(1+rng.IntN(64), w.batch)})
	if err != nil {
		w.h.errorf("sender: %v", err)
		return
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // what is under way is of no interest
	}()
	next, err := s.Resume(w.ctx)
	if err != nil {
		if w.ctx.Err() == nil {
			w.h.errorf("resume sender %s of queue %s: %v", who, name, err)
		}
		return
	}
	w.h.resumed(w.life, name, who, next)
	for w.ctx.Err() == nil {
		send := w.sendOne
		if w.pins > 0 {
			send = w.sendMany
		}
		n, err := send(s, place{name, who, next}, rng)
		if err != nil {
			if w.ctx.Err() == nil {
				w.h.errorf("send %d to queue %s: %v", next, name, err)
			}
			return
		}
		next += n
	}
}

// try notes that a message is about to be sent, and makes it.
func (w *world) try(p place) holdfast.Message {
	w.h.trySend(p)
	if w.left.Add(-1) == 0 {
		w.enough()
	}
	return w.h.message(p)
}

func (w *world) sendOne(s *holdfast.Sender, p place, rng *rand.Rand) (n uint64, err error) {
	m := w.try(p)
	if rng.IntN(10) > 0 {
		return 1, s.SendAsync(w.ctx, m, func(id holdfast.ID, err error) { w.h.sentOne(w.life, p, id, err) })
	}
	id, err := s.Send(w.ctx, m)
	if err == nil {
		w.h.sentOne(w.life, p, id, nil)
	}
	return 1, err
}

// many is how many messages are in a batch, and so in a record.
const many = 32

// sendMany sends a batch, once receivers have come so far.
func (w *world) sendMany(s *holdfast.Sender, p place, _ *rand.Rand) (n uint64, err error) {
	select {
	case w.room <- struct{}{}:
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
	batch := make([]holdfast.Message, many)
	for i := range batch {
		batch[i] = w.try(place{p.queue, p.sender, p.n + uint64(i)})
	}
	ids, err := s.SendBatch(w.ctx, batch)
	if err != nil {
		return 0, err
	}
	for i, id := range ids {
		w.h.sentOne(w.life, place{p.queue, p.sender, p.n + uint64(i)}, id, nil)
	}
	return many, nil
}

// makeRoom lets senders of batches go on by so many messages.
func (w *world) makeRoom(n int) {
	for to := w.settled.Add(int64(n)); n > 0; n-- {
		if (to-int64(n)+1)%many != 0 {
			continue
		}
		select {
		case <-w.room:
		default: // what an earlier life left comes on top
		}
	}
}

// receiver receives and settles until the end.
func (w *world) receiver(name string, rng *rand.Rand) {
	for w.ctx.Err() == nil {
		r, err := w.b.Queue(name).NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			w.h.errorf("receiver: %v", err)
			return
		}
		for k := 5 + rng.IntN(50); k > 0 && w.ctx.Err() == nil; k-- {
			ds, err := r.Receive(w.ctx, 1+rng.IntN(20))
			if err != nil && w.ctx.Err() == nil {
				w.h.errorf("receive from queue %s: %v", name, err)
			}
			w.settle(r, ds, rng)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := r.Close(ctx); err != nil && w.ctx.Err() == nil {
			w.h.errorf("close receiver of queue %s: %v", name, err)
		}
		cancel()
	}
}

// settle does something with each delivery; some are left until the receiver closes.
func (w *world) settle(r *holdfast.Receiver, ds []*holdfast.Delivery, rng *rand.Rand) {
	var acks []*holdfast.Delivery
	var places []place
	ack := func() {
		w.makeRoom(len(acks))
		// Of several, it is not told which are deleted if one of them is not.
		if err := r.Ack(w.ctx, acks...); err == nil {
			for _, p := range places {
				w.h.deletedOne(w.life, p)
			}
		}
		acks, places = nil, nil
	}
	for _, d := range ds {
		p, ok := w.h.delivered(w.life, d)
		if !ok {
			continue
		}
		fails := 20
		switch {
		case p.queue == failing:
			fails = 40
		case w.pins > 0:
			fails = 0
		}
		switch k := rng.IntN(100); {
		case rng.IntN(1000) < w.pins:
			if d.Nack(w.ctx, time.Hour) == nil {
				w.h.failedOne(w.life, p, d)
			}
			w.makeRoom(1)
		case k < fails:
			if d.Nack(w.ctx, time.Duration(rng.IntN(20))*time.Millisecond) == nil {
				w.h.failedOne(w.life, p, d)
			}
		case k < fails+5:
			_ = d.Release(w.ctx)
		case k < fails+8: // held until the receiver closes
		default:
			w.h.tryDelete(p)
			acks, places = append(acks, d), append(places, p)
			if w.pins == 0 && rng.IntN(8) == 0 {
				ack()
			}
		}
	}
	if len(acks) > 0 {
		ack()
	}
}

// consumer is the form that most users use.
func (w *world) consumer(name string) {
	err := w.b.Queue(name).Consume(w.ctx, func(_ context.Context, d *holdfast.Delivery) error {
		p, ok := w.h.delivered(w.life, d)
		if !ok || p.n%7 == 0 && d.Attempt < 3 {
			return fmt.Errorf("delivery %d of %v fails", d.Attempt, p)
		}
		w.h.tryDelete(p)
		return nil
	}, holdfast.ConsumeOptions{Workers: 2, Prefetch: 8})
	if err != nil && w.ctx.Err() == nil {
		w.h.errorf("consume queue %s: %v", name, err)
	}
}

// admin changes configurations and purges now and then.
func (w *world) admin(rng *rand.Rand) {
	for w.ctx.Err() == nil {
		select {
		case <-time.After(time.Duration(rng.IntN(30)) * time.Millisecond):
		case <-w.ctx.Done():
			return
		}
		if w.pins > 0 || rng.IntN(4) > 0 {
			w.configure(w.queues[rng.IntN(len(w.queues))])
			continue
		}
		w.h.purge(w.life, mixed, func() error {
			_, err := w.b.Queue(mixed).Purge(w.ctx)
			return err
		})
	}
}

// untilEmpty judges what is there, takes everything out, and closes and opens once more.
func (w *world) untilEmpty() {
	w.open(w.fs)
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
	again.open(again.fs)
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
