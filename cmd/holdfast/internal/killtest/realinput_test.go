package killtest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
	"github.com/holdfastmq/holdfast/internal/testserver"
)

// tree is the regular files below a folder, by path, with the hashes of their contents.
type tree map[string][sha256.Size]byte

func readTree(t *testing.T, dir string) tree {
	t.Helper()
	all := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// source is the Go toolchain's own source: all of it in the soak, some folders of it with empty, binary and large files
// among them otherwise.
func source(t *testing.T) (dir string, files tree) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(strings.TrimSpace(string(out)), "src")
	files = readTree(t, dir)
	if !clitest.Soak() {
		some := []string{"archive/", "encoding/", "crypto/internal/boring/", "crypto/tls/testdata/Client-TLSv10-", "unicode/"}
		for path := range files {
			if !slices.ContainsFunc(some, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				delete(files, path)
			}
		}
	}
	if len(files) < 200 {
		t.Fatalf("there are only %d files", len(files))
	}
	return dir, files
}

// differ tells how a tree that was written differs from the source.
func differ(t *testing.T, want, got tree) {
	t.Helper()
	n := 0
	for path, sum := range want {
		if have, ok := got[path]; !ok || have != sum {
			if n++; n <= 10 {
				t.Errorf("%s: written: %v, with the same content: %v", path, ok, have == sum)
			}
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			if n++; n <= 10 {
				t.Errorf("%s: written, and not in the source", path)
			}
		}
	}
	if n > 10 {
		t.Errorf("and %d more", n-10)
	}
}

// command is a client of the broker, as a process.
type command struct {
	*exec.Cmd
	out clitest.Buffer
	err clitest.Buffer
}

func start(t *testing.T, dir, in string, env []string, args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.Command(clitest.Binary(t), args...)}
	c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, strings.NewReader(in), &c.out, &c.err
	c.Env = append(os.Environ(), env...)
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

