package queue

// flight is the lease of a run of messages.
type flight struct {
	lease      uint64     // number of the first message's lease; the others follow
	receiver   ReceiverID // 0: nobody, since a recovery
	deadline   int64      // queue time; not before Recovered
	visibility int64      // ms, 0: the queue's visibility timeout
	session    uint64     // of the receiver, 0: none, or its lease is unbound; see Core.abandon
	attempt    uint32     // which delivery of each message it is, from 1
	tries      uint32     // which since the latest redrive, from 1
	flags      flightFlags
}

type flightFlags uint8

const (
	flightAnnounces flightFlags = 1 << iota // the receiver announces starts
	flightCounts                            // counts however it ends, but for a release; stored
	flightStarted                           // the receiver has begun with it; of first deliveries not stored
	flightIsolated                          // the message was handed out alone
)

// After implements spanmap.Value.
func (f flight) After(n uint64) flight {
	f.lease += n
	return f
}

// piece is a run of leased messages.
type piece struct {
	lo, hi uint64
	f      flight
}

// applyLeased hands over messages. Live, grantee is the receiver; on recovery nobody is.
func (c *Core) applyLeased(e *Event) error {
	lease := e.Lease
	for _, s := range e.Spans {
		lo, hi := s.Seq, s.Seq+s.Count
		if !c.takeForLease(lo, hi) {
			return contradiction(s, "there to be leased")
		}
		c.keys.block(c, lo, hi)
		for lo < hi {
			end, t, isolated := c.equalRun(lo, hi)
			f := flight{lease: lease, visibility: e.Visibility, session: e.Session, attempt: t.count + 1, tries: t.count - t.base + 1}
			if e.Announces {
				f.flags |= flightAnnounces
			}
			if isolated {
				f.flags |= flightIsolated
			}
			if isolated || !e.Announces {
				f.flags |= flightCounts
			}
			c.lease(lo, end, f)
			lease += end - lo
			lo = end
		}
	}
	c.nextLease = max(c.nextLease, lease)
	return nil
}

// takeForLease takes messages out of the states from which they can be handed out. Usually that is a ready set; on recovery it is
// any from which they would have become ready by time.
func (c *Core) takeForLease(lo, hi uint64) bool {
	n := c.leaveReady(lo, hi)
	if n < hi-lo {
		n += c.delayed.RemoveRange(lo, hi)
		n += c.retrying.RemoveRange(lo, hi)
	}
	return n == hi-lo
}

// equalRun returns the first messages of a range of which the same is known.
func (c *Core) equalRun(lo, hi uint64) (end uint64, t entry, isolated bool) {
	x, ok := c.nextEntry(lo, hi)
	if !ok {
		return hi, t, false
	}
	if x > lo {
		return x, t, false
	}
	t, _ = c.entries.Get(lo)
	isolated = c.isolated.Contains(lo)
	for end = lo + 1; end < hi && !isolated; end++ {
		u, ok := c.entries.Get(end)
		if !ok || u.count != t.count || u.base != t.base || c.isolated.Contains(end) {
			break
		}
	}
	return end, t, isolated
}

// confirms tells that a delivery's start is stored before its handler runs: from the second on (design §7), and where one more is
// all that the limit allows, so that a receiver which dies takes nothing with it that it had only announced.
func (c *Core) confirms(attempt uint32) bool {
	most := c.cfg.MaxDeliveries
	return attempt > 1 || most > 0 && int(attempt) >= most
}

// lease makes a flight of messages that are in no other state.
func (c *Core) lease(lo, hi uint64, f flight) {
	n := hi - lo
	c.counts.delivered += n
	if f.attempt > 1 {
		c.counts.redelivered += n
	}
	if r := c.grantee; r != nil {
		f.receiver = r.id
		f.deadline = c.now + c.visibility(f.visibility)
		c.leaseEnd.Add(c.now, f.deadline, lo, hi)
		r.used += n
		r.usedBytes += c.sizes.Sum(lo, hi)
		r.held.AddRange(lo, hi)
		r.isolated = r.isolated || f.flags&flightIsolated != 0 && !r.o.Unbound
		c.scratch.runs = append(c.scratch.runs, Delivery{
			LeaseSpan:    LeaseSpan{f.lease, lo, n},
			Attempt:      int(f.attempt),
			ConfirmStart: f.flags&flightAnnounces != 0 && c.confirms(f.attempt),
		})
	}
	c.flights.Set(lo, hi, f)
}

// cutFlights ends the leases of a range. It calls ended, if not nil, for each run, and returns how many messages were leased.
func (c *Core) cutFlights(lo, hi uint64, ended func(lo, hi uint64, f flight)) uint64 {
	if c.flights.Len() == 0 {
		return 0
	}
	n := c.flights.Cut(lo, hi, func(lo, hi uint64, f flight) {
		if r := c.receivers[f.receiver]; r != nil {
			r.held.RemoveRange(lo, hi)
			if f.flags&flightIsolated != 0 {
				r.isolated = false
			}
			c.wake(r)
		}
		if ended != nil {
			ended(lo, hi, f)
		}
	})
	if c.flights.Len() == 0 {
		c.leaseEnd.Clear()
		c.orphans = nil
	}
	return n
}

// eachFlight takes the leased messages of an event out, and calls f for each run, to put it in again.
func (c *Core) eachFlight(e *Event, f func(lo, hi uint64, f flight)) error {
	for _, s := range e.Spans {
		var got []piece
		if c.flights.Cut(s.Seq, s.Seq+s.Count, func(lo, hi uint64, f flight) { got = append(got, piece{lo, hi, f}) }) != s.Count {
			return contradiction(s, "leased")
		}
		for _, p := range got {
			f(p.lo, p.hi, p.f)
		}
	}
	return nil
}

// applyReturned ends leases without a delete.
func (c *Core) applyReturned(e *Event) error {
	for _, s := range e.Spans {
		lo, hi := s.Seq, s.Seq+s.Count
		n := c.cutFlights(lo, hi, func(lo, hi uint64, _ flight) {
			if e.Counted {
				c.countDeliveries(lo, hi)
			}
			switch {
			case e.Alone:
				c.countLost(lo, hi, isolateAfter)
			case e.Lost:
				c.countLost(lo, hi, 1)
			case e.Cause == CauseNack:
				c.survived(lo, hi)
			}
		})
		if n != s.Count {
			return contradiction(s, "leased")
		}
		c.countCause(e.Cause, n)
		if e.Due <= e.At {
			c.keys.returned(c, lo, hi)
			continue
		}
		c.retrying.AddRange(lo, hi)
		c.due.Add(e.At, e.Due, lo, hi)
		for x := lo; x < hi; x++ {
			t, _ := c.entries.Get(x)
			t.due = e.Due
			c.entries.Set(x, t)
		}
	}
	return nil
}

// countLost counts n times that messages lost their receiver.
func (c *Core) countLost(lo, hi uint64, n uint8) {
	for x := lo; x < hi; x++ {
		t, _ := c.entries.Get(x)
		t.lost = min(t.lost+n, isolateAfter)
		c.entries.Set(x, t)
		if t.lost >= isolateAfter {
			c.isolated.Add(x)
		}
	}
}

// survived forgets the lost receivers of messages that one failed with and lived to say so.
func (c *Core) survived(lo, hi uint64) {
	for {
		x, ok := c.nextEntry(lo, hi)
		if !ok {
			return
		}
		if t, _ := c.entries.Get(x); t.lost > 0 {
			t.lost = 0
			c.entries.Set(x, t)
			c.isolated.Remove(x)
		}
		lo = x + 1
	}
}
