package queue

import (
	"fmt"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/queue/internal/column"
)

// apply changes the state by an event, live and on recovery alike: it depends on the event and on what earlier events made,
// nothing else. The error matches ErrMalformed, and can only come from stored events.
func (c *Core) apply(seq uint64, e *Event) error {
	c.next = seq + Seqs(e)
	c.lastAt = max(c.lastAt, e.At)
	switch e.Kind {
	case KindAdded:
		c.applyAdded(seq, e)
	case KindLeased:
		return c.applyLeased(e)
	case KindStarted:
		return c.eachFlight(e, func(lo, hi uint64, f flight) {
			f.flags |= flightCounts | flightStarted
			c.flights.Set(lo, hi, f)
		})
	case KindReturned:
		return c.applyReturned(e)
	case KindDeleted, KindExpired, KindDropped, KindMoved:
		return c.applyGone(e)
	case KindPurged:
		c.applyPurged(e)
	case KindParked, KindMoving:
		return c.applyAside(e)
	case KindUnparked:
		return c.applyUnparked(e)
	case KindConfigured:
		c.cfg = e.Config.WithDefaults()
		c.retained = 0
	case KindPaused:
		c.paused = e.Paused
	case KindRelocated:
		c.space.pending = &pendingRelocation{at: seq, spans: e.Spans}
	case KindProducerClosed:
		c.producers.Forget(e.Producer.key())
	case KindSuppressed:
		c.storeProducer(e.Producer, e.ProducerSeq, e.At)
	case KindUndone:
		c.applyUndone(e)
	default:
		return fmt.Errorf("kind %d: %w", e.Kind, ErrMalformed)
	}
	return nil
}

func contradiction(s Span, what string) error {
	return fmt.Errorf("messages %d…%d are not %s: %w", s.Seq, s.Seq+s.Count-1, what, ErrMalformed)
}

func (p Producer) key() window.Key { return window.Key{Producer: p.ID, Incarnation: p.Incarnation} }

func (p Producer) valid() bool { return p.key().Valid() }

func (c *Core) storeProducer(p Producer, last uint64, at int64) {
	c.counts.producersEvicted += uint64(c.producers.Store(p.key(), last, at))
}

func (c *Core) applyAdded(seq uint64, e *Event) {
	a := e.Added
	lo, hi := seq, seq+a.Count
	c.live.AddRange(lo, hi)
	c.counts.sent += a.Count
	if a.Sizes == nil {
		c.sizes.Append(lo, hi, a.Uniform)
		c.bytes += a.Count * uint64(a.Uniform)
	}
	for i, size := range a.Sizes {
		c.sizes.Append(lo+uint64(i), lo+uint64(i)+1, size)
		c.bytes += uint64(size)
	}
	c.ages.add(hi-1, e.At)
	if !a.Producer.IsZero() {
		c.storeProducer(a.Producer, a.ProducerLast, e.At)
		if !c.replaying {
			c.unstored = append(c.unstored, unstoredSend{hi - 1, a.Producer, a.ProducerSeq})
		}
	}
	c.keys.add(c, seq, a.Specials)
	var later entering
	for i := 0; i < len(a.Specials); {
		s := &a.Specials[i]
		at := seq + uint64(s.Index)
		later.add(c, lo, at, a.NotBefore, e.At)
		n := 1
		for i+n < len(a.Specials) && s.like(&a.Specials[i+n], uint32(n)) {
			n++
		}
		notBefore := c.applySpecials(at, a.Specials[i:i+n], a.NotBefore, e.At)
		lo = at + uint64(n)
		later.add(c, at, lo, notBefore, e.At)
		i += n
	}
	later.add(c, lo, hi, a.NotBefore, e.At)
	later.end(c)
}

// like tells whether t, which comes n places behind s, says the same as s but for its hashes.
func (s *Special) like(t *Special, n uint32) bool {
	return t.Index == s.Index+n && t.NotBefore == s.NotBefore && t.ExpiresAt == s.ExpiresAt && t.Priority == s.Priority && t.Foreign == s.Foreign
}

// applySpecials adds consecutive messages that say the same, and returns when they may be handed out.
func (c *Core) applySpecials(lo uint64, sp []Special, notBefore, at int64) int64 {
	s := &sp[0]
	hi := lo + uint64(len(sp))
	if s.Priority > 0 {
		c.prio[s.Priority].AddRange(lo, hi)
		c.anyPrio = true
	}
	if s.ExpiresAt > 0 {
		c.expiry.Add(at, s.ExpiresAt, lo, hi)
	}
	if s.Foreign {
		c.foreign.AddRange(lo, hi)
	}
	for i := range sp {
		if sp[i].DedupHash != [16]byte{} {
			c.counts.dedupEvicted += c.dedup.add(sp[i].DedupHash, lo+uint64(i), at, at+c.cfg.DedupWindow.Milliseconds())
		}
	}
	if s.NotBefore > 0 {
		return s.NotBefore
	}
	return notBefore
}

