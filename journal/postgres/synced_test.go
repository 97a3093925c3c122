package postgres

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// syncs counts the fsync and fdatasync calls of all processes of a server, those that it starts meanwhile included, while f runs.
func syncs(t *testing.T, s *testserver.Server, f func()) int {
	t.Helper()
	pids, err := s.Processes("postgres")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "calls")
	args := []string{"-f", "-e", "trace=fsync,fdatasync", "-o", out}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	trace := exec.Command("strace", args...)
	pipe, err := trace.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := trace.Start(); err != nil {
		t.Fatalf("this test needs strace (Debian's package): %v", err)
	}
	said := bufio.NewScanner(pipe)
	for range pids {
		if !said.Scan() || !strings.Contains(said.Text(), "attached") {
			t.Fatalf("strace: %q", said.Text())
		}
	}
	f()
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for said.Scan() { // until it has ended: it tells of each process that it leaves
	}
	_ = trace.Wait() // it was interrupted
	calls, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// A call that another process interrupts is told in two lines, of which the second is "resumed".
	return strings.Count(string(calls), "fsync(") + strings.Count(string(calls), "fdatasync(")
}

// G1: synced means synced. The server's processes call fsync or fdatasync at least once for each lone append. The same
// test finds less on a server that is configured not to sync, and such a server is refused unless that is accepted.
func TestEachAppendIsSynced(t *testing.T) {
	const appends = 100
	count := func(t *testing.T, s *testserver.Server, url string, o Options) int {
		j := openTest(t, url, o)
		w := newWriter(t, j, "orders")
		return syncs(t, s, func() {
			for range appends {
				w.put(20, 100)
			}
		})
	}
	strong := ownServer(t)
	n := count(t, strong, newSchema(t, strong), Options{})
	t.Logf("%d syncs in %d appends", n, appends)
	if n < appends {
		t.Errorf("%d syncs in %d appends", n, appends)
	}
	for _, setting := range []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off"} {
		weak := ownServer(t, "POSTGRES_OPTIONS=-c "+setting+" -c wal_writer_delay=10s")
		url := newSchema(t, weak)
		if _, err := Open(t.Context(), url, quiet(Options{})); !errors.Is(err, journal.ErrWeak) {
			t.Fatalf("a server with %s: %v, want ErrWeak", setting, err)
		}
		if setting == "full_page_writes=off" {
			continue // it syncs, but a torn page may take what was synced with it
		}
		n := count(t, weak, url, Options{AcceptWeak: true})
		t.Logf("%d syncs in %d appends with %s", n, appends, setting)
		if n >= appends {
			t.Errorf("a server with %s has synced %d times in %d appends: the count proves nothing", setting, n, appends)
		}
	}
}
