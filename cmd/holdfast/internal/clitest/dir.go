package clitest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// shelter is the folder in which all others of this test process are. A process of its own deletes it when this one is gone, however it ended.
var shelter struct {
	mu     sync.Mutex
	dir    string
	keeper *exec.Cmd
	hold   io.Closer // the keeper waits until it is closed
}

// dir makes a folder in the shelter.
func dir(name string) (string, error) {
	s := &shelter
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		root, err := os.MkdirTemp("", "hf")
		if err != nil {
			return "", err
		}
		c := exec.Command("sh", "-c", `trap "" INT TERM HUP; cat >/dev/null; rm -rf "$0"`, root)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what the terminal says is for the tests
		hold, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(root))
		}
		s.dir, s.keeper, s.hold = root, c, hold
	}
	return os.MkdirTemp(s.dir, name)
}

// Clean removes all folders of this test process. It is for TestMain; a process that ends without it does the same, a moment later.
func Clean() error {
	s := &shelter
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return nil
	}
	err := errors.Join(s.hold.Close(), s.keeper.Wait())
	s.dir = ""
	return err
}

// Dir returns a folder for a test whose path is short enough for Unix sockets in it.
func Dir(t testing.TB) string {
	t.Helper()
	d, err := dir("t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	})
	return d
}

var (
	buildOnce sync.Once
	built     string
	buildErr  error
)

// Binary builds the real binary, once in a test process, and returns its path. Clean removes it.
func Binary(t testing.TB) string {
	t.Helper()
	buildOnce.Do(func() {
		var d string
		if d, buildErr = dir("bin"); buildErr != nil {
			return
		}
		built = filepath.Join(d, "holdfast")
		out, err := exec.Command("go", "build", "-o", built, "github.com/holdfastmq/holdfast/cmd/holdfast").CombinedOutput()
		if err != nil {
			buildErr = fmt.Errorf("build the binary: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built
}
