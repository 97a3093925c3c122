package segment

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// forgetful notes which files the operating system was let drop from its cache.
type forgetful struct {
	vfs.FS
	mu     sync.Mutex
	forgot map[string]bool
}

type forgetfulFile struct {
	vfs.File
	fs   *forgetful
	name string
}

func (f *forgetful) Open(path string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(path, mode)
	if err != nil {
		return nil, err
	}
	return &forgetfulFile{file, f, filepath.Base(path)}, nil
}

func (f *forgetfulFile) Forget() {
	f.fs.mu.Lock()
	f.fs.forgot[f.name] = true
	f.fs.mu.Unlock()
	f.File.Forget()
}

func (f *forgetful) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forgot[name]
}

// A segment is dropped from the cache once the one behind it was filled fast, and not before; what is alive in it is read all the same.
func TestFastLogDropsItsCache(t *testing.T) {
	f := &forgetful{FS: vfs.OS(), forgot: map[string]bool{}}
	j := mustOpen(t, t.TempDir(), Options{SegmentBytes: 1 << 20, FS: f})
	w := acquire(t, j, "q")
	var seqs []uint64
	fill := func(to uint64) {
		for j.current.Load().number < to {
			seqs = append(seqs, w.add(1, []byte("meta"), random(100_000)).First)
		}
	}
	first := j.current.Load()
	fill(first.number + 1)
	if f.has(first.name) {
		t.Error("a segment is dropped as soon as it is full: receivers that keep up read from it")
	}
	fill(first.number + 2)
	eventually(t, "the first segment is dropped from the cache", func() bool { return f.has(first.name) })
	n := 0
	for rec, err := range w.s.ReadBodies(t.Context(), seqs) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.First != seqs[n] {
			t.Fatalf("record at seq %d, want %d", rec.First, seqs[n])
		}
		n++
	}
	if n != len(seqs) {
		t.Errorf("%d bodies, want %d", n, len(seqs))
	}
}
