package placement

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	heartbeat = time.Second
	expiry    = 3 * time.Second
	step      = 50 * time.Millisecond
)

// world is brokers, a store and time. Each broker has a clock of its own that began at some time and says nothing of the others'.
type world struct {
	t       *rapid.T
	now     time.Duration
	store   map[string]Entry
	owner   map[string]string // of queues, as the epochs in the store have it
	taken   map[string]int    // how often queues were acquired
	brokers map[string]*simBroker
	queues  []string
}

// simBroker is what the shell around a table does, one step at a time.
type simBroker struct {
	w      *world
	id     string
	clock  time.Duration // what its clock showed when the world began
	table  *Table
	dead   bool
	paused bool // does nothing, time goes on
	cut    bool // does not reach the store

	nextBeat, nextLook, nextCheck time.Duration
	has                           map[string]bool
	refuses                       map[string]bool // cannot open them
	lifes                         int
}

func (b *simBroker) now() time.Duration { return b.clock + b.w.now }

func (w *world) start(id string, clock time.Duration) *simBroker {
	lifes := 0
	if old := w.brokers[id]; old != nil {
		lifes = old.lifes
	}
	b := &simBroker{w: w, id: id, clock: clock, has: map[string]bool{}, refuses: map[string]bool{}, lifes: lifes + 1}
	b.table = New(Options{ID: id, Heartbeat: heartbeat, Expiry: expiry}, Entry{Incarnation: fmt.Sprint(id, b.lifes), Address: id})
	w.brokers[id] = b
	return b
}

// act does what is due.
func (b *simBroker) act() {
	if b.dead || b.paused {
		return
	}
	now := b.now()
	if !b.table.Valid(now) {
		clear(b.has)
	}
	if b.cut {
		return
	}
	if b.w.now >= b.nextBeat || b.table.Overdue(now) {
		e := b.table.Beat(now)
		b.w.store[b.id] = e
		b.table.Renewed(now, now, e)
		b.nextBeat = b.w.now + heartbeat
	}
	if b.w.now >= b.nextLook {
		b.table.Observe(now, now, maps.Clone(b.w.store))
		b.nextLook = b.w.now + heartbeat/2
		b.judge()
		for _, q := range b.w.queues {
			if !b.has[q] && b.table.MayTake(now, q) {
				b.take(q)
			}
		}
	}
	if b.w.now >= b.nextCheck {
		b.nextCheck = b.w.now + heartbeat/2
		for q := range b.has {
			if b.w.owner[q] != b.id {
				delete(b.has, q)
				b.table.Fenced(now, q)
			}
		}
	}
}

func (b *simBroker) take(q string) {
	if b.refuses[q] {
		if b.table.Failed(b.now(), q, true) {
			b.nextBeat = 0
		}
		return
	}
	b.has[q] = true
	b.w.owner[q] = b.id
	b.w.taken[q]++
	if b.table.Opened(b.now(), q) {
		b.nextBeat = 0
	}
}

// judge checks G5: whoever is seen as expired does not take itself for valid, unless it believes to be alone.
func (b *simBroker) judge() {
	for id, m := range b.table.members {
		other := b.w.brokers[id]
		if m.state == Expired && !other.dead && other.table.Valid(other.now()) && !other.table.Alone() && other.table.self.Incarnation == m.Incarnation {
			b.w.t.Fatalf("at %v %s takes %s for dead, which serves", b.w.now, b.id, id)
		}
	}
}

func (w *world) run(d time.Duration) {
	for until := w.now + d; w.now < until; w.now += step {
		for _, id := range slices.Sorted(maps.Keys(w.brokers)) {
			w.brokers[id].act()
		}
	}
}

