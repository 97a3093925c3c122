//go:build !linux

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

func pwritev(f *os.File, bufs [][]byte, off int64) error {
	for _, b := range bufs {
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

func fdatasync(f *os.File) error { return f.Sync() }

func forget(*os.File) {}

// held are the directories that this process has locked. Elsewhere than on Linux, other processes are not kept out.
var held sync.Map

func flock(f *os.File) error {
	if _, taken := held.LoadOrStore(f.Name(), f); taken {
		return fmt.Errorf("%s: %w", f.Name(), ErrHeld)
	}
	return nil
}

func space(dir string) (free, total uint64, err error) {
	return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: errors.ErrUnsupported}
}
