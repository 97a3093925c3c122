package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// failing is a file system of which one operation fails when it is told to.
type failing struct {
	*vfs.Mem
	arm atomic.Pointer[func(vfs.Op) error]
	hit chan string // gets the operation that failed
}

func newFailing() *failing {
	f := &failing{Mem: vfs.NewMem(), hit: make(chan string, 1)}
	f.SetHook(func(op vfs.Op) error {
		arm := f.arm.Load()
		if arm == nil {
			return nil
		}
		err := (*arm)(op)
		if err != nil && f.arm.CompareAndSwap(arm, nil) {
			select {
			case f.hit <- fmt.Sprintf("%s of %s", op.Kind, filepath.Base(op.Path)):
			default: // nobody asks
			}
			return err
		}
		return nil
	})
	return f
}

// next makes the next operation fail that match is true for.
func (f *failing) next(err error, match func(vfs.Op) bool) {
	arm := func(op vfs.Op) error {
		if match(op) {
			return err
		}
		return nil
	}
	f.arm.Store(&arm)
}

func opOn(kind, file string) func(vfs.Op) bool {
	return func(op vfs.Op) bool { return op.Kind == kind && strings.Contains(filepath.Base(op.Path), file) }
}

// appendSettled appends a record, and repeats the call as it was while its outcome is unknown.
func appendSettled(ctx context.Context, s journal.Stream, after uint64, r *journal.Record) error {
	for {
		err := s.Append(ctx, after, r)
		if !errors.Is(err, journal.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		// The call before told that the store is being read again; the next one waits for it in the store's own queue.
		pauseCtx, cancel := context.WithTimeout(ctx, time.Millisecond)
		<-pauseCtx.Done()
		cancel()
	}
}

// verifyStream reads a stream and compares it with what was appended.
func verifyStream(t testing.TB, j journal.Journal, name string, want []*journal.Record) {
	t.Helper()
	r, err := j.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for rec, err := range r.ReadMeta(t.Context(), 1, math.MaxUint64) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(want) || rec.Header != want[i].Header || !bytes.Equal(rec.Meta, want[i].Meta) {
			t.Fatalf("stream %s: record %d is %+v", name, i, rec.Header)
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("stream %s has %d records, want %d", name, i, len(want))
	}
}

// verifyBodies reads the bodies of a stream's records, of which those in dead may be gone.
func verifyBodies(t testing.TB, j journal.Journal, name string, want []*journal.Record, dead map[uint64]bool) {
	t.Helper()
	r, err := j.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		found := w.BodyLen == 0 || dead[w.First]
		for rec, err := range r.ReadBodies(t.Context(), []uint64{w.First}) {
			if err != nil {
				t.Fatal(err)
			}
			found = rec.Header == w.Header && bytes.Equal(slices.Concat(rec.Body...), slices.Concat(w.Body...))
		}
		if !found {
			t.Fatalf("stream %s: the body of seq %d is missing or another", name, w.First)
		}
	}
}

