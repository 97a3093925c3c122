package segment

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// holdEnv makes the test binary open the store in that directory and hold it until its standard input ends.
const holdEnv = "HOLDFAST_TEST_HOLD"

func holdStore(dir string) error {
	j, err := Open(dir, quiet(Options{}))
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return j.Close()
}

// §4: one process per directory; the second is refused with a sentence that says who has it.
func TestSecondProcessIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	cmd.Stderr = os.Stderr
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
		t.Fatalf("the first process says %q, %v", line, err)
	}
	_, err = Open(dir, quiet(Options{}))
	host, _ := os.Hostname()
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on host %q", cmd.Process.Pid, host)) {
		t.Errorf("second process: %v, want ErrLocked and who holds it", err)
	}
	if err := Verify(t.Context(), dir, quiet(Options{}), nil); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("verify beside a process: %v, want ErrLocked", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir, Options{}))
}

// §4: inside one process too, by whatever name the directory is called.
func TestSecondOpenInProcessIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	j := mustOpen(t, dir, Options{})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, dir + "/../store", link} {
		if _, err := Open(name, quiet(Options{})); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "this process") {
			t.Errorf("open %s again: %v, want ErrLocked", name, err)
		}
	}
	acquire(t, j, "q").add(1, nil, []byte("still works"))
	mustClose(t, j)
	mustClose(t, mustOpen(t, link, Options{}))
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

// §3: a store of a newer format is refused and not touched.
func TestNewerFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	j := mustOpen(t, dir, Options{})
	acquire(t, j, "q").add(1, nil, []byte("body"))
	mustClose(t, j)
	if err := os.WriteFile(filepath.Join(dir, formatName), []byte(formatPrefix+"2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	was := listing(t, dir)
	for _, o := range []Options{{}, {ReadOnly: true}, {AcceptLoss: true}} {
		if _, err := Open(dir, quiet(o)); !errors.Is(err, journal.ErrNewerFormat) || !strings.Contains(err.Error(), "format 2") {
			t.Errorf("open: %v, want ErrNewerFormat and the version", err)
		}
	}
	if now := listing(t, dir); now != was {
		t.Errorf("the directory was changed")
	}
}

// §3: what is not a store, or only half of one, is told from an empty directory.
func TestNoStore(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := Open("none", quiet(Options{FS: fs, ReadOnly: true})); err == nil {
		t.Errorf("a store that does not exist was opened for reading")
	}
	j := mustOpen(t, "store", Options{FS: fs})
	acquire(t, j, "q")
	mustClose(t, j)
	if err := fs.Remove("store/" + formatName); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("store", quiet(Options{FS: fs})); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), formatName) {
		t.Errorf("a store without FORMAT: %v, want ErrCorrupt and the name of the file", err)
	}
}

// G11: all faults of the options are told together.
func TestOptionsAreChecked(t *testing.T) {
	_, err := Open("store", Options{FS: vfs.NewMem(), SegmentBytes: -1, MaxRecordBytes: -1, MaxPartBytes: 2 << 30,
		ReserveBytes: -1, BallastBytes: -1, MarkEvery: -1, ReadOnly: true, AcceptLoss: true})
	for _, name := range []string{"SegmentBytes", "MaxRecordBytes", "MaxPartBytes", "ReserveBytes", "BallastBytes", "MarkEvery", "ReadOnly"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: does not name %s", err, name)
		}
	}
}

// G11: a store that is open for reading refuses every change and reads.
func TestReadOnly(t *testing.T) {
	fs := vfs.NewMem()
	j := mustOpen(t, "store", Options{FS: fs})
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, []byte("meta"), []byte("body"))}
	mustClose(t, j)
	j = mustOpen(t, "store", Options{FS: fs, ReadOnly: true})
	if _, err := j.Acquire(t.Context(), "q"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("acquire: %v, want ErrReadOnly", err)
	}
	verifyStream(t, j, "q", want)
	mustClose(t, j)
	j = mustOpen(t, "store", Options{FS: fs})
	verifyStream(t, j, "q", want)
	mustClose(t, j)
}

// G11: a mistyped directory does not become a store where one must exist.
func TestMustExist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "typo")
	for range 2 {
		if _, err := Open(dir, quiet(Options{MustExist: true})); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "there is no journal in") {
			t.Errorf("open what is not there: %v", err)
		}
		if _, err := os.Stat(dir); err == nil && len(listing(t, dir)) > 0 {
			t.Fatal("something was made")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { // an empty directory is none either
			t.Fatal(err)
		}
	}
	mustClose(t, mustOpen(t, dir, Options{}))
	mustClose(t, mustOpen(t, dir, Options{MustExist: true}))
}

// G11: a directory, or file system, that cannot be written to is named in one clear sentence, and can still be read.
func TestDirectoryNotWritable(t *testing.T) {
	for _, cause := range []error{os.ErrPermission, syscall.EROFS} {
		f := newFailing()
		mustClose(t, mustOpen(t, "store", Options{FS: f}))
		f.next(&os.PathError{Op: "open", Path: ownerName, Err: cause}, opOn("create", ownerName))
		_, err := Open("store", quiet(Options{FS: f}))
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "directory store cannot be written to") {
			t.Errorf("%v: open: %v", cause, err)
		}
		f.next(cause, opOn("create", ownerName))
		mustClose(t, mustOpen(t, "store", Options{FS: f, ReadOnly: true}))
	}
}

// A store that is opened and closed often goes on in the segment where it was, and does not grow by it.
func TestOpenedOften(t *testing.T) {
	fs := vfs.NewMem()
	var want []*journal.Record
	for range 20 {
		j := mustOpen(t, "store", Options{FS: fs})
		want = append(want, acquire(t, j, "q").add(1, []byte("meta"), []byte("body")))
		mustClose(t, j)
	}
	all, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for _, i := range all {
		if strings.HasSuffix(i.Name, segExt) {
			segments++
		}
	}
	if segments > 2 {
		t.Errorf("%d segments", segments)
	}
	j := mustOpen(t, "store", Options{FS: fs})
	verifyStream(t, j, "q", want)
}
