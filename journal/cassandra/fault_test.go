package cassandra

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// load is owners that append until they are stopped.
type load struct {
	t       *testing.T
	j       *Journal
	writers []*writer
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu  sync.Mutex
	gap time.Duration // the longest time between two acknowledgements of a stream
}

func startLoad(t *testing.T, j *Journal, owners int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, j: j, cancel: cancel}
	for i := range owners {
		w := newWriter(t, j, "orders "+strconv.Itoa(i))
		l.writers = append(l.writers, w)
		l.wg.Go(func() {
			last := time.Now()
			for ctx.Err() == nil {
				r := w.next(20, 2000)
				// A record that is begun is carried to its end, so that what is acknowledged is what is stored.
				if err := w.put(t.Context(), r); err != nil {
					t.Errorf("append at seq %d: %v", r.First, err)
					return
				}
				l.mu.Lock()
				l.gap = max(l.gap, time.Since(last))
				l.mu.Unlock()
				last = time.Now()
			}
		})
	}
	return l
}

// progress waits until every stream has gone on by some records, and returns the longest gap since the last call.
func (l *load) progress() time.Duration {
	l.t.Helper()
	for _, w := range l.writers {
		n := w.count()
		until(l.t, "an append", func() bool { return w.count() > n+3 || l.t.Failed() })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	gap := l.gap
	l.gap = 0
	return gap
}

// stop ends the load and requires that all that was acknowledged is there, once and in order, and nothing else.
func (l *load) stop() {
	l.t.Helper()
	l.cancel()
	l.wg.Wait()
	for _, w := range l.writers {
		w.wantAcked(w.s)
	}
}

// G1, G3, G10: the only node is paused, and killed and started again, under load: nothing acknowledged is lost or doubled, and the appends go on
// by themselves.
func TestNodeDies(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	if n := loneAppends(t, s, ""); n < 100 {
		t.Errorf("%d syncs in 100 appends with commitlog_sync: batch, want each synced before it is acknowledged", n)
	}
	j := open(t, options(t, s.URL()))
	l := startLoad(t, j, 3)
	l.progress()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	// G9: calls end with their context meanwhile.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	began := time.Now()
	_, err := j.Acquire(ctx, "another")
	cancel()
	if took := time.Since(began); err == nil || took > 3*time.Second {
		t.Errorf("acquire on a paused node: %v after %v", err, took)
	}
	wait(t.Context(), 3*time.Second)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("longest gap with a pause of 3 s: %v", l.progress())
	if err := errors.Join(s.Kill(), s.Restart()); err != nil {
		t.Fatal(err)
	}
	answers := time.Now()
	l.progress()
	t.Logf("appends went on %v after the node answered again", time.Since(answers))
	l.stop()
}

// syncs counts the calls of a process that make files durable, while f runs: the commit log is a mapped file, so msync is one.
func syncs(t *testing.T, pid int, f func()) int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), "strace", "-f", "-e", "trace=fsync,fdatasync,msync", "-o", out, "-p", strconv.Itoa(pid))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs strace (Debian's package): %v", err)
	}
	buf := make([]byte, 4096)
	if n, err := said.Read(buf); err != nil || !bytes.Contains(buf[:n], []byte("attached")) {
		t.Fatalf("strace: %q %v", buf[:n], err)
	}
	go func() { // it tells about every thread
		for {
			if _, err := said.Read(buf); err != nil {
				return
			}
		}
	}()
	f()
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // it was interrupted
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "sync(")
}

// loneAppends counts the syncs of a hundred appends, one after the other.
func loneAppends(t *testing.T, s *testserver.Server, more string) int {
	t.Helper()
	w := newWriter(t, open(t, options(t, s.URL()+more)), "orders")
	w.append(1, 100)
	pid, err := s.PID("n1")
	if err != nil {
		t.Fatal(err)
	}
	n := syncs(t, pid, func() { w.append(100, 100) })
	t.Logf("%d syncs in 100 appends", n)
	return n
}