// entering is consecutive new messages that wait for their times or are ready, gathered, so that what has a time of its own each costs no more
// than it must.
type entering struct {
	lo, hi uint64
	wait   bool
}

// add has new messages wait for their time, or makes them ready.
func (n *entering) add(c *Core, lo, hi uint64, notBefore, at int64) {
	if lo >= hi {
		return
	}
	wait := notBefore > at
	if wait {
		c.due.Add(at, notBefore, lo, hi)
	}
	if lo != n.hi || wait != n.wait {
		n.end(c)
		n.lo, n.wait = lo, wait
	}
	n.hi = hi
}

// end enters what is gathered.
func (n *entering) end(c *Core) {
	switch {
	case n.lo >= n.hi:
	case n.wait:
		c.delayed.AddRange(n.lo, n.hi)
	default:
		c.makeReady(n.lo, n.hi)
	}
	n.lo = n.hi
}

// makeReady makes messages ready that were in no other state any more.
func (c *Core) makeReady(lo, hi uint64) {
	c.ready[0].AddRange(lo, hi)
	if c.anyPrio {
		for p := 1; p <= maxPriority; p++ {
			commonRuns(&c.prio[p], &c.ready[0], lo, hi, func(a, b uint64) {
				c.ready[0].RemoveRange(a, b)
				c.ready[p].AddRange(a, b)
			})
		}
	}
	c.keys.entered(c, lo, hi)
}

// priority returns the priority of a message.
func (c *Core) priority(x uint64) int {
	if c.anyPrio {
		for p := maxPriority; p > 0; p-- {
			if c.prio[p].Contains(x) {
				return p
			}
		}
	}
	return 0
}

// leaveReady takes messages out of the ready sets, and returns how many were there.
func (c *Core) leaveReady(lo, hi uint64) (n uint64) {
	for p := maxPriority; p >= 0; p-- {
		if n += c.ready[p].RemoveRange(lo, hi); n == hi-lo {
			break
		}
	}
	return n
}

// leave takes messages out of whatever state they are in. They must be put into another one, or be gone.
func (c *Core) leave(lo, hi uint64) {
	n := c.cutFlights(lo, hi, nil)
	if n < hi-lo {
		c.keys.leaveWaiting(c, lo, hi)
		n += c.leaveReady(lo, hi)
	}
	if n < hi-lo {
		c.delayed.RemoveRange(lo, hi)
		c.retrying.RemoveRange(lo, hi)
		c.unpark(lo, hi)
		c.cutMoves(lo, hi)
	}
	c.keys.left(c, lo, hi)
}

// gone forgets messages that have left their state.
func (c *Core) gone(lo, hi uint64) {
	c.live.RemoveRange(lo, hi)
	c.bytes -= c.sizes.Sum(lo, hi)
	c.keys.gone(c, lo, hi)
	if c.anyPrio {
		c.anyPrio = false
		for p := 1; p <= maxPriority; p++ {
			c.prio[p].RemoveRange(lo, hi)
			c.anyPrio = c.anyPrio || c.prio[p].Len() > 0
		}
	}
	c.foreign.RemoveRange(lo, hi)
	c.isolated.RemoveRange(lo, hi)
	c.expiring.RemoveRange(lo, hi)
	c.overdue.RemoveRange(lo, hi)
	c.dropEntries(lo, hi)
	c.bodiesGone(lo, hi)
	c.dropColumns(lo, hi)
}

// dropColumns frees the pages of columns in which nothing lives any more.
func (c *Core) dropColumns(lo, hi uint64) {
	from, next := column.PageRange(lo)
	if c.live.Any(from, lo) {
		from = next
	}
	last, to := column.PageRange(hi - 1)
	if to > c.next || c.live.Any(hi, to) {
		to = last
	}
	if from < to {
		c.sizes.Drop(from, to)
		c.keys.hashes.Drop(from, to)
	}
}

func (c *Core) dropEntries(lo, hi uint64) {
	for c.entries.Len() > 0 {
		x, ok := c.nextEntry(lo, hi)
		if !ok {
			return
		}
		c.entries.Delete(x)
		lo = x + 1
	}
}

// nextEntry returns the first message of a range that has an entry.
func (c *Core) nextEntry(lo, hi uint64) (x uint64, ok bool) {
	if c.entries.Len() == 0 {
		return 0, false
	}
	c.entries.Ascend(lo, func(k uint64, _ entry) bool {
		x, ok = k, k < hi
		return false
	})
	return x, ok
}

