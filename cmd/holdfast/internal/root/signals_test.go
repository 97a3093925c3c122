package root_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// child is the real binary.
type child struct {
	*exec.Cmd
	out, err clitest.Buffer
}

// startChild starts the real binary with a standard output of its own, or into out.
func startChild(t *testing.T, out io.Writer, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(clitest.Binary(t), args...)}
	c.Stdout, c.Stderr = out, &c.err
	if out == nil {
		c.Stdout = &c.out
	}
	testserver.EndWithTest(c.Cmd)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// want waits for the end of the process and fails the test unless its exit code is right.
func (c *child) want(t *testing.T, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
	defer stop()
	_ = c.Wait() // the exit code tells
	if got := c.ProcessState.ExitCode(); got != code {
		t.Errorf("%v: exit code %d, want %d; standard error:\n%s", c.Args[1:3], got, code, c.err.String())
	}
}

func (c *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func lines(text string) int { return strings.Count(text, "\n") }

// Ctrl-C loses nothing: what "send" has sent is stored and its ids are printed; what "receive" has printed is acknowledged, and the
// rest is still there.
func TestCtrlC(t *testing.T) {
	addr, _ := clitest.Serve(t)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		send := startChild(t, nil, "send", "q", "tick {n}", "--every", "1ms", "--addr", addr)
		send.out.Await(t, "ids", func(text string) bool { return lines(text) >= 50 })
		send.signal(t, s)
		send.want(t, 130)
		sent := lines(send.out.String())

		receive := startChild(t, nil, "receive", "q", "--addr", addr)
		receive.out.Await(t, "messages", func(text string) bool { return lines(text) >= 20 })
		receive.signal(t, s)
		receive.want(t, 130)
		got := lines(receive.out.String())
		rest := clitest.Run(t, "receive", "q", "--wait", "200ms", "--addr", addr).Want(t, 0)
		if got+lines(rest.Out) != sent {
			t.Errorf("%v: %d ids printed; %d received before the signal and %d after it", s, sent, got, lines(rest.Out))
		}
		if want := fmt.Sprintf("tick %d\n", sent); !strings.HasSuffix(receive.out.String()+rest.Out, want) {
			t.Errorf("the last message is not %q", want)
		}
	}
}

// A second Ctrl-C stops the command that runs, and its message comes again; the process group of the command is gone.
func TestCtrlCTwice(t *testing.T) {
	addr, _ := clitest.Serve(t)
	clitest.Run(t, "send", "q", "x", "--addr", addr).Want(t, 0)
	c := startChild(t, nil, "receive", "q", "--addr", addr, "--exec", "echo $$; sleep 600 & wait")
	pid := strings.TrimSpace(c.out.Await(t, "the command's number", func(text string) bool { return lines(text) == 1 }))
	c.signal(t, syscall.SIGINT)
	c.signal(t, syscall.SIGINT) // as timeout(1) does it: together they count as one
	c.err.AwaitText(t, "waiting for 1 running command")
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	<-time.After(500 * time.Millisecond)
	if err := syscall.Kill(-n, 0); err != nil {
		t.Fatalf("a doubled signal counted as two: %v", err)
	}
	c.signal(t, syscall.SIGINT)
	c.want(t, 130)
	// The members are gone, or on their way out.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if err := syscall.Kill(-n, 0); err != nil {
			break
		}
	}
	clitest.Run(t, "receive", "q", "--count", "1", "--addr", addr).WantOut(t, "x\n")
}

// A reader that goes away ends the command with an error instead of a signal, and what was not written is not lost.
func TestBrokenPipe(t *testing.T) {
	addr, _ := clitest.Serve(t)
	const n = 5000
	body := strings.Repeat("x", 1000)
	clitest.RunIn(t, strings.Repeat(body+"\n", n), "send", "q", "--lines", "--addr", addr).Want(t, 0)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, w, "receive", "q", "--addr", addr)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(body)+1)
	if _, err := io.ReadFull(r, first); err != nil || !bytes.Equal(first, []byte(body+"\n")) {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	c.want(t, 1)
	if !strings.Contains(c.err.String(), "write messages") || !strings.Contains(c.err.String(), "broken pipe") {
		t.Error(c.err.String())
	}
	rest := clitest.Run(t, "receive", "q", "--wait", "200ms", "--addr", addr).Want(t, 0)
	// Of a batch that was not written as a whole, all come again.
	if got := lines(rest.Out); got < n-1024 || got > n {
		t.Errorf("%d of %d messages are left", got, n)
	}
}
