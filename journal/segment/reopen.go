package segment

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// limbo is an append of which nobody knows whether it was stored, until the store was read again.
type limbo struct {
	h   *hold
	hdr journal.Header
}

// breakDown notes that the log could not be written or synced: from then on, nothing is, until it was read again.
func (j *Journal) breakDown(err error) {
	j.brokenMu.Lock()
	defer j.brokenMu.Unlock()
	if j.why == nil {
		j.why = err
		close(j.broken)
	}
}

func (j *Journal) isBroken() bool {
	j.brokenMu.Lock()
	defer j.brokenMu.Unlock()
	return j.why != nil
}

func (j *Journal) repaired() {
	j.brokenMu.Lock()
	defer j.brokenMu.Unlock()
	j.why = nil
	j.broken = make(chan struct{})
}

const (
	reopenFirst = 10 * time.Millisecond
	reopenMost  = 2 * time.Second
)

// reopen reads the store anew after an I/O error, and makes the log go on in another segment. It is run by the committer, and returns true
// when the log can be written, or never will be again, and false when the journal is being closed.
func (j *Journal) reopen() bool {
	j.brokenMu.Lock()
	why := j.why
	j.brokenMu.Unlock()
	barrier := make(chan struct{})
	j.units.push(&unit{barrier: barrier})
	<-barrier
	j.log.Error("journal: an I/O error, reading the store again", "dir", j.dir, "err", why)
	if isNoSpace(why) {
		j.space.noSpace()
		j.space.look(false)
	}
	for wait := reopenFirst; ; wait = min(2*wait, reopenMost) {
		err := j.recoverAgain()
		if err == nil {
			return true
		}
		if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerFormat) {
			j.log.Error("journal: the store cannot be read again, it takes no more changes", "dir", j.dir, "err", err)
			j.setRefusal(fmt.Errorf("after an I/O error (%w): %w", why, err))
			return true
		}
		j.warn("journal: the store cannot be read again yet", "dir", j.dir, "err", err)
		if isNoSpace(err) {
			j.space.noSpace()
			j.space.look(false)
			err = fmt.Errorf("%w: %w", journal.ErrFull, err)
		}
		if !j.waitRejecting(wait, err) {
			return false
		}
	}
}

func (j *Journal) recoverAgain() error {
	// A checkpoint may be under way that waits for a sync, or zeros that are written.
	for _, mu := range []*sync.Mutex{&j.maintaining, &j.files.zeroing} {
		for !mu.TryLock() {
			if !j.waitRejecting(time.Millisecond, errBroken) {
				return journal.ErrClosed
			}
		}
		defer mu.Unlock()
	}
	// Until what was read is adopted: the number of the next segment, and which files are free, are not what they were.
	j.files.preparing.Lock()
	defer j.files.preparing.Unlock()
	j.files.mu.Lock()
	old := maps.Clone(j.files.segs)
	j.files.mu.Unlock()
	r, err := j.recover(old)
	if err != nil {
		return err
	}
	if r.loss != nil {
		return r.loss
	}
	j.adopt(r)
	if r.clean {
		if err := j.goOn(r); err != nil {
			return err
		}
	}
	j.life.Add(1)
	j.stats.reopens.Add(1)
	j.repaired()
	j.log.Info("journal: the log can be written again", "dir", j.dir)
	j.kickMark()
	return nil
}

// waitRejecting waits for d while the log is broken, and answers the calls that come. It returns false if the journal is being
// closed.
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

// rejectWaiting answers all calls that wait. One that repeats an append in limbo is not told more than that nobody knows.
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
			o.finish(err)
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

// settleLimbo finds out which of the appends in limbo were stored.
func (j *Journal) settleLimbo() {
	j.limboMu.Lock()
	all := j.limbo
	j.limbo = nil
	j.limboMu.Unlock()
	for _, l := range all {
		st := l.h.st
		st.mu.Lock()
		if hdr, err := j.storedHeader(st, l.hdr.First); err == nil && hdr == l.hdr {
			l.h.last = &hdr
		}
		st.mu.Unlock()
	}
}
