package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Options are what a Table is made with.
type Options struct {
	// ID is the broker's own, by which it is ranked.
	ID string
	// Heartbeat is how often brokers renew their entries, and Expiry after which time without that they are taken for dead.
	Heartbeat, Expiry time.Duration
}

// forgetAfter is how long an expired broker's entry is left in the store, in expiries.
const forgetAfter = 200

// Table is a broker's view of all brokers. Times are durations since some moment on the broker's own monotonic clock.
// It is for one goroutine at a time.
type Table struct {
	o    Options
	self Entry

	renewed   bool
	renewedAt time.Duration // when the last successful renewal began
	settledAt time.Duration // when it ended
	began     bool
	since     time.Duration // of membership without a break

	looked    bool
	lookedAt  time.Duration
	members   map[string]*member // others
	listed    map[string]bool    // those that are in the cohort of another one that is not new
	graduated time.Duration      // when the broker last made a cohort
	double    time.Duration      // when another broker was last seen under the same id; 0: never

	contests map[string]*contest
}

type member struct {
	Entry
	changed time.Duration // when a change was last seen, or it was first seen
	state   State
	expired time.Duration
}

// State is what is known of whether a broker lives.
type State uint8

// The states of a broker.
const (
	Unknown State = iota // seen, but not seen to change: taken for living
	Live
	Suspect // no change for longer than usual: still taken for living
	Expired
)

// String names the state.
func (s State) String() string {
	return [...]string{"unknown", "live", "suspect", "expired"}[s]
}

// New makes the table of a broker that begins. Its entry is made of self, whose Incarnation, Address, Secret and Pin are set.
func New(o Options, self Entry) *Table {
	self.New = true
	return &Table{o: o, self: self, members: make(map[string]*member), listed: make(map[string]bool), contests: make(map[string]*contest)}
}

// Beat returns the broker's next entry, to be stored now.
func (t *Table) Beat(now time.Duration) Entry {
	if !t.began || t.lapsed(now) {
		t.began, t.since, t.self.Cohort = true, now, nil
		if !t.self.New || t.self.Term == 0 {
			t.self.Term++
		}
	}
	t.self.Beat++
	t.self.Refused, t.self.RefusesAll = t.refused()
	e := t.self
	if e.New = now-t.since < t.o.Expiry; e.New {
		e.AgeMs = (now - t.since).Milliseconds()
	}
	return e
}

// lapsed tells that the broker did not renew its entry in time.
func (t *Table) lapsed(now time.Duration) bool { return t.renewed && now-t.renewedAt >= t.o.Expiry }

// Renewed notes that an entry, made by Beat when the call began, was stored by a call that began and ended then.
func (t *Table) Renewed(began, ended time.Duration, e Entry) {
	t.self.New = e.New
	t.renewed, t.renewedAt, t.settledAt = true, began, ended
}

// Leave notes that the broker gives up its queues.
func (t *Table) Leave() { t.self.Leaving = true }

// SetPin notes that the broker's certificate has changed.
func (t *Table) SetPin(pin string) { t.self.Pin = pin }

// Change is something that an observation showed.
type Change struct {
	ID      string
	Address string
	// What is "joined", "left" (its entry is gone), "expired", "returned", "leaves" or "double": another broker has the same id.
	What string
}

// Observe takes in the entries of all members, as a read that began and ended then has found them.
func (t *Table) Observe(began, ended time.Duration, entries map[string]Entry) []Change {
	var changes []Change
	tell := func(id string, e *Entry, what string) {
		changes = append(changes, Change{id, e.Address, what})
	}
	if t.looked && began-t.lookedAt > t.o.Expiry {
		t.wasAway(ended)
	}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		e := entries[id]
		if id == t.o.ID {
			if t.renewed && began >= t.settledAt && e.Incarnation != t.self.Incarnation {
				t.double = ended
				tell(id, &e, "double")
			}
			continue
		}
		m := t.members[id]
		if m == nil {
			m = &member{Entry: e, changed: ended}
			t.members[id] = m
			tell(id, &e, "joined")
			continue
		}
		if e.Leaving && !m.Leaving {
			tell(id, &e, "leaves")
		}
		if t.see(m, began, ended, e) {
			what := "expired"
			if m.state == Live {
				what = "returned"
			}
			tell(id, &e, what)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.members)) {
		if _, ok := entries[id]; !ok {
			tell(id, &t.members[id].Entry, "left")
			delete(t.members, id)
		}
	}
	t.looked, t.lookedAt = true, ended
	t.graduate(ended)
	return changes
}