// §4: a failed write or sync of the log, at whatever step, ends in reading the store anew and going on in another segment; the append
// that met it is unknown, and settled by repeating it. A failed checkpoint, mark or new segment is tried again.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		match func(vfs.Op) bool
	}{
		{"log write", opOn("write", segExt)},
		{"log sync", opOn("sync", segExt)},
		{"new segment", opOn("open", segExt)},
		{"directory sync", opOn("syncdir", "store")},
		{"checkpoint write", opOn("write", "CHECKPOINT")},
		{"checkpoint sync", opOn("sync", "CHECKPOINT")},
		{"mark write", opOn("write", "HIGHWATER")},
		{"removing a segment", opOn("remove", segExt)},
		{"renaming a segment", opOn("rename", segExt)},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := newFailing()
			j := mustOpen(t, "store", Options{FS: fs, SegmentBytes: 64 << 10})
			w := acquire(t, j, "q")
			var want []*journal.Record
			dead := map[uint64]bool{}
			add := func() {
				t.Helper()
				r := w.next(2, []byte("meta"), random(1000))
				if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
					t.Fatal(err)
				}
				w.stored(r)
				want = append(want, r)
				if n := len(want); n > 20 { // so that segments become free
					dead[want[n-20].First] = true
					if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: want[n-20].First, To: want[n-20].Last()}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 10 {
				add()
			}
			fs.next(errors.New("injected"), c.match)
			eventually(t, "the operation failed", func() bool {
				for range 10 {
					add()
				}
				if n := len(want); n > 400 { // segments are free only without metas
					if err := w.s.DiscardMeta(t.Context(), want[n-100].First); err != nil {
						t.Fatal(err)
					}
					want = want[n-100:]
				}
				select {
				case op := <-fs.hit:
					t.Log(op)
					return true
				default:
					return false
				}
			})
			for range 50 {
				add()
			}
			verifyStream(t, j, "q", want)
			verifyBodies(t, j, "q", want, dead)
			mustClose(t, j)
			j = mustOpen(t, "store", Options{FS: fs})
			verifyStream(t, j, "q", want)
			verifyBodies(t, j, "q", want, dead)
		})
	}
}

// §4: whatever operation of the file system fails, under load, nothing that was acknowledged is lost, and the journal goes on by
// itself.
func TestRandomFailures(t *testing.T) {
	s := seed(t, 3)
	for i := range uint64(4 * soak) {
		rng := rand.New(rand.NewPCG(s+i, 1))
		fs := newFailing()
		j := mustOpen(t, "store", Options{FS: fs, SegmentBytes: 64 << 10})
		want := make([][]*journal.Record, 3)
		dead := []map[uint64]bool{{}, {}, {}}
		var wg sync.WaitGroup
		writers := make([]*writer, len(want))
		for n := range want {
			writers[n] = acquire(t, j, fmt.Sprint("q", n))
		}
		for n, w := range writers {
			own := rand.New(rand.NewPCG(rng.Uint64(), 2))
			wg.Go(func() {
				for range 150 {
					r := w.next(1+own.Uint64N(3), []byte("meta"), random(1+own.IntN(8000)))
					r.Buffered = own.IntN(8) == 0
					if err := appendSettled(t.Context(), w.s, w.at.End, r); errors.Is(err, journal.ErrConflict) {
						continue // a buffered one before it was lost with the log
					} else if err != nil {
						t.Errorf("seed %d: %v", s+i, err)
						return
					}
					w.stored(r)
					want[n] = append(want[n], r)
					if rec := want[n][own.IntN(len(want[n]))]; own.IntN(3) == 0 {
						dead[n][rec.First] = true
						if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: rec.First, To: rec.Last()}}); err != nil {
							t.Errorf("seed %d: %v", s+i, err)
						}
					}
					if own.IntN(25) == 0 {
						at := own.IntN(30)
						var seen atomic.Int64
						fs.next(syscall.EIO, func(op vfs.Op) bool { return op.Changes() && seen.Add(1) > int64(at) })
					}
				}
			})
		}
		wg.Wait()
		fs.arm.Store(nil)
		for n := range want {
			verifyStream(t, j, fmt.Sprint("q", n), want[n])
			verifyBodies(t, j, fmt.Sprint("q", n), want[n], dead[n])
		}
		reopens := j.Metrics().Reopens
		if err := j.Close(); err != nil {
			t.Errorf("seed %d: close: %v", s+i, err)
		}
		j = mustOpen(t, "store", Options{FS: fs})
		for n := range want {
			verifyStream(t, j, fmt.Sprint("q", n), want[n])
			verifyBodies(t, j, fmt.Sprint("q", n), want[n], dead[n])
		}
		mustClose(t, j)
		t.Logf("seed %d: read again %d times", s+i, reopens)
	}
}

