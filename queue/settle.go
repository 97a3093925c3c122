package queue

import (
	"fmt"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// checkLeaseSpans refuses runs that no hand-over can have had.
func checkLeaseSpans(spans []LeaseSpan) error {
	for _, s := range spans {
		if s.Count == 0 || s.Lease == 0 || s.Seq == 0 || s.Lease > math.MaxUint64-s.Count || s.Seq > maxSeq-s.Count {
			return &message.FieldError{Field: "receipt", Fault: fmt.Sprintf("of %d messages from seq %d, lease %d, is none", s.Count, s.Seq, s.Lease)}
		}
	}
	return nil
}

// resolve finds the messages that spans name among those that are leased. It calls held for each run that is leased under the lease
// numbers that it names, and returns the outcomes, nil if that is all of them. A message that is named twice has its outcome
// twice, but comes once to held. held must not change anything.
func (c *Core) resolve(spans []LeaseSpan, held func(p piece)) []Outcome {
	out := c.scratch.outcomes[:0]
	all := true
	var seen *seqset.Set // only where a message may be named twice
	end := uint64(0)
	for _, s := range spans {
		if s.Seq < end && seen == nil {
			seen = &seqset.Set{}
			for _, o := range out {
				seen.AddRange(o.Seq, o.Seq+o.Count)
			}
		}
		at, to := s.Seq, s.Seq+s.Count
		end = max(end, to)
		c.flights.Each(at, to, func(lo, hi uint64, f flight) bool {
			if at < lo {
				out, all = c.unleased(out, s, at, lo), false
			}
			at = hi
			if f.lease-lo != s.Lease-s.Seq {
				out, all = append(out, outcome(s, lo, hi, AckLost)), false
				return true
			}
			out = append(out, outcome(s, lo, hi, AckDone))
			once(seen, lo, hi, func(lo2, hi2 uint64) { held(piece{lo2, hi2, f.After(lo2 - lo)}) })
			return true
		})
		if at < to {
			out, all = c.unleased(out, s, at, to), false
		}
	}
	c.scratch.outcomes = out
	if all {
		return nil
	}
	return slices.Clone(out)
}

// once calls f for the parts of a range that are not in seen, and adds them. A nil set has nothing.
func once(seen *seqset.Set, lo, hi uint64, f func(lo, hi uint64)) {
	if seen == nil {
		f(lo, hi)
		return
	}
	for lo < hi {
		a, b, ok := seen.NextRun(lo, hi)
		if !ok {
			a, b = hi, hi
		}
		if lo < a {
			f(lo, a)
		}
		lo = b
	}
	seen.AddRange(lo, hi)
}

func outcome(s LeaseSpan, lo, hi uint64, result AckOutcome) Outcome {
	return Outcome{LeaseSpan{s.Lease + (lo - s.Seq), lo, hi - lo}, result}
}

// unleased appends the outcomes of messages that are not leased: they live otherwise, or are gone. Numbers that were never given
// out are no receipts.
func (c *Core) unleased(out []Outcome, s LeaseSpan, lo, hi uint64) []Outcome {
	issued := lo
	if s.Lease < c.nextLease && lo < c.next {
		issued = min(hi, c.next, s.Seq+(c.nextLease-s.Lease))
	}
	for at := lo; at < issued; {
		a, b, ok := c.live.NextRun(at, issued)
		if !ok {
			a, b = issued, issued
		}
		if at < a {
			out = append(out, outcome(s, at, a, AckGone))
		}
		if a < b {
			out = append(out, outcome(s, a, b, AckLost))
		}
		at = b
	}
	if issued = max(issued, lo); issued < hi {
		out = append(out, outcome(s, issued, hi, AckLost))
	}
	return out
}

// settle finds the leased messages that spans name, and answers the command. It returns nil if there are none.
func (c *Core) settle(now int64, spans []LeaseSpan, t Token) ([]piece, bool) {
	if err := checkLeaseSpans(spans); err != nil {
		c.reply(Reply{Token: t, Err: err})
		return nil, false
	}
	c.begin(now)
	pieces := c.scratch.pieces[:0]
	outcomes := c.resolve(spans, func(p piece) { pieces = append(pieces, p) })
	c.scratch.pieces = pieces
	c.reply(Reply{Token: t, Outcomes: outcomes})
	return pieces, true
}

func (c *Core) reply(r Reply) {
	if r.Token != 0 {
		c.effect(r)
	}
}

// Ack deletes messages.
func (c *Core) Ack(now int64, t Token, spans []LeaseSpan) {
	pieces, ok := c.settle(now, spans, t)
	if !ok {
		return
	}
	c.decide(Event{Kind: KindDeleted}, spansOf(pieces))
	c.finish()
}

// spansOf returns the messages of pieces, runs that follow each other joined.
func spansOf(pieces []piece) []Span {
	var out []Span
	for _, p := range pieces {
		out = appendSpan(out, p.lo, p.hi)
	}
	return out
}

func appendSpan(out []Span, lo, hi uint64) []Span {
	if n := len(out); n > 0 && out[n-1].Seq+out[n-1].Count == lo {
		out[n-1].Count += hi - lo
		return out
	}
	return append(out, Span{lo, hi - lo})
}

// decide emits an event for the messages of spans, in several if they are many. spans belongs to the events.
func (c *Core) decide(e Event, spans []Span) {
	for len(spans) > 0 {
		n := min(len(spans), maxSpans)
		e.Spans = spans[:n:n]
		spans = spans[n:]
		c.emit(e)
	}
}

// Started says that the receiver begins with messages, so that the delivery counts however it ends, but for a release. From the second
// delivery on that is stored, and the Reply confirms it.
func (c *Core) Started(now int64, t Token, id ReceiverID, spans []LeaseSpan) {
	if r := c.receivers[id]; r == nil || r.lost {
		c.reply(Reply{Token: t, Err: fmt.Errorf("start: %w", ErrUnknownReceiver)})
		return
	}
	pieces, ok := c.settle(now, spans, t)
	if !ok {
		return
	}
	var stored []Span
	for _, p := range pieces {
		if c.confirms(p.f.attempt) && p.f.flags&flightCounts == 0 {
			stored = appendSpan(stored, p.lo, p.hi)
			continue
		}
		if p.f.flags&flightStarted == 0 {
			c.flights.Cut(p.lo, p.hi, nil)
			p.f.flags |= flightStarted
			c.flights.Set(p.lo, p.hi, p.f)
		}
	}
	c.decide(Event{Kind: KindStarted}, stored)
	c.finish()
}

// Nack gives messages back as failed; they become ready after delay ms, by the queue's policy if it is negative.
func (c *Core) Nack(now int64, t Token, spans []LeaseSpan, delay int64) {
	if delay > message.MaxDelay.Milliseconds() {
		c.reply(Reply{Token: t, Err: &message.FieldError{Field: "retry delay", Fault: fmt.Sprintf("is %d ms", delay), Limit: "0 to " + message.MaxDelay.String()}})
		return
	}
	pieces, ok := c.settle(now, spans, t)
	if !ok {
		return
	}
	if delay < 0 {
		delay = byPolicy
	}
	c.giveBack(pieces, CauseNack, func(*flight) leaseEnding { return leaseEnding{counted: true} }, delay)
	c.finish()
}

// Release gives messages back, ready at once and uncounted.
func (c *Core) Release(now int64, t Token, spans []LeaseSpan) {
	pieces, ok := c.settle(now, spans, t)
	if !ok {
		return
	}
	c.giveBack(pieces, CauseRelease, func(*flight) leaseEnding { return leaseEnding{} }, 0)
	c.finish()
}

// Extend lets the leases end in by ms from now, or in the visibility timeout if by is 0. That is not stored.
func (c *Core) Extend(now int64, t Token, spans []LeaseSpan, by int64) {
	if by < 0 || by > MaxVisibility.Milliseconds() {
		c.reply(Reply{Token: t, Err: &message.FieldError{Field: "extension", Fault: fmt.Sprintf("is %d ms", by), Limit: "0 to " + MaxVisibility.String()}})
		return
	}
	pieces, ok := c.settle(now, spans, t)
	if !ok {
		return
	}
	for _, p := range pieces {
		c.flights.Cut(p.lo, p.hi, nil)
		p.f.deadline = c.now + by
		if by == 0 {
			p.f.deadline = c.now + c.visibility(p.f.visibility)
		}
		c.flights.Set(p.lo, p.hi, p.f)
		c.leaseEnd.Add(c.now, p.f.deadline, p.lo, p.hi)
	}
	c.finish()
}

// byPolicy as a delay means that of the retry policy.
const byPolicy = -1

// leaseEnding is what the end of a lease says of a message.
type leaseEnding struct {
	counted bool // the delivery counts against the limit
	lost    bool // the receiver was lost: if the delivery counts, it had begun with the message
}

// alone tells whether a message is handed out alone after a lease that ended so: once its next loss would take it over the limit. A limit
// of one delivery is one.
func (e leaseEnding) alone(tries, limit int) bool {
	return e.lost && e.counted && limit > 1 && tries+1 >= limit
}

// over tells whether a message is over the limit. One that its receiver was lost with, not alone, is handed out once more, alone, which
// tells whether it was the reason.
func (e leaseEnding) over(f *flight, limit int) bool {
	if !e.counted || limit == 0 || int(f.tries) < limit {
		return false
	}
	return limit == 1 || !e.lost || f.flags&flightIsolated != 0
}

// giveBack ends leases otherwise than by a delete, how is what ending says of each. What is over the limit is parked or moves; what would
// have expired while it was leased expires; the rest becomes ready after delay ms.
func (c *Core) giveBack(pieces []piece, cause Cause, ending func(*flight) leaseEnding, delay int64) {
	var g returns
	for i := range pieces {
		p := &pieces[i]
		end := ending(&p.f)
		counted := end.counted
		if end.over(&p.f, c.cfg.MaxDeliveries) {
			e := Event{Kind: KindParked, Cause: cause, Counted: true}
			if c.cfg.DeadLetter != "" {
				e.Kind, e.Target, e.Reason = KindMoving, c.cfg.DeadLetter, ReasonMaxDeliveries
			}
			g.add(e, p.lo, p.hi)
			continue
		}
		due := int64(0)
		switch {
		case delay > 0:
			due = c.now + delay
		case delay == byPolicy && counted && cause == CauseNack:
			if d := c.retryDelay(p.f.tries); d > 0 {
				due = c.now + d
			}
		}
		c.splitExpired(p.lo, p.hi, func(lo, hi uint64, expired bool) {
			e := Event{Kind: KindReturned, Cause: cause, Counted: counted, Lost: end.lost, Alone: end.alone(int(p.f.tries), c.cfg.MaxDeliveries), Due: due}
			if expired {
				e = Event{Kind: KindExpired}
			}
			g.add(e, lo, hi)
		})
	}
	for _, r := range g {
		c.decide(r.e, r.spans)
	}
}

// returns is events that end leases, to be emitted with their spans.
type returns []struct {
	e     Event
	spans []Span
}

func (g *returns) add(e Event, lo, hi uint64) {
	// Those that are the same mostly follow each other.
	for i := len(*g) - 1; i >= max(0, len(*g)-8); i-- {
		r := &(*g)[i]
		if r.e.Kind == e.Kind && r.e.Counted == e.Counted && r.e.Lost == e.Lost && r.e.Alone == e.Alone && r.e.Due == e.Due {
			r.spans = appendSpan(r.spans, lo, hi)
			return
		}
	}
	*g = append(*g, struct {
		e     Event
		spans []Span
	}{e, []Span{{lo, hi - lo}}})
}

// retryDelay returns the delay after the n-th failure, in ms.
func (c *Core) retryDelay(n uint32) int64 {
	first, limit := c.cfg.RetryFirst.Milliseconds(), c.cfg.RetryCap.Milliseconds()
	if first <= 0 {
		return 0
	}
	d := limit
	if n = min(n, 40); n > 0 && first < limit>>(n-1) {
		d = first << (n - 1)
	}
	return d + int64(float64(d)*0.4*(c.o.Jitter()-0.5))
}
