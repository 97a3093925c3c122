package segment

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// segment is a file of the log.
type segment struct {
	number, salt uint64
	name         string // of the file

	size atomic.Int64 // of the file, in bytes; blocks up to it were written before
	live atomic.Int64 // bytes of what is alive in it
	pins atomic.Int32 // readers
	// movedAt is the last batch that holds what was moved out of it: the segment is needed until a checkpoint has that batch.
	movedAt atomic.Uint64
	bad     atomic.Bool // something in it cannot be read, so that it cannot be emptied
	began   time.Time   // when it became the one that is written to; zero if not since the store was opened

	mu sync.Mutex
	f  vfs.File
	// growing is held while the file is written behind its size.
	growing sync.Mutex
}

// moved notes that batch n has something that was in the segment before.
func (s *segment) moved(n uint64) {
	for at := s.movedAt.Load(); at < n && !s.movedAt.CompareAndSwap(at, n); at = s.movedAt.Load() {
	}
}

const segExt = ".seg"

func segName(number uint64) string { return fmt.Sprintf("%016x%s", number, segExt) }

func segNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segExt)
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, ok && err == nil && segName(n) == name
}

// files are the segments of a store.
type files struct {
	fs   vfs.FS
	dir  string
	size int64 // of a segment, in bytes

	mu     sync.Mutex
	segs   map[uint64]*segment
	free   []*segment // may be used again
	next   uint64     // number
	opened int

	preparing sync.Mutex
	ready     *segment // the next one, prepared; under preparing

	// zeroing is held while zeros are written, and while the store is read anew: a file may be used again afterwards.
	zeroing sync.Mutex

	logged atomic.Int64 // bytes written to the log, in pages
	zeroed atomic.Int64 // zeros written ahead of it
}

// Zeros may be written ahead while they are little beside what is logged: a log that does not run into recycled segments, because nothing
// dies, would else be written twice.
const (
	zeroFree  = 2 << 20
	zeroShare = 8 // one in so many
	zeroStep  = 1 << 20
)

func (fl *files) mayZero() bool {
	return fl.zeroed.Load() < zeroFree+fl.logged.Load()/zeroShare
}

// handle returns the segment's file, opened.
func (fl *files) handle(s *segment) (vfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f != nil {
		return s.f, nil
	}
	f, err := fl.fs.Open(filepath.Join(fl.dir, s.name), vfs.Read)
	if err != nil {
		return nil, err
	}
	s.f = f
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.opened++
	return f, nil
}

// writable opens a segment for writing.
func (fl *files) writable(s *segment) error {
	f, err := fl.fs.Open(filepath.Join(fl.dir, s.name), vfs.Write)
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f != nil {
		_ = s.f.Close() // it was only read
		fl.mu.Lock()
		fl.opened--
		fl.mu.Unlock()
	}
	s.f = f
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.opened++
	return nil
}

// adopt takes over what another has, which was read from the same directory. preparing is held, or nobody else has it.
func (fl *files) adopt(o *files) {
	opened := 0
	for _, s := range o.segs {
		s.mu.Lock()
		if s.f != nil {
			opened++
		}
		s.mu.Unlock()
	}
	if fl.ready != nil && fl.ready.f != nil {
		_ = fl.ready.f.Close() // nothing was written to it
	}
	fl.ready = nil
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.segs, fl.free, fl.next, fl.opened = o.segs, o.free, o.next, opened
}

// readAt reads from a segment that is pinned.
func (fl *files) readAt(s *segment, b []byte, off int64) error {
	f, err := fl.handle(s)
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.name, err)
	}
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = &journal.CorruptError{What: fmt.Sprintf("file %s ends at byte %d", s.name, off+int64(n))}
	}
	return fmt.Errorf("segment %s: %w", s.name, err)
}

// maxOpened is how many files may stay open that nobody uses.
const maxOpened = 200

// closeUnused closes files that nobody reads, if many are open; none from segment number on, which are or may be written.
func (fl *files) closeUnused(number uint64) {
	fl.mu.Lock()
	var idle []*segment
	if fl.opened > maxOpened {
		for _, s := range fl.segs {
			if s.number < number {
				idle = append(idle, s)
			}
		}
	}
	fl.mu.Unlock()
	for _, s := range idle {
		if s.pins.Load() == 0 {
			fl.closeFile(s)
		}
	}
}

func (fl *files) closeFile(s *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil || s.pins.Load() > 0 {
		return
	}
	_ = s.f.Close() // what was written is synced, or lost anyway
	s.f = nil
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.opened--
}

// closeAll closes all files.
func (fl *files) closeAll() {
	fl.mu.Lock()
	var all []*segment
	for _, s := range fl.segs {
		all = append(all, s)
	}
	fl.mu.Unlock()
	fl.preparing.Lock()
	if fl.ready != nil {
		all = append(all, fl.ready)
	}
	fl.preparing.Unlock()
	for _, s := range all {
		fl.closeFile(s)
	}
}

func (fl *files) get(number uint64) *segment {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.segs[number]
}

// orMissing returns a segment, a made-up one where there is no file.
func (fl *files) orMissing(number uint64) *segment {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	s := fl.segs[number]
	if s == nil {
		s = &segment{number: number, name: segName(number)}
		s.bad.Store(true)
		fl.segs[number] = s
	}
	return s
}

// take returns a new segment to write to, behind all others.
func (fl *files) take() (*segment, error) {
	fl.preparing.Lock()
	defer fl.preparing.Unlock()
	if fl.ready == nil {
		if err := fl.prepareLocked(); err != nil {
			return nil, err
		}
	}
	s := fl.ready
	fl.ready = nil
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.segs[s.number] = s
	return s, nil
}

