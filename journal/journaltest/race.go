package journaltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

var raceRules = []Rule{
	{Name: "two-owners", Promise: raceP, check: func(e *env) { e.race(2, false, 0) }},
	{Name: "three-owners-discarding", Promise: raceP, check: func(e *env) { e.race(3, true, 0) }},
	{Name: "two-owners-flaky", Promise: raceP, needs: needs{hooks: true}, check: func(e *env) { e.race(2, false, 0.2) }},
	{Name: "three-owners-flaky-discarding", Promise: raceP, needs: needs{hooks: true}, check: func(e *env) { e.race(3, true, 0.2) }},
	{Name: "streams", Promise: "Streams can be used concurrently, and do not touch each other.", check: raceStreams},
	{Name: "one-stream", Promise: "All methods but Append may be called concurrently with it and with each other.", check: raceOneStream},
}

const raceP = "Owners that take a stream from each other lose, double, interleave and reorder nothing that was acknowledged; what is told as fenced is not stored; epochs never fall."

// worker returns an env for another goroutine: with randomness of its own, and with fatal
// failures that end that goroutine.
func (e *env) worker(id uint64) *env {
	w := *e
	w.rng = rand.New(rand.NewPCG(e.cfg.Seed, 100+id))
	w.TB = workerTB{e.TB}
	return &w
}

// workerTB makes FailNow and its like usable outside the test's own goroutine.
type workerTB struct{ testing.TB }

func (t workerTB) FailNow() {
	t.Fail()
	runtime.Goexit()
}

func (t workerTB) Fatal(args ...any) {
	t.Helper()
	t.Error(args...)
	runtime.Goexit()
}

func (t workerTB) Fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	runtime.Goexit()
}

// flaky returns a hook that loses requests and answers, each with probability p/2, and holds
// some calls up for a moment.
func (e *env) flaky(p float64) Hook {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(e.cfg.Seed, e.rng.Uint64()))
	return func(ctx context.Context, _, _ string, _ bool) error {
		mu.Lock()
		lose, pause := rng.Float64() < p/2, time.Duration(0)
		if rng.IntN(5) == 0 {
			pause = time.Duration(rng.IntN(2000)) * time.Microsecond
		}
		mu.Unlock()
		if pause > 0 {
			e.pause(pause)
		}
		if lose {
			return errInjected
		}
		return nil
	}
}

// history is what the owners of a stream were told.
type history struct {
	mu      sync.Mutex
	acked   map[uint64]journal.Header // by first seq
	refused []journal.Header
	highest uint64 // the highest seq that was acknowledged

	archive  sync.Mutex
	archived []journal.Header // read before they were discarded
}

func (h *history) ack(e *env, r *journal.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.acked[r.First]; ok {
		e.Errorf("seq %d was acknowledged twice: to epochs %d and %d", r.First, was.Epoch, r.Epoch)
	}
	h.acked[r.First] = r.Header
	h.highest = max(h.highest, r.Last())
}

func (h *history) refuse(r *journal.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, r.Header)
}

func (h *history) floor() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest
}

// race lets owners take a stream from each other, and checks the history.
func (e *env) race(owners int, discards bool, losses float64) {
	h := &history{acked: map[uint64]journal.Header{}}
	var takeovers atomic.Int64
	var wg sync.WaitGroup
	// Before any of them begins: a store that does not open ends the rule, which would leave them behind.
	handles := []journal.Journal{e.j}
	for len(handles) < owners {
		handles = append(handles, e.second())
	}
	for i, j := range handles {
		w := e.worker(uint64(i))
		if losses > 0 {
			w.ctx = w.hooked(e.flaky(losses))
		}
		wg.Go(func() {
			took := time.Duration(0)
			for takeovers.Add(1) <= int64(e.cfg.Takeovers) && !e.Failed() && w.ctx.Err() == nil {
				// Let the others store something first, whatever that takes in this store.
				w.pause(time.Duration(w.rng.Int64N(int64(3*time.Millisecond + 5*took))))
				start := time.Now()
				w.acquireAndAppend(j, h, discards)
				took = time.Since(start) / 5
			}
		})
	}
	wg.Wait()
	if e.ctx.Err() != nil {
		e.Fatalf("out of time after %d of %d takeovers", takeovers.Load(), e.cfg.Takeovers)
	}
	if !e.Failed() {
		e.checkHistory(h)
	}
}

