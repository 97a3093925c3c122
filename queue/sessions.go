package queue

import (
	"fmt"
	"slices"
)

// maxPieces bounds the runs of leased messages that one command gives back; the rest follows at the next.
const maxPieces = 1 << 14

// CloseReceiver closes a receiver. clean gives everything back at once. Otherwise what it did not start is given back at once,
// and the rest is held for Options.HoldStarted for ResumeReceiver. Unbound leases go on. An unknown id is no error.
func (c *Core) CloseReceiver(now int64, id ReceiverID, clean bool) {
	r := c.receivers[id]
	if r == nil || r.lost {
		return
	}
	c.begin(now)
	c.lose(r, clean)
	c.finish()
}

// lose begins the end of a receiver.
func (c *Core) lose(r *receiver, clean bool) {
	r.lost, r.clean = true, clean
	if c.reserved == r {
		c.reserved = nil
	}
	switch {
	case r.o.Unbound || r.held.Len() == 0:
		delete(c.receivers, r.id)
		return
	case clean:
		r.until = c.now
	default:
		r.until = c.now + c.o.HoldStarted
	}
	c.lost = append(c.lost, r)
	c.giveBackLost(r)
}

// begun tells whether the holder of a flight has begun with it, as far as can be told.
func (f *flight) begun() bool {
	return f.flags&flightAnnounces == 0 || f.flags&flightStarted != 0 || f.flags&(flightCounts|flightIsolated) == flightCounts
}

// leaseExpiry is what the end of a lease by its deadline says. A receiver that is connected failed with it; one that is lost, or
// was when the broker started, may have been lost with it.
func (c *Core) leaseExpiry(f *flight) leaseEnding {
	end := leaseEnding{counted: true}
	switch r := c.receivers[f.receiver]; {
	case r != nil && r.lost:
		end.lost = !r.clean
	case f.receiver == 0:
		end.lost = true
	}
	return end
}

// giveBackLost gives back what a lost receiver holds, as far as it is time.
func (c *Core) giveBackLost(r *receiver) {
	all := r.until <= c.now
	pieces := c.scratch.pieces[:0]
	for lo, hi := range r.held.All() {
		c.flights.Each(lo, hi, func(lo, hi uint64, f flight) bool {
			if f.receiver == r.id && (all || !f.begun()) {
				pieces = append(pieces, piece{lo, hi, f})
			}
			return len(pieces) < maxPieces
		})
		if len(pieces) >= maxPieces {
			c.again = true
			break
		}
	}
	c.scratch.pieces = pieces
	c.giveBack(pieces, CauseDisconnected, func(f *flight) leaseEnding {
		return leaseEnding{counted: f.begun() || f.flags&flightCounts != 0, lost: !r.clean}
	}, 0)
	if r.held.Len() == 0 {
		delete(c.receivers, r.id)
		c.lost = slices.DeleteFunc(c.lost, func(x *receiver) bool { return x == r })
	}
}

// tickLost gives back what lost receivers were held for long enough.
func (c *Core) tickLost() {
	for _, r := range slices.Clone(c.lost) {
		c.giveBackLost(r)
	}
}

// ResumeReceiver opens a receiver that goes on where another one was lost, and returns which of the messages in held it still
// holds, with their leases renewed. old is the lost receiver, open or closed, 0 if it is not known: then only leases from before a
// recovery can be taken over. What old holds and held does not name is given back.
func (c *Core) ResumeReceiver(now int64, old, id ReceiverID, o ReceiverOptions, held []LeaseSpan) ([]LeaseSpan, error) {
	err := c.checkReceiver(id, o)
	if err == nil {
		err = checkLeaseSpans(held)
	}
	if err != nil {
		return nil, fmt.Errorf("resume receiver: %w", err)
	}
	c.begin(now)
	r := &receiver{id: id, o: o}
	c.receivers[id] = r
	var kept []LeaseSpan
	for _, p := range c.held(held) {
		if p.f.receiver != old && p.f.receiver != 0 {
			continue
		}
		if before := c.receivers[p.f.receiver]; before != nil {
			before.held.RemoveRange(p.lo, p.hi)
		}
		c.flights.Cut(p.lo, p.hi, nil)
		p.f.receiver = id
		p.f.deadline = c.now + c.visibility(p.f.visibility)
		c.flights.Set(p.lo, p.hi, p.f)
		c.leaseEnd.Add(c.now, p.f.deadline, p.lo, p.hi)
		r.held.AddRange(p.lo, p.hi)
		r.isolated = r.isolated || p.f.flags&flightIsolated != 0 && !o.Unbound
		kept = append(kept, LeaseSpan{p.f.lease, p.lo, p.hi - p.lo})
	}
	if before := c.receivers[old]; before != nil && old != 0 {
		// Its session lives, so nothing is held against what it does not name.
		if !before.lost {
			c.lose(before, true)
		} else {
			before.until, before.clean = c.now, true
			c.giveBackLost(before)
		}
	}
	c.abandon(o.session())
	c.finish()
	return kept, nil
}

// abandon gives back what a session had been leased before a recovery, and nobody has gone on with: its receiver is there and does
// not hold it. Mostly that is what was leased at the moment when the broker died, and not handed over any more. Without this it would
// keep its keys blocked until the leases end.
func (c *Core) abandon(session uint64) {
	orphans := c.orphans[session]
	if session == 0 || orphans == nil {
		return
	}
	delete(c.orphans, session)
	for lo, hi := range orphans.All() {
		c.abandoned.AddRange(lo, hi)
	}
	c.giveBackAbandoned()
}

// giveBackAbandoned gives back what was abandoned, as much as one command may.
func (c *Core) giveBackAbandoned() {
	if c.abandoned.Len() == 0 {
		return
	}
	pieces := c.takeFlights(&c.abandoned, func(f *flight) bool { return f.receiver == 0 })
	c.again = c.again || c.abandoned.Len() > 0
	c.giveBack(pieces, CauseDisconnected, func(f *flight) leaseEnding {
		return leaseEnding{counted: f.begun() || f.flags&flightCounts != 0}
	}, 0)
}

// held returns the runs of spans that are leased under the lease numbers that they name, without repetition.
func (c *Core) held(spans []LeaseSpan) []piece {
	var out []piece
	c.resolve(spans, func(p piece) { out = append(out, p) })
	return out
}
