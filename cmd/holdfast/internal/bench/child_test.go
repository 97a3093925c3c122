package bench_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// child is the real binary: a benchmark starts its own processes from it.
type child struct {
	*exec.Cmd
	out, err clitest.Buffer
}

func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(clitest.Binary(t), args...)}
	c.Stdout, c.Stderr = &c.out, &c.err
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
		t.Fatalf("%v: exit code %d, want %d; standard error:\n%s", c.Args[1:], got, code, c.err.String())
	}
}

func (c *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
