package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// loseCheckpoint damages or removes both files of the checkpoint.
func loseCheckpoint(t *testing.T, fs *vfs.Mem, remove bool) {
	t.Helper()
	for _, name := range checkpointFiles {
		path := filepath.Join(filledDir, name)
		b, err := vfs.ReadFile(fs, path)
		if err == nil && remove {
			err = fs.Remove(path)
		} else if err == nil {
			b[20] ^= 1
			err = vfs.WriteFile(fs, filledDir, name, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the files of a store, but for those that say who has it.
func (f *filled) contents(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, i := range f.list(t) {
		if i.Name != lockName && i.Name != ownerName && i.Name != ballastName {
			all[i.Name] = f.read(t, i.Name)
		}
	}
	return all
}

// §4, G2: a checkpoint that is lost is made anew from a log that goes back to its first batch.
func TestCheckpointLostWholeLog(t *testing.T) {
	s := seed(t, 4)
	rng := rand.New(rand.NewPCG(s, s))
	for _, sh := range []shape{{before: 10, marked: 30, unmarked: 3, body: 30}, {before: 10, marked: 30, body: 30, closed: true}, {body: 1}} {
		f := fill(t, rng, sh)
		loseCheckpoint(t, f.fs, sh.closed)
		for range 2 {
			j, err := f.open(Options{})
			if err != nil || j.Loss() != nil {
				t.Fatalf("%+v: %v, %v", sh, err, j.Loss())
			}
			for name, recs := range f.records {
				if n, err := f.compare(t, j, name); err != nil || n != len(recs) {
					t.Errorf("%+v: stream %s: %d records of %d, %v", sh, name, n, len(recs), err)
				}
			}
			mustClose(t, j)
		}
	}
}

// §4, G2: where segments were used again, the store without a checkpoint is refused and not touched, and the ways out are told. If the loss is
// accepted, what the log and the mark still have is there.
func TestCheckpointLostAndAccepted(t *testing.T) {
	f := fill(t, rand.New(rand.NewPCG(6, 6)), shape{before: 5, marked: 1, body: 20, closed: true})
	j := mustOpen(t, filledDir, Options{FS: f.fs, SegmentBytes: 64 << 10, BallastBytes: 1})
	a, b := acquire(t, j, "a"), acquire(t, j, "b")
	stays := a.add(1, []byte("stays"), random(1000))
	var recs []*journal.Record
	for range 60 {
		recs = append(recs, a.add(1, []byte("meta"), random(10_000)))
		kept := recs[max(0, len(recs)-5)]
		if err := a.s.DiscardBodies(t.Context(), []journal.Range{{From: stays.First + 1, To: kept.First - 1}}); err != nil {
			t.Fatal(err)
		}
		if err := a.s.DiscardMeta(t.Context(), kept.First); err != nil {
			t.Fatal(err)
		}
	}
	recs = recs[len(recs)-5:]
	mustClose(t, j)
	loseCheckpoint(t, f.fs, false)
	was := f.contents(t)
	for _, o := range []Options{{}, {ReadOnly: true}} {
		_, err := f.open(o)
		if !errors.Is(err, journal.ErrCorrupt) {
			t.Fatalf("open: %v, want ErrCorrupt", err)
		}
		for _, want := range []string{checkpointFiles[0], checkpointFiles[1], "restore", "accept-loss=true"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("open: %v, does not say %q", err, want)
			}
		}
	}
	for name, b := range f.contents(t) {
		if !bytes.Equal(was[name], b) {
			t.Errorf("file %s was changed", name)
		}
	}
	j, err := f.open(Options{AcceptLoss: true})
	if err != nil || j.Loss() != nil {
		t.Fatalf("accept: %v, %v", err, j.Loss())
	}
	for range 2 {
		again := acquire(t, j, "a")
		if again.at.End != a.at.End || again.at.EndCRC != a.at.EndCRC || again.at.Epoch <= a.at.Epoch || again.at.UID != a.at.UID {
			t.Errorf("stream a is %+v, was %+v", again.at, a.at)
		}
		a = again
		if info, err := mustRead(t, j, "b").Info(t.Context()); err != nil || info.End != b.at.End || info.EndCRC != b.at.EndCRC || info.Epoch < b.at.Epoch {
			t.Errorf("stream b is %+v, %v, was %+v", info, err, b.at)
		}
		if again.at.Low != recs[0].First {
			t.Errorf("low is %d, want %d", again.at.Low, recs[0].First)
		}
		verifyStream(t, j, "a", recs)
		verifyBodies(t, j, "a", append([]*journal.Record{stays}, recs...), nil)
		if p, err := mustRead(t, j, "a").ReadPart(t.Context(), "part"); err != nil || string(p) != "data of a" {
			t.Errorf("part: %q, %v", p, err)
		}
		if err := j.Verify(t.Context(), func(d Damage) { t.Error(d) }); err != nil {
			t.Error(err)
		}
		recs = append(recs, a.add(1, []byte("goes on"), []byte("body")))
		mustClose(t, j)
		if j, err = f.open(Options{}); err != nil || j.Loss() != nil {
			t.Fatalf("open again: %v, %v", err, j.Loss())
		}
	}
	mustClose(t, j)
}

// §4, G1: random lives that a power cut ends, after which the checkpoint is lost: with the loss accepted, everything that was acknowledged is there.
func TestCheckpointLostAfterPowerCut(t *testing.T) {
	s := seed(t, 1)
	refused := 0
	for i := range uint64(10 * soak) {
		r := &run{t: t, seed: s + i, fs: vfs.NewMem()}
		rng := rand.New(rand.NewPCG(s+i, 1))
		for n := range 1 + rng.IntN(4) {
			r.lives = append(r.lives, &life{name: fmt.Sprint("q", n), low: 1, dead: map[uint64]bool{}})
		}
		for range 3 {
			r.untilCut(rng)
			loseCheckpoint(t, r.fs, rng.IntN(2) == 0)
			j, err := Open(filledDir, quiet(Options{FS: r.fs, SegmentBytes: 64 << 10}))
			if err != nil {
				refused++
				if j, err = Open(filledDir, quiet(Options{FS: r.fs, SegmentBytes: 64 << 10, AcceptLoss: true})); err != nil {
					t.Fatalf("seed %d: %v", r.seed, err)
				}
			}
			mustClose(t, j)
			r.check()
		}
	}
	if t.Logf("refused %d times", refused); refused == 0 {
		t.Error("no store had segments that were used again")
	}
}