// acquireAndAppend acquires the stream and appends until it is fenced, or has had enough.
func (e *env) acquireAndAppend(j journal.Journal, h *history, discards bool) {
	floor := h.floor()
	o := e.acquire(j, "orders")
	at := o.s.Acquired()
	if at.End < floor {
		e.Fatalf("epoch %d found the end %d, but seq %d had been acknowledged", at.Epoch, at.End, floor)
	}
	if discards && e.rng.IntN(3) == 0 && !e.archive(h, o, at.End) {
		return
	}
	for range e.rng.IntN(10) {
		r := o.random()
		err := o.try(r)
		switch {
		case err == nil:
			h.ack(e, r)
		case isFenced(err):
			h.refuse(r)
			return
		case e.ctx.Err() != nil:
			return
		default:
			e.Fatalf("append at seq %d of epoch %d: %v, want nil or ErrFenced", r.First, r.Epoch, err)
		}
		if e.rng.IntN(3) == 0 {
			e.pause(time.Duration(e.rng.IntN(1500)) * time.Microsecond)
		}
	}
}

// archive reads what is up to end, and discards some of it. It tells whether o is still the owner.
func (e *env) archive(h *history, o *owner, end uint64) bool {
	h.archive.Lock()
	defer h.archive.Unlock()
	recs := e.headers(o.s, h.next(), end)
	if n := len(recs); n > 0 {
		recs = recs[:1+e.rng.IntN(n)]
	}
	e.wantAllBodies(o.s, recs)
	h.archived = append(h.archived, recs...)
	low := h.next()
	for _, f := range []func() error{
		func() error { return o.s.DiscardBodies(e.ctx, []journal.Range{{From: 1, To: low - 1}}) },
		func() error { return o.s.DiscardMeta(e.ctx, low) },
	} {
		err := e.settle(f)
		if isFenced(err) || e.ctx.Err() != nil {
			return false
		}
		if err != nil {
			e.Fatalf("discard: %v", err)
		}
	}
	return true
}

// next returns the seq behind what is archived.
func (h *history) next() uint64 {
	if n := len(h.archived); n > 0 {
		return h.archived[n-1].Last() + 1
	}
	return 1
}

// headers reads all records of from…to, epoch records included.
func (e *env) headers(r journal.Reader, from, to uint64) []journal.Header {
	e.Helper()
	var hs []journal.Header
	for rec, err := range r.ReadMeta(e.ctx, from, to) {
		if err != nil {
			e.Fatalf("ReadMeta(%d, %d): %v", from, to, err)
		}
		hs = append(hs, rec.Header)
	}
	return hs
}

func (e *env) checkHistory(h *history) {
	e.Helper()
	r := e.reader(e.j, "orders")
	kept := e.headers(r, h.next(), all)
	hist := append(h.archived, kept...)
	info := e.info(r)
	var chain journal.Chain
	chain.StartAfter(info.UID, 0, 0)
	places := map[uint64]journal.Header{}
	end := uint64(0)
	for i := range hist {
		if err := chain.Next(&hist[i]); err != nil {
			e.Fatalf("the history is broken: %v", err)
		}
		end = hist[i].Last()
		places[hist[i].First] = hist[i]
		if _, ok := h.acked[hist[i].First]; !ok && hist[i].Kind != journal.KindEpoch {
			e.Errorf("the record at seq %d of epoch %d is stored, but was not acknowledged", hist[i].First, hist[i].Epoch)
		}
	}
	if end != info.End {
		e.Errorf("the history ends at %d, Info.End is %d", end, info.End)
	}
	for first, want := range h.acked {
		if places[first] != want {
			e.Errorf("the record acknowledged at seq %d to epoch %d is not in its place, but %+v", first, want.Epoch, places[first])
		}
	}
	for _, no := range h.refused {
		if places[no.First] == no {
			e.Errorf("the record at seq %d of epoch %d is stored, but was told as fenced", no.First, no.Epoch)
		}
	}
	e.wantAllBodies(r, kept)
	e.Logf("%d records acknowledged, %d refused, %d discarded", len(h.acked), len(h.refused), len(h.archived))
}

// wantAllBodies requires that each of these records has its body.
func (e *env) wantAllBodies(r journal.Reader, headers []journal.Header) {
	e.Helper()
	var recs []*journal.Record
	for _, h := range headers {
		if h.BodyLen > 0 {
			recs = append(recs, &journal.Record{Header: h})
		}
	}
	bodies, err := e.bodies(r, recs)
	if err != nil {
		e.Fatalf("ReadBodies: %v", err)
	}
	if len(bodies) != len(recs) {
		e.Fatalf("%d bodies are there, want %d", len(bodies), len(recs))
	}
	for i, b := range bodies {
		if err := b.VerifyBody(b.Body...); err != nil || b.Header != recs[i].Header {
			e.Fatalf("the body of the record at seq %d: got that of seq %d, %v", recs[i].First, b.First, err)
		}
	}
}

