package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Process is a worker process, seen by whoever started it. Its methods are for one goroutine, but for Progress and PID.
type Process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	errs bytes.Buffer
	done chan struct{}

	progress atomic.Int64
	ready    chan ready
	mu       sync.Mutex
	result   []Result
	err      error // of reading or of the process; read after done
}

// Start starts a worker: binary with args, which make it Run, with variables added to its environment. It says what went wrong there by its standard error.
func Start(binary string, args, env []string, s Spec) (*Process, error) {
	p := &Process{cmd: exec.Command(binary, args...), done: make(chan struct{}), ready: make(chan ready, 1)}
	p.cmd.Env = append(Environment(), env...)
	p.cmd.Stderr = &p.errs
	// A group of its own: an interruption at the terminal is for the starter to pass on.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	go p.listen(out)
	spec, err := json.Marshal(s)
	if err == nil {
		_, err = p.in.Write(append(spec, '\n'))
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("tell a worker what to do: %w: %s", err, p.errs.String())
	}
	return p, nil
}

// Environment is that of this process without the settings of the binary: what is measured is the default, or what the command line says.
func Environment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") {
			env = append(env, v)
		}
	}
	return env
}

// listen takes what the worker says until it has ended.
func (p *Process) listen(out io.Reader) {
	defer close(p.done)
	lines := bufio.NewReaderSize(out, 64<<10)
	var errs []error
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var s said
		if err := json.Unmarshal(text, &s); err != nil {
			errs = append(errs, fmt.Errorf("read what a worker says: %w", err))
			continue
		}
		switch {
		case s.Ready != nil:
			p.ready <- *s.Ready
		case s.Progress != nil:
			p.progress.Store(*s.Progress)
		case s.Result != nil:
			p.mu.Lock()
			p.result = s.Result
			p.mu.Unlock()
		}
	}
	if err := p.cmd.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("worker: %w: %s", err, strings.TrimSpace(p.errs.String())))
	}
	p.err = errors.Join(errs...)
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Progress returns how many messages the worker has done so far.
func (p *Process) Progress() int64 { return p.progress.Load() }

// Ready waits until the worker can begin, and returns where it listens, if it does.
func (p *Process) Ready(ctx context.Context) (addr string, err error) {
	select {
	case r := <-p.ready:
		return r.Addr, nil
	case <-p.done:
		return "", errors.Join(errors.New("a worker ended before it was ready"), p.err)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (p *Process) tell(word string) error {
	if _, err := io.WriteString(p.in, word+"\n"); err != nil {
		select {
		case <-p.done:
			return errors.Join(fmt.Errorf("tell a worker to %s: %w", word, err), p.err)
		default:
			return fmt.Errorf("tell a worker to %s: %w", word, err)
		}
	}
	return nil
}

// Begin tells the worker to begin.
func (p *Process) Begin() error { return p.tell(wordGo) }

// Stop tells the worker to end what goes on until it is stopped.
func (p *Process) Stop() error { return p.tell(wordStop) }

// Done is closed when the worker has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the worker, and returns what each of its parts has measured.
func (p *Process) Wait(ctx context.Context) ([]Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.result == nil {
		return nil, errors.New("a worker ended without a result")
	}
	return p.result, p.err
}

// Kill ends the worker, if it has not ended, and waits until it is gone.
func (p *Process) Kill() {
	// What has ended cannot be killed.
	_ = p.cmd.Process.Kill()
	<-p.done
	p.in.Close()
}
