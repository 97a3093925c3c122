package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// A store that is used keeps segments to be used again, and leaves a whole one to little that is alive. One that rests gives that space back.
const (
	// restAfter is how long a store is looked at before it counts as resting.
	restAfter = 1500 * time.Millisecond
	// restBytes is how much may be logged meanwhile: an owner that renews a lease now and then does not keep the space.
	restBytes = 128 << 10
)

// rest tells whether a store rests. It belongs to the goroutine that moves.
type rest struct {
	logged int64
	since  time.Time
	is     bool
}

// look is called now and then with how much was logged so far, moves left out. It returns true once in restAfter while the store rests.
func (r *rest) look(logged int64, now time.Time) bool {
	switch {
	case r.since.IsZero() || logged-r.logged >= restBytes:
		*r = rest{logged: logged, since: now}
		return false
	case now.Sub(r.since) < restAfter:
		return false
	}
	*r = rest{logged: logged, since: now, is: true}
	return true
}

// slack is how many bytes more than half as much again as what is alive the segments that are full may take.
func (j *Journal) slack(resting bool) int64 {
	switch {
	case j.space.level.Load() != spaceOK:
		return 0 // every byte counts
	case resting:
		return j.files.size / 8
	}
	return j.files.size
}

// giveBack removes the segments that are kept to be used again.
func (j *Journal) giveBack() error {
	j.maintaining.Lock() // the store is not read anew meanwhile
	defer j.maintaining.Unlock()
	if j.refuse() != nil || j.isBroken() {
		return nil
	}
	err := j.files.giveBack()
	j.kickPrepare()
	return err
}

// giveBack removes the files that are free, and the one that is ready if it is large: a small one takes its place.
func (fl *files) giveBack() error {
	fl.preparing.Lock()
	defer fl.preparing.Unlock()
	fl.mu.Lock()
	gone := fl.free
	fl.free = nil
	fl.mu.Unlock()
	var errs []error
	for _, s := range gone {
		if err := fl.fs.Remove(filepath.Join(fl.dir, s.name)); err != nil {
			errs = append(errs, err) // it only takes up space
		}
	}
	if s := fl.ready; s != nil && s.size.Load() > fl.size/4 {
		if err := fl.fs.Remove(filepath.Join(fl.dir, s.name)); err != nil {
			return fmt.Errorf("remove segments: %w", errors.Join(append(errs, err)...))
		}
		fl.ready = nil
		fl.closeFile(s)
		fl.mu.Lock()
		fl.next = s.number // nothing was written to it: as if it had never been
		fl.mu.Unlock()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove segments: %w", err)
	}
	return nil
}
