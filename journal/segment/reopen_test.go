package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// G10: zeros that are written ahead of the log take no sync away from it. Were they synced apart, and that sync failed, the next one would
// succeed without having stored the batch that it is for.
func TestZerosHideNoFailedSync(t *testing.T) {
	fs := newFailing()
	j := halfOpen(t, fs)
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, nil, []byte("first"))}
	syncing, release := make(chan struct{}), make(chan struct{})
	var syncs atomic.Int32
	arm := func(op vfs.Op) error {
		switch {
		case !opOn("sync", segExt)(op):
		case syncs.Add(1) == 1:
			close(syncing)
			<-release
		default:
			return syscall.EIO
		}
		return nil
	}
	fs.arm.Store(&arm)
	r := w.next(1, nil, []byte("second"))
	stored := make(chan error, 1)
	go func() { stored <- appendSettled(t.Context(), w.s, w.at.End, r) }()
	<-syncing
	if err := j.zeroAhead(); err != nil {
		t.Log("zeros:", err)
	}
	if size := j.current.Load().size.Load(); size != j.files.size {
		t.Errorf("the segment has %d bytes, want zeros up to %d", size, j.files.size)
	}
	close(release)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	cut := fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
	mustClose(t, j)
	j = mustOpen(t, filledDir, Options{FS: cut, SegmentBytes: 64 << 10})
	if loss := j.Loss(); loss != nil {
		t.Fatal(loss)
	}
	verifyStream(t, j, "q", append(want, r))
	mustClose(t, j)
}

// §4: while zeros are being written to a segment, its file is not used again: they would overwrite the log.
func TestZerosEndBeforeReopening(t *testing.T) {
	fs := newFailing()
	j := halfOpen(t, fs)
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, nil, random(50_000))}
	first := j.current.Load().number

	// The first batch of the next segment fails to be written, and zeros are about to be written there. So nothing is in the segment, and
	// its file is free.
	next := segName(first + 1)
	release, zeroed := make(chan struct{}), make(chan error, 1)
	var writes atomic.Int32
	fs.SetHook(func(op vfs.Op) error {
		if !opOn("write", next)(op) || held(&j.files.preparing) { // a header
			return nil
		}
		switch writes.Add(1) {
		case 1:
			go func() { zeroed <- j.zeroAhead() }()
			for !held(&j.files.zeroing) {
				runtime.Gosched()
			}
			return syscall.EIO
		case 2: // the first zeros
			<-release
		}
		return nil
	})
	r := w.next(1, nil, random(50_000))
	released := false
	for tries := 0; ; tries++ {
		err := w.s.Append(t.Context(), w.at.End, r)
		if err != nil && !errors.Is(err, journal.ErrUnknown) {
			t.Fatal(err)
		}
		if (err == nil || tries == 5) && !released {
			released = true
			close(release)
			if err := <-zeroed; err != nil {
				t.Fatal(err)
			}
		}
		if err == nil {
			break
		}
	}
	w.stored(r)
	want = append(want, r)
	verifyStream(t, j, "q", want)
	verifyBodies(t, j, "q", want, nil)
	mustClose(t, j)
}

// §4: while the store is read anew, no segment is made ready: its number might be that of one that was written meanwhile, whose header it would
// replace.
func TestNothingIsPreparedWhileReopening(t *testing.T) {
	fs := newFailing()
	j := halfOpen(t, fs)
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, nil, random(1000))}
	var failed atomic.Bool
	var ops, free atomic.Int32
	fs.SetHook(func(op vfs.Op) error {
		if opOn("sync", segExt)(op) && !failed.Swap(true) {
			return syscall.EIO
		}
		if j.isBroken() {
			if ops.Add(1); !held(&j.files.preparing) {
				t.Logf("%s of %s", op.Kind, op.Path)
				free.Add(1)
			}
		}
		return nil
	})
	r := w.next(1, nil, random(1000))
	if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
		t.Fatal(err)
	}
	w.stored(r)
	want = append(want, r, w.add(1, nil, random(1000)))
	if ops.Load() == 0 || free.Load() > 0 {
		t.Errorf("%d operations, in %d of them a segment might have been made ready", ops.Load(), free.Load())
	}
	verifyStream(t, j, "q", want)
	mustClose(t, j)
}

