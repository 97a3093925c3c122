package segment

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// A store counts as resting once little was logged for a while, and no longer once more is.
func TestRest(t *testing.T) {
	now := time.Unix(1, 0)
	var r rest
	for i, step := range []struct {
		after      time.Duration
		logged     int64
		told, rest bool
	}{
		{0, 0, false, false},
		{restAfter, 10 * restBytes, false, false},          // used
		{restAfter - 1, 11*restBytes - 1, false, false},    // not long enough
		{1, 11*restBytes - 1, true, true},                  // little for long enough
		{restAfter / 2, 11 * restBytes, false, true},       // told once in a while
		{restAfter, 12*restBytes - 2, true, true},          // still little
		{restAfter / 3, 13 * restBytes, false, false},      // used again
		{restAfter - 1, 13*restBytes + 10, false, false},   //
		{restAfter, 14*restBytes + 10, false, false},       // never little for long enough
		{restAfter + 1, 14*restBytes + 10, true, true},     //
		{restAfter + 1, 1000*restBytes + 10, false, false}, //
	} {
		now = now.Add(step.after)
		if told := r.look(step.logged, now); told != step.told || r.is != step.rest {
			t.Errorf("step %d: %v, resting %v", i, told, r.is)
		}
	}
}

// §4: a store that rests has given back what it kept to be used again, and one old record does not hold a segment: beside the segment that is written
// to there is half as much again as what is alive, an eighth of a segment, and the ballast. What is alive is still there, and the log goes on.
func TestRestGivesBack(t *testing.T) {
	const segment, body = 4 << 20, 100_000
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{SegmentBytes: segment})
	w := acquire(t, j, "s")
	first := w.add(10, []byte("meta"), random(body))
	for range 10 * segment / body {
		r := w.add(10, []byte("meta of ten messages"), random(body))
		if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: r.First, To: r.Last()}}); err != nil {
			t.Fatal(err)
		}
	}
	const want = segment + segment/8 + 3*body/2 + segment/8 + 128<<10
	var left int64
	eventually(t, "the directory is small", func() bool { left = diskUsage(t, dir); return left < want })
	if segments, _, _, _ := j.files.usage(); left < segments/2 {
		t.Errorf("%d bytes on disk, and %d in segments", left, segments)
	}
	// Where a file was given back the log goes on.
	for range 3 * segment / body {
		w.add(10, []byte("meta of ten messages"), random(body))
	}
	mustClose(t, j)
	j = mustOpen(t, dir, Options{SegmentBytes: segment})
	if loss := j.Loss(); loss != nil {
		t.Error(loss)
	}
	r, err := j.Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range r.ReadBodies(t.Context(), []uint64{first.First}) {
		if err != nil || len(rec.Body) == 0 || rec.CRC != first.CRC {
			t.Errorf("the old record: %v", err)
		}
	}
	if info, err := r.Info(t.Context()); err != nil || info.End != w.at.End {
		t.Errorf("the stream ends at %d (%v), want %d", info.End, err, w.at.End)
	}
}

// G1: a power cut at any moment after segments were given back, and their numbers used again, loses nothing.
func TestRestThenPowerCut(t *testing.T) {
	first := seed(t, 1)
	for i := range uint64(20 * soak) {
		rng := rand.New(rand.NewPCG(first+i, 3))
		fs := vfs.NewMem()
		for range 3 {
			j, err := Open("store", quiet(Options{FS: fs, SegmentBytes: 64 << 10}))
			if err != nil {
				t.Fatalf("seed %d: %v", first+i, err)
			}
			if loss := j.Loss(); loss != nil {
				t.Fatalf("seed %d: a power cut was taken for a loss: %v", first+i, loss)
			}
			w := acquire(t, j, "s")
			for range 30 + rng.IntN(60) {
				r := w.add(1+rng.Uint64N(5), []byte("meta"), random(1+rng.IntN(8<<10)))
				if rng.IntN(8) > 0 {
					if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: r.First, To: r.Last()}}); err != nil {
						t.Fatal(err)
					}
				}
				if rng.IntN(6) == 0 {
					if err := j.giveBack(); err != nil {
						t.Fatal(err)
					}
				}
			}
			cut := fs.Crash(rng.IntN(101), rng)
			mustClose(t, j)
			fs = cut
			after, err := Open("store", quiet(Options{FS: fs, SegmentBytes: 64 << 10}))
			if err != nil {
				t.Fatalf("seed %d: %v", first+i, err)
			}
			r, err := after.Open(t.Context(), "s")
			if err != nil {
				t.Fatalf("seed %d: %v", first+i, err)
			}
			if info, err := r.Info(t.Context()); err != nil || info.End != w.at.End || info.EndCRC != w.at.EndCRC || after.Loss() != nil {
				t.Fatalf("seed %d: the stream ends at %d, want %d; %v; %v", first+i, info.End, w.at.End, err, after.Loss())
			}
			mustClose(t, after)
		}
	}
}