// agree checks that all living brokers agree on where each queue is, and that it is there alone.
func (w *world) agree() {
	for _, q := range w.queues {
		var at []string
		for _, id := range slices.Sorted(maps.Keys(w.brokers)) {
			b := w.brokers[id]
			if b.dead {
				continue
			}
			if b.has[q] {
				at = append(at, id)
			}
			if p := b.table.Place(q); p.ID != w.owner[q] || !p.Sure {
				w.t.Fatalf("at %v %s says that %s is to be at %+v; it is at %s", w.now, b.id, q, p, w.owner[q])
			}
		}
		if len(at) != 1 || at[0] != w.owner[q] {
			w.t.Fatalf("at %v %s is at %v, and owned by %s", w.now, q, at, w.owner[q])
		}
	}
}

func (w *world) alive() (out []*simBroker) {
	for _, id := range slices.Sorted(maps.Keys(w.brokers)) {
		if b := w.brokers[id]; !b.dead {
			out = append(out, b)
		}
	}
	return out
}

// G5, §8: whatever dies, is paused, cut off, joins and leaves, with clocks hours apart: nobody is taken for dead that serves; once that is over,
// all agree within some expiries, each queue is at one broker; and queues do not go to and fro.
func TestPlacementSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: map[string]Entry{}, owner: map[string]string{}, taken: map[string]int{}, brokers: map[string]*simBroker{}}
		for i := range 8 {
			w.queues = append(w.queues, fmt.Sprint("queue-", i))
		}
		clock := func() time.Duration {
			return time.Duration(rapid.IntRange(0, 3*3600).Draw(t, "clock")) * time.Second
		}
		names := []string{"a", "b", "c", "d"}
		for _, id := range names[:rapid.IntRange(1, 3).Draw(t, "brokers")] {
			w.start(id, clock())
		}
		events := rapid.IntRange(0, 12).Draw(t, "events")
		for range events {
			w.run(time.Duration(rapid.IntRange(0, 200).Draw(t, "wait")) * step)
			id := rapid.SampledFrom(names).Draw(t, "broker")
			b := w.brokers[id]
			switch what := rapid.SampledFrom([]string{"start", "kill", "pause", "resume", "cut", "join", "leave", "store", "refuse"}).Draw(t, "event"); {
			case what == "start" && (b == nil || b.dead):
				w.start(id, clock())
			case what == "kill" && b != nil && len(w.alive()) > 1:
				b.dead = true
			case what == "pause" && b != nil:
				b.paused = true
			case what == "resume" && b != nil:
				b.paused = false
			case what == "cut" && b != nil:
				b.cut = true
			case what == "join" && b != nil:
				b.cut = false
			case what == "store": // away for all
				for _, b := range w.alive() {
					b.cut = true
				}
				w.run(time.Duration(rapid.IntRange(0, 300).Draw(t, "away")) * step)
				for _, b := range w.alive() {
					b.cut = false
				}
			case what == "leave" && b != nil && !b.dead && len(w.alive()) > 1:
				b.table.Leave()
				b.nextBeat = 0
				w.run(heartbeat)
				b.dead = true
				delete(w.store, id)
			case what == "refuse" && b != nil:
				q := rapid.SampledFrom(w.queues).Draw(t, "queue")
				b.refuses[q] = !b.refuses[q]
			}
		}
		for _, b := range w.alive() {
			b.paused, b.cut = false, false
			clear(b.refuses)
		}
		// Refusals are tried again after up to maxRetry, contests end after up to maxContest.
		w.run(maxRetry + maxContest + time.Minute)
		w.agree()
		for _, q := range w.queues {
			// Each event moves a queue there and back at most; a refusal or a contest costs some more tries.
			if n := w.taken[q]; n > 3+4*(events+1) {
				t.Fatalf("%s was acquired %d times in %d events", q, n, events)
			}
		}
		before := maps.Clone(w.taken)
		w.run(10 * time.Minute)
		w.agree()
		if !maps.Equal(before, w.taken) {
			t.Fatalf("queues moved without a reason: %v, then %v", before, w.taken)
		}
	})
}
