package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// Options are how a Directory is opened. The zero value is the driver's default.
type Options struct {
	// ReadOnly, MustExist and AcceptLoss are what the drivers' options of these names are.
	ReadOnly, MustExist, AcceptLoss bool
}

// Directory is a driver on directories of the operating system.
type Directory struct {
	// Open opens a store. It logs nothing.
	Open func(dir string, o Options) (journal.Journal, error)
	// Verify verifies a store that no process has open.
	Verify func(ctx context.Context, dir string) error
	// Format is the name of the file that has the format, and Newer what would be in it if it were format 2.
	Format string
	Newer  []byte
}

// holdEnv makes the test binary open the store in that directory and hold it until its standard input ends.
const holdEnv = "HOLDFAST_TEST_HOLD"

// Held is to be called first in TestMain, with the standard input and output. If this process is one that TestSecondProcess started, it holds
// the store as it is told to, and the process is to end, with an error if there is one.
func (d *Directory) Held(in io.Reader, out io.Writer) (held bool, err error) {
	dir := os.Getenv(holdEnv)
	if dir == "" {
		return false, nil
	}
	j, err := d.Open(dir, Options{})
	if err != nil {
		return true, err
	}
	if _, err := fmt.Fprintln(out, "open"); err != nil {
		return true, errors.Join(err, j.Close())
	}
	_, _ = bufio.NewReader(in).ReadString('\n')
	return true, j.Close()
}

func (d *Directory) mustOpen(t testing.TB, dir string, o Options) journal.Journal {
	t.Helper()
	j, err := d.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func mustClose(t testing.TB, j io.Closer) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSecondProcess proves §4: one process per directory; the second is refused with a sentence that says who has it.
func TestSecondProcess(t *testing.T, d *Directory) {
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the first process says %q, %v, %s", line, err, &stderr)
	}
	_, err = d.Open(dir, Options{})
	host, _ := os.Hostname()
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on host %q", cmd.Process.Pid, host)) {
		t.Errorf("second process: %v, want ErrLocked and who holds it", err)
	}
	if err := d.Verify(t.Context(), dir); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("verify beside a process: %v, want ErrLocked", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the first process: %v, %s", err, &stderr)
	}
	mustClose(t, d.mustOpen(t, dir, Options{}))
}

// TestSecondOpen proves §4 inside one process too, by whatever name the directory is called.
func TestSecondOpen(t *testing.T, d *Directory) {
	dir := filepath.Join(t.TempDir(), "store")
	j := d.mustOpen(t, dir, Options{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, dir + "/../store", link} {
		if _, err := d.Open(name, Options{}); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "this process") {
			t.Errorf("open %s again: %v, want ErrLocked", name, err)
		}
	}
	acquire(t, j, "q").add([]byte("still works"))
	mustClose(t, j)
	mustClose(t, d.mustOpen(t, link, Options{}))
}

// listing returns the names and contents of a directory's files.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		c, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %x\n", e.Name(), c)
	}
	return b.String()
}

// TestNewerFormat proves §3: a store of a newer format is refused and not touched.
func TestNewerFormat(t *testing.T, d *Directory) {
	dir := filepath.Join(t.TempDir(), "store")
	j := d.mustOpen(t, dir, Options{})
	acquire(t, j, "q").add([]byte("body"))
	mustClose(t, j)
	if err := os.WriteFile(filepath.Join(dir, d.Format), d.Newer, 0o644); err != nil {
		t.Fatal(err)
	}
	was := listing(t, dir)
	for _, o := range []Options{{}, {ReadOnly: true}, {AcceptLoss: true}} {
		if _, err := d.Open(dir, o); !errors.Is(err, journal.ErrNewerFormat) || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("open: %v, want ErrNewerFormat and the version", err)
		}
	}
	if now := listing(t, dir); now != was {
		t.Errorf("the directory was changed")
	}
}

// TestMustExist proves G11: a mistyped directory does not become a store where one must exist.
func TestMustExist(t *testing.T, d *Directory) {
	dir := filepath.Join(t.TempDir(), "typo")
	for range 2 {
		if _, err := d.Open(dir, Options{MustExist: true}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there is no journal in") {
			t.Errorf("open what is not there: %v", err)
		}
		if _, err := os.Stat(dir); err == nil && len(listing(t, dir)) > 0 {
			t.Fatal("something was made")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { // an empty directory is none either
			t.Fatal(err)
		}
	}
	mustClose(t, d.mustOpen(t, dir, Options{}))
	mustClose(t, d.mustOpen(t, dir, Options{MustExist: true}))
}
