package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// gate is the file system as one opened engine sees it. The engine ends the process when it
// cannot write its log or manifest, and has no way to be told to stop. So the gate hides such an error: it
// is killed, and from then on swallows every change, while the engine believes that all is well and can be
// closed in good order. Whoever acknowledges looks at the gate after each sync ([gate.alive]). A new
// engine with a new gate then finds on disk what really got there; the old one can no longer touch it.
type gate struct {
	vfs.FS
	noSpace  func()       // told of each ENOSPC that stops what is stored
	room     func() bool  // asked whether compactions may go on writing
	metaSync func()       // told of each sync of a tracked file
	view     *logView     // what of the logs the engine is shown; nil: all
	readOnly bool         // refuse changes
	maxLog   int64        // larger logs are not used again; 0: no limit
	opening  atomic.Bool  // the engine is being opened
	failures atomic.Int32 // failed writes of tables while opening

	inFlight sync.RWMutex // held shared by changes under way
	died     chan struct{}
	once     sync.Once
	why      error // set before died is closed

	metaMu sync.Mutex
	meta   map[string]*metaFile
}

// metaFile is an engine metadata file that is being written.
type metaFile struct{ written, synced fingerprint }

// fingerprint tells what the first bytes of a file are.
type fingerprint struct {
	size int64
	crc  uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (f *fingerprint) add(p []byte) {
	f.crc = crc32.Update(f.crc, castagnoli, p)
	f.size += int64(len(p))
}

func newGate(fs vfs.FS, noSpace func(), room func() bool, metaSync func()) *gate {
	g := &gate{FS: fs, noSpace: noSpace, room: room, metaSync: metaSync, died: make(chan struct{}), meta: map[string]*metaFile{}}
	g.opening.Store(true)
	return g
}

// kill makes the gate swallow changes from now on.
func (g *gate) kill(why error) {
	g.once.Do(func() {
		g.why = why
		close(g.died)
	})
}

// alive returns why the gate was killed, or nil.
func (g *gate) alive() error {
	select {
	case <-g.died:
		return g.why
	default:
		return nil
	}
}

// quiesce waits until no change is under way. The gate was killed before.
func (g *gate) quiesce() {
	g.inFlight.Lock()
	g.inFlight.Unlock() //nolint:staticcheck // nothing is to be done inside: later ones find the gate killed
}

// isLog, isCritical and isTracked classify files by their names.
func isLog(base string) bool { return strings.HasSuffix(base, ".log") }

func isCritical(base string) bool {
	return isLog(base) || isTracked(base) || strings.HasPrefix(base, "marker.")
}

func isTracked(base string) bool {
	return strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "OPTIONS-") || strings.HasSuffix(base, ".dbtmp")
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// tableFailures is how many failed writes of tables end an attempt to open: the engine
// would repeat a failed flush for ever.
const tableFailures = 3

// removing is how changes are called that remove.
const removing = "remove"

// failurePause slows down the engine's endless repetition of a failed flush.
const failurePause = 100 * time.Millisecond

// change passes a change to the file called name on to do, unless the gate was killed.
func (g *gate) change(name, what string, do func() error) error {
	if g.readOnly {
		return fmt.Errorf("%s %s: %w", what, name, ErrReadOnly)
	}
	g.inFlight.RLock()
	if g.alive() != nil {
		g.inFlight.RUnlock()
		return nil //nolint:nilerr // what a killed engine does is not to fail it once more
	}
	err := do()
	g.inFlight.RUnlock()
	if err == nil {
		return nil
	}
	base := g.PathBase(name)
	if isNoSpace(err) && (isCritical(base) || g.opening.Load()) {
		g.noSpace()
	}
	switch {
	case what == removing:
		return err // what cannot be removed only takes up space
	case isCritical(base):
		// While opening too: an Open that fails late leaves goroutines behind that then panic.
		g.kill(fmt.Errorf("%s %s: %w", what, base, err))
		return nil
	case g.opening.Load() && g.failures.Add(1) >= tableFailures:
		g.kill(fmt.Errorf("%s %s: %w", what, base, err))
	}
	select {
	case <-time.After(failurePause):
	case <-g.died:
	}
	return err
}

// compactionCategory is what the engine creates the tables of compactions with.
const compactionCategory = "pebble-compaction"

func (g *gate) openForWrite(name, what string, c vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := g.change(name, what, func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	if f == nil { // swallowed
		return hole{}, nil
	}
	base := g.PathBase(name)
	gf := &gateFile{File: f, g: g, name: name, log: isLog(base), compaction: c == compactionCategory}
	if isTracked(base) {
		gf.meta = &metaFile{}
		g.metaMu.Lock()
		g.meta[base] = gf.meta
		g.metaMu.Unlock()
	}
	return gf, nil
}

// Create is part of vfs.FS.
func (g *gate) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.openForWrite(name, "create", c, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

// OpenReadWrite is part of vfs.FS.
func (g *gate) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.openForWrite(name, "open", c, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite is part of vfs.FS. A log that a very large record has made large is not used
// again.
func (g *gate) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.openForWrite(to, "reuse", c, func() (vfs.File, error) {
		if info, err := g.FS.Stat(from); err == nil && g.maxLog > 0 && info.Size() > g.maxLog {
			if err := g.FS.Remove(from); err != nil {
				return nil, err
			}
			return g.FS.Create(to, c)
		}
		return g.FS.ReuseForWrite(from, to, c)
	})
}

// Link is part of vfs.FS.
func (g *gate) Link(from, to string) error {
	return g.change(to, "link", func() error { return g.FS.Link(from, to) })
}

// Remove is part of vfs.FS.
func (g *gate) Remove(name string) error {
	return g.change(name, removing, func() error {
		if err := g.FS.Remove(name); err != nil {
			return err
		}
		g.metaMu.Lock()
		delete(g.meta, g.PathBase(name))
		g.metaMu.Unlock()
		return nil
	})
}

// RemoveAll is part of vfs.FS.
func (g *gate) RemoveAll(name string) error {
	return g.change(name, removing, func() error { return g.FS.RemoveAll(name) })
}

// Rename is part of vfs.FS.
func (g *gate) Rename(from, to string) error {
	return g.change(to, "rename", func() error {
		if err := g.FS.Rename(from, to); err != nil {
			return err
		}
		g.metaMu.Lock()
		defer g.metaMu.Unlock()
		if m := g.meta[g.PathBase(from)]; m != nil {
			delete(g.meta, g.PathBase(from))
			g.meta[g.PathBase(to)] = m
		}
		return nil
	})
}

// MkdirAll is part of vfs.FS.
func (g *gate) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(dir, "make directory", func() error { return g.FS.MkdirAll(dir, perm) })
}

// OpenDir is part of vfs.FS.
func (g *gate) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	// A directory is synced to make a log or manifest durable: as critical as they are.
	return &gateFile{File: f, g: g, name: g.PathJoin(name, "marker.")}, nil
}

// List is part of vfs.FS.
func (g *gate) List(dir string) ([]string, error) {
	names, err := g.FS.List(dir)
	if g.view != nil {
		names = slices.DeleteFunc(names, g.view.hides)
	}
	return names, err
}

// Open is part of vfs.FS. A killed gate opens nothing: under the name there may be a file of
// the engine that came after.
func (g *gate) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if why := g.alive(); why != nil {
		time.Sleep(failurePause / 10) //holdfast:allow sleep: the engine repeats a failed compaction for ever, and has no context
		return nil, fmt.Errorf("open %s: %w: %w", name, errReopened, why)
	}
	f, err := g.FS.Open(name, opts...)
	if err == nil && g.view != nil {
		f = g.view.open(g.PathBase(name), f)
	}
	return f, err
}

