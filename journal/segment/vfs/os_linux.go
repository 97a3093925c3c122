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

// flushBytes is how much of a long write is copied before the disk is told to begin with it. Where nothing is said, it begins once all is copied and
// somebody waits for it.
const flushBytes = 256 << 10

func pwritev(f *os.File, bufs [][]byte, off int64) error {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if total < 2*flushBytes {
		return pwriteAll(f, bufs, off)
	}
	var room [16][]byte
	part := room[:0]
	for i, from := 0, 0; i < len(bufs); {
		// Parts end where pages do: a page that is written to in two parts may go to the disk twice.
		size := int(flushBytes - off%flushBytes)
		n := 0
		for part = part[:0]; i < len(bufs) && n < size; {
			b := bufs[i][from:]
			if n+len(b) > size {
				b = b[:size-n]
				from += len(b)
			} else {
				i, from = i+1, 0
			}
			part = append(part, b)
			n += len(b)
		}
		if err := pwriteAll(f, part, off); err != nil {
			return err
		}
		if err := startFlush(f, off, int64(n)); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// startFlush lets the disk begin to write what was written to the file, and does not wait for it. What of that fails later is told by fdatasync, to
// which this leaves it.
func startFlush(f *os.File, off, n int64) error {
	err := unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
	switch {
	case err == nil, errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESPIPE), errors.Is(err, unix.EPERM):
		return nil // where it cannot be said, fdatasync does all of it
	}
	return &fs.PathError{Op: "sync_file_range", Path: f.Name(), Err: err}
}

func pwriteAll(f *os.File, bufs [][]byte, off int64) error {
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
