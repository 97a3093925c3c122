package serve_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// serveHere starts "serve" without a --journal in the current folder, sends and receives a message, and stops it. It returns the log.
func serveHere(t *testing.T, env map[string]string) string {
	t.Helper()
	addr := "unix:" + filepath.Join(clitest.Dir(t), "s")
	b := clitest.Start(t, clitest.Options{Env: env}, "serve", "--listen", addr, "--http", "")
	b.Err.AwaitText(t, "broker serves")
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "q", "--count", "1", "--addr", addr).WantOut(t, "x\n")
	b.Interrupt()
	return b.Wait(t).Want(t, 0).Err
}

// Without --journal the broker is on a segment log in ./holdfast-data; a Pebble store that is there goes on being used, and the log says
// so, and how to move, in one line.
func TestDefaultJournal(t *testing.T) {
	t.Chdir(clitest.Dir(t))
	if log := serveHere(t, nil); strings.Contains(log, "Pebble") || !strings.Contains(log, "journal=segment:./holdfast-data") {
		t.Error(log)
	}
	if _, err := os.Stat("holdfast-data/CHECKPOINT-0"); err != nil {
		t.Error(err)
	}
	serveHere(t, nil) // it is found again

	t.Chdir(clitest.Dir(t))
	const move = "journal copy pebble:./holdfast-data segment:./holdfast-data-segment"
	clitest.Run(t, "send", "kept", "from before", "--journal", "pebble:./holdfast-data").Want(t, 0)
	if log := serveHere(t, nil); strings.Count(log, move) != 1 || !strings.Contains(log, "journal=pebble:./holdfast-data") {
		t.Error(log)
	}
	clitest.Run(t, "receive", "kept", "--count", "1", "--journal", "segment:./holdfast-data").WantErr(t, 2, "holdfast-data holds a Pebble store, not a segment log: use pebble:")
	// Whoever names it is not told how to move.
	if log := serveHere(t, map[string]string{"HOLDFAST_JOURNAL": "pebble:./holdfast-data"}); strings.Contains(log, move) {
		t.Error(log)
	}
	// The way that the log shows.
	clitest.Run(t, append([]string{"journal"}, strings.Fields(move)[1:]...)...).Want(t, 0)
	clitest.Run(t, "receive", "kept", "--count", "1", "--journal", "segment:./holdfast-data-segment").WantOut(t, "from before\n")

	// An explicit URL of another kind is refused before anything is touched.
	addr := "unix:" + filepath.Join(clitest.Dir(t), "s")
	for url, says := range map[string]string{
		"segment:./holdfast-data":        "holds a Pebble store, not a segment log: use pebble:./holdfast-data",
		"pebble:./holdfast-data-segment": "holds a segment log, not a Pebble store: use segment:./holdfast-data-segment",
	} {
		clitest.Run(t, "serve", "--listen", addr, "--http", "", "--journal", url).WantErr(t, 2, says)
	}
}

// A store of a newer format is refused, by name of what is there and what is read, and not touched.
func TestNewerFormat(t *testing.T) {
	for _, scheme := range []string{"segment", "pebble"} {
		dir := filepath.Join(clitest.Dir(t), "data")
		format := []byte("holdfast " + scheme + " journal, format 99\n")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "FORMAT"), format, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"serve", "--listen", "unix:" + filepath.Join(clitest.Dir(t), "s"), "--http", "", "--journal", scheme + ":" + dir},
			{"send", "q", "x", "--journal", scheme + ":" + dir}, {"journal", "verify", scheme + ":" + dir},
		} {
			clitest.Run(t, args...).WantErr(t, 1, dir+" is of format 99, this binary reads up to ")
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: %d files in the directory, %v", scheme, len(entries), err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, "FORMAT")); err != nil || string(now) != string(format) {
			t.Errorf("%s: %q, %v", scheme, now, err)
		}
	}
}
