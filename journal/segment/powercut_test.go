package segment

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// life is what one owner knows of its stream in a run that a power cut ends.
type life struct {
	name      string
	epoch     uint64            // acquired
	tried     []*journal.Record // in order; the last ones may not have been stored
	durable   int               // how many of them must be there
	dead      map[uint64]bool   // first seqs of bodies that were discarded
	low       uint64            // metas before may be gone
	part      int               // the version of the part that must be there
	partTried int
}

// run is a store under load that is cut at some moment.
type run struct {
	t     *testing.T
	seed  uint64
	fs    *vfs.Mem
	mu    sync.Mutex // what is told to the lives is told under it, and the power is cut under it
	lives []*life
	cut   bool
}

// §4, G1: over many power cuts, every append, part and epoch that was acknowledged is there, in
// order; nothing is there that was never sent; bodies are there unless they were discarded; and the store
// never takes a power cut for a loss.
func TestPowerCut(t *testing.T) {
	s := seed(t, 1)
	for i := range uint64(30 * soak) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := &run{t: t, seed: s + i, fs: vfs.NewMem()}
			rng := rand.New(rand.NewPCG(s+i, 1))
			for n := range 1 + rng.IntN(4) {
				r.lives = append(r.lives, &life{name: fmt.Sprint("q", n), low: 1, dead: map[uint64]bool{}})
			}
			for range 3 { // cuts
				r.untilCut(rng)
				r.check()
			}
		})
	}
}

func (r *run) open() *Journal {
	j, err := Open("store", quiet(Options{FS: r.fs, SegmentBytes: 64 << 10}))
	if err != nil {
		r.t.Fatalf("seed %d: %v", r.seed, err)
	}
	if loss := j.Loss(); loss != nil {
		r.t.Fatalf("seed %d: a power cut was taken for a loss: %v", r.seed, loss)
	}
	return j
}

// untilCut runs one owner for each stream and cuts the power at some append.
func (r *run) untilCut(rng *rand.Rand) {
	j := r.open()
	r.cut = false
	left := 20 + rng.IntN(200) // appends of all until the cut
	cutRNG := rand.New(rand.NewPCG(rng.Uint64(), 2))
	var after *vfs.Mem
	told := func(f func()) bool { // whether the run goes on
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.cut {
			return false
		}
		f()
		if left--; left == 0 {
			r.cut = true
			after = r.fs.Crash(cutRNG.IntN(101), cutRNG)
			return false
		}
		return true
	}
	var wg sync.WaitGroup
	for _, l := range r.lives {
		own := rand.New(rand.NewPCG(rng.Uint64(), 3))
		wg.Go(func() { r.own(j, l, own, told) })
	}
	wg.Wait()
	_ = j.Close() // of the machine that has no power any more
	r.fs = after
}

// own is an owner's life until the power is cut.
func (r *run) own(j *Journal, l *life, rng *rand.Rand, told func(func()) bool) {
	w := acquire(r.t, j, l.name)
	if !told(func() { l.epoch = w.at.Epoch }) {
		return
	}
	for {
		body := make([]byte, rng.IntN(3000))
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		rec := w.next(1+rng.Uint64N(4), fmt.Appendf(nil, "%d", w.at.End), body)
		rec.Buffered = rng.IntN(4) == 0
		r.mu.Lock()
		l.tried = append(l.tried, rec)
		n := len(l.tried)
		r.mu.Unlock()
		if err := w.s.Append(r.t.Context(), w.at.End, rec); err != nil {
			r.t.Errorf("seed %d: append: %v", r.seed, err)
			return
		}
		w.stored(rec)
		if !told(func() {
			if !rec.Buffered {
				l.durable = n
			}
		}) {
			return
		}
		if err := r.tidy(w, l, rng); err != nil {
			r.t.Errorf("seed %d: %v", r.seed, err)
			return
		}
	}
}

