package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// limbo is an append of which nobody knows whether it was stored, until the store is
// open again.
type limbo struct {
	h   *hold
	hdr journal.Header
}

// fail ends the changes of a batch whose fate is unknown.
func (j *Journal) fail(u *unit, err error) {
	u.e.g.kill(err)
	for _, d := range u.discards {
		d.again()
		j.q.discard(d.st, false)
	}
	for _, o := range append(u.ops, u.buffered...) {
		if o.kind == opAppend {
			o.h.st.mu.Lock()
			o.h.last = nil
			o.h.st.mu.Unlock()
			j.limboMu.Lock()
			j.limbo = append(j.limbo, limbo{o.h, o.rec.Header})
			j.limboMu.Unlock()
		}
		select {
		case o.done <- fmt.Errorf("%w: %w", journal.ErrUnknown, oneLine(err)):
		default: // a buffered one that was told already
		}
	}
}

const (
	reopenFirst = 10 * time.Millisecond
	reopenMost  = 2 * time.Second
)

// reopen replaces an engine that can store nothing. It is run by the committer and returns true when
// there is a new engine, or a refusal because there can be none, and false when the journal is being closed.
func (j *Journal) reopen(old *engine) bool {
	why := old.g.alive()
	if old.standIn {
		why = journal.ErrFull
	}
	barrier := make(chan struct{})
	j.units <- &unit{barrier: barrier}
	<-barrier
	if !old.standIn {
		j.log.Error("journal: an I/O error, opening the store again", "dir", j.dir, "err", oneLine(why))
		if isNoSpace(why) {
			j.space.noSpace()
			j.space.look(false)
		}
		old.g.quiesce()
	}
	for wait := reopenFirst; ; wait = min(2*wait, reopenMost) {
		e, err := j.openEngine(false, nil)
		if err == nil {
			if err = j.adopt(e); err == nil {
				j.replace(old, e)
				return true
			}
			err = errors.Join(err, e.close(context.Background()))
		}
		if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerFormat) {
			j.log.Error("journal: the store cannot be opened again, it takes no more changes", "dir", j.dir, "err", err)
			j.setRefusal(fmt.Errorf("after an I/O error (%w): %w", oneLine(why), err))
			return true
		}
		j.warn("journal: the store cannot be opened again yet", "dir", j.dir, "err", err)
		if errors.Is(err, journal.ErrFull) {
			j.space.noSpace()
			j.space.look(false)
		}
		if !j.waitRejecting(wait, err) {
			return false
		}
	}
}

// waitRejecting waits for d while there is no engine, and answers the calls that come. It
// returns false if the journal is being closed.
func (j *Journal) waitRejecting(d time.Duration, why error) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		j.rejectWaiting(why)
		select {
		case <-j.q.wake:
		case <-j.closing:
			return false
		case <-t.C:
			return true
		}
	}
}

// rejectWaiting answers all calls that wait. One that repeats an append in limbo is not told more
// than that nobody knows.
func (j *Journal) rejectWaiting(why error) {
	for {
		ops, due, more := j.q.take(0, 1<<30)
		if !more {
			return
		}
		for _, o := range ops {
			err := why
			if !errors.Is(why, journal.ErrFull) && !errors.Is(why, journal.ErrCorrupt) || j.inLimbo(o) {
				err = fmt.Errorf("%w: %w", journal.ErrUnknown, why)
			}
			o.done <- err
		}
		if j.refuse() == nil {
			for st := range due {
				j.q.discard(st, false)
			}
		}
	}
}

func (j *Journal) inLimbo(o *op) bool {
	if o.kind != opAppend {
		return true // it may have been tried before as well
	}
	j.limboMu.Lock()
	defer j.limboMu.Unlock()
	for _, l := range j.limbo {
		if l.h == o.h && l.hdr == o.rec.Header {
			return true
		}
	}
	return false
}

