package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

const (
	lockName   = "LOCK"
	ownerName  = "OWNER"
	formatName = "FORMAT"

	formatPrefix = "holdfast segment journal, format "
)

// owner is what the OWNER file says of the process that has the lock.
type owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// lock takes the directory for this process, to write to it or only to read. The result gives it back.
func lock(f vfs.FS, dir string, write bool) (io.Closer, error) {
	l, err := f.Lock(filepath.Join(dir, lockName))
	switch {
	case err == nil:
	case errors.Is(err, vfs.ErrHeld):
		return nil, fmt.Errorf("%w: %s is held by %s", journal.ErrLocked, dir, whoHolds(f, dir))
	case notWritable(err):
		return nil, fmt.Errorf("directory %s cannot be written to: %w", dir, err)
	default:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	host, _ := os.Hostname()
	b, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = writeOwner(f, dir, b)
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
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func writeOwner(f vfs.FS, dir string, b []byte) error {
	h, err := f.Open(filepath.Join(dir, ownerName), vfs.Create)
	if err != nil {
		return err
	}
	return errors.Join(h.WriteAt([][]byte{append(b, '\n')}, 0), h.Close())
}

func whoHolds(f vfs.FS, dir string) string {
	var o owner
	b, err := vfs.ReadFile(f, filepath.Join(dir, ownerName))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return "a process that is not known"
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this process (%d), which opened it at %s", o.PID, o.Started.Format(time.RFC3339))
	}
	return fmt.Sprintf("process %d on host %q, which opened it at %s", o.PID, o.Host, o.Started.Format(time.RFC3339))
}

// readFormat verifies that the directory is of a version that this package knows. It returns 0 where there is no FORMAT file.
func readFormat(f vfs.FS, dir string) (int, error) {
	b, err := vfs.ReadFile(f, filepath.Join(dir, formatName))
	if errors.Is(err, fs.ErrNotExist) {
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