// Lock is part of vfs.FS. The journal holds the lock, over all engines that it opens.
func (g *gate) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap is part of vfs.FS.
func (g *gate) Unwrap() vfs.FS { return g.FS }

// track makes the gate know a file that was written before it.
func (g *gate) track(base string, f fingerprint) {
	g.metaMu.Lock()
	defer g.metaMu.Unlock()
	if g.meta[base] == nil {
		g.meta[base] = &metaFile{written: f, synced: f}
	}
}

// metaFiles returns what is durable of the engine's metadata files.
func (g *gate) metaFiles() map[string]fingerprint {
	g.metaMu.Lock()
	defer g.metaMu.Unlock()
	out := make(map[string]fingerprint, len(g.meta))
	for name, m := range g.meta {
		if m.synced.size > 0 && !strings.HasSuffix(name, ".dbtmp") {
			out[name] = m.synced
		}
	}
	return out
}

// gateFile is a file that is open for writing.
type gateFile struct {
	vfs.File
	g    *gate
	name string
	log  bool
	meta *metaFile // nil unless tracked

	compaction bool // written by a compaction
	unasked    int  // bytes since room was asked
}

// roomEvery is how many bytes a compaction writes before it is asked again whether there is room.
const roomEvery = 256 << 10

// checkRoom fails a compaction in time: it needs space before it gives any back, and must
// not take what the log and the flushes need.
func (f *gateFile) checkRoom(n int) error {
	if f.unasked += n; !f.compaction || f.unasked < roomEvery {
		return nil
	}
	f.unasked = 0
	if f.g.room() {
		return nil
	}
	// As a cancelled one: after any other error the engine would leave these tables alone for half a minute.
	return fmt.Errorf("no space for it: %w", pebble.ErrCancelledCompaction)
}

