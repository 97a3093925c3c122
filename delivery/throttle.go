package delivery

import (
	"sync"
	"time"
)

// logInterval is how often one kind of event is logged at most, by one controller.
const logInterval = time.Minute

// throttle lets one log line a minute through for each kind of event, and counts the others so that the next line
// can tell how many there were.
type throttle struct {
	mu    sync.Mutex
	next  time.Time
	count int
}

// add notes n events and reports whether they may be logged now, with the number since the last time.
func (t *throttle) add(n int) (total int, log bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count += n
	if t.count == 0 {
		return 0, false
	}
	now := time.Now()
	if now.Before(t.next) {
		return 0, false
	}
	total, t.count, t.next = t.count, 0, now.Add(logInterval)
	return total, true
}
