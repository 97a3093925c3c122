package jetstream

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// syncs counts the fsync and fdatasync calls of a process while f runs.
func syncs(t *testing.T, pids map[string]int, f func()) map[string]int {
	t.Helper()
	dir := t.TempDir()
	stops := []func(){}
	for node, pid := range pids {
		out := filepath.Join(dir, node)
		cmd := exec.Command("strace", "-f", "-e", "trace=fsync,fdatasync", "-o", out, "-p", strconv.Itoa(pid))
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatalf("this test needs strace (Debian's package): %v", err)
		}
		buf := make([]byte, 256)
		n, err := said.Read(buf) // "strace: Process N attached"
		if err != nil || !bytes.Contains(buf[:n], []byte("attached")) {
			t.Fatalf("strace: %q %v", buf[:n], err)
		}
		stops = append(stops, func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	}
	f()
	for _, stop := range stops {
		stop()
	}
	counts := map[string]int{}
	for node := range pids {
		data, err := os.ReadFile(filepath.Join(dir, node))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "sync(") {
				counts[node]++
			}
		}
	}
	return counts
}

// loneAppends counts the syncs of each node during a hundred lone appends.
func loneAppends(t *testing.T, s *testserver.Server) map[string]int {
	t.Helper()
	j := mustOpen(t, streamURL(s, "SYNC", "sync=always"), quiet())
	w := acquire(t, j, "orders")
	pids := map[string]int{}
	for _, node := range s.Nodes() {
		pid, err := s.PID(node)
		if err != nil {
			t.Fatal(err)
		}
		pids[node] = pid
	}
	pause(t.Context(), 200*time.Millisecond) // what Acquire left to do is done
	counts := syncs(t, pids, func() {
		for range 100 {
			if err := w.append(t.Context(), w.next(1, nil)); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("syncs in 100 appends: %v", counts)
	return counts
}

// G1: each lone append is synced by a majority of the nodes before it is acknowledged. A server that syncs lazily, which the same
// test finds out, is refused where it can be asked.
func TestSynced(t *testing.T) {
	for _, c := range []struct {
		name   string
		nodes  string
		sync   string
		synced int // nodes that have to sync
	}{
		{"one", "1", "always", 1}, {"three", "3", "always", 2}, {"one, lazy", "1", "2m", 0}, {"three, lazy", "3", "2m", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ownCluster(t, "NATS_NODES="+c.nodes, "NATS_SYNC="+c.sync)
			n := 0
			for _, count := range loneAppends(t, s) {
				if count >= 100 {
					n++
				}
			}
			if n < c.synced || c.synced == 0 && n > 0 {
				t.Errorf("%d nodes synced each append, want %d", n, c.synced)
			}
		})
	}
}
