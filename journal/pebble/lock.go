package pebble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

const (
	lockName   = "LOCK"
	ownerName  = "OWNER"
	formatName = "FORMAT"

	// formatVersion is the version of the layout that this package writes.
	formatVersion = 1
	formatPrefix  = "holdfast pebble journal, format "
)

// owner is what the OWNER file says of the process that has the lock.
type owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// lock takes the directory for this process, to write to it or only to read. The result gives it back.
func lock(fs vfs.FS, dir string, write bool) (io.Closer, error) {
	l, err := fs.Lock(fs.PathJoin(dir, lockName))
	switch {
	case err == nil:
	case isLocked(err):
		return nil, fmt.Errorf("%w: %s is held by %s", journal.ErrLocked, dir, whoHolds(fs, dir))
	case notWritable(err):
		return nil, fmt.Errorf("directory %s cannot be written to: %w", dir, err)
	default:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	host, _ := os.Hostname()
	b, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = writeOwner(fs, dir, b)
	}
	if notWritable(err) && write {
		return nil, errors.Join(fmt.Errorf("directory %s cannot be written to: %w", dir, err), l.Close())
	}
	if err != nil && !isNoSpace(err) && !notWritable(err) { // it only serves a message
		return nil, errors.Join(fmt.Errorf("write %s: %w", ownerName, err), l.Close())
	}
	return l, nil
}

// notWritable tells that the directory, or its file system, is not for this process to write to.
func notWritable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func writeOwner(fs vfs.FS, dir string, b []byte) error {
	f, err := fs.Create(fs.PathJoin(dir, ownerName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Close())
}

// isLocked tells a lock that somebody has from a failure to lock.
func isLocked(err error) bool {
	var path *os.PathError // of creating the file, not of locking it
	return !errors.As(err, &path) &&
		(errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "held by current process"))
}

func whoHolds(fs vfs.FS, dir string) string {
	var o owner
	b, err := readFile(fs, fs.PathJoin(dir, ownerName))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return "a process that is not known"
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this process (%d), which opened it at %s", o.PID, o.Started.Format(time.RFC3339))
	}
	return fmt.Sprintf("process %d on host %q, which opened it at %s", o.PID, o.Host, o.Started.Format(time.RFC3339))
}

// readFormat verifies that the directory is of a version that this package knows. It returns
// 0 where there is no FORMAT file.
func readFormat(fs vfs.FS, dir string) (int, error) {
	b, err := readFile(fs, fs.PathJoin(dir, formatName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", formatName, err)
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(string(b), "\n"), formatPrefix)
	v, err := strconv.Atoi(digits)
	switch {
	case !ok || err != nil || v < 1:
		return 0, damagedFile(formatName, fmt.Sprintf("%q is not a format", b), nil)
	case v > formatVersion:
		return v, fmt.Errorf("%s is of format %d, this binary reads up to %d: %w", dir, v, formatVersion, journal.ErrNewerFormat)
	}
	return v, nil
}

// resolve makes equal directories have equal names, for the lock inside one process.
func resolve(fs vfs.FS, dir string) (string, error) {
	if vfs.Root(fs) != vfs.Default {
		return dir, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("directory %s: %w", dir, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil { // not there yet
		return filepath.Join(parent, filepath.Base(abs)), nil
	}
	return abs, nil
}