// adopt takes over what a newly opened engine has: the number of the last batch and the streams. What
// was durable before has to be there.
func (j *Journal) adopt(e *engine) error {
	n, err := e.lastCommit()
	if err != nil {
		return err
	}
	if d := j.durable.Load(); n < d {
		return &LossError{What: fmt.Sprintf("the log ends with batch %d, and batch %d was on stable storage", n, d)}
	}
	heads, err := e.readHeads()
	if err != nil {
		return err
	}
	names, err := e.readNames()
	if err != nil {
		return err
	}
	for _, no := range names {
		if _, ok := heads[no]; !ok {
			return &journal.CorruptError{What: fmt.Sprintf("stream number %d has a name and no head", no)}
		}
	}
	j.mu.Lock()
	for name, no := range names {
		st := j.streams[name]
		if st == nil {
			st = newStream(name, no)
			j.streams[name] = st
		}
		st.restore(heads[no], true)
		j.nextNo = max(j.nextNo, no+1)
	}
	for name, st := range j.streams {
		if _, ok := names[name]; !ok {
			st.restore(head{low: 1}, false)
		}
	}
	j.mu.Unlock()
	j.applied = n
	j.durable.Store(n) // what the engine has replayed, it has written to tables
	j.settleLimbo(e)
	return nil
}

// restore sets the state to what the store has.
func (st *stream) restore(h head, named bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.next, st.acked, st.sure, st.ackedAt = h, h, h, 0
	st.acked.low = max(h.low, st.discards.low)
	st.named, st.bodyEnd, st.parts = named, 0, nil
	if o := st.owner; o != nil && o.last != nil && o.last.Last() > h.end {
		o.last = nil // it was only buffered
	}
}

// settleLimbo finds out which of the appends in limbo were stored.
func (j *Journal) settleLimbo(e *engine) {
	j.limboMu.Lock()
	all := j.limbo
	j.limbo = nil
	j.limboMu.Unlock()
	for _, l := range all {
		st := l.h.st
		st.mu.Lock()
		if hdr, err := st.storedHeader(e, l.hdr.First); err == nil && hdr == l.hdr {
			l.h.last = &hdr
		}
		st.mu.Unlock()
	}
}

// replace puts a new engine in the place of the old one, which is closed behind the scenes.
func (j *Journal) replace(old, e *engine) {
	j.mu.Lock()
	j.eng = e
	j.engineChanged()
	j.mu.Unlock()
	j.stats.reopens.Add(1)
	j.log.Info("journal: the store is open again", "dir", j.dir)
	j.kickMark()
	j.closers.Add(1)
	go func() {
		defer j.closers.Done()
		_ = old.close(context.Background()) // it could write nothing any more
	}()
}

// lastCommit returns the number of the last batch in the store.
func (e *engine) lastCommit() (uint64, error) {
	v, closer, err := e.db.Get(commitKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, e.readError("", 0, "read the number of the last batch", err)
	}
	defer closer.Close()
	n, _, ok := parseCommit(v)
	if !ok {
		return 0, &journal.CorruptError{What: "row of the last batch's number"}
	}
	return n, nil
}

// rows calls f with the rows of a kind.
func (e *engine) rows(kind byte, what string, f func(key, value []byte) error) error {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{kind}, UpperBound: []byte{kind + 1}})
	if err != nil {
		return e.readError("", 0, what, err)
	}
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key()[1:], v)
		}
		if err != nil {
			return errors.Join(e.readError("", 0, what, err), it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return e.readError("", 0, what, err)
	}
	return nil
}

func (e *engine) readHeads() (map[uint32]head, error) {
	heads := map[uint32]head{}
	err := e.rows(kindHead, "read the heads of streams", func(k, v []byte) error {
		if len(k) != 4 {
			return fmt.Errorf("key %x: %w", k, journal.ErrCorrupt)
		}
		h, err := parseHead(v)
		heads[binary.BigEndian.Uint32(k)] = h
		return err
	})
	return heads, err
}

func (e *engine) readNames() (map[string]uint32, error) {
	names := map[string]uint32{}
	err := e.rows(kindName, "read the names of streams", func(k, v []byte) error {
		if len(v) != 4 {
			return fmt.Errorf("stream %q: %w", k, journal.ErrCorrupt)
		}
		names[string(k)] = binary.BigEndian.Uint32(v)
		return nil
	})
	return names, err
}
