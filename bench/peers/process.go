package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// env is where servers come from.
type env struct {
	servers string // what servers/get has made
	root    string // of the repository
	guard   *guard // nil for none
}

// endTime is how long a server may take to end.
const endTime = 20 * time.Second

// findRoot finds the repository from the directory that this process works in.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "bench/peers/servers/get")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("this is not within the repository")
		}
		dir = filepath.Dir(dir)
	}
	return "", fmt.Errorf("find the scripts of the servers: %w", err)
}

// newDir makes a directory, which the guard deletes if nobody else does.
func (e *env) newDir(parent, name string) (string, error) {
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	e.guard.tell(guarded{Dir: dir})
	// Some servers run as other users, with a directory of their own in it.
	return dir, os.Chmod(dir, 0o755)
}

func (e *env) removeDir(dir string) error {
	defer e.guard.tell(guarded{Dir: dir, Gone: true})
	return os.RemoveAll(dir)
}

// ownGroup lets a child be interrupted by us alone.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// run runs a program to its end.
func (e *env) run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", name, err, out)
	}
	return nil
}

// server is a running server.
type server struct {
	addr string
	dir  string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	stop func() // asks it to end
}

// serve starts a server; its output goes to a file in dir.
func (e *env) serve(dir, addr, name string, args ...string) (*server, error) {
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	pid := cmd.Process.Pid
	e.guard.tell(guarded{Group: pid})
	s := &server{addr: addr, dir: dir, cmd: cmd, log: log, done: make(chan struct{})}
	s.stop = func() { _ = syscall.Kill(-pid, syscall.SIGTERM) } // what has ended cannot be signalled
	go func() {
		_ = cmd.Wait() // how it ends is in its log
		e.guard.tell(guarded{Group: pid, Gone: true})
		close(s.done)
	}()
	return s, nil
}

// supervise starts a server by the scripts of servers/NAME, whose supervisor ends it when this process ends, in whatever way.
func (e *env) supervise(ctx context.Context, dir, name string, environ ...string) (*server, error) {
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	work := filepath.Join(dir, name)
	cmd := exec.Command(filepath.Join(e.root, "servers/supervise"), name, work)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), environ...), log
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	var out io.ReadCloser
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = errors.Join(os.Mkdir(work, 0o755), cmd.Start())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close())
	}
	s := &server{dir: dir, cmd: cmd, log: log, done: make(chan struct{}), stop: func() { in.Close() }}
	answer := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Scan()
		answer <- lines.Text()
		_ = cmd.Wait() // how it ends is in its log
		close(s.done)
	}()
	if _, err := io.WriteString(in, "start\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), s.end())
	}
	select {
	case text := <-answer:
		var ok bool
		if s.addr, ok = strings.CutPrefix(text, "ok "); ok {
			return s, nil
		}
		err = fmt.Errorf("start %s: %q", name, text)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, s.end(), errors.New(s.said()))
}

// said is the end of what a server has written.
func (s *server) said() string {
	log, _ := os.ReadFile(s.log.Name()) // what cannot be read cannot be shown
	return string(log[max(0, len(log)-4000):])
}

// await waits until try succeeds. If it does not, the server is ended.
func (s *server) await(ctx context.Context, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		once, cancelOnce := context.WithTimeout(ctx, 5*time.Second)
		err := try(once)
		cancelOnce()
		if err == nil {
			return nil
		}
		select {
		case <-t.C:
			continue
		case <-s.done:
		case <-ctx.Done():
		}
		return errors.Join(fmt.Errorf("the server does not answer: %w\n%s", err, s.said()), s.end())
	}
}

// end ends the server and waits until it is gone. Of a library there is nothing to end.
func (s *server) end() error {
	if s.cmd == nil {
		return nil
	}
	s.stop()
	t := time.NewTimer(endTime)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.done
	}
	// What a server leaves behind of its own group goes with it.
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	return s.log.Close()
}

// freePorts returns ports that nobody listens on.
func freePorts(ctx context.Context, n int) (ports []int, err error) {
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// process is a client process.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	errs     bytes.Buffer
	ready    chan struct{}
	done     chan struct{}
	progress atomic.Int64

	mu     sync.Mutex
	result *result
	err    error
}

// clientMemory has client programs in Go collect their garbage as rarely as those of Holdfast's bench do, which use up at least 64 MiB in between.
var clientMemory = []string{"GOGC=1600", "GOMEMLIMIT=1GiB"}

// startClient starts a client process and waits until it can begin.
func startClient(ctx context.Context, e *env, of *peer, s spec) (*process, error) {
	var program []string
	if of.program != nil {
		program = of.program(e, s)
	}
	if program == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this binary: %w", err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		program = []string{self, "client", string(text)}
	}
	p := &process{cmd: exec.Command(program[0], program[1:]...), ready: make(chan struct{}), done: make(chan struct{})}
	var err error
	p.cmd.Stderr = &p.errs
	p.cmd.Env = append(slices.Clone(clientMemory), os.Environ()...) // what this process has been told comes last, and counts
	ownGroup(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	go p.listen(out)
	select {
	case <-p.ready:
		return p, nil
	case <-p.done:
		return nil, errors.Join(fmt.Errorf("a client of %s ended before it was ready", s.Peer), p.err)
	case <-ctx.Done():
		p.kill()
		return nil, context.Cause(ctx)
	}
}

func (p *process) listen(out io.Reader) {
	defer close(p.done)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // a library that writes to standard output
		}
		switch {
		case l.Ready:
			close(p.ready)
		case l.Result != nil:
			p.mu.Lock()
			p.result = l.Result
			p.mu.Unlock()
		default:
			p.progress.Store(l.Progress)
		}
	}
	if err := p.cmd.Wait(); err != nil {
		p.err = fmt.Errorf("client: %w: %s", err, p.errs.String())
	}
}

// tell tells the process something. If it has ended, its result says so.
func (p *process) tell(word string) { _, _ = io.WriteString(p.in, word+"\n") }

// wait waits for the result.
func (p *process) wait(ctx context.Context) (*result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.result == nil {
		return nil, errors.Join(errors.New("a client ended without a result"), p.err)
	}
	return p.result, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // what has ended cannot be killed
	<-p.done
	p.in.Close()
}
