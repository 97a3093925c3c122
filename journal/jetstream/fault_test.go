package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// ownCluster starts servers of the test's own.
func ownCluster(t *testing.T, env ...string) *testserver.Server {
	t.Helper()
	s, err := testserver.StartOwn("nats", env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// nodeURL is the URL of a journal on one node alone.
func nodeURL(s *testserver.Server, node int, stream, query string) string {
	return s.URLs()[node] + "/" + stream + "?" + query
}

// leader returns the node that leads the stream, asking through j.
func leader(t *testing.T, j *Journal) string {
	t.Helper()
	for {
		info, err := j.c.st.Info(t.Context())
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" {
			return info.Cluster.Leader
		}
		if !pause(t.Context(), 50*time.Millisecond) {
			t.Fatalf("no leader: %v", err)
		}
	}
}

// load appends records until it is stopped, and returns the writer.
func load(t *testing.T, w *writer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.append(t.Context(), w.next(3, bytes.Repeat([]byte("body"), 100))); err != nil {
				t.Errorf("append: %v", err)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// G1 and §8: a node of three is lost, by a kill or a pause, as leader or as follower: appends go on by themselves, and nothing
// that was acknowledged is missing.
func TestNodeLoss(t *testing.T) {
	s := ownCluster(t)
	j := mustOpen(t, streamURL(s, "LOSS", "sync=always&replicas=3"), quiet())
	w := acquire(t, j, "orders")
	for round := range 2 * soak() {
		for _, how := range []string{"kill leader", "kill follower", "pause leader"} {
			node := leader(t, j)
			if strings.HasSuffix(how, "follower") {
				node = []string{"n1", "n2", "n3"}[slices.Index([]string{"n3", "n1", "n2"}, node)]
			}
			before := len(w.acked)
			w.gap, w.last = 0, time.Time{}
			stop := load(t, w)
			w.wait(100)
			kill, undo := s.Kill, s.Restart
			if strings.HasPrefix(how, "pause") {
				kill, undo = s.Pause, func() error { return s.Resume(node) }
			}
			if err := kill(node); err != nil {
				t.Fatal(err)
			}
			w.wait(100) // it goes on without the node
			if err := undo(); err != nil {
				t.Fatal(err)
			}
			w.wait(100)
			stop()
			t.Logf("round %d, %s: %d appends, longest gap %v", round, how, len(w.acked)-before, w.gap)
			if w.gap > 15*time.Second {
				t.Errorf("%s: no append was acknowledged for %v", how, w.gap)
			}
			if t.Failed() {
				return
			}
		}
	}
	wantHistory(t, j, "orders", w.acked)
}

// G5: an owner behind a node that was paused is fenced, and its append, which the node sends on when it is resumed, leaves no trace.
func TestPausedOwner(t *testing.T) {
	s := ownCluster(t)
	other := mustOpen(t, nodeURL(s, 1, "PAUSED", "sync=always&replicas=3"), quiet())
	for node := range 3 {
		name := fmt.Sprintf("orders %d", node)
		if node == 1 {
			continue // that is the other's
		}
		t.Run(name, func(t *testing.T) {
			j := mustOpen(t, nodeURL(s, node, "PAUSED", "sync=always&timeout=1s"), quiet())
			old := acquire(t, j, name)
			for range 5 {
				if err := old.append(t.Context(), old.next(2, []byte("body"))); err != nil {
					t.Fatal(err)
				}
			}
			late := old.next(1, []byte("late"))
			if err := s.Pause(fmt.Sprintf("n%d", node+1)); err != nil {
				t.Fatal(err)
			}
			if err := old.s.Append(t.Context(), old.end, late); !errors.Is(err, journal.ErrUnknown) {
				t.Errorf("append through a paused node: %v, want ErrUnknown", err)
			}
			w := acquire(t, other, name)
			stored := w.end == late.Last() && w.crc == late.CRC
			acked := slices.Clone(old.acked)
			if stored {
				acked = append(acked, late.Header)
			}
			for range 20 {
				if err := w.append(t.Context(), w.next(1, []byte("of the successor"))); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Resume(fmt.Sprintf("n%d", node+1)); err != nil {
				t.Fatal(err)
			}
			err := old.append(t.Context(), late)
			if stored && err != nil || !stored && !errors.Is(err, journal.ErrFenced) {
				t.Errorf("the late append, stored %v: %v", stored, err)
			}
			for range 5 {
				if err := w.append(t.Context(), w.next(1, []byte("of the successor"))); err != nil {
					t.Fatal(err)
				}
			}
			wantHistory(t, other, name, append(acked, w.acked...))
		})
	}
}

// G1: a single server is killed under load and started again.
func TestServerKilled(t *testing.T) {
	s := ownCluster(t, "NATS_NODES=1")
	j := mustOpen(t, streamURL(s, "KILLED", "sync=always"), quiet())
	if j.replicas != 1 {
		t.Fatalf("%d replicas on a server without a cluster", j.replicas)
	}
	w := acquire(t, j, "orders")
	for range 4 * soak() {
		stop := load(t, w)
		w.wait(100)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		w.wait(1)
		stop()
		if d := w.last.Sub(back); d > 5*time.Second {
			t.Errorf("appends went on %v after the server was back", d)
		}
	}
	t.Logf("%d appends", len(w.acked))
	wantHistory(t, j, "orders", w.acked)
	next := acquire(t, j, "orders")
	if next.end != w.end || next.crc != w.crc {
		t.Errorf("acquired at seq %d, want %d", next.end, w.end)
	}
}

// §4: two owners on different nodes take a stream from each other while the leader changes.
func TestLeaderChanges(t *testing.T) {
	s := ownCluster(t)
	a := mustOpen(t, nodeURL(s, 0, "LEADERS", "sync=always&replicas=3"), quiet())
	b := mustOpen(t, nodeURL(s, 2, "LEADERS", "sync=always"), quiet())
	var all []journal.Header
	for i := range 30 * soak() {
		j := []*Journal{a, b}[i%2]
		w := acquire(t, j, "orders")
		if n := len(all); n > 0 && (w.end != all[n-1].Last() || w.crc != all[n-1].CRC) {
			t.Fatalf("epoch %d found the end %d, the one before had %d acknowledged", w.s.Acquired().Epoch, w.end, all[n-1].Last())
		}
		stop := load(t, w)
		w.wait(10)
		if _, err := a.c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.LEADERS", nil, 5*time.Second); err != nil {
			t.Logf("step down: %v", err)
		}
		w.wait(10)
		stop()
		all = append(all, w.acked...)
	}
	t.Logf("%d appends", len(all))
	wantHistory(t, a, "orders", all)
}
