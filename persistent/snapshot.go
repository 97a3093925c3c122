package persistent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// snapshotRetry is how long after a snapshot that failed another one is tried.
const snapshotRetry = 30 * time.Second

// snapshotter decides when a snapshot is made. It goes in three steps: the state is captured where a record
// ends, waits until that record is stored, and is saved by a goroutine of its own.
type snapshotter struct {
	bytes, events int64         // of meta, since the state that was captured last
	due           time.Duration // since the clock's start; 0: no event since
	notBefore     time.Duration
	size          int64 // of the last snapshot, in bytes

	chunks iter.Seq[[]byte] // captured, not nil: waits until seq is stored
	seq    uint64
	taken  struct{ bytes, events int64 } // what the capture or the save under way will have covered

	saving bool
	done   chan saved // of capacity 1
}

// saved is the outcome of a save.
type saved struct {
	id      journal.SnapshotID
	res     journal.SavedSnapshot
	took    time.Duration
	err     error // of the snapshot
	discard error // of the discarding behind it
}

// count counts events that the next snapshot will cover.
func (s *snapshotter) count(bytes, events int64, now func() time.Duration, every time.Duration) {
	s.bytes += bytes
	s.events += events
	if s.due == 0 && every != Never {
		s.due = now() + every
	}
}

// wanted tells whether a snapshot is due.
func (s *snapshotter) wanted(o *Options, now func() time.Duration) bool {
	switch {
	case s.events == 0 || s.chunks != nil || s.saving:
		return false
	case s.notBefore > 0 && now() < s.notBefore:
		return false
	case s.bytes >= o.SnapshotBytes && s.bytes >= s.size, s.events >= o.SnapshotEvents:
		return true
	}
	return s.due > 0 && now() >= s.due
}

// capture captures the state if it is due, or always if it is forced, and has it saved once it is
// stored. It returns false if nothing came of it.
func (a *Context[E]) capture(ctx context.Context, force bool) bool {
	s := &a.snap
	if !force && !s.wanted(&a.opts, a.clock.elapsed) || !a.cuttable() {
		return false
	}
	a.cut()
	a.begin()
	a.locked = true
	chunks := a.beh.Capture()
	a.locked = false
	s.taken.bytes, s.taken.events = s.bytes, s.events
	s.bytes, s.events, s.due, s.notBefore = 0, 0, 0, 0
	if chunks == nil {
		return false
	}
	s.chunks, s.seq = chunks, a.next-1
	a.startSnapshot(ctx)
	return true
}

// cuttable tells whether cut can do what it does: not if the last event is in a record that may be lost by a
// crash of the machine and that is on its way already; then the next record will do.
func (a *Context[E]) cuttable() bool {
	if n := len(a.pending); n > 0 {
		return !a.pending[n-1].handed || !a.pending[n-1].rec.Buffered
	}
	return !a.storedBuffered
}

// cut makes a record end at the last event, one that will not be lost by a crash of the machine.
func (a *Context[E]) cut() {
	if n := len(a.pending); n > 0 && !a.pending[n-1].handed {
		a.pending[n-1].closed, a.pending[n-1].rec.Buffered = true, false
	}
}

// dropCapture gives up what was captured and is not yet being saved.
func (a *Context[E]) dropCapture() {
	if s := &a.snap; s.chunks != nil {
		s.chunks = nil
		a.uncover()
	}
}

// uncover counts again what a capture would have covered.
func (a *Context[E]) uncover() {
	a.snap.count(a.snap.taken.bytes, a.snap.taken.events, a.clock.elapsed, a.opts.SnapshotEvery)
}

// startSnapshot begins to save what was captured, if that is stored.
func (a *Context[E]) startSnapshot(ctx context.Context) {
	s := &a.snap
	if s.chunks == nil || a.stored.Last() < s.seq {
		return
	}
	chunks := s.chunks
	s.chunks, s.saving = nil, true
	id := journal.SnapshotID{Seq: s.seq, Epoch: a.own.Epoch, CRC: a.stored.CRC, Time: a.stored.Time}
	st, lim, done, poke := a.st, a.lim, s.done, a.poke
	go func() {
		began := time.Now()
		res, err := save(ctx, st, lim, id, chunks)
		out := saved{id: id, res: res, took: time.Since(began), err: err}
		if err == nil && res.DiscardLow > 0 {
			out.discard = st.DiscardMeta(ctx, res.DiscardLow)
		}
		done <- out
		poke()
	}()
}

// save is SaveSnapshot with panics of the sequence turned into errors.
func save(ctx context.Context, st journal.Stream, lim journal.Limits, id journal.SnapshotID, chunks iter.Seq[[]byte]) (res journal.SavedSnapshot, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return journal.SaveSnapshot(ctx, st, lim, id, chunks)
}

// snapshotDone goes on from a save. An error ends the actor.
func (a *Context[E]) snapshotDone(out saved) error {
	s := &a.snap
	s.saving = false
	switch {
	case errors.Is(out.err, journal.ErrFenced), errors.Is(out.discard, journal.ErrFenced):
		return fmt.Errorf("snapshot at seq %d: %w", out.id.Seq, journal.ErrFenced)
	case out.err != nil:
		a.uncover()
		s.notBefore = a.clock.elapsed() + snapshotRetry
		a.log.Warn("snapshot failed, it is tried again later", "seq", out.id.Seq, "err", out.err)
	default:
		s.size = int64(out.res.Bytes)
		a.stats.snapshot(out.id.Seq)
		a.log.Debug("snapshot saved", "seq", out.id.Seq, "bytes", out.res.Bytes, "written", out.res.Written, "took", out.took)
		if out.discard != nil {
			a.log.Warn("discard behind the snapshot failed, the next one will do it", "low", out.res.DiscardLow, "err", out.discard)
		}
	}
	return nil
}
