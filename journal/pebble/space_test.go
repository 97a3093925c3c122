package pebble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfastmq/holdfast/journal"
)

// eventually waits until f is true, for a minute at most.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// smallDisk is a file system of the operating system with room for cap bytes.
type smallDisk struct {
	vfs.FS
	cap int64

	mu    sync.Mutex
	files map[string]int64
	used  int64
}

func newSmallDisk(size int64) *smallDisk {
	return &smallDisk{FS: vfs.Default, cap: size, files: map[string]int64{}}
}

// resize changes a file's size by what grow says, if there is room.
func (d *smallDisk) resize(name string, size func(int64) int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.files[name]
	now := size(was)
	if now > was && d.used+now-was > d.cap {
		return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
	d.files[name] = now
	d.used += now - was
	return nil
}

func (d *smallDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	if err == nil {
		err = d.resize(name, func(int64) int64 { return 0 })
	}
	return &smallFile{File: f, d: d, name: name}, err
}

func (d *smallDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, o...)
	return &smallFile{File: f, d: d, name: name}, err
}

func (d *smallDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	if err == nil {
		d.renamed(from, to)
	}
	return &smallFile{File: f, d: d, name: to}, err
}

func (d *smallDisk) renamed(from, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used -= d.files[to]
	d.files[to] = d.files[from]
	delete(d.files, from)
}

func (d *smallDisk) Rename(from, to string) error {
	err := d.FS.Rename(from, to)
	if err == nil {
		d.renamed(from, to)
	}
	return err
}

func (d *smallDisk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil {
		d.mu.Lock()
		d.used -= d.files[name]
		delete(d.files, name)
		d.mu.Unlock()
	}
	return err
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return vfs.DiskUsage{AvailBytes: uint64(d.cap - d.used), TotalBytes: uint64(d.cap), UsedBytes: uint64(d.used)}, nil
}

func (d *smallDisk) Unwrap() vfs.FS { return d.FS }

type smallFile struct {
	vfs.File
	d    *smallDisk
	name string
	off  int64
}

func (f *smallFile) Write(p []byte) (int, error) {
	if err := f.d.resize(f.name, func(n int64) int64 { return max(n, f.off+int64(len(p))) }); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	f.off += int64(n)
	return n, err
}

func (f *smallFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.d.resize(f.name, func(n int64) int64 { return max(n, off+int64(len(p))) }); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *smallFile) Preallocate(int64, int64) error { return nil }

// disks are small file systems: one that counts, and, where the test may mount one, a real one.
func disks(t *testing.T, size int64) map[string]func(t *testing.T) (vfs.FS, string) {
	d := map[string]func(t *testing.T) (vfs.FS, string){
		"counted": func(t *testing.T) (vfs.FS, string) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return newSmallDisk(size), dir
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
	d["tmpfs"] = func(*testing.T) (vfs.FS, string) { return vfs.Default, dir }
	return d
}

// G10: ErrFull says "not stored", so it is never said of an append that was.
func TestFullIsNotSaidOfWhatIsStored(t *testing.T) {
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 30})
	j := mustOpen(t, "store", Options{FS: fs, MemTableBytes: 1 << 20, BallastBytes: 4096})
	w := acquire(t, j, "q")
	r := w.add(1, nil, []byte("body"))
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 1 << 30})
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
	fs := newFailing(vfs.NewMem())
	mem := vfs.Root(fs).(*vfs.MemFS)
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 30})
	j := mustOpen(t, "store", Options{FS: fs, MemTableBytes: 1 << 20, BallastBytes: 4096})
	eventually(t, "the ballast is there", func() bool { return j.Metrics().BallastBytes > 0 })
	w := acquire(t, j, "q")
	want := []*journal.Record{w.add(1, nil, []byte("body"))}
	fs.next(syscall.ENOSPC, opOn(errorfs.OpFileWrite, ".log"))
	r := w.next(1, nil, []byte("body"))
	for err := journal.ErrFull; errors.Is(err, journal.ErrFull); {
		err = appendSettled(t.Context(), w.s, w.at.End, r)
		if err != nil && !errors.Is(err, journal.ErrFull) {
			t.Fatal(err)
		}
	}
	verifyStream(t, j, "q", append(want, r))
	if m := j.Metrics(); m.Reopens != 1 || m.BallastBytes == 0 {
		t.Errorf("%+v: want one reopen, and the ballast again", m)
	}
}
