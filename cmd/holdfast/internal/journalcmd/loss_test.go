package journalcmd_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

// mark returns what the high-water marks of a segment log say.
func mark(t *testing.T, dir string) (all []byte) {
	t.Helper()
	for _, name := range []string{"HIGHWATER-0", "HIGHWATER-1"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// killed makes a segment log as a killed broker leaves it, with a message "lost one" in queue "hit", stored last and known to the mark, and
// "kept one" in queue "other".
func killed(t *testing.T) (dir string) {
	t.Helper()
	base := clitest.Dir(t)
	dir = filepath.Join(base, "data")
	addr := "unix:" + filepath.Join(base, "s")
	log, err := os.Create(filepath.Join(base, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := proc.Start(clitest.Binary(t), []string{"serve", "--journal", "segment:" + dir, "--listen", addr, "--http", ""}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	if err := p.AwaitBroker(ctx, addr); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, "send", "other", "kept one", "--addr", addr).Want(t, 0)
	clitest.Run(t, "send", "hit", "lost one", "--addr", addr).Want(t, 0)
	// The second mark from now on was begun after the message was stored; one more, and both files are.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := mark(t, dir)
	for news := 0; news < 3; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the mark is not renewed")
		}
		now := mark(t, dir)
		if !bytes.Equal(now, last) {
			last = now
			news++
		}
		clitest.Run(t, "send", "other", "more", "--addr", addr).Want(t, 0) // a mark is written where there is something new
	}
	return dir
}

// change damages the segment of a stopped store that has a text, at which place is given.
func change(t *testing.T, dir, text string, damage func(b []byte, at int)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(b, []byte(text))
		if at < 0 {
			continue
		}
		damage(b, at)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no segment has %q", text)
}

// A record of one queue that is missing from the log closes that queue for changes and no other: serve and the commands on a store go on with
// the others and say which one it is, verify names it, and copy takes what lacks nothing.
func TestLossOfOneQueue(t *testing.T) {
	dir := killed(t)
	change(t, dir, "lost one", func(b []byte, at int) { clear(b[at&^511 : at&^511+512]) })
	url := "segment:" + dir
	const missing = `stream "queue/hit"`
	if r := clitest.Run(t, "journal", "verify", url).Want(t, 1); !strings.Contains(r.Out, "damaged\tthe store\n") || !strings.Contains(r.Out, missing) || strings.Contains(r.Out, `stream "queue/other"`) {
		t.Errorf("%s\n%s", r.Out, r.Err)
	}
	if r := clitest.Run(t, "journal", "dump", url).WantErr(t, 1, missing); !strings.Contains(r.Out, `"stream":"queue/other"`) {
		t.Errorf("dump: %s", r.Out)
	}
	addr, b := clitest.Serve(t, "--journal", url)
	clitest.Run(t, "receive", "other", "--count", "1", "--addr", addr).WantOut(t, "kept one\n")
	clitest.Run(t, "send", "other", "x", "--addr", addr).Want(t, 0)
	clitest.Run(t, "send", "hit", "x", "--addr", addr, "--timeout", "1s").WantErr(t, 1, missing)
	b.Interrupt()
	b.Wait(t).WantErr(t, 0, "of some queues; they can be read and not used, all others are served").WantErr(t, 0, "streams=queue/hit ")

	clitest.Run(t, "send", "other", "y", "--journal", url).Want(t, 0)
	clitest.Run(t, "send", "hit", "y", "--journal", url, "--timeout", "1s").WantErr(t, 1, missing)
	dst := "segment:" + filepath.Join(filepath.Dir(dir), "copy")
	clitest.Run(t, "journal", "copy", url, dst).WantErr(t, 1, "copy the streams that lack nothing, by --stream")
	clitest.Run(t, "journal", "copy", url, dst, "--stream", "queue/hit").WantErr(t, 1, missing)
	clitest.Run(t, "journal", "copy", url, dst, "--stream", "queue/other").WantErr(t, 0, "1 streams are copied")

	// Whoever gives up what is lost goes on without it.
	clitest.Run(t, "send", "hit", "z", "--journal", url+"?accept-loss=true").Want(t, 0)
	clitest.Run(t, "receive", "hit", "--count", "1", "--journal", url).WantOut(t, "z\n")
	clitest.Run(t, "journal", "verify", url).Want(t, 0)
}
