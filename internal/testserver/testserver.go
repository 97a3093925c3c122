package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Server is a running test server. Its methods may be called concurrently.
type Server struct {
	name string
	urls []string
	dir  string // empty for a server that was not started here

	mu      sync.Mutex
	command *exec.Cmd
	in      io.WriteCloser // the supervisor stops the server when this is closed
	out     *bufio.Reader
}

// EnvName returns the environment variable that names a server to use instead of starting
// one: HOLDFAST_TEST_ and the name in capitals, "_" in place of "-".
func EnvName(name string) string {
	return "HOLDFAST_TEST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Start returns the server that the environment names (see [EnvName]), or starts one like
// [StartOwn]. The server may be shared with other test processes: whoever uses it keeps to
// databases, schemas or prefixes of its own, and leaves it running.
func Start(name string) (*Server, error) {
	if urls := strings.Fields(os.Getenv(EnvName(name))); len(urls) > 0 {
		return &Server{name: name, urls: urls}, nil
	}
	return StartOwn(name)
}

// StartOwn runs servers/NAME/start with a new temporary folder, and returns when the server
// answers. env are further environment variables, "KEY=value", for the scripts. The folder and all processes go
// with [Server.Stop], or with this process, however it ends. The error of a server that does not
// start has the ends of its logs.
func StartOwn(name string, env ...string) (*Server, error) {
	fail := func(err error) (*Server, error) { return nil, fmt.Errorf("test server %s: %w", name, err) }
	root, err := scripts()
	if err != nil {
		return fail(err)
	}
	if _, err := os.Stat(filepath.Join(root, name, "start")); err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "holdfast-"+name+"-")
	if err != nil {
		return fail(err)
	}
	s := &Server{name: name, dir: dir}
	if err := s.supervise(filepath.Join(root, "supervise"), env); err != nil {
		return fail(errors.Join(err, os.RemoveAll(dir)))
	}
	if err := s.start(); err != nil {
		return fail(errors.Join(err, s.Stop()))
	}
	return s, nil
}

// supervise starts the process that outlives this one for as long as it takes to clean up.
func (s *Server) supervise(script string, env []string) error {
	s.command = exec.Command(script, s.name, s.dir)
	s.command.Env = append(os.Environ(), env...)
	s.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal is for the tests
	//holdfast:allow print: only tests use this package, and a download that takes minutes has to be told at once
	s.command.Stderr = os.Stderr
	in, err := s.command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return err
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s.command.Start()
}

// start has the supervisor run the start script.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.in, "start\n"); err != nil {
		return err
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		return err
	}
	urls, ok := strings.CutPrefix(strings.TrimSpace(line), "ok ")
	if !ok {
		return fmt.Errorf("start: %s\n%s", strings.TrimSpace(line), s.Logs())
	}
	s.urls = strings.Fields(urls)
	return nil
}

// scripts finds the folder servers of the repository that the working directory is in.
func scripts() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		servers := filepath.Join(at, "servers")
		if _, err := os.Stat(filepath.Join(servers, "supervise")); err == nil {
			return servers, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no folder servers with the script supervise above %s", dir)
		}
	}
}

// Own tells whether the server was started by this process, which can stop, pause and kill it.
func (s *Server) Own() bool { return s.dir != "" }

// URL returns the first, or only, URL that the start script printed, or the environment has.
func (s *Server) URL() string { return s.urls[0] }

// URLs returns all URLs, at least one. What they are is the start script's business: often one for each node.
func (s *Server) URLs() []string { return s.urls }

// Dir returns the server's folder, empty if it was not started by this process.
func (s *Server) Dir() string { return s.dir }

// Restart starts again, on their data and their ports, the nodes that were killed, and returns
// when all answer. A server that is paused is to be resumed first.
func (s *Server) Restart() error {
	if err := s.own("restart"); err != nil {
		return err
	}
	if err := s.start(); err != nil {
		return fmt.Errorf("test server %s: %w", s.name, err)
	}
	return nil
}

// Stop ends the server and deletes its folder. A server that was not started by this process is
// left alone. Repeating it does nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in == nil {
		return nil
	}
	err := errors.Join(s.in.Close(), s.command.Wait())
	s.in = nil
	if err != nil {
		return fmt.Errorf("test server %s: stop: %w", s.name, err)
	}
	return nil
}

// Run runs servers/NAME/TOOL with the server's folder and args, and returns what it printed. The error has that too.
func (s *Server) Run(ctx context.Context, tool string, args ...string) (string, error) {
	root, err := scripts()
	if err == nil {
		err = s.own("run a tool on")
	}
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, s.name, tool), append([]string{s.dir}, args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("test server %s: %s %s: %w\n%s", s.name, tool, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (s *Server) own(what string) error {
	if !s.Own() {
		return fmt.Errorf("test server %s: cannot %s a server that was not started here; use StartOwn", s.name, what)
	}
	return nil
}

// logEnd bounds what Logs returns of one file, in bytes.
const logEnd = 4 << 10

// Logs returns the ends of the server's log files, for messages of failure.
func (s *Server) Logs() string {
	files, err := filepath.Glob(filepath.Join(s.dir, "log", "*"))
	if s.dir == "" || err != nil || len(files) == 0 {
		return "(no logs)"
	}
	var b strings.Builder
	for _, file := range files {
		end, err := tail(file)
		if err != nil {
			end = err.Error()
		}
		if end != "" {
			fmt.Fprintf(&b, "--- end of %s:\n%s\n", filepath.Base(file), end)
		}
	}
	return b.String()
}

func tail(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	st, err := f.Stat()
	if err != nil || st.IsDir() {
		return "", err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-logEnd), logEnd))
	return strings.TrimSpace(string(b)), err
}
