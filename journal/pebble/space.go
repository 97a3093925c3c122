package pebble

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

// space watches the free space of the file system, so that appends are refused before a
// write of the log can fail.
//
//	free ≥ reserve        everything is accepted
//	free < reserve        records with bodies are refused
//	free < reserve/2      the ballast is removed
//	free < reserve/4      records without bodies and parts are refused too
//	free < reserve/8      compactions stop
//
// Discards, and acquiring and dropping streams, always pass. Where a write of the log or a flush fails in spite
// of that (a quota, another process that was faster), everything is refused until the ballast could be made
// again.
type space struct {
	fs      vfs.FS
	dir     string
	log     *slog.Logger
	reserve uint64
	size    int64 // of the ballast
	kick    func()
	stop    <-chan struct{} // closed when the store is

	level atomic.Int32
	hit   atomic.Bool   // the file system said that it is full
	free  atomic.Uint64 // at the last look
	since atomic.Int64  // bytes appended since then

	mu      sync.Mutex // held while looking
	ballast bool
	looked  time.Time
	off     bool // the file system does not tell
}

const (
	spaceOK  = iota
	spaceLow // no bodies
	spaceOut // nothing

	ballastName = "BALLAST"
	// spaceLook is how often a full disk is looked at, at most.
	spaceLook = 50 * time.Millisecond
)

// noSpace is told that a write of the log or a flush has failed.
func (s *space) noSpace() {
	if !s.hit.Swap(true) {
		s.level.Store(spaceOut)
		s.kick()
	}
}

// compactable tells whether a compaction may write.
func (s *space) compactable() bool {
	u, err := s.fs.GetDiskUsage(s.dir)
	return err != nil || u.AvailBytes >= s.reserve/8
}

// wrote is told of appended bytes, and looks if there were many.
func (s *space) wrote(n int) {
	if s.since.Add(int64(n)) > int64(s.reserve/16) {
		s.look(false)
	}
}

// refuses tells whether an append has to be refused now.
func (s *space) refuses(body bool) bool {
	if s.level.Load() != spaceOK {
		s.mu.Lock()
		due := time.Since(s.looked) > spaceLook
		s.mu.Unlock()
		if due {
			s.look(false)
		}
	}
	level := s.level.Load()
	return level == spaceOut || level == spaceLow && body
}

// look reads the free space and acts on it; restore allows it to make the ballast again, which takes
// a while.
func (s *space) look(restore bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since.Store(0)
	s.looked = time.Now()
	u, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		if !s.off && !errors.Is(err, vfs.ErrUnsupported) {
			s.log.Warn("journal: free disk space cannot be read, sends are not refused in time", "dir", s.dir, "err", err)
		}
		s.off = true
		u.AvailBytes = 1 << 62
	}
	free := u.AvailBytes
	if s.ballast && (free < s.reserve/2 || s.hit.Load()) {
		if err := s.fs.Remove(s.fs.PathJoin(s.dir, ballastName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.log.Error("journal: ballast cannot be removed", "err", err)
		} else {
			s.ballast = false
			free += uint64(s.size)
		}
	} else if restore && !s.ballast && !s.off && free >= s.ballastFrom() {
		if err := s.makeBallast(); err == nil {
			s.ballast = true
			free -= min(free, uint64(s.size))
			s.hit.Store(false)
		}
	}
	s.free.Store(free)
	level := int32(spaceOK)
	switch {
	case s.hit.Load() || free < s.reserve/4:
		level = spaceOut
	case free < s.reserve:
		level = spaceLow
	}
	if was := s.level.Swap(level); was != level {
		s.report(was, level, free)
	}
}

// ballastFrom is from which free space on the ballast is made.
func (s *space) ballastFrom() uint64 {
	if s.hit.Load() { // it is the proof that there is space
		return s.reserve/2 + uint64(s.size)
	}
	return s.reserve + uint64(s.size) + uint64(s.size)/2
}

func (s *space) report(was, level int32, free uint64) {
	args := []any{"dir", s.dir, "free_bytes", free, "reserve_bytes", s.reserve}
	switch {
	case level == spaceOut:
		s.log.Error("journal: disk full: all records are refused", args...)
	case level == spaceLow && was == spaceOK:
		s.log.Error("journal: disk nearly full: messages are refused, acknowledgements still stored", args...)
	case level == spaceOK:
		s.log.Info("journal: disk space is back", args...)
	}
}

// adopt finds out whether a ballast of the right size is there from before.
func (s *space) adopt() {
	info, err := s.fs.Stat(s.fs.PathJoin(s.dir, ballastName))
	s.ballast = err == nil && info.Size() == s.size
}

func (s *space) makeBallast() error {
	path := s.fs.PathJoin(s.dir, ballastName)
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err = s.fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, s.fs.Remove(path))
	}
	return nil
}

// fill writes what does not compress, so that the blocks are really taken. It ends early when the store is closed.
func (s *space) fill(f vfs.File) error {
	buf := make([]byte, 64<<10)
	x := uint64(88172645463325252)
	for left := s.size; left > 0; left -= int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), left)]
		select {
		case <-s.stop:
			return journal.ErrClosed
		default:
		}
		for i := 0; i+8 <= len(buf); i += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(buf[i:], x)
		}
		if _, err := f.Write(buf); err != nil {
			return err
		}
	}
	return nil
}
