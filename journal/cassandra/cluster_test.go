package cassandra

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// Three nodes, whose commit log is synced in groups.
func TestCluster(t *testing.T) {
	s := ownServer(t, "CASSANDRA_NODES=3", "CASSANDRA_SYNC=group")
	url := s.URL()
	o := options(t, url)
	o.Timeout = DefaultTimeout
	j := open(t, o)

	// G1: each lone append is synced by a majority.
	t.Run("synced", func(t *testing.T) {
		w := newWriter(t, j, "lone")
		w.append(1, 100)
		synced := 0
		for _, node := range []string{"n1", "n2"} {
			pid, err := s.PID(node)
			if err != nil {
				t.Fatal(err)
			}
			n := syncs(t, pid, func() { w.append(30, 100) })
			t.Logf("%d syncs of %s in 30 appends", n, node)
			if n >= 30 {
				synced++
			}
		}
		if synced == 0 {
			t.Error("neither of two nodes out of three synced each append")
		}
	})

	// §4: the races of the conformance suite, where the nodes have something to agree on.
	t.Run("conformance", func(t *testing.T) {
		cfg := conformance(t, url)
		cfg.Takeovers, cfg.Records, cfg.Parallel = 12, 20, true
		for _, r := range journaltest.Rules() {
			if strings.HasPrefix(r.Name, "race/three-owners") || r.Name == "unknown/many" {
				t.Run(r.Name, func(t *testing.T) {
					t.Parallel()
					r.Check(t, cfg)
				})
			}
		}
	})

	// G5: processes that take a stream from each other, with a node killed meanwhile.
	t.Run("processes", func(t *testing.T) {
		raceProcesses(t, url, 2, func() {
			wait(t.Context(), 2*time.Second)
			if err := s.Kill("n3"); err != nil {
				t.Error(err)
			}
		})
	})

	// G1: the node comes back with a weaker setting than it had: that is found, and nothing is stored while it is there.
	t.Run("a node comes back weaker", func(t *testing.T) {
		w := newWriter(t, j, "weak")
		w.append(1, 10)
		mode := filepath.Join(s.Dir(), "n3.sync")
		if err := errors.Join(os.WriteFile(mode, []byte("periodic"), 0o600), s.Restart()); err != nil {
			t.Fatal(err)
		}
		until(t, "the weak node to be found", func() bool {
			r := w.next(1, 10)
			err := w.s.Append(t.Context(), w.end.end, r)
			if err == nil {
				w.took(r)
			}
			return errors.Is(err, journal.ErrWeak)
		})
		if err := errors.Join(os.Remove(mode), s.Kill("n3")); err != nil {
			t.Fatal(err)
		}
		until(t, "appends to go on without it", func() bool { return w.s.Append(t.Context(), w.end.end, w.next(1, 10)) == nil })
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	})

	// G1, G3, G10: nothing acknowledged is lost or doubled by a node that dies, and none by one that stands still.
	t.Run("a node dies", func(t *testing.T) {
		l := startLoad(t, j, 4)
		l.progress()
		if err := s.Kill("n2"); err != nil {
			t.Fatal(err)
		}
		l.progress()
		if gap := l.progress(); gap > 15*time.Second {
			t.Errorf("longest gap after a node was killed: %v", gap)
		} else {
			t.Logf("longest gap after a node was killed: %v", gap)
		}
		// A journal can be opened, and streams acquired, with a node away.
		other := open(t, options(t, url))
		newWriter(t, other, "another").append(2, 100)
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		l.progress()
		if err := s.Pause("n3"); err != nil {
			t.Fatal(err)
		}
		wait(t.Context(), 5*time.Second)
		gap := l.progress()
		if err := s.Resume("n3"); err != nil {
			t.Fatal(err)
		}
		if gap > 15*time.Second {
			t.Errorf("longest gap while a node was paused: %v", gap)
		} else {
			t.Logf("longest gap while a node was paused: %v", gap)
		}
		l.progress()
		l.stop()
	})
}
