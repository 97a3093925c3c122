package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFind(t *testing.T) {
	f := Find("1.2", t.TempDir())
	text := f.String()
	for _, want := range []string{"holdfast 1.2", f.Go, f.OS, "cores", "GOMAXPROCS", "MiB memory"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

// The file system of a path is that of the longest mount above it, and of several there the last.
func TestFileSystem(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "mounts")
	text := "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n" +
		"22 21 0:5 / " + dir + " rw - tmpfs old rw\n" +
		"23 22 0:6 / " + dir + " rw - xfs /dev/new rw\n" +
		"24 21 0:7 / " + dir + "x rw - nfs far rw\nnonsense\n"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "a", "b"): "xfs on /dev/new", dir: "xfs on /dev/new", "/": "ext4 on /dev/root"} {
		if got := fileSystem(path, table); got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
	if got := fileSystem("/", filepath.Join(dir, "none")); got != "" {
		t.Errorf("%q", got)
	}
}

// What a process has used only grows.
func TestUsed(t *testing.T) {
	before, err := Used(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := Used(os.Getpid())
	if err != nil || after.CPU < before.CPU || after.PeakRSS < after.RSS || after.RSS <= 0 {
		t.Errorf("%+v, before %+v: %v", after, before, err)
	}
	if _, err := Used(-1); err == nil {
		t.Error("no process, and no error")
	}
}
