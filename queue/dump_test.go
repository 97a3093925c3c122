package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/queue/internal/records"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// dump writes everything of a core that is stored, message by message, so that what events made can be compared with what they were
// decided on, and with what a snapshot gives. What became due by now without an event counts as ready.
func dump(c *Core, now int64) string { return dumpAll(c, now, true) }

func dumpAll(c *Core, now int64, located bool) string {
	var b strings.Builder
	n := c.counts
	n.duplicates, n.refused = 0, 0
	fmt.Fprintf(&b, "next %d lease %d at %d paused %v bytes %d\ncounts %+v\nconfig %+v\n", c.next, c.nextLease, c.lastAt, c.paused, c.bytes, n, c.cfg)
	for k, e := range c.producers.All() {
		fmt.Fprintf(&b, "producer %v %+v\n", k, e)
	}
	for _, it := range c.dedup.order {
		fmt.Fprintf(&b, "dedup %x %d %d\n", it.hash[:4], it.seq, it.expires)
	}
	for lo, hi := range c.live.All() {
		for x := lo; x < hi; x++ {
			dumpMessage(&b, c, x, now, located)
		}
	}
	return b.String()
}

func dumpMessage(b *strings.Builder, c *Core, x uint64, now int64, located bool) {
	state, _ := c.stateRun(x, x+1)
	t, _ := c.entries.Get(x)
	due := int64(0)
	switch state {
	case StateDelayed:
		if due, _ = c.due.Find(x); due <= now {
			state, due = StateReady, 0
		}
	case StateRetrying:
		if due = t.due; due <= now {
			state, due = StateReady, 0
		}
	case StateBlocked:
		state = StateReady
	}
	fmt.Fprintf(b, "%d %v due %d size %d prio %d key %x count %d base %d lost %d isolated %v foreign %v stored %d", x, state, due, c.sizes.At(x),
		c.priority(x), keyOf(c, x), t.count, t.base, t.lost, c.isolated.Contains(x), c.foreign.Contains(x), c.ages.of(x))
	if state == StateMoving { // it does not expire any more
	} else if end, ok := c.expiry.Find(x); ok && end > now {
		fmt.Fprintf(b, " expires %d", end)
	} else if ok || c.expiring.Contains(x) || c.overdue.Contains(x) {
		fmt.Fprint(b, " expired")
	}
	if _, f, ok := c.flights.Get(x); ok {
		fmt.Fprintf(b, " lease %d attempt %d tries %d flags %b vis %d session %d", f.lease, f.attempt, f.tries, f.flags&^flightStarted, f.visibility, f.session)
	}
	if _, m, ok := c.moves.Get(x); ok {
		fmt.Fprintf(b, " move %+v", m)
	}
	if located {
		for _, l := range c.Locate(nil, Span{x, 1}) {
			fmt.Fprintf(b, " in %d", l.Record)
		}
	}
	b.WriteByte('\n')
}

func keyOf(c *Core, x uint64) uint64 {
	if !c.keys.keyed.Contains(x) {
		return 0
	}
	return c.keys.hashes.At(x)
}

// diff returns the first line in which two dumps differ.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d:\nwant %s\ngot  %s", i, a, b)
		}
	}
	return "not at all"
}

// invariants returns what is wrong with the inside of a core, or "".
func invariants(c *Core) string {
	states := map[uint64]State{}
	note := func(state State) func(lo, hi uint64) string {
		return func(lo, hi uint64) string {
			for x := lo; x < hi; x++ {
				if old, ok := states[x]; ok {
					return fmt.Sprintf("message %d is %v and %v", x, old, state)
				}
				states[x] = state
			}
			return ""
		}
	}
	for p := range c.ready {
		for lo, hi := range c.ready[p].All() {
			if s := note(StateReady)(lo, hi); s != "" {
				return s
			}
			for x := lo; x < hi; x++ {
				if c.priority(x) != p {
					return fmt.Sprintf("message %d of priority %d is ready in %d", x, c.priority(x), p)
				}
			}
		}
	}
	for _, s := range c.stateSets() {
		for lo, hi := range s.set.All() {
			if s := note(s.state)(lo, hi); s != "" {
				return s
			}
		}
	}
	bad := ""
	c.flights.Each(0, maxSeq, func(lo, hi uint64, _ flight) bool { bad = cmp.Or(bad, note(StateInFlight)(lo, hi)); return true })
	c.moves.Each(0, maxSeq, func(lo, hi uint64, _ move) bool { bad = cmp.Or(bad, note(StateMoving)(lo, hi)); return true })
	if bad != "" {
		return bad
	}
	if uint64(len(states)) != c.live.Len() {
		return fmt.Sprintf("%d messages have a state, %d live", len(states), c.live.Len())
	}
	bytes := uint64(0)
	for x := range states {
		if !c.live.Contains(x) {
			return fmt.Sprintf("message %d is %v and gone", x, states[x])
		}
		bytes += uint64(c.sizes.At(x))
	}
	if bytes != c.bytes {
		return fmt.Sprintf("%d bytes, want %d", c.bytes, bytes)
	}
	for _, s := range []*seqset.Set{&c.keys.keyed, &c.foreign, &c.isolated, &c.overdue, &c.expiring, &c.space.relocated} {
		for lo, hi := range s.All() {
			if c.live.Count(lo, hi) != hi-lo {
				return fmt.Sprintf("messages %d…%d are gone and still in a set", lo, hi-1)
			}
		}
	}
	for x := range c.mover.out {
		if states[x] != StateMoving || c.mover.todo.Contains(x) {
			return fmt.Sprintf("message %d is %v, and asked to be moved", x, states[x])
		}
	}
	return cmp.Or(keyInvariants(c, states), receiverInvariants(c), countInvariants(c), recordInvariants(c))
}