// prepare makes the next segment ready, if it is not.
func (fl *files) prepare() error {
	fl.preparing.Lock()
	defer fl.preparing.Unlock()
	if fl.ready != nil {
		return nil
	}
	return fl.prepareLocked()
}

// prepareLocked takes a file that is free, or a new one, and makes it the next segment durably.
func (fl *files) prepareLocked() (err error) {
	fl.mu.Lock()
	number := fl.next
	var old *segment
	if n := len(fl.free); n > 0 {
		old, fl.free = fl.free[n-1], fl.free[:n-1]
	}
	fl.mu.Unlock()
	s := &segment{number: number, name: segName(number)}
	var salt [8]byte
	_, _ = crand.Read(salt[:]) // never fails
	s.salt = binary.LittleEndian.Uint64(salt[:])
	name := s.name
	if old != nil {
		name = old.name
		s.size.Store(old.size.Load())
	}
	named := false // it has its new name, which may not be durable
	fail := func(err error) error {
		fl.mu.Lock()
		if old != nil || named {
			back := &segment{number: number, name: name}
			back.size.Store(max(s.size.Load(), headerBlock))
			fl.free = append(fl.free, back)
		}
		if named { // a sync of the directory that failed is not trusted: it gets another name
			fl.next = number + 1
		}
		fl.mu.Unlock()
		return fmt.Errorf("prepare segment %s: %w", s.name, err)
	}
	f, err := fl.fs.Open(filepath.Join(fl.dir, name), vfs.Write)
	if err != nil {
		return fail(err)
	}
	err = f.WriteAt([][]byte{segHeader{s.number, s.salt}.block()}, 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && name != s.name {
		if err = fl.fs.Rename(filepath.Join(fl.dir, name), filepath.Join(fl.dir, s.name)); err == nil {
			name = s.name
		}
	}
	if err == nil {
		named = true
		err = fl.fs.SyncDir(fl.dir)
	}
	if err != nil {
		return errors.Join(fail(err), f.Close())
	}
	s.size.Store(max(s.size.Load(), headerBlock))
	s.f = f
	fl.ready = s
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.next = number + 1
	fl.opened++
	return nil
}

// zeroAhead writes zeros behind the end of a segment that is being written, if little is left before it, and if it may. zeroing is held.
//
// It does not sync them. A sync that fails takes the file's other blocks along, and the operating system tells it once: the next sync, of
// batches that were written meanwhile, would succeed without having stored them. So what is written is synced by the completer alone, which
// makes the zeros durable with its next batch.
func (fl *files) zeroAhead(s *segment, at int64) error {
	size := s.size.Load()
	if size-at >= zeroStep/2 || size >= fl.size || !fl.mayZero() {
		return nil
	}
	f, err := fl.handle(s)
	if err != nil {
		return err
	}
	s.growing.Lock()
	size = s.size.Load()
	n := min(zeroStep, fl.size-size)
	if n <= 0 {
		s.growing.Unlock()
		return nil
	}
	// Page by page: see pagedBatch.
	for at := size; err == nil && at < size+n; at += pageSize {
		err = f.WriteAt([][]byte{zeros[:]}, at)
	}
	if err == nil {
		s.size.Store(size + n)
	}
	s.growing.Unlock()
	fl.zeroed.Add(n)
	if err != nil {
		return fmt.Errorf("segment %s: %w", s.name, err)
	}
	return nil
}

// maxFree is how many segments are kept to be used again, the one included that is ready.
const maxFree = 2

// recycle takes segments out of use that are not needed, and returns how many. Those that are not kept are removed.
func (fl *files) recycle(needed func(*segment) bool, keep int) (int, error) {
	fl.mu.Lock()
	var gone []*segment
	for n, s := range fl.segs {
		if s.pins.Load() == 0 && !needed(s) {
			delete(fl.segs, n)
			gone = append(gone, s)
		}
	}
	fl.mu.Unlock()
	for _, s := range gone {
		if f, err := fl.handle(s); err == nil {
			f.Forget()
		}
		fl.closeFile(s)
	}
	fl.preparing.Lock()
	if fl.ready != nil {
		keep--
	}
	fl.preparing.Unlock()
	fl.mu.Lock()
	for _, s := range gone {
		if s.size.Load() > 0 {
			fl.free = append(fl.free, s)
		}
	}
	var surplus []*segment
	for i := 0; i < len(fl.free); {
		if s := fl.free[i]; s.size.Load() > 2*fl.size || s.size.Load() < fl.size/4 {
			surplus = append(surplus, s)
			fl.free = append(fl.free[:i], fl.free[i+1:]...)
			continue
		}
		i++
	}
	if n := len(fl.free) - keep; n > 0 {
		surplus = append(surplus, fl.free[:n]...)
		fl.free = append([]*segment{}, fl.free[n:]...)
	}
	fl.mu.Unlock()
	var errs []error
	for _, s := range surplus {
		if err := fl.fs.Remove(filepath.Join(fl.dir, s.name)); err != nil {
			errs = append(errs, err) // it only takes up space
		}
	}
	return len(gone), errors.Join(errs...)
}

// usage returns the bytes of all segments, and of what is alive in them.
func (fl *files) usage() (size, live, free int64, n int) {
	fl.preparing.Lock()
	if fl.ready != nil {
		free += fl.ready.size.Load()
	}
	fl.preparing.Unlock()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, s := range fl.segs {
		size += s.size.Load()
		live += s.live.Load()
	}
	for _, s := range fl.free {
		free += s.size.Load()
	}
	return size, live, free, len(fl.segs)
}
