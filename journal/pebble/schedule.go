package pebble

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets the engine run as many compactions at once as it wants itself, and none once
// its gate was killed. The engine's own scheduler has a goroutine that outlives a failed attempt to open.
type scheduler struct {
	g *gate

	mu       sync.Mutex
	db       pebble.DBForCompaction // nil before Register and after Unregister
	started  bool
	running  int
	granting bool
	ended    sync.Cond // granting became false
}

var (
	_ pebble.CompactionScheduler   = (*scheduler)(nil)
	_ pebble.CompactionGrantHandle = (*scheduler)(nil)
)

func newScheduler(g *gate) *scheduler {
	s := &scheduler{g: g}
	s.ended.L = &s.mu
	return s
}

// Register is part of pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = db
}

// start allows compactions, once the engine is open: one that runs while Open fails panics.
func (s *scheduler) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.offerLocked()
}

// offerLocked lets grant run where it is not running.
func (s *scheduler) offerLocked() {
	if s.mayLocked() && !s.granting {
		s.granting = true
		go s.grant()
	}
}

// Unregister is part of pebble.CompactionScheduler. After it, the engine is not called any more.
func (s *scheduler) Unregister() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = nil
	for s.granting {
		s.ended.Wait()
	}
}

// mayLocked tells whether one more compaction may run.
func (s *scheduler) mayLocked() bool {
	return s.started && s.db != nil && s.g.alive() == nil && s.running < s.db.GetAllowedWithoutPermission()
}

// TrySchedule is part of pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayLocked() {
		return false, nil
	}
	s.running++
	return true, s
}

// UpdateGetAllowedWithoutPermission is part of pebble.CompactionScheduler. It is called under
// locks that granting takes too.
func (s *scheduler) UpdateGetAllowedWithoutPermission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offerLocked()
}

// grant offers the engine to run what it could not before. granting was set by the caller.
func (s *scheduler) grant() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mayLocked() {
		db := s.db
		s.mu.Unlock()
		waiting, _ := db.GetWaitingCompaction()
		accepted := waiting && db.Schedule(s)
		s.mu.Lock()
		if !accepted {
			break
		}
		s.running++ // only now, so that TrySchedule was not refused for one that does not come
	}
	s.granting = false
	s.ended.Broadcast()
}

// Started is part of pebble.CompactionGrantHandle.
func (s *scheduler) Started() {}

// MeasureCPU is part of pebble.CompactionGrantHandle.
func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is part of pebble.CompactionGrantHandle.
func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done is part of pebble.CompactionGrantHandle: a compaction is over.
func (s *scheduler) Done() {
	s.mu.Lock()
	s.running--
	may := s.mayLocked() && !s.granting
	if may {
		s.granting = true
	}
	s.mu.Unlock()
	if may {
		s.grant()
	}
}