// applyGone deletes messages, each kind of way out counted.
func (c *Core) applyGone(e *Event) error {
	for _, s := range e.Spans {
		lo, hi := s.Seq, s.Seq+s.Count
		if c.live.Count(lo, hi) != s.Count {
			return contradiction(s, "all there")
		}
		switch e.Kind {
		case KindDeleted:
			c.counts.acked += s.Count
		case KindExpired:
			c.counts.expired += s.Count
		case KindDropped:
			c.counts.dropped += s.Count
		case KindMoved:
			c.moves.Each(lo, hi, func(lo, hi uint64, m move) bool {
				if m.reason == ReasonRedrive {
					c.counts.redriven += hi - lo
				} else {
					c.counts.deadLettered += hi - lo
				}
				return true
			})
		}
		switch {
		case e.Kind == KindMoved && c.cutMoves(lo, hi) != s.Count:
			return contradiction(s, "on their way")
		case e.Kind == KindDeleted && c.cutFlights(lo, hi, nil) != s.Count:
			return contradiction(s, "leased")
		case e.Kind == KindMoved || e.Kind == KindDeleted:
			c.keys.left(c, lo, hi)
		default:
			c.leave(lo, hi)
		}
		c.gone(lo, hi)
	}
	return nil
}

// applyPurged deletes everything below a position.
func (c *Core) applyPurged(e *Event) {
	end := min(e.Spans[0].Seq+e.Spans[0].Count, c.next)
	c.counts.purged += c.live.Count(0, end)
	for {
		lo, hi, ok := c.live.NextRun(0, end)
		if !ok {
			return
		}
		c.leave(lo, hi)
		c.gone(lo, hi)
	}
}

// applyAside parks messages or has them move, from any state.
func (c *Core) applyAside(e *Event) error {
	for _, s := range e.Spans {
		lo, hi := s.Seq, s.Seq+s.Count
		if c.live.Count(lo, hi) != s.Count {
			return contradiction(s, "all there")
		}
		c.leaveCounted(lo, hi, e)
		if e.Kind == KindParked {
			c.keys.left(c, lo, hi)
			c.parked.AddRange(lo, hi)
			c.counts.parked += s.Count
			continue
		}
		c.keys.block(c, lo, hi)
		c.moves.Set(lo, hi, move{e.At, e.Target, e.Reason})
		c.mover.todo.AddRange(lo, hi)
	}
	return nil
}

// leaveCounted takes messages out of whatever state they are in, and counts the end of their leases. Keys are left as they are.
func (c *Core) leaveCounted(lo, hi uint64, e *Event) {
	n := c.cutFlights(lo, hi, func(lo, hi uint64, _ flight) {
		if e.Counted {
			c.countDeliveries(lo, hi)
		}
	})
	c.countCause(e.Cause, n)
	if n == hi-lo {
		return
	}
	c.keys.leaveWaiting(c, lo, hi)
	c.leaveReady(lo, hi)
	c.delayed.RemoveRange(lo, hi)
	c.retrying.RemoveRange(lo, hi)
	c.unpark(lo, hi)
	c.cutMoves(lo, hi)
}

func (c *Core) countCause(cause Cause, n uint64) {
	switch cause {
	case CauseNack:
		c.counts.nacked += n
	case CauseRelease:
		c.counts.released += n
	case CauseLeaseExpired:
		c.counts.leaseExpired += n
	case CauseDisconnected:
		c.counts.disconnected += n
	}
}

// countDeliveries counts a delivery of each message.
func (c *Core) countDeliveries(lo, hi uint64) {
	for x := lo; x < hi; x++ {
		t, _ := c.entries.Get(x)
		t.count++
		c.entries.Set(x, t)
	}
}

func (c *Core) applyUnparked(e *Event) error {
	for _, s := range e.Spans {
		lo, hi := s.Seq, s.Seq+s.Count
		if c.unpark(lo, hi) != s.Count {
			return contradiction(s, "parked")
		}
		c.forgive(lo, hi)
		c.counts.unparked += s.Count
		c.makeReady(lo, hi)
	}
	return nil
}

// forgive lets the delivery budget of messages begin anew. The history stays.
func (c *Core) forgive(lo, hi uint64) {
	for {
		x, ok := c.nextEntry(lo, hi)
		if !ok {
			return
		}
		t, _ := c.entries.Get(x)
		t.base, t.lost = t.count, 0
		c.entries.Set(x, t)
		c.isolated.Remove(x)
		lo = x + 1
	}
}
