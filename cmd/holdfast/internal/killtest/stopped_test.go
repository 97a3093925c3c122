package killtest_test

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
)

// A broker that does not answer any more (SIGSTOP) leaves the outcome of what was sent to it unknown, which is said, with exit code
// 3 (G10). Run again under its producer id, the same command finds out, and stores each line once (G3).
func TestUnknownOutcome(t *testing.T) {
	b := killtest.NewBroker(t)
	stop := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(b.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"send", "q", "--lines", "--producer-id", "job", "--addr", b.Addr}
	in, feed := io.Pipe()
	j := clitest.Start(t, clitest.Options{In: in}, args...)
	if _, err := fmt.Fprintln(feed, "one"); err != nil {
		t.Fatal(err)
	}
	j.Out.AwaitText(t, "\n")
	stop(syscall.SIGSTOP)
	for _, line := range []string{"two", "three"} {
		if _, err := fmt.Fprintln(feed, line); err != nil {
			t.Fatal(err)
		}
	}
	j.Err.AwaitText(t, "waiting to send")
	j.Interrupt()
	j.Wait(t).WantErr(t, 3, "stored: line 1 to 1").WantErr(t, 3, "outcome unknown").WantErr(t, 3, "may be stored or not").WantErr(t, 3, "run the same command")
	if err := feed.Close(); err != nil {
		t.Error(err)
	}
	stop(syscall.SIGCONT)
	clitest.RunIn(t, "one\ntwo\nthree\nfour\n", args...).WantErr(t, 0, "stored before")
	r := clitest.Run(t, "receive", "q", "--wait", "300ms", "--addr", b.Addr).Want(t, 0)
	if r.Out != "one\ntwo\nthree\nfour\n" {
		t.Errorf("received %q", r.Out)
	}
}

// A receiver that is stopped (SIGSTOP) disturbs no other: what it held goes to another after the visibility timeout, and when it goes on,
// it learns that it has lost it.
func TestStoppedReceiver(t *testing.T) {
	b := killtest.NewBroker(t)
	clitest.Run(t, "queue", "create", "q", "--visibility", "1s", "--addr", b.Addr).Want(t, 0)
	clitest.Run(t, "send", "q", "first", "--addr", b.Addr).Want(t, 0)
	out := clitest.Dir(t)
	c := start(t, "", "", []string{"OUT=" + out}, "receive", "q", "--count", "1", "--addr", b.Addr,
		"--exec", `echo started; while [ ! -e "$OUT/go" ]; do sleep 0.02; done`)
	c.out.AwaitText(t, "started")
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	clitest.Run(t, "send", "q", "second", "--addr", b.Addr).Want(t, 0)
	// The other one is served at once, and gets the first message when its lease has ended.
	r := clitest.Run(t, "receive", "q", "--count", "2", "--addr", b.Addr).Want(t, 0)
	if r.Out != "second\nfirst\n" {
		t.Errorf("received %q", r.Out)
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.err.String())
	}
	if !strings.Contains(c.err.String(), "lease lost") {
		t.Errorf("standard error: %s", c.err.String())
	}
}
