package journalcmd_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

// G2, §4, §10: a flipped byte in the body of one message, seen by a user of the binary on a segment log: everything else of the queue is received, the
// broker says which queue has how many damaged messages wherever it is asked, a purge takes them away, and the commands on the store go on behind them.
func TestDamagedBodyOfRunningBroker(t *testing.T) {
	base := clitest.Dir(t)
	dir := filepath.Join(base, "data")
	url := "segment:" + dir
	addr, web, p := served(t, base, url)
	for _, body := range []string{"first", "spoiled", "third"} { // a record each
		clitest.Run(t, "send", "q", body, "--addr", addr).Want(t, 0)
	}
	if err := p.Kill(); err != nil { // stopping would store a snapshot, and dump shows what is behind that
		t.Fatal(err)
	}
	change(t, dir, "spoiled", func(b []byte, at int) { b[at] ^= 1 })

	if r := clitest.Run(t, "journal", "verify", url).Want(t, 1); !strings.Contains(r.Out, "damaged\tqueue/q\t") {
		t.Errorf("verify: %s", r.Out)
	}
	if r := clitest.Run(t, "journal", "dump", url, "--bodies").Want(t, 1); strings.Count(r.Out, `"body_base64"`) != 2 || strings.Count(r.Out, `"body_error"`) != 1 {
		t.Errorf("dump: %s", r.Out)
	}
	target := "segment:" + filepath.Join(base, "copy")
	if r := clitest.Run(t, "journal", "copy", url, target).Want(t, 1); !strings.Contains(r.Out, "copied\tqueue/q\t") || !strings.Contains(r.Out, "without the bodies of 1 records") {
		t.Errorf("copy: %s", r.Out)
	}
	clitest.Run(t, "receive", "q", "--wait", "100ms", "--journal", target).WantOut(t, "first\nthird\n")

	addr, web, p = served(t, base, url)
	clitest.Run(t, "send", "q", "fourth", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "q", "--count", "3", "--addr", addr).WantOut(t, "first\nthird\nfourth\n")
	damaged := func() {
		t.Helper()
		for _, c := range []struct {
			want string
			args []string
		}{
			{"ready, 1 damaged", []string{"queue", "list"}},
			{"corrupt stream", []string{"queue", "describe", "q"}},
			{`"damaged":true,"error":"`, []string{"queue", "peek", "q", "--output", "json"}},
		} {
			if r := clitest.Run(t, append(c.args, "--addr", addr)...).Want(t, 0); !strings.Contains(r.Out, c.want) {
				t.Errorf("%v: want %q in\n%s", c.args, c.want, r.Out)
			}
		}
		for path, want := range map[string]string{
			"/readyz": `queue "q": 1 damaged messages`, "/readyz?queue=q": `queue "q": 1 damaged messages`, "/metrics": `holdfast_queue_damaged{queue="q"} 1`,
		} {
			if code, text := clitest.Get(t, web, path); code != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s: %d, want %q in\n%s", path, code, want, text)
			}
		}
	}
	damaged()
	stopped(t, p)
	addr, web, p = served(t, base, url)
	clitest.Run(t, "send", "q", "fifth", "--addr", addr).Want(t, 0)
	clitest.Run(t, "receive", "q", "--count", "1", "--addr", addr).WantOut(t, "fifth\n") // the queue is open, and was looked at
	damaged()
	clitest.Run(t, "queue", "purge", "q", "--yes", "--addr", addr).Want(t, 0)
	if r := clitest.Run(t, "queue", "list", "--addr", addr).Want(t, 0); strings.Contains(r.Out, "damaged") {
		t.Errorf("after a purge:\n%s", r.Out)
	}
	stopped(t, p)
	clitest.Run(t, "journal", "verify", url).Want(t, 0)
}

// served starts the binary on a store.
func served(t *testing.T, base, url string) (addr, web string, p *proc.Process) {
	t.Helper()
	addr, web = "unix:"+filepath.Join(base, "s"), filepath.Join(base, "h")
	p, err := proc.Start(clitest.Binary(t), []string{"serve", "--journal", url, "--listen", addr, "--http", "unix:" + web}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() }) // it may have ended
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	if err := p.AwaitBroker(ctx, addr); err != nil {
		t.Fatal(err)
	}
	return addr, web, p
}

func stopped(t *testing.T, p *proc.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(ctx); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
}