// G10: a segment whose name is perhaps not durable, since a sync of the directory failed, gets another one.
func TestFailedDirectorySync(t *testing.T) {
	fs := newFailing()
	j := halfOpen(t, fs)
	for n := uint64(1); n < 6; n++ {
		if n%2 == 0 {
			fs.next(syscall.EIO, opOn("syncdir", filledDir))
		}
		s, err := j.files.take()
		if (err != nil) != (n%2 == 0) || err == nil && s.number != n {
			t.Fatalf("segment %d: %+v, %v", n, s, err)
		}
	}
	if all, err := fs.List(filledDir); err != nil || strings.Count(fmt.Sprint(all), segExt) != 3 {
		t.Errorf("files: %v, %v, want 3 segments", all, err)
	}
	mustClose(t, j)
}

// held tells whether somebody has a mutex.
func held(mu *sync.Mutex) bool {
	if mu.TryLock() {
		mu.Unlock()
		return false
	}
	return true
}

// §4: of the two files of the checkpoint, the only one that the store can be opened with is not written before the other one is durable,
// whatever has become of that one: torn by an earlier power cut, or older.
func TestCheckpointOrder(t *testing.T) {
	s := seed(t, 5)
	rng := rand.New(rand.NewPCG(s, s))
	f := fill(t, rng, shape{before: 5, marked: 1, body: 20, closed: true})
	old := [][]byte{f.read(t, checkpointFiles[0]), f.read(t, checkpointFiles[1])}
	// All of the log that is behind the older checkpoint is used again.
	j := mustOpen(t, filledDir, Options{FS: f.fs, SegmentBytes: 64 << 10, BallastBytes: 1})
	w := acquire(t, j, "a")
	for range 60 {
		f.records["a"] = append(f.records["a"], w.add(1, nil, random(10_000)))
		if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: w.at.End - 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.s.DiscardMeta(t.Context(), w.at.End); err != nil {
		t.Fatal(err)
	}
	last := w.add(200, nil, []byte("last"))
	for n := range 100 { // so that a checkpoint is more than a block
		if err := w.s.WritePart(t.Context(), fmt.Sprint("part of a longer name ", n), []byte("data")); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, j)
	for bad := range checkpointFiles {
		for _, torn := range []bool{false, true} {
			c := f.clone()
			b := bytes.Clone(old[bad])
			if torn {
				b[30] ^= 1
			}
			c.write(t, checkpointFiles[bad], b)
			cuts := cutsWhileCheckpointed(t, c, rng)
			if len(cuts) == 0 {
				t.Errorf("file %d bad, torn %t: it was not written anew", bad, torn)
			}
			for what, fs := range cuts {
				c := filled{fs: fs}
				j, err := c.open(Options{})
				if err != nil || j.Loss() != nil {
					t.Fatalf("seed %d: file %d bad, torn %t, power cut at the %s: %v, %v", s, bad, torn, what, err, j.Loss())
				}
				if info, err := mustRead(t, j, "a").Info(t.Context()); err != nil || info.End < last.Last() {
					t.Errorf("seed %d: stream ends at %d, %v, want %d", s, info.End, err, last.Last())
				}
				mustClose(t, j)
			}
		}
	}
}

// cutsWhileCheckpointed opens a store whose checkpoint is in one file only, and returns what power cuts leave while that is made good.
func cutsWhileCheckpointed(t *testing.T, c *filled, rng *rand.Rand) map[string]*vfs.Mem {
	t.Helper()
	cuts := map[string]*vfs.Mem{}
	c.fs.SetHook(func(op vfs.Op) error {
		if name := filepath.Base(op.Path); strings.HasPrefix(name, "CHECKPOINT") && op.Changes() {
			for i := range 4 {
				cuts[fmt.Sprint(op.Kind, " of ", name, ", ", i)] = c.fs.Crash(50, rng)
			}
		}
		return nil
	})
	j, err := c.open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the checkpoint is in both files", func() bool {
		j.maintaining.Lock()
		defer j.maintaining.Unlock()
		return j.ck.stale == [2]bool{}
	})
	mustClose(t, j)
	return cuts
}

func mustRead(t *testing.T, j *Journal, name string) journal.Reader {
	t.Helper()
	r, err := j.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
