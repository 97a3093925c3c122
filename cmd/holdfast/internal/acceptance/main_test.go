package acceptance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

const mib = 1 << 20

// counts returns full if full counts are asked for, else reduced.
func counts(reduced, full int) int {
	if clitest.Soak() {
		return full
	}
	return reduced
}

// server is a broker process, and the folder that it lives in.
type server struct {
	*proc.Process
	t    testing.TB
	dir  string
	data string // the journal's directory
	args []string
	log  *os.File
}

// serve starts a broker on a journal in a folder of its own, and waits until it answers.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	dir := clitest.Dir(t)
	return serveOn(t, dir, filepath.Join(dir, "data"), args...)
}

// serveOn starts a broker whose sockets are in dir.
func serveOn(t testing.TB, dir, data string, args ...string) *server {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, data: data, log: log, args: append([]string{
		"serve", "--journal", clitest.Journal(data), "--listen", "unix:" + filepath.Join(dir, "s"), "--http", "unix:" + filepath.Join(dir, "h")}, args...)}
	t.Cleanup(func() {
		if s.Process != nil {
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("the broker's log:\n%s", s.readLog())
		}
		_ = log.Close()
	})
	s.start()
	s.await()
	return s
}

// start starts the process.
func (s *server) start() {
	s.t.Helper()
	p, err := proc.Start(clitest.Binary(s.t), s.args, s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
}

// await waits until the broker answers.
func (s *server) await() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	if err := s.AwaitBroker(ctx, s.addr()); err != nil {
		s.t.Fatalf("%v; the broker's log:\n%s", err, s.readLog())
	}
}

// kill ends the process with SIGKILL, stop in good order.
func (s *server) kill() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) stop() {
	s.t.Helper()
	if err := s.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	if code, err := s.Wait(ctx); code != 0 || err != nil {
		s.t.Fatalf("the broker ended with %d, %v; its log:\n%s", code, err, s.readLog())
	}
}

func (s *server) addr() string { return "unix:" + filepath.Join(s.dir, "s") }

func (s *server) readLog() string {
	b, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// dial connects a client to the broker.
func (s *server) dial() *client.Client {
	s.t.Helper()
	c, err := client.Dial(context.Background(), client.Options{Addrs: []string{s.addr()}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// get asks at the HTTP address, without waiting for it to be there.
func (s *server) get(path string) error {
	_, err := s.read(path)
	return err
}

// read is get with the answer.
func (s *server) read(path string) (string, error) {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(s.dir, "h"))
	}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("http://broker" + path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(text), err
}

// status reads a size from the process's status: VmRSS is what it has of memory, VmHWM the most that it ever had. In bytes.
func status(t testing.TB, pid int, name string) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), name+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("the status of process %d has no %s", pid, name)
	return 0
}

func (s *server) rss() int64  { s.t.Helper(); return status(s.t, s.PID(), "VmRSS") }
func (s *server) peak() int64 { s.t.Helper(); return status(s.t, s.PID(), "VmHWM") }

// du returns the space that a folder takes on disk, in bytes.
func du(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		total += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func describe(t testing.TB, q *holdfast.Queue) holdfast.QueueInfo {
	t.Helper()
	info, err := q.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// within waits until cond holds, looking every 10 ms, and fails the test if it does not in time. It returns how long it took.
func within(t testing.TB, limit time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
		<-tick.C
	}
	return time.Since(began)
}
