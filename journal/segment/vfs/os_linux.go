package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxIovecs is what one system call takes.
const maxIovecs = 1024

func pwritev(f *os.File, bufs [][]byte, off int64) error {
	fail := func(err error) error { return &fs.PathError{Op: "pwritev", Path: f.Name(), Err: err} }
	fd := int(f.Fd())
	left := bufs
	var rest [][]byte // a copy, made only where the system took less than it was given
	for len(left) > 0 {
		part := left[:min(len(left), maxIovecs)]
		want := 0
		for _, b := range part {
			want += len(b)
		}
		n, err := unix.Pwritev(fd, part, off)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fail(err)
		case n == 0 && want > 0:
			return fail(io.ErrShortWrite)
		}
		off += int64(n)
		if n == want {
			left = left[len(part):]
			continue
		}
		if rest == nil {
			rest = append(rest, left...)
			left = rest
		}
		for n >= len(left[0]) {
			n -= len(left[0])
			left = left[1:]
		}
		left[0] = left[0][n:]
	}
	return nil
}

func fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) } // it only costs memory

func flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), ErrHeld)
	}
	if err != nil {
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

func space(dir string) (free, total uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
