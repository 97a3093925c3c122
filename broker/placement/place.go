package placement

import (
	"slices"
	"time"
)

// maxContest bounds how long a broker waits that was fenced again and again, and stable is how long it must have had a queue
// for the count to begin anew.
const (
	maxContest = 5 * time.Minute
	stable     = time.Minute
)

// How soon a queue is tried again that could not be opened: at first, and once it is published, doubling each time.
const (
	retryFirst   = 500 * time.Millisecond
	retryRefused = 30 * time.Second
	maxRetry     = 10 * time.Minute
	// retryAlone is the pause where no other broker can open it either, for a reason that may pass.
	retryAlone = 5 * time.Second
)

// contest is what a broker remembers of a queue that did not go as it should.
type contest struct {
	notBefore time.Duration // it is not opened earlier
	wait      time.Duration // the last one after being fenced
	opened    time.Duration // when it was last opened here

	failures int
	failed   time.Duration // the first of them
	refused  bool          // published
	retry    time.Duration // the last pause
	alone    time.Duration // it is not opened earlier, where no other broker can
}

// Place is where a queue is to be.
type Place struct {
	ID      string // of the broker; empty if none can have it
	Address string
	Self    bool
	// Sure tells that the broker lives; else that is to be known within one expiry.
	Sure bool
}

// Place returns which broker is to have a queue.
func (t *Table) Place(queue string) Place { return t.place(queue, false, nil) }

// place returns the best candidate of the best rank. willing leaves out of account that the broker itself refuses the queue; old
// tells of members that they are to count as not new.
func (t *Table) place(queue string, willing bool, old func(*member) bool) Place {
	var best Place
	var rank int
	var score uint64
	consider := func(id string, e *Entry, isNew, refuses bool, p Place) {
		if e.Leaving {
			return
		}
		r := 1
		if !isNew {
			r++
		}
		if !refuses {
			r += 2
		}
		s := Score(id, queue)
		if r > rank || r == rank && (s > score || s == score && id > best.ID) {
			best, rank, score = p, r, s
		}
	}
	self := t.contests[queue]
	consider(t.o.ID, &t.self, t.isNew(t.o.ID, &t.self), !willing && self != nil && self.refused, Place{t.o.ID, t.self.Address, true, t.looked})
	for id, m := range t.members {
		if m.state != Expired {
			consider(id, &m.Entry, t.isNew(id, &m.Entry) && (old == nil || !old(m)), m.refuses(queue), Place{id, m.Address, false, m.state == Live})
		}
	}
	return best
}

// MayTake tells that the broker is to open a queue now, if it does not have it: because it is the owner to be; or because it would be
// if it had not refused the queue, and may try again.
func (t *Table) MayTake(now time.Duration, queue string) bool {
	c := t.contests[queue]
	if !t.Valid(now) || c != nil && now < t.notBefore(queue, c) {
		return false
	}
	willing := c != nil && c.refused
	// Of two brokers that joined together, the one that sees first that it is not new any more does not take what the other one will have.
	return t.place(queue, willing, nil).Self && t.place(queue, willing, func(m *member) bool { return t.soonOld(now, m) }).Self
}

// Waits returns when MayTake changes by the time alone, for a queue that the broker is to have; ok is false if it does not.
func (t *Table) Waits(now time.Duration, queue string) (at time.Duration, ok bool) {
	c := t.contests[queue]
	if c == nil {
		return 0, false
	}
	at = t.notBefore(queue, c)
	return at, now < at
}

// notBefore returns when a queue may be opened. One that all brokers refuse is tried sooner by the one that is to have it: nobody else serves it.
func (t *Table) notBefore(queue string, c *contest) time.Duration {
	if !c.refused || c.alone >= c.notBefore || !t.place(queue, false, nil).Self {
		return c.notBefore
	}
	for _, m := range t.members {
		if m.state != Expired && !m.Leaving && !m.refuses(queue) {
			return c.notBefore
		}
	}
	return c.alone
}

func (t *Table) contest(queue string) *contest {
	c := t.contests[queue]
	if c == nil {
		c = &contest{}
		t.contests[queue] = c
	}
	return c
}

// Opened notes that the broker has opened a queue. It reports whether it has to publish that it no longer refuses it.
func (t *Table) Opened(now time.Duration, queue string) (publish bool) {
	c := t.contest(queue)
	publish = c.refused
	c.opened, c.failures, c.refused, c.retry = now, 0, false, 0
	return publish
}

// Fenced notes that another broker has taken a queue. Where that was to be expected, nothing follows from it; else the
// broker waits before it competes for the queue again.
func (t *Table) Fenced(now time.Duration, queue string) (waits time.Duration) {
	c := t.contest(queue)
	if c.opened > 0 && now-c.opened > max(stable, 2*c.wait) {
		c.wait = 0
	}
	if p := t.place(queue, false, nil); !p.Self && p.Sure {
		return 0
	}
	c.wait = min(max(2*c.wait, t.o.Expiry), max(maxContest, t.o.Expiry))
	c.notBefore = now + c.wait
	c.alone = c.notBefore
	return c.wait
}

// Failed notes that a queue could not be opened. hard tells that this lies with what is stored or with this broker, and
// that trying again will not help; else it is only believed once it happened twice while the broker could renew its entry. It reports
// whether it has to publish that it refuses the queue.
func (t *Table) Failed(now time.Duration, queue string, hard bool) (publish bool) {
	c := t.contest(queue)
	if c.failures++; c.failures == 1 {
		c.failed = now
	}
	refuse := hard || c.failures > 1 && t.renewed && t.renewedAt > c.failed && !t.lapsed(now)
	if refuse && !c.refused {
		c.refused, publish = true, true
	}
	if c.refused {
		c.retry = min(max(2*c.retry, retryRefused), maxRetry)
	} else {
		c.retry = retryFirst
	}
	c.notBefore = now + c.retry
	if c.alone = c.notBefore; !hard {
		c.alone = min(c.alone, now+retryAlone)
	}
	return publish
}

// Refuses tells that the broker has published that it cannot open a queue.
func (t *Table) Refuses(queue string) bool {
	c := t.contests[queue]
	return c != nil && c.refused
}

func (t *Table) refused() (names []string, all bool) {
	for queue, c := range t.contests {
		if c.refused {
			names = append(names, queue)
		}
	}
	slices.Sort(names)
	if len(names) > MaxRefused {
		return nil, true
	}
	return names, false
}

// Gone notes that a queue does not exist any more.
func (t *Table) Gone(queue string) { delete(t.contests, queue) }