// tidy discards and writes parts now and then.
func (r *run) tidy(w *writer, l *life, rng *rand.Rand) error {
	ctx := r.t.Context()
	switch rng.IntN(6) {
	case 0, 1: // discard some bodies
		rec := l.tried[rng.IntN(len(l.tried))]
		to := rec.Last() + rng.Uint64N(8)
		r.mu.Lock()
		for _, x := range l.tried {
			if rec.First <= x.First && x.Last() <= to {
				l.dead[x.First] = true
			}
		}
		r.mu.Unlock()
		return w.s.DiscardBodies(ctx, []journal.Range{{From: rec.First, To: to}})
	case 2:
		low := 1 + rng.Uint64N(w.at.End)
		r.mu.Lock()
		l.low = max(l.low, low)
		r.mu.Unlock()
		return w.s.DiscardMeta(ctx, low)
	case 3:
		r.mu.Lock()
		l.partTried++
		n := l.partTried
		r.mu.Unlock()
		if err := w.s.WritePart(ctx, "p", fmt.Appendf(nil, "%d", n)); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.cut {
			l.part = n
		}
	}
	return nil
}

// check opens what the cut left and compares it with what was told.
func (r *run) check() {
	r.t.Helper()
	j := r.open()
	if err := j.Verify(r.t.Context(), func(d Damage) { r.t.Errorf("seed %d: verify: %v", r.seed, d) }); err != nil {
		r.t.Error(err)
	}
	for _, l := range r.lives {
		r.checkLife(j, l)
	}
	mustClose(r.t, j)
}

func (r *run) checkLife(j *Journal, l *life) {
	t, ctx := r.t, r.t.Context()
	t.Helper()
	rd, err := j.Open(ctx, l.name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := rd.Info(ctx)
	if err != nil || info.Epoch < l.epoch {
		t.Errorf("seed %d: stream %s: %+v, %v, epoch %d was acquired", r.seed, l.name, info, err, l.epoch)
	}
	n := slices.IndexFunc(l.tried, func(x *journal.Record) bool { return x.Last() == info.End && x.CRC == info.EndCRC }) + 1
	if n == 0 && info.End != 0 || n < l.durable {
		t.Fatalf("seed %d: stream %s ends at %d, record %d of %d, of which %d were acknowledged", r.seed, l.name, info.End, n, len(l.tried), l.durable)
	}
	if info.Low > max(l.low, 1) {
		t.Errorf("seed %d: stream %s: metas are gone up to %d, discarded up to %d", r.seed, l.name, info.Low, l.low)
	}
	l.tried = l.tried[:n] // the rest is lost for good, as the machine was
	l.durable = n
	i := slices.IndexFunc(l.tried, func(x *journal.Record) bool { return x.Last() >= info.Low })
	for rec, err := range rd.ReadMeta(ctx, 1, math.MaxUint64) {
		if err != nil {
			t.Fatalf("seed %d: stream %s: %v", r.seed, l.name, err)
		}
		if rec.Header != l.tried[i].Header || !bytes.Equal(rec.Meta, l.tried[i].Meta) {
			t.Fatalf("seed %d: stream %s has %+v, want %+v", r.seed, l.name, rec.Header, l.tried[i].Header)
		}
		i++
	}
	if i >= 0 && i != n {
		t.Fatalf("seed %d: stream %s: metas up to record %d of %d", r.seed, l.name, i, n)
	}
	for _, x := range l.tried {
		if x.BodyLen == 0 || l.dead[x.First] {
			continue
		}
		found := false
		for rec, err := range rd.ReadBodies(ctx, []uint64{x.First}) {
			found = err == nil && rec.CRC == x.CRC
		}
		if !found {
			t.Fatalf("seed %d: stream %s: body of seq %d is not there", r.seed, l.name, x.First)
		}
	}
	part, err := rd.ReadPart(ctx, "p")
	ok := l.part == 0 && err != nil
	for v := l.part; v <= l.partTried && !ok; v++ {
		ok = string(part) == fmt.Sprint(v)
	}
	if !ok {
		t.Errorf("seed %d: stream %s: part is %q, %v, want version %d…%d", r.seed, l.name, part, err, l.part, l.partTried)
	}
}
