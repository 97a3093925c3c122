package segment

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// disks are small file systems: one that counts, and, where the test may mount one, a real one.
func disks(t *testing.T, size int64) map[string]func(t *testing.T) (vfs.FS, string) {
	d := map[string]func(t *testing.T) (vfs.FS, string){
		"counted": func(t *testing.T) (vfs.FS, string) {
			m := vfs.NewMem()
			m.SetLimit(uint64(size))
			if err := m.MkdirAll("disk"); err != nil {
				t.Fatal(err)
			}
			return m, "disk"
		},
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Logf("no tmpfs: %v", err)
		return d
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	d["tmpfs"] = func(*testing.T) (vfs.FS, string) { return vfs.OS(), dir }
	return d
}

// G10: ErrFull says "not stored", so it is never said of an append that was.
func TestFullIsNotSaidOfWhatIsStored(t *testing.T) {
	fs := vfs.NewMem()
	fs.SetLimit(1 << 30)
	j := mustOpen(t, "store", Options{FS: fs, SegmentBytes: 1 << 20, BallastBytes: 4096})
	w := acquire(t, j, "q")
	r := w.add(1, nil, []byte("body"))
	fs.SetLimit(fs.Used() + 1000)
	eventually(t, "all is refused", func() bool { return j.Metrics().Out })
	if err := w.s.Append(t.Context(), 0, r); err != nil {
		t.Errorf("repeated append of what is stored, on a full disk: %v", err)
	}
	if err := w.s.Append(t.Context(), w.at.End, w.next(1, nil, []byte("body"))); !errors.Is(err, journal.ErrFull) {
		t.Errorf("append on a full disk: %v, want ErrFull", err)
	}
	if _, err := j.Acquire(t.Context(), "other"); err != nil {
		t.Errorf("acquire on a full disk: %v", err)
	}
}

// §4: a disk that says that it is full although it told of free space (a quota) refuses, and
// is tried again.
func TestNoSpaceWithoutWarning(t *testing.T) {
	fs := newFailing()
	fs.SetLimit(1 << 30)
	j := mustOpen(t, "store", Options{FS: fs, SegmentBytes: 1 << 20, BallastBytes: 4096})
	eventually(t, "the ballast is there", func() bool { return j.Metrics().BallastBytes > 0 })
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, nil, []byte("body"))}
	fs.next(syscall.ENOSPC, opOn("write", segExt))
	r := w.next(1, nil, []byte("body"))
	for err := journal.ErrFull; errors.Is(err, journal.ErrFull); {
		err = appendSettled(t.Context(), w.s, w.at.End, r)
		if err != nil && !errors.Is(err, journal.ErrFull) {
			t.Fatal(err)
		}
	}
	verifyStream(t, j, "q", append(want, r))
	// Whose write it was, the committer's or that of the next segment, is a matter of chance.
	eventually(t, "there is room again, and the ballast", func() bool {
		m := j.Metrics()
		return !m.Full && m.BallastBytes > 0 && m.Reopens <= 1
	})
}

// §4: closing a store does not wait for a ballast that is just being made: on a slow disk, that takes a while.
func TestCloseDoesNotWaitForBallast(t *testing.T) {
	fs := newFailing()
	making, closing := make(chan struct{}), make(chan struct{})
	var writes atomic.Int32
	fs.SetHook(func(op vfs.Op) error {
		if opOn("write", ballastName)(op) && writes.Add(1) == 1 {
			close(making)
			<-closing
		}
		return nil
	})
	j := mustOpen(t, "store", Options{FS: fs})
	<-making
	go func() {
		<-j.closing
		close(closing)
	}()
	mustClose(t, j)
	if n := writes.Load(); n != 1 {
		t.Errorf("the ballast was written on %d times after the store was closed", n-1)
	}
	if _, err := vfs.Stat(fs, "store", ballastName); err == nil {
		t.Error("half of a ballast is left")
	}
}
