package mongodb

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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

// G1: the server of these tests syncs each append before it answers, so that what they see of a killed server counts; and the same count tells
// one that does not. (Of a real MongoDB the write concern is what there is to rely on.)
func TestSynced(t *testing.T) {
	const appends = 100
	for _, c := range []struct {
		name string
		env  []string
		ok   func(syncs int) bool
	}{
		{"full", nil, func(n int) bool { return n >= appends }},
		{"weak", []string{"MONGODB_SYNC=off"}, func(n int) bool { return n < appends/10 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startOwn(t, c.env...)
			w := acquire(t, mustOpen(t, newURL(t, s, ""), quiet()), "orders")
			pid, err := s.PID("mongodb")
			if err != nil {
				t.Fatal(err)
			}
			counts := syncs(t, map[string]int{"mongodb": pid}, func() {
				for range appends {
					if err := w.append(t.Context(), w.next(1, nil)); err != nil {
						t.Fatal(err)
					}
				}
			})
			t.Logf("%d syncs in %d appends", counts["mongodb"], appends)
			if !c.ok(counts["mongodb"]) {
				t.Errorf("%d syncs in %d appends", counts["mongodb"], appends)
			}
		})
	}
}
