package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Op names an operation of a Mem, for hooks.
type Op struct {
	// Kind is one of open, create, write, sync, syncdir, rename, remove, read, list, mkdir.
	Kind string
	// Path is the file, or the directory.
	Path string
}

// Changes tells whether the operation changes something.
func (o Op) Changes() bool { return o.Kind != "open" && o.Kind != "read" && o.Kind != "list" }

// Mem is a file system in memory. A crash loses what was not synced, or parts of it.
type Mem struct {
	mu    sync.Mutex
	files map[string]*node
	dirs  map[string]bool
	// durable is what names lead to after a crash, but for the changes in pending, which happened in this order.
	durable map[string]*node
	pending []change
	locks   map[string]bool
	limit   uint64 // bytes of all files; 0: none
	hook    func(Op) error
}

// change is a change of a name that is not durable.
type change struct {
	dir, path string
	n         *node // nil: removed
}

// node is a file.
type node struct {
	data    []byte
	durable []byte
	dirty   []span // of data, written since the last sync
}

type span struct{ from, to int }

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{files: map[string]*node{}, dirs: map[string]bool{}, durable: map[string]*node{}, locks: map[string]bool{}}
}

// SetHook makes h be called before each operation, without locks; an error of it is the operation's outcome, which then does nothing.
func (m *Mem) SetHook(h func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = h
}

// SetLimit bounds the bytes of all files. 0 is no bound.
func (m *Mem) SetLimit(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

// Used returns the bytes of all files.
func (m *Mem) Used() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usedLocked()
}

func (m *Mem) usedLocked() uint64 {
	var n uint64
	for _, f := range m.files {
		n += uint64(len(f.data))
	}
	return n
}

// Crash returns what a power cut at this moment leaves. Each piece of 512 B, or of 4 KiB, that was written and not synced is
// there with a probability of percent in 100; of the changes of names that were not synced, some first ones are. m goes on as it is.
func (m *Mem) Crash(percent int, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	maps.Copy(c.dirs, m.dirs)
	c.limit = m.limit
	names := maps.Clone(m.durable)
	keep := 0
	if percent > 0 {
		keep = rng.IntN(len(m.pending) + 1)
	}
	for _, p := range m.pending[:keep] {
		if p.n == nil {
			delete(names, p.path)
		} else {
			names[p.path] = p.n
		}
	}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		left := names[path].crash(percent, rng)
		n := &node{data: left, durable: slices.Clone(left)}
		c.files[path], c.durable[path] = n, n
	}
	return c
}

func (n *node) crash(percent int, rng *rand.Rand) []byte {
	out := slices.Clone(n.durable)
	unit := 4096
	if rng.IntN(2) == 0 {
		unit = 512
	}
	for _, s := range n.dirty {
		for at := s.from; at < s.to; {
			end := min(at-at%unit+unit, s.to)
			if rng.IntN(100) < percent {
				if end > len(out) {
					out = append(out, make([]byte, end-len(out))...)
				}
				copy(out[at:end], n.data[at:end])
			}
			at = end
		}
	}
	return out
}

func (m *Mem) before(kind, path string) error {
	m.mu.Lock()
	h := m.hook
	m.mu.Unlock()
	if h == nil {
		return nil
	}
	if err := h(Op{kind, path}); err != nil {
		return &fs.PathError{Op: kind, Path: path, Err: err}
	}
	return nil
}

func noFile(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist} }

// MkdirAll is part of FS.
func (m *Mem) MkdirAll(dir string) error {
	if err := m.before("mkdir", dir); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirs[filepath.Clean(dir)] = true
	return nil
}

// List is part of FS.
func (m *Mem) List(dir string) ([]Info, error) {
	if err := m.before("list", dir); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	if !m.dirs[dir] {
		return nil, noFile("list", dir)
	}
	var out []Info
	for path, n := range m.files {
		if filepath.Dir(path) == dir {
			out = append(out, Info{filepath.Base(path), int64(len(n.data))})
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Open is part of FS.
func (m *Mem) Open(path string, mode Mode) (File, error) {
	path = filepath.Clean(path)
	kind := "open"
	if mode == Create {
		kind = "create"
	}
	if err := m.before(kind, path); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.files[path]
	if n == nil && mode == Read || !m.dirs[filepath.Dir(path)] {
		return nil, noFile("open", path)
	}
	if n == nil || mode == Create {
		n = &node{}
		m.files[path] = n
		m.pending = append(m.pending, change{filepath.Dir(path), path, n})
	}
	return &memFile{m: m, n: n, path: path, readOnly: mode == Read}, nil
}

// Rename is part of FS.
func (m *Mem) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	if err := m.before("rename", to); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.files[from]
	if n == nil {
		return noFile("rename", from)
	}
	delete(m.files, from)
	m.files[to] = n
	m.pending = append(m.pending, change{filepath.Dir(to), to, n}, change{filepath.Dir(from), from, nil})
	return nil
}

// Remove is part of FS.
func (m *Mem) Remove(path string) error {
	path = filepath.Clean(path)
	if err := m.before("remove", path); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[path] == nil {
		return noFile("remove", path)
	}
	delete(m.files, path)
	m.pending = append(m.pending, change{filepath.Dir(path), path, nil})
	return nil
}

// SyncDir is part of FS.
func (m *Mem) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	if err := m.before("syncdir", dir); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.pending {
		if c.dir != dir {
			continue
		}
		if c.n == nil {
			delete(m.durable, c.path)
		} else {
			m.durable[c.path] = c.n
		}
	}
	m.pending = slices.DeleteFunc(m.pending, func(c change) bool { return c.dir == dir })
	return nil
}

// Lock is part of FS.
func (m *Mem) Lock(path string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[path] {
		return nil, fmt.Errorf("%s: %w", path, ErrHeld)
	}
	m.locks[path] = true
	return &memLock{m, path}, nil
}

type memLock struct {
	m    *Mem
	path string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.path)
	return nil
}

// Space is part of FS.
func (m *Mem) Space(string) (free, total uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit == 0 {
		return 1 << 40, 1 << 40, nil
	}
	return m.limit - min(m.limit, m.usedLocked()), m.limit, nil
}

type memFile struct {
	m        *Mem
	n        *node
	path     string
	readOnly bool
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.m.before("read", f.path); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(bufs [][]byte, off int64) error {
	if err := f.m.before("write", f.path); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.readOnly {
		return &fs.PathError{Op: "write", Path: f.path, Err: fs.ErrPermission}
	}
	at := int(off)
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	n := f.n
	if grow := at + size - len(n.data); grow > 0 {
		if m := f.m; m.limit > 0 && m.usedLocked()+uint64(grow) > m.limit {
			return &fs.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
		}
		n.data = append(n.data, make([]byte, grow)...)
	}
	n.dirty = append(n.dirty, span{at, at + size})
	for _, b := range bufs {
		at += copy(n.data[at:], b)
	}
	return nil
}

// Sync is part of File. One that the hook makes fail leaves what was written readable and takes it for written back, as the page cache of an
// operating system does: a later Sync does not make it durable.
func (f *memFile) Sync() error {
	err := f.m.before("sync", f.path)
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := f.n
	if err != nil {
		n.dirty = nil
		return err
	}
	if grow := len(n.data) - len(n.durable); grow > 0 {
		n.durable = append(n.durable, make([]byte, grow)...)
	}
	for _, s := range n.dirty {
		copy(n.durable[s.from:s.to], n.data[s.from:s.to])
	}
	n.dirty = nil
	return nil
}

// Size is part of File.
func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Forget() {}

func (f *memFile) Close() error { return nil }
