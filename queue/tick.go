package queue

import (
	"slices"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// maxRuns bounds the runs of messages that one command looks at of what is due, in each index.
const maxRuns = 1 << 16

// Deadline returns the queue time at which Tick is to be called next, if any. It may be in the past: more is to be done now, and
// was only put off to keep each call short.
func (c *Core) Deadline() (at int64, ok bool) {
	if c.replaying {
		return 0, false
	}
	if c.again || c.dueNow.Len() > 0 || c.ended.Len() > 0 || c.expiring.Len() > 0 && c.now >= c.holdTill {
		return c.now, true
	}
	sooner := func(t int64, is bool) {
		if is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	sooner(c.leaseEnd.First())
	sooner(c.due.First())
	sooner(c.mover.retry.First())
	if t, is := c.expiry.First(); is {
		sooner(max(t, c.holdTill), true)
	}
	if c.expiring.Len() > 0 {
		sooner(c.holdTill, true)
	}
	if t, is := c.nextRetention(); is {
		sooner(max(t, c.holdTill), true)
	}
	for _, r := range c.lost {
		sooner(r.until, true)
	}
	if c.producers.Len() > 0 {
		sooner(max(c.sweepAt, c.holdTill), true)
	}
	return at, ok
}

// Tick does what is due by now: leases that end, retries and delayed messages that become ready, expiry, sessions that
// are not held any longer, moves that are tried again, the rest of what earlier calls have put off. Calling it early is
// harmless.
func (c *Core) Tick(now int64) {
	c.begin(now)
	c.finish()
}

// tick does what is due.
func (c *Core) tick() {
	c.again = false
	c.tickLeases()
	c.tickLost()
	c.giveBackAbandoned()
	c.tickDue()
	if c.now >= c.holdTill {
		c.tickExpiry()
		c.sweep()
		c.tickProducers()
	}
	c.tickMoves()
	c.tickRedrive()
}

// tickLeases gives back messages whose leases have ended.
func (c *Core) tickLeases() {
	popAll(&c.leaseEnd, c.now, &c.ended)
	if c.ended.Len() == 0 {
		return
	}
	pieces := c.takeFlights(&c.ended, func(f *flight) bool { return f.deadline <= c.now })
	c.loseLeases(pieces, LostExpired)
	c.giveBack(pieces, CauseLeaseExpired, c.leaseExpiry, 0)
}

// takeFlights takes seqs out of a set, from the front, and returns the flights over them that match, as many as one command may deal with.
func (c *Core) takeFlights(from *seqset.Set, match func(f *flight) bool) []piece {
	pieces := c.scratch.pieces[:0]
	for len(pieces) < maxPieces {
		lo, hi, ok := from.NextRun(0, maxSeq)
		if !ok {
			break
		}
		done := hi
		c.flights.Each(lo, hi, func(a, b uint64, f flight) bool {
			if match(&f) {
				pieces = append(pieces, piece{a, b, f})
			}
			done = b
			return len(pieces) < maxPieces
		})
		if len(pieces) < maxPieces {
			done = hi
		}
		from.RemoveRange(lo, done)
	}
	c.scratch.pieces = pieces
	return pieces
}

// loseLeases tells receivers that they hold messages no longer.
func (c *Core) loseLeases(pieces []piece, reason string) {
	var lost []LeaseLost
	for _, p := range pieces {
		r := c.receivers[p.f.receiver]
		if r == nil || r.lost {
			continue
		}
		i := slices.IndexFunc(lost, func(l LeaseLost) bool { return l.Receiver == r.id })
		if i < 0 {
			i = len(lost)
			lost = append(lost, LeaseLost{Receiver: r.id, Reason: reason})
		}
		l := &lost[i]
		l.Spans = append(l.Spans, LeaseSpan{p.f.lease, p.lo, p.hi - p.lo})
	}
	for _, l := range lost {
		c.effect(l)
	}
}

// tickDue makes ready what was delayed or waited for its next delivery.
func (c *Core) tickDue() {
	popAll(&c.due, c.now, &c.dueNow)
	for n := 0; c.dueNow.Len() > 0 && n < maxRuns; n++ {
		lo, hi, _ := c.dueNow.NextRun(0, maxSeq)
		hi = c.makeDue(lo, hi)
		c.dueNow.RemoveRange(lo, hi)
	}
}

// makeDue looks at the first messages of a range that are in one state, and returns where they end.
func (c *Core) makeDue(lo, hi uint64) uint64 {
	next := hi
	if a, b, ok := c.delayed.NextRun(lo, hi); ok {
		if a == lo {
			c.delayed.RemoveRange(lo, b)
			c.makeReady(lo, b)
			return b
		}
		next = a
	}
	a, b, ok := c.retrying.NextRun(lo, next)
	if !ok {
		return next
	}
	for x := a; x < b; x++ {
		// One that was given back anew since is due another time.
		if t, _ := c.entries.Get(x); t.due <= c.now {
			c.retrying.Remove(x)
			c.keys.returned(c, x, x+1)
		}
	}
	return b
}

// popAll moves what has come up in an index into a set.
func popAll(x interface {
	Pop(now int64) (seqset.Set, bool)
}, now int64, into *seqset.Set) {
	for {
		due, ok := x.Pop(now)
		if !ok {
			return
		}
		if into.Len() == 0 {
			*into = due
			continue
		}
		for lo, hi := range due.All() {
			into.AddRange(lo, hi)
		}
	}
}

// tickExpiry finds what has expired by its own time or by the queue's retention.
func (c *Core) tickExpiry() {
	if to := c.horizon(); to > c.retained {
		for lo, hi := range c.live.Runs(c.retained+1, to+1) {
			c.flights.Each(lo, hi, func(a, b uint64, _ flight) bool {
				// splitExpired looks at the retention when the lease ends.
				c.expiring.AddRange(lo, a)
				lo = b
				return true
			})
			c.expiring.AddRange(lo, hi)
		}
		c.retained = to
	}
	for {
		due, ok := c.expiry.Pop(c.now)
		if !ok {
			break
		}
		commonRuns(&due, &c.live, 0, maxSeq, func(lo, hi uint64) { c.expiring.AddRange(lo, hi) })
	}
}

// tickProducers forgets the producers that have not sent for long.
func (c *Core) tickProducers() {
	if c.now < c.sweepAt {
		return
	}
	c.producers.Expire(c.now)
	ttl := c.o.ProducerTTL
	if ttl == 0 {
		ttl = window.DefaultSequenceTTL
	}
	c.sweepAt = c.now + min(max(ttl/24, 1000), 3_600_000)
}

// horizon returns the seq up to which messages are older than the retention, 0 if there is none.
func (c *Core) horizon() uint64 {
	if c.cfg.Retention == 0 || c.now < c.holdTill {
		return 0
	}
	return c.ages.before(c.now - c.cfg.Retention.Milliseconds())
}

// nextRetention returns when the retention concerns further messages.
func (c *Core) nextRetention() (at int64, ok bool) {
	if c.cfg.Retention == 0 {
		return 0, false
	}
	x, ok := c.live.Next(c.retained + 1)
	if !ok {
		return 0, false
	}
	return c.ages.of(x) + c.cfg.Retention.Milliseconds(), true
}

// sweep lets what has expired go. What is leased waits for the lease's end, what moves has left in a way (design §7, Time).
func (c *Core) sweep() {
	if c.expiring.Len() == 0 {
		return
	}
	var spans []Span
	for n := 0; n < maxRuns && len(spans) < maxSpans; n++ {
		lo, hi, ok := c.expiring.NextRun(0, maxSeq)
		if !ok {
			break
		}
		if a, b, _, ok := c.flights.Next(lo); ok && a < hi {
			if a == lo {
				hi = min(hi, b)
				c.overdue.AddRange(lo, hi)
				c.expiring.RemoveRange(lo, hi)
				continue
			}
			hi = a
		}
		if a, b, _, ok := c.moves.Next(lo); ok && a < hi {
			if a == lo {
				c.expiring.RemoveRange(lo, min(hi, b))
				continue
			}
			hi = a
		}
		spans = appendSpan(spans, lo, hi)
		c.expiring.RemoveRange(lo, hi)
	}
	c.decide(Event{Kind: KindExpired}, spans)
}

// splitExpired calls f for the parts of a range of leased messages, with whether they would have expired but for the lease.
func (c *Core) splitExpired(lo, hi uint64, f func(lo, hi uint64, expired bool)) {
	if c.now < c.holdTill {
		commonRuns(&c.overdue, &c.live, lo, hi, func(a, b uint64) {
			c.overdue.RemoveRange(a, b)
			c.expiring.AddRange(a, b)
		})
		f(lo, hi, false)
		return
	}
	if to := min(hi, c.horizon()+1); to > lo {
		f(lo, to, true)
		lo = to
	}
	for lo < hi {
		a, b, ok := c.overdue.NextRun(lo, hi)
		if !ok {
			a, b = hi, hi
		}
		if lo < a {
			f(lo, a, false)
		}
		if a < b {
			f(a, b, true)
		}
		lo = b
	}
}

// prune drops from the indexes what is of no interest any more, once that is most of it.
func (c *Core) prune() {
	const slack = 1 << 16
	if c.leaseEnd.Len() > 2*c.flights.Len()+slack {
		c.leaseEnd.Clear()
		c.flights.Each(0, maxSeq, func(lo, hi uint64, f flight) bool {
			c.leaseEnd.Add(c.now, f.deadline, lo, hi)
			return true
		})
	}
	if c.due.Len() > 2*(c.delayed.Len()+c.retrying.Len())+slack {
		keep := c.delayed.Clone()
		for lo, hi := range c.retrying.All() {
			keep.AddRange(lo, hi)
		}
		c.due.Retain(&keep)
	}
	if c.expiry.Len() > 2*c.live.Len()+slack {
		c.expiry.Retain(&c.live)
	}
}
