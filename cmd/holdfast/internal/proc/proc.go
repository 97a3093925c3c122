// Package proc runs the binary as a child process that can be killed: for the demonstration and for tests.
package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
)

// Process is a running child process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// Start starts a program, which is killed when this process ends before it does (on Linux). Its output and errors go to log, which must be a file or may be written to at any time.
func Start(binary string, args []string, log io.Writer) (*Process, error) {
	return StartIn(nil, binary, args, log)
}

// StartIn is Start in an environment; nil is that of this process.
func StartIn(env []string, binary string, args []string, log io.Writer) (*Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: what the terminal sends to this process is for this one to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The child's parent is this thread, as long as it lives.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal. That the process has ended meanwhile is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID(), err)
	}
	return nil
}

// Kill ends the process with SIGKILL, and waits until it is gone.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Wait waits until the process has ended, and returns its exit code, -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return -1, fmt.Errorf("wait for process %d: %w", p.PID(), context.Cause(ctx))
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return -1, fmt.Errorf("wait for process %d: %w", p.PID(), p.err)
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// AwaitBroker waits until a broker process answers at an address.
func (p *Process) AwaitBroker(ctx context.Context, addr string) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		c, err := client.Dial(ctx, client.Options{Addrs: []string{addr}, DialTimeout: time.Second})
		if err == nil {
			c.Close()
			return nil
		}
		if !errors.Is(err, holdfast.ErrUnavailable) {
			return err
		}
		select {
		case <-t.C:
		case <-p.done:
			return fmt.Errorf("the broker ended: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the broker at %s: %w: %w", addr, context.Cause(ctx), err)
		}
	}
}