// end waits for the end of the command, which must be a good one.
func (c *command) end(t *testing.T) {
	t.Helper()
	timer := time.AfterFunc(2*clitest.Patience, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	if clitest.Soak() {
		timer.Reset(20 * clitest.Patience)
	}
	if err := c.Wait(); err != nil {
		text := c.err.String()
		t.Fatalf("%v: %v\n%s", c.Args[1:4], err, text[max(0, len(text)-4000):])
	}
}

// workers is how many commands write files at the same time.
const workers = 4

// write is the command that writes a message's body to where its header says, and notes that it did.
const write = `p=${HOLDFAST_HEADERS#*:\"}; p=${p%\"*}
case $p in */*) mkdir -p "$OUT/${p%/*}";; esac
cat >"$OUT/$p.$$" && mv "$OUT/$p.$$" "$OUT/$p" && echo "$p" >>"$OUT.log"`

// receiver starts "receive --exec" of a queue, which writes to a folder. It ends when nothing came for longer than leases last that a
// dying broker left behind.
func receiver(t *testing.T, b *killtest.Broker, queue, out string) *command {
	t.Helper()
	if err := os.MkdirAll(out, 0o700); err != nil {
		t.Fatal(err)
	}
	return start(t, out, "", []string{"OUT=" + out}, "receive", queue, "--addr", b.Addr, "--workers", fmt.Sprint(workers), "--wait", "6s", "--exec", write)
}

// written returns how often each file was written.
func written(t *testing.T, out string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(out + ".log")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for l := range bytes.Lines(b) {
		times[strings.TrimSuffix(string(l), "\n")]++
	}
	return times
}

// killThrice kills the broker and starts it again, three times, as the work goes on: done tells how much of all is.
func killThrice(t *testing.T, b *killtest.Broker, all int, done func() int) {
	t.Helper()
	for k := 1; k <= 3; k++ {
		await(t, fmt.Sprintf("%d quarters of the work", k), func() bool { return done() >= all*k/4 })
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		b.Start()
	}
}

// list is the paths of a tree, one a line.
func (tr tree) list() string {
	paths := make([]string, 0, len(tr))
	for p := range tr {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return strings.Join(paths, "\n") + "\n"
}

// Real input: each file of the Go toolchain's source is a message, with its path in a header. First the broker is killed three times
// while the sender runs; the files that come out are the files that went in, and none was written twice. Then it is killed three times
// while the workers run: no more files are written twice than leases were open.
func TestRealInput(t *testing.T) {
	dir, files := source(t)
	b := killtest.NewBroker(t, "--max-body", "8MiB")
	for _, q := range []string{"first", "second"} {
		clitest.Run(t, "queue", "create", q, "--visibility", "3s", "--addr", b.Addr).Want(t, 0)
	}
	base := clitest.Dir(t)
	lines := func(buf *clitest.Buffer) func() int {
		return func() int { return strings.Count(buf.String(), "\n") }
	}

	began := time.Now()
	s := start(t, dir, files.list(), nil, "send", "first", "--files", "--addr", b.Addr)
	killThrice(t, b, len(files), lines(&s.out))
	s.end(t)
	if n := lines(&s.out)(); n != len(files) {
		t.Errorf("%d ids for %d files", n, len(files))
	}
	t.Logf("%d files sent over three kills in %v", len(files), time.Since(began).Round(time.Millisecond))
	began = time.Now()
	out := filepath.Join(base, "first")
	r := receiver(t, b, "first", out)
	r.end(t)
	differ(t, files, readTree(t, out))
	for p, n := range written(t, out) {
		if n > 1 {
			t.Errorf("%s was written %d times", p, n)
		}
	}
	t.Logf("written without a kill in %v", time.Since(began).Round(time.Millisecond))

	start(t, dir, files.list(), nil, "send", "second", "--files", "--addr", b.Addr).end(t)
	began = time.Now()
	out = filepath.Join(base, "second")
	r = receiver(t, b, "second", out)
	killThrice(t, b, len(files), func() int {
		log, err := os.ReadFile(out + ".log")
		if err != nil {
			return 0
		}
		return bytes.Count(log, []byte("\n"))
	})
	r.end(t)
	differ(t, files, readTree(t, out))
	again := 0
	for _, n := range written(t, out) {
		again += n - 1
	}
	if again > 3*workers {
		t.Errorf("%d files were written again, with %d leases open at each of three kills", again, workers)
	}
	t.Logf("written over three kills in %v, %d files twice", time.Since(began).Round(time.Millisecond), again)
	for _, q := range []string{"first", "second"} {
		clitest.Run(t, "receive", q, "--count", "1", "--wait", "10ms", "--addr", b.Addr).Want(t, 1)
	}
}

// A sender process that is killed again and again, and run again with the same input under its producer id, stores each line once
// and in order (G3, G6).
func TestSenderKilled(t *testing.T) {
	rounds, n := 4, 200_000
	if clitest.Soak() {
		rounds, n = 30, 2_000_000
	}
	b := killtest.NewBroker(t)
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %d of the input", i+1))
	}
	in := strings.Join(lines, "\n")
	args := []string{"send", "q", "--lines", "--producer-id", "import", "--addr", b.Addr}
	total := 0
	for range rounds {
		s := start(t, "", in, nil, args...)
		ended := make(chan struct{})
		go func() {
			_ = s.Wait() // it is killed, as a rule
			close(ended)
		}()
		await(t, "the first ids", func() bool { return s.out.Len() > 0 || isClosed(ended) })
		if err := s.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		<-ended
		total += strings.Count(s.out.String(), "\n")
	}
	s := start(t, "", in, nil, args...)
	s.end(t)
	if !strings.Contains(s.err.String(), "stored before") && total > 0 {
		t.Error(s.err.String())
	}
	r := clitest.Run(t, "receive", "q", "--addr", b.Addr, "--count", fmt.Sprint(n)).Want(t, 0)
	if r.Out != in+"\n" {
		got := strings.Split(r.Out, "\n")
		for i := range lines {
			if got[i] != lines[i] {
				t.Fatalf("message %d is %q", i+1, got[i])
			}
		}
	}
	clitest.Run(t, "receive", "q", "--count", "1", "--wait", "10ms", "--addr", b.Addr).Want(t, 1)
	t.Logf("%d ids printed before the kills, %d messages, each once", total, n)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