// G10: a sync that failed is never trusted: what it was for may be read back from the page cache, and still not be on disk. Everything that is
// acknowledged after it is there after a power cut.
func TestFailedSyncThenPowerCut(t *testing.T) {
	s := seed(t, 9)
	for i := range uint64(6 * soak) {
		rng := rand.New(rand.NewPCG(s+i, 1))
		fs := newFailing()
		j := mustOpen(t, "store", Options{FS: fs, SegmentBytes: 64 << 10})
		w := acquire(t, j, "q")
		var want []*journal.Record
		for n := range 30 {
			if n%10 == 5 {
				fs.next(syscall.EIO, opOn("sync", segExt))
			}
			r := w.next(1, []byte("meta"), random(1+rng.IntN(6000)))
			if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
				t.Fatal(err)
			}
			w.stored(r)
			want = append(want, r)
		}
		cut := fs.Crash(rng.IntN(2)*50, rng)
		mustClose(t, j)
		j = mustOpen(t, "store", Options{FS: cut})
		if j.Loss() != nil {
			t.Fatalf("seed %d: %v", s+i, j.Loss())
		}
		verifyStream(t, j, "q", want)
		verifyBodies(t, j, "q", want, nil)
		mustClose(t, j)
	}
}

// G9: calls end by their context while the log hangs, and are settled once it goes on. Buffered records do not wait for it.
func TestHangingLog(t *testing.T) {
	fs := newFailing()
	j := mustOpen(t, "store", Options{FS: fs})
	w, other := acquire(t, j, "q"), acquire(t, j, "other")
	release := make(chan struct{})
	match := opOn("sync", segExt)
	hanging := make(chan struct{})
	var once sync.Once
	arm := func(op vfs.Op) error {
		if match(op) {
			once.Do(func() { close(hanging) })
			<-release
		}
		return nil
	}
	fs.arm.Store(&arm)
	r := w.next(1, nil, []byte("body"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hanging
		cancel()
	}()
	if err := w.s.Append(ctx, w.at.End, r); !errors.Is(err, journal.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("append to a log that hangs: %v, want ErrUnknown and the context's error", err)
	}
	if info, err := w.s.Info(t.Context()); err != nil || info.End != 0 {
		t.Errorf("while the log hangs: %+v, %v: a record is shown that is not on stable storage", info, err)
	}
	var buffered []*journal.Record
	for range 500 {
		b := other.next(1, nil, []byte("buffered"))
		b.Buffered = true
		if err := other.s.Append(t.Context(), other.at.End, b); err != nil {
			t.Fatal(err)
		}
		other.stored(b)
		buffered = append(buffered, b)
	}
	close(release)
	if err := w.s.Append(t.Context(), w.at.End, r); err != nil {
		t.Fatal(err)
	}
	verifyStream(t, j, "q", []*journal.Record{r})
	verifyStream(t, j, "other", buffered)
}

// G9: an append that was started without a goroutine that waits has an answer when the store is closed, also if the disk hangs; and only one.
func TestHangingLogIsClosed(t *testing.T) {
	fs := newFailing()
	j, err := Open("store", Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	w := acquire(t, j, "q")
	release := make(chan struct{})
	match := opOn("sync", segExt)
	arm := func(op vfs.Op) error {
		if match(op) {
			<-release
		}
		return nil
	}
	fs.arm.Store(&arm)
	answers := make(chan error, 2)
	w.s.(journal.Starter).StartAppend(w.at.End, w.next(1, nil, []byte("body")), func(err error) { answers <- err })
	j.patience = time.Millisecond
	if err := j.Close(); err == nil {
		t.Error("closed while the disk hangs")
	}
	if err := <-answers; !errors.Is(err, journal.ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	close(release)
	j.helpers.Wait()
	j.loops.Wait()
	if len(answers) > 0 {
		t.Errorf("a second answer: %v", <-answers)
	}
}