func raceStreams(e *env) {
	const n = 8
	var wg sync.WaitGroup
	handles := []journal.Journal{e.j}
	for len(handles) <= n/2 {
		handles = append(handles, e.second())
	}
	for i := range n {
		w := e.worker(uint64(i))
		j := handles[0]
		if i%2 == 1 {
			j = handles[1+i/2]
		}
		wg.Go(func() {
			name := fmt.Sprintf("orders %d", i)
			var recs []*journal.Record
			for range 3 {
				o := w.acquire(j, name)
				recs = append(recs, o.append(w.cfg.Records/20)...)
				o.writePart("p", []byte(name))
				o.wantStream(o.s, recs)
				low := recs[w.rng.IntN(len(recs))].First
				o.discardBodies(journal.Range{From: 1, To: low - 1})
				o.discardMeta(low)
				for recs[0].First < low {
					recs = recs[1:]
				}
			}
			w.wantPart(w.reader(j, name), "p", []byte(name))
		})
	}
	wg.Wait()
}

// beside is what the loops of raceOneStream, that run beside the appends, know.
type beside struct {
	acked atomic.Uint64 // all up to it is stored
	low   atomic.Uint64 // all below it may be discarded
}

func raceOneStream(e *env) {
	o := e.acquire(e.j, "orders")
	var b beside
	b.low.Store(1)
	var waiting atomic.Int64 // loops that have not gone round a few times
	done := make(chan struct{})
	var wg sync.WaitGroup
	for id, loop := range []func(w *env, s journal.Stream){b.readMetas, b.discard, b.parts, b.readBodies} {
		w := e.worker(uint64(id))
		waiting.Add(1)
		wg.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-done:
					return
				default:
					loop(w, o.s)
				}
				if n == 5 {
					waiting.Add(-1)
				}
			}
		})
	}
	for n := 0; (n < e.cfg.Records || waiting.Load() > 0) && !e.Failed(); n++ {
		r := o.random()
		if err := o.try(r); err != nil {
			e.Errorf("append: %v", err)
			break
		}
		b.acked.Store(r.Last())
	}
	close(done)
	wg.Wait()
	o.wantEnd(o.s)
}

func (b *beside) readMetas(w *env, s journal.Stream) {
	from, seen := b.low.Load(), b.acked.Load()
	last := from - 1
	for rec, err := range s.ReadMeta(w.ctx, from, all) {
		if err != nil {
			w.Fatalf("ReadMeta: %v", err)
		}
		if rec.First > last+1 && rec.First > b.low.Load() {
			w.Fatalf("ReadMeta yields seq %d after %d, but only what is below %d was discarded", rec.First, last, b.low.Load())
		}
		last = rec.Last()
	}
	if last < seen {
		w.Fatalf("ReadMeta ends at %d, but %d was acknowledged before it began", last, seen)
	}
}

func (b *beside) discard(w *env, s journal.Stream) {
	if end := b.acked.Load(); end > 60 && w.rng.IntN(4) == 0 {
		b.low.Store(end - 50)
		w.must("discard bodies", func() error { return s.DiscardBodies(w.ctx, []journal.Range{{From: 1, To: end - 51}}) })
		w.must("discard metas", func() error { return s.DiscardMeta(w.ctx, end-50) })
	}
	w.pause(time.Millisecond)
}

func (b *beside) parts(w *env, s journal.Stream) {
	name := fmt.Sprintf("part %d", w.rng.IntN(3))
	data := w.blob(100)
	w.must("write part", func() error { return s.WritePart(w.ctx, name, data) })
	w.wantPart(s, name, data)
	w.must("delete part", func() error { return s.DeleteParts(w.ctx, []string{name}) })
	w.wantNoPart(s, name)
}

func (b *beside) readBodies(w *env, s journal.Stream) {
	seen := b.acked.Load()
	info := w.info(s)
	if info.End < seen {
		w.Fatalf("Info.End is %d, but %d was acknowledged before", info.End, seen)
	}
	for rec, err := range s.ReadBodies(w.ctx, []uint64{info.End, info.Low, seen, seen / 2}) {
		if err != nil {
			w.Fatalf("ReadBodies: %v", err)
		}
		if err := rec.VerifyBody(rec.Body...); err != nil {
			w.Fatalf("ReadBodies: %v", err)
		}
	}
}
