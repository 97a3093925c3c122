package hbase

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// G1: HBase calls fsync at least once for each lone append. That the count would find a server which does not is a part of TestOtherServer.
func syncedMeansSynced(t *testing.T, s *testserver.Server) {
	if n := syncsOfAppends(t, s, testOptions(t, s)); n < loneAppends {
		t.Errorf("%d fsync calls in %d appends", n, loneAppends)
	}
}

const loneAppends = 100

// syncsOfAppends counts the fsync and fdatasync calls of HBase during lone appends.
func syncsOfAppends(t *testing.T, s *testserver.Server, o Options) int {
	t.Helper()
	w := acquire(t, mustOpen(t, o), "orders")
	w.add(nil) // whatever is done once is done
	pid, err := s.PID("hbase")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "calls")
	trace := exec.Command("strace", "-f", "-e", "trace=fsync,fdatasync", "-o", out, "-p", strconv.Itoa(pid))
	said, err := trace.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := trace.Start(); err != nil {
		t.Fatalf("this test needs strace (Debian's package strace): %v", err)
	}
	b := make([]byte, 256)
	if n, err := said.Read(b); err != nil || !bytes.Contains(b[:n], []byte("attached")) {
		t.Fatalf("strace: %q %v", b[:n], err)
	}
	for range loneAppends {
		w.add([]byte("x"))
	}
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = trace.Wait() // it was interrupted
	calls, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// A call that another thread's interrupts is told in two lines, of which the second is "resumed".
	n := strings.Count(string(calls), "fsync(") + strings.Count(string(calls), "fdatasync(")
	t.Logf("%d fsync calls in %d appends", n, loneAppends)
	return n
}
