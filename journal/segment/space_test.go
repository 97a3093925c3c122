package segment

import (
	"errors"
	"fmt"
	"path/filepath"
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

// §4, G2: a full disk refuses sends before a log write fails; what has no body is still stored;
// space that acknowledgements give back is used again without a restart; a restart while full works.
func TestDiskFull(t *testing.T) {
	for name, disk := range disks(t, 64<<20) {
		t.Run(name, func(t *testing.T) {
			fs, dir := disk(t)
			testDiskFull(t, fs, dir)
		})
	}
}

func testDiskFull(t *testing.T, fs vfs.FS, dir string) {
	store := filepath.Join(dir, "store")
	j := mustOpen(t, store, Options{FS: fs})
	eventually(t, "the ballast is there", func() bool { return j.Metrics().BallastBytes > 0 })
	w := acquire(t, j, "q")
	body := random(100_000)
	send := func() error {
		r := w.next(1, []byte("send"), body)
		err := appendSettled(t.Context(), w.s, w.at.End, r)
		if err == nil {
			w.stored(r)
		}
		return err
	}
	fill := func() int {
		for n := 0; ; n++ {
			if err := send(); errors.Is(err, journal.ErrFull) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	sent := fill()
	if sent < 100 {
		t.Errorf("full after %d messages of 100 kB on a disk of 64 MiB", sent)
	}
	for range 2000 { // acknowledgements
		w.add(1, random(100), nil)
	}
	if err := w.s.WritePart(t.Context(), "snapshot", random(100_000)); err != nil {
		t.Fatal(err)
	}
	if m := j.Metrics(); m.Reopens > 0 || m.Out {
		t.Errorf("after filling: %+v, want acknowledgements to be stored, and never opened again", m)
	}

	// Somebody else takes all but a little.
	filler := filepath.Join(dir, "filler")
	takeAllBut(t, fs, filler+"1", dir, 100_000)
	eventually(t, "the ballast is gone", func() bool { return j.Metrics().BallastBytes == 0 })
	takeAllBut(t, fs, filler+"2", dir, 100_000)
	eventually(t, "all is refused", func() bool { return j.Metrics().Out })
	if err := w.s.Append(t.Context(), w.at.End, w.next(1, nil, nil)); !errors.Is(err, journal.ErrFull) {
		t.Errorf("append without a body to a disk that is full to the brim: %v, want ErrFull", err)
	}
	mustClose(t, j)
	j = mustOpen(t, store, Options{FS: fs})
	r, err := j.Open(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info(t.Context())
	if err != nil || info.End != w.at.End {
		t.Fatalf("after a restart: %+v, %v, want the end %d", info, err, w.at.End)
	}
	for _, err := range r.ReadMeta(t.Context(), 1, info.End) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Acquire(t.Context(), "q"); err != nil && !errors.Is(err, journal.ErrFull) {
		t.Errorf("acquire after a restart while full: %v, want nil or ErrFull", err)
	}
	for _, n := range []string{"1", "2"} {
		if err := fs.Remove(filler + n); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the stream can be acquired again", func() bool {
		s, err := j.Acquire(t.Context(), "q")
		if err == nil {
			w.s, w.at = s, s.Acquired()
		}
		return err == nil
	})
	eventually(t, "acknowledgements are stored again", func() bool {
		r := w.next(1, nil, nil)
		err := appendSettled(t.Context(), w.s, w.at.End, r)
		if err == nil {
			w.stored(r)
		}
		return err == nil
	})

	// What is acknowledged gives its space back.
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: w.at.End}}); err != nil {
		t.Fatal(err)
	}
	again := 0
	eventually(t, fmt.Sprintf("there is room for %d messages again", sent*3/4), func() bool {
		n := fill()
		again += n
		return again >= sent*3/4
	})
	if m := j.Metrics(); m.Reopens > 0 {
		t.Errorf("opened again %d times: a write failed", m.Reopens)
	}
	mustClose(t, j)
}

// takeAllBut writes a file that leaves the disk with so many bytes.
func takeAllBut(t *testing.T, fs vfs.FS, path, dir string, left uint64) {
	t.Helper()
	f, err := fs.Open(path, vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); ; {
		free, _, err := fs.Space(dir)
		if err != nil {
			t.Fatal(err)
		}
		if free <= left {
			break
		}
		b := make([]byte, min(1<<20, free-left))
		if err := f.WriteAt([][]byte{b}, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(b))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
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
