package queue

import "github.com/holdfastmq/holdfast/queue/internal/seqset"

// Damaged says that the bodies in the record whose first seq is record cannot be read, and parks the messages in it, from whatever state they
// are in, so that the queue goes on with everything else: neither order nor a key waits for them. Those that receivers hold are left alone,
// since they were handed over with their bodies, but for leases: what was leased and not handed over, whose credit is given back. No
// delivery is counted.
//
// That they are damaged is not stored: Stats and Peek say it until they leave (Purge, their expiry), are made ready again (Redrive), or
// the queue is recovered; the shell then looks at what is parked. Damaged returns what was not known to be damaged before, ascending.
func (c *Core) Damaged(now int64, record uint64, leases []LeaseSpan) []Span {
	c.begin(now)
	var unheard seqset.Set // leased, and its receiver does not know of it
	if checkLeaseSpans(leases) == nil {
		for _, p := range c.held(leases) {
			unheard.AddRange(p.lo, p.hi)
		}
	}
	var found, park []Span
	for _, s := range c.livingIn(record) {
		c.eachUnheard(s, &unheard, func(lo, hi uint64) {
			for lo < hi {
				a, b, ok := c.parked.NextRun(lo, hi)
				if !ok {
					a, b = hi, hi
				}
				if lo < a {
					park, found = appendSpan(park, lo, a), appendSpan(found, lo, a)
				}
				if a < b && c.damaged.Count(a, b) < b-a {
					found = appendSpan(found, a, b)
				}
				lo = b
			}
		})
	}
	for _, s := range park {
		c.creditBack(s.Seq, s.Seq+s.Count)
	}
	c.decide(Event{Kind: KindParked}, park)
	for _, s := range found {
		c.damaged.AddRange(s.Seq, s.Seq+s.Count)
	}
	c.finish()
	return found
}

// livingIn returns the live messages whose bodies lie in a record that is stored, ascending.
func (c *Core) livingIn(record uint64) (out []Span) {
	s := &c.space
	if r, ok := s.records.Find(record); !ok || r.Start != record {
		return nil
	}
	if h := s.homeAt(record); h != nil { // survivors are older than the record that they lie in
		for lo, hi := range h.live.All() {
			out = appendSpan(out, lo, hi)
		}
	}
	for lo, hi := range c.live.Runs(record, min(c.end(record), c.stored+1)) {
		for lo < hi {
			a, b, ok := s.relocated.NextRun(lo, hi)
			if !ok {
				a, b = hi, hi
			}
			if lo < a {
				out = appendSpan(out, lo, a)
			}
			lo = b
		}
	}
	return out
}

// eachUnheard calls f for the parts of a span that no receiver has: what is not leased, or in unheard.
func (c *Core) eachUnheard(s Span, unheard *seqset.Set, f func(lo, hi uint64)) {
	at, end := s.Seq, s.Seq+s.Count
	c.flights.Each(at, end, func(lo, hi uint64, _ flight) bool {
		if at < lo {
			f(at, lo)
		}
		for a, b := range unheard.Runs(lo, hi) {
			f(a, b)
		}
		at = hi
		return true
	})
	if at < end {
		f(at, end)
	}
}

// creditBack gives receivers back the credit that leased messages used up.
func (c *Core) creditBack(lo, hi uint64) {
	c.flights.Each(lo, hi, func(lo, hi uint64, f flight) bool {
		if r := c.receivers[f.receiver]; r != nil {
			r.used -= min(r.used, hi-lo)
			r.usedBytes -= min(r.usedBytes, c.sizes.Sum(lo, hi))
			c.wake(r)
		}
		return true
	})
}

// unpark takes messages out of the parked ones, and returns how many were there.
func (c *Core) unpark(lo, hi uint64) uint64 {
	c.damaged.RemoveRange(lo, hi)
	return c.parked.RemoveRange(lo, hi)
}