// Write is part of vfs.File.
func (f *gateFile) Write(p []byte) (int, error) {
	err := f.g.change(f.name, "write", func() error {
		// The file may change p, and has it only once it is written.
		var after fingerprint
		if f.meta != nil {
			f.g.metaMu.Lock()
			after = f.meta.written
			f.g.metaMu.Unlock()
			after.add(p)
		}
		if err := f.checkRoom(len(p)); err != nil {
			return err
		}
		n, err := f.File.Write(p)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		if err == nil && f.meta != nil {
			f.g.metaMu.Lock()
			f.meta.written = after
			f.g.metaMu.Unlock()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt is part of vfs.File.
func (f *gateFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.g.change(f.name, "write", func() error {
		_, err := f.File.WriteAt(p, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Preallocate is part of vfs.File. Logs grow as they are written: on the file systems measured, an
// append into allocated but never written blocks is no faster to sync, and the blocks count as used.
func (f *gateFile) Preallocate(off, n int64) error {
	if f.log {
		return nil
	}
	return f.g.change(f.name, "allocate", func() error { return f.File.Preallocate(off, n) })
}

func (f *gateFile) sync(do func() error) error {
	return f.g.change(f.name, "sync", func() error {
		if f.meta == nil {
			return do()
		}
		f.g.metaMu.Lock()
		written := f.meta.written
		f.g.metaMu.Unlock()
		if err := do(); err != nil {
			return err
		}
		f.g.metaMu.Lock()
		f.meta.synced = written
		f.g.metaMu.Unlock()
		f.g.metaSync()
		return nil
	})
}

// Sync is part of vfs.File.
func (f *gateFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData is part of vfs.File.
func (f *gateFile) SyncData() error { return f.sync(f.File.SyncData) }

// SyncTo is part of vfs.File.
func (f *gateFile) SyncTo(n int64) (full bool, err error) {
	err = f.g.change(f.name, "sync", func() error {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full, err
}

// Close is part of vfs.File.
func (f *gateFile) Close() error {
	err := f.File.Close()
	if err == nil || f.g.alive() != nil {
		return nil //nolint:nilerr // of a killed engine it is of no interest
	}
	return f.g.change(f.name, "close", func() error { return err })
}

// hole is a file of a killed gate.
type hole struct{}

var _ vfs.File = hole{}

func (hole) Close() error                           { return nil }
func (hole) Read([]byte) (int, error)               { return 0, io.EOF }
func (hole) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (hole) Write(p []byte) (int, error)            { return len(p), nil }
func (hole) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (hole) Preallocate(int64, int64) error         { return nil }
func (hole) Stat() (vfs.FileInfo, error)            { return holeInfo{}, nil }
func (hole) Sync() error                            { return nil }
func (hole) SyncTo(int64) (bool, error)             { return false, nil }
func (hole) SyncData() error                        { return nil }
func (hole) Prefetch(int64, int64) error            { return nil }
func (hole) Fd() uintptr                            { return vfs.InvalidFd }

// holeInfo describes a hole: an empty file.
type holeInfo struct{}

func (holeInfo) Name() string           { return "" }
func (holeInfo) Size() int64            { return 0 }
func (holeInfo) Mode() os.FileMode      { return 0 }
func (holeInfo) ModTime() time.Time     { return time.Time{} }
func (holeInfo) IsDir() bool            { return false }
func (holeInfo) Sys() any               { return nil }
func (holeInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