// graduate ends the broker's being new where there is nobody to be new beside, and that of all those that began with it. They do
// so together: else the first one would have all queues for a while.
func (t *Table) graduate(now time.Duration) {
	if now-t.graduated > 2*t.o.Expiry {
		t.self.Cohort = nil
	}
	clear(t.listed)
	established := false
	var others []string
	for id, m := range t.members {
		if m.state == Expired {
			continue
		}
		others = append(others, termOf(id, &m.Entry))
		if !m.New {
			established = true
			for _, term := range m.Cohort {
				t.listed[term] = true
			}
		}
	}
	if !t.self.New || !t.began {
		return
	}
	switch {
	case t.listed[termOf(t.o.ID, &t.self)]:
		t.since = now - t.o.Expiry
	case !established:
		slices.Sort(others)
		t.since, t.graduated = now-t.o.Expiry, now
		t.self.Cohort = others
	}
}

// soonOld tells that a new member will not be new any more within about a heartbeat.
func (t *Table) soonOld(now time.Duration, m *member) bool {
	return m.New && time.Duration(m.AgeMs)*time.Millisecond+now-m.changed >= t.o.Expiry-3*t.o.Heartbeat/2
}

// isNew tells that a member, or the broker itself, ranks behind those that are not new.
func (t *Table) isNew(id string, e *Entry) bool {
	if !e.New {
		return false
	}
	term := termOf(id, e)
	return !t.listed[term] && !slices.Contains(t.self.Cohort, term) && (id != t.o.ID || len(t.self.Cohort) == 0)
}

// Overdue tells that the broker is not new any more, and has not published that yet.
func (t *Table) Overdue(now time.Duration) bool {
	return t.self.New && t.began && now-t.since >= t.o.Expiry
}

// wasAway forgets for how long others were not seen to change: the observer did not look.
func (t *Table) wasAway(now time.Duration) {
	for _, m := range t.members {
		if m.state != Expired {
			m.state, m.changed = Unknown, now
		}
	}
}

// see takes in one entry and reports whether the member has expired or come back by it.
func (t *Table) see(m *member, began, ended time.Duration, e Entry) bool {
	was := m.state
	if e.Incarnation != m.Incarnation || e.Beat != m.Beat {
		m.Entry, m.changed, m.state = e, ended, Live
		return was == Expired
	}
	switch silent := began - m.changed; {
	case was == Expired:
	case silent >= t.o.Expiry:
		m.state, m.expired = Expired, ended
	case silent > 2*t.o.Heartbeat && was == Live:
		m.state = Suspect
	}
	return m.state == Expired && was != Expired
}

// Alone tells that no other broker lives, as far as was last seen.
func (t *Table) Alone() bool {
	for _, m := range t.members {
		if m.state != Expired {
			return false
		}
	}
	return true
}

// Valid tells that the broker may serve its queues: it has told the others in time that it lives, or there are none.
func (t *Table) Valid(now time.Duration) bool {
	if !t.renewed || !t.looked || t.Doubled(now) {
		return false
	}
	return !t.lapsed(now) || t.Alone()
}

// ValidUntil returns until when the broker is Valid if nothing else is seen; ok is false if it is for good.
func (t *Table) ValidUntil() (at time.Duration, ok bool) {
	return t.renewedAt + t.o.Expiry, !t.Alone()
}

// Doubled tells that another broker with the same id was seen lately.
func (t *Table) Doubled(now time.Duration) bool { return t.double > 0 && now-t.double < t.o.Expiry }

// Status is a member as it is seen.
type Status struct {
	ID    string
	Entry Entry
	State State
	Self  bool
}

// Members returns all members by id, the broker itself included.
func (t *Table) Members() []Status {
	out := []Status{{ID: t.o.ID, Entry: t.self, State: Live, Self: true}}
	for id, m := range t.members {
		out = append(out, Status{ID: id, Entry: m.Entry, State: m.state})
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Forgotten returns the ids of members that have been expired for so long that their entries may be deleted.
func (t *Table) Forgotten(now time.Duration) []string {
	var out []string
	for id, m := range t.members {
		if m.state == Expired && now-m.expired >= forgetAfter*t.o.Expiry {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