func keyInvariants(c *Core, states map[uint64]State) string {
	blockers, waiting := map[uint64]int{}, map[uint64][]uint64{}
	perPrio := [maxPriority + 1]uint64{}
	for x, state := range states {
		h := keyOf(c, x)
		if h == 0 {
			continue
		}
		perPrio[c.priority(x)]++
		blocks := state == StateInFlight || state == StateRetrying || state == StateMoving
		if blocks != c.keys.blocking.Contains(x) {
			return fmt.Sprintf("message %d is %v, blocking %v", x, state, !blocks)
		}
		if blocks {
			blockers[h]++
		}
		if state == StateBlocked {
			waiting[h] = append(waiting[h], x)
		}
	}
	if perPrio != c.keys.perPrio {
		return fmt.Sprintf("keyed messages by priority: %v, want %v", c.keys.perPrio, perPrio)
	}
	for h, s := range c.keys.states {
		if s.blockers != blockers[h] || int(s.waiters.Len()) != len(waiting[h]) {
			return fmt.Sprintf("key %x has %d blockers and %d waiting, want %d and %d", h, s.blockers, s.waiters.Len(), blockers[h], len(waiting[h]))
		}
		if len(waiting[h]) > 0 && s.blockers == 0 && (s.head == 0 || states[s.head] != StateReady || s.head > slices.Min(waiting[h])) {
			return fmt.Sprintf("key %x is free, its head is %d, and %v wait", h, s.head, waiting[h])
		}
		delete(waiting, h)
		delete(blockers, h)
	}
	if len(waiting) > 0 || len(blockers) > 0 {
		return fmt.Sprintf("keys without state: waiting %v, blocking %v", waiting, blockers)
	}
	return ""
}

func receiverInvariants(c *Core) string {
	held := map[ReceiverID]uint64{}
	bad := ""
	c.flights.Each(0, maxSeq, func(lo, hi uint64, f flight) bool {
		held[f.receiver] += hi - lo
		if r := c.receivers[f.receiver]; r != nil && r.held.Count(lo, hi) != hi-lo {
			bad = fmt.Sprintf("receiver %d does not hold %d…%d", r.id, lo, hi-1)
		}
		return true
	})
	for id, r := range c.receivers {
		if r.held.Len() != held[id] {
			bad = fmt.Sprintf("receiver %d holds %d, of which %d are leased", id, r.held.Len(), held[id])
		}
		if r.used > r.credit {
			bad = fmt.Sprintf("receiver %d got %d of %d", id, r.used, r.credit)
		}
	}
	barred := 0
	for _, s := range c.line.s {
		if len(s.batch) > 0 && s.batch[0].barrier > 0 {
			barred++
		}
	}
	if barred != c.line.barred {
		bad = fmt.Sprintf("%d senders are barred, %d are counted", barred, c.line.barred)
	}
	return bad
}

// countInvariants checks conservation (G2): what came in is here, or left by a way that is counted.
func countInvariants(c *Core) string {
	n := &c.counts
	if out := n.acked + n.expired + n.purged + n.dropped + n.deadLettered + n.redriven; n.sent != c.live.Len()+out {
		return fmt.Sprintf("%d were sent, %d are there, %d left: %+v", n.sent, c.live.Len(), out, *n)
	}
	return ""
}

func recordInvariants(c *Core) string {
	if c.replaying {
		return ""
	}
	bad := ""
	c.space.records.Each(0, maxSeq, func(r records.Record) {
		if !c.needed(r.Start, c.end(r.Start)) {
			bad = fmt.Sprintf("record %d is dead and not told", r.Start)
		}
	})
	return bad
}
