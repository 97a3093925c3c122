package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfastmq/holdfast/journal"
)

// failing is a file system of which one operation fails when it is told to.
type failing struct {
	vfs.FS
	arm atomic.Pointer[func(errorfs.Op) error]
	hit chan string // gets the operation that failed
}

func newFailing(fs vfs.FS) *failing {
	f := &failing{hit: make(chan string, 1)}
	f.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		arm := f.arm.Load()
		if arm == nil {
			return nil
		}
		err := (*arm)(op)
		if err != nil && f.arm.CompareAndSwap(arm, nil) {
			select {
			case f.hit <- fmt.Sprintf("operation %d on %s", op.Kind, path.Base(op.Path)):
			default: // nobody asks
			}
			return err
		}
		return nil
	}))
	return f
}

// next makes the next operation fail that match is true for.
func (f *failing) next(err error, match func(errorfs.Op) bool) {
	arm := func(op errorfs.Op) error {
		if match(op) {
			return err
		}
		return nil
	}
	f.arm.Store(&arm)
}

func opOn(kind errorfs.OpKind, file string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool { return op.Kind == kind && strings.Contains(path.Base(op.Path), file) }
}

// appendSettled appends a record, and repeats the call as it was while its outcome is unknown.
func appendSettled(ctx context.Context, s journal.Stream, after uint64, r *journal.Record) error {
	for {
		err := s.Append(ctx, after, r)
		if !errors.Is(err, journal.ErrUnknown) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		// The call before told that the store is being opened again; the next one waits for it in the
		// store's own queue.
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

// §4, known traps: a failed write, sync or rotation of the log, and a failed change of the manifest,
// end in close-and-reopen, not in the end of the process; the append that met it is unknown, and
// settled by repeating it.
func TestLogAndManifestFailures(t *testing.T) {
	for _, c := range []struct {
		name  string
		match func(errorfs.Op) bool
	}{
		{"log write", opOn(errorfs.OpFileWrite, ".log")},
		{"log sync", opOn(errorfs.OpFileSyncData, ".log")},
		{"log creation", opOn(errorfs.OpCreate, ".log")},
		{"manifest write", opOn(errorfs.OpFileWrite, "MANIFEST")},
		{"manifest sync", opOn(errorfs.OpFileSync, "MANIFEST")},
		{"table write", opOn(errorfs.OpFileWrite, ".sst")},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := newFailing(vfs.NewMem())
			j := mustOpen(t, "store", Options{FS: fs, MemTableBytes: 256 << 10})
			w := acquire(t, j, "q")
			var want []*journal.Record
			add := func() {
				t.Helper()
				r := w.next(2, []byte("meta"), make([]byte, 1000))
				if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
					t.Fatal(err)
				}
				w.stored(r)
				want = append(want, r)
			}
			for range 10 {
				add()
			}
			fs.next(errors.New("injected"), c.match)
			for done := false; !done; {
				add()
				if e, err := j.use(); err == nil { // what needs a flush, or a new log, gets one
					_, err = e.db.AsyncFlush()
					e.leave()
					if err != nil {
						t.Fatal(err)
					}
				}
				select {
				case op := <-fs.hit:
					t.Log(op)
					done = true
				default:
				}
			}
			for range 10 {
				add()
			}
			verifyStream(t, j, "q", want)
			mustClose(t, j)
			j = mustOpen(t, "store", Options{FS: fs})
			verifyStream(t, j, "q", want)
		})
	}
}

// §4: whatever operation of the file system fails, under load, nothing that was acknowledged
// is lost, and the journal goes on by itself.
func TestRandomFailures(t *testing.T) {
	s := seed(t, 3)
	for i := range uint64(8 * soak) {
		rng := rand.New(rand.NewPCG(s+i, 1))
		fs := newFailing(vfs.NewMem())
		j := mustOpen(t, "store", Options{FS: fs, MemTableBytes: 256 << 10})
		want := make([][]*journal.Record, 3)
		var wg sync.WaitGroup
		writers := make([]*writer, len(want))
		for n := range want {
			writers[n] = acquire(t, j, fmt.Sprint("q", n))
		}
		for n, w := range writers {
			own := rand.New(rand.NewPCG(rng.Uint64(), 2))
			wg.Go(func() {
				for range 150 {
					r := w.next(1+own.Uint64N(3), []byte("meta"), make([]byte, own.IntN(8000)))
					if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
						t.Errorf("seed %d: %v", s+i, err)
						return
					}
					w.stored(r)
					want[n] = append(want[n], r)
					if rec := want[n][own.IntN(len(want[n]))]; own.IntN(3) == 0 {
						if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: rec.First, To: rec.Last()}}); err != nil {
							t.Errorf("seed %d: %v", s+i, err)
						}
					}
					if own.IntN(25) == 0 {
						at := own.IntN(30)
						var seen atomic.Int64
						fs.next(syscall.EIO, func(op errorfs.Op) bool {
							return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && seen.Add(1) > int64(at)
						})
					}
				}
			})
		}
		wg.Wait()
		fs.arm.Store(nil)
		for n := range want {
			verifyStream(t, j, fmt.Sprint("q", n), want[n])
		}
		reopens := j.Metrics().Reopens
		if err := j.Close(); err != nil {
			t.Errorf("seed %d: close: %v", s+i, err)
		}
		j = mustOpen(t, "store", Options{FS: fs})
		for n := range want {
			verifyStream(t, j, fmt.Sprint("q", n), want[n])
		}
		mustClose(t, j)
		t.Logf("seed %d: opened again %d times", s+i, reopens)
	}
}

// §4: the engine's Fatalf is turned into close-and-reopen, also where opening fails at first.
func TestFatalf(t *testing.T) {
	for _, file := range []string{"", ".log", "MANIFEST", "marker.manifest", ".dbtmp"} {
		fs := newFailing(vfs.NewMem())
		j := mustOpen(t, "store", Options{FS: fs})
		w := acquire(t, j, "q")
		want := []*journal.Record{w.add(1, nil, []byte("before"))}
		old := j.engine()
		if file != "" {
			fs.next(errors.New("injected"), opOn(errorfs.OpCreate, file))
		}
		engineLog{old.g, j.log}.Fatalf("the engine says that %s", "all is lost")
		r := w.next(1, nil, []byte("after"))
		if err := appendSettled(t.Context(), w.s, w.at.End, r); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			t.Log(<-fs.hit)
		}
		verifyStream(t, j, "q", append(want, r))
		if j.engine() == old || j.Metrics().Reopens != 1 {
			t.Errorf("the engine was not replaced")
		}
		mustClose(t, j)
	}
}

// G9: calls end by their context while the log hangs, and are settled once it goes on. Buffered
// records do not wait for it.
func TestHangingLog(t *testing.T) {
	fs := newFailing(vfs.NewMem())
	j := mustOpen(t, "store", Options{FS: fs})
	w, other := acquire(t, j, "q"), acquire(t, j, "other")
	release := make(chan struct{})
	match := opOn(errorfs.OpFileSyncData, ".log")
	hanging := make(chan struct{})
	var once sync.Once
	arm := func(op errorfs.Op) error {
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
