package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// Apply repeats a stored event on recovery. Events must come in order; seqs may be left out (see SkipTo). The error matches
// ErrMalformed: the event contradicts the state, which must not be used any more. An event that Undo returned is ignored.
func (c *Core) Apply(seq uint64, e *Event) error {
	if e == c.undone { // Undo has applied it
		c.undone = nil
		return nil
	}
	if seq < c.next || seq > maxSeq-Seqs(e) {
		return fmt.Errorf("event of kind %d at seq %d, expected %d: %w", e.Kind, seq, c.next, ErrMalformed)
	}
	if e.Kind == KindAdded {
		e.Spans = []Span{{seq, e.Added.Count}}
	}
	if err := c.apply(seq, e); err != nil {
		return fmt.Errorf("event of kind %d at seq %d: %w", e.Kind, seq, err)
	}
	return nil
}

// SkipTo says that the seqs before seq, from NextSeq on, are no events of the queue: epoch and skip records.
func (c *Core) SkipTo(seq uint64) { c.next = max(c.next, seq) }

// Recovered ends the recovery at queue time now: all leases restart in full, messages that are moving get their Move effects,
// and the bodies of dead records are named again by Dead effects. If now is more than a day beyond the last stored time, the clock
// may have been set: expiry is then held back for a minute, with a Warning.
func (c *Core) Recovered(now int64) {
	c.now = max(now, c.lastAt)
	c.replaying = false
	c.said = evictions{producers: c.counts.producersEvicted, keys: c.counts.dedupEvicted}
	if gap := c.now - c.lastAt; c.lastAt > 0 && gap > clockStep {
		c.holdTill = c.now + holdExpiry
		c.effect(Warning{fmt.Sprintf("the clock is %v beyond the last stored time: nothing expires for %v, in case it was set",
			time.Duration(gap)*time.Millisecond, holdExpiry*time.Millisecond)})
	}
	c.said.producers, c.said.keys = c.counts.producersEvicted, c.counts.dedupEvicted // told before, or long ago
	c.restartLeases()
	c.keys.mix(c)
	c.reclaimAll()
	c.tick()
	c.finish()
}

// restartLeases lets all leases run in full from now. Nobody holds them, as far as is known: who does comes back by ResumeReceiver,
// or acknowledges by the receipt.
func (c *Core) restartLeases() {
	type run struct {
		lo, hi uint64
		f      flight
	}
	var all []run
	c.flights.Each(0, maxSeq, func(lo, hi uint64, f flight) bool {
		all = append(all, run{lo, hi, f})
		return true
	})
	for _, r := range all {
		c.flights.Cut(r.lo, r.hi, nil)
		r.f.deadline = c.now + c.visibility(r.f.visibility)
		c.flights.Set(r.lo, r.hi, r.f)
		c.leaseEnd.Add(c.now, r.f.deadline, r.lo, r.hi)
		if r.f.session != 0 {
			if c.orphans == nil {
				c.orphans = make(map[uint64]*seqset.Set)
			}
			if c.orphans[r.f.session] == nil {
				c.orphans[r.f.session] = &seqset.Set{}
			}
			c.orphans[r.f.session].AddRange(r.lo, r.hi)
		}
	}
}

// Stored says that the record of the seqs first…last is stored, live and on recovery (after its events were applied), with a
// body part of so many bytes. It must be called before the effects that waited for the record are carried out, and followed
// by Take: it may let senders go on, and find bodies that died before they were stored.
func (c *Core) Stored(first, last uint64, bodyBytes int) {
	c.stored = max(c.stored, last)
	n := 0
	for n < len(c.unstored) && c.unstored[n].seq <= last {
		n++
	}
	if c.unstored = c.unstored[n:]; len(c.unstored) == 0 {
		c.unstored = nil
	}
	if bodyBytes > 0 {
		b := uint32(min(bodyBytes, math.MaxUint32))
		for _, s := range c.snaps {
			if first <= s.seq {
				s.late = append(s.late, lateRecord{first, last, b})
			}
		}
		c.recordStored(first, last, b)
	}
	for len(c.snaps) > 0 && c.snaps[0].seq <= last {
		c.snaps = c.snaps[1:]
	}
	if c.replaying {
		return
	}
	if c.line.barred > 0 {
		c.admit()
		c.distribute()
	}
	c.flushDead()
}

// Undo undoes an Added or Relocated event whose bodies the store refused for lack of room (see persistent.Behavior.Refuse), and
// returns the event that is stored in its place. It is applied already. Its messages are gone, as if the send had been refused;
// credit that was used up by their hand-overs, which must not be carried out, is given back. It is used live
// and on recovery. It returns nil for events of other kinds: those have no bodies.
//
// Nothing else is decided by it: what becomes possible waits for Deadline. Take must have been called before.
func (c *Core) Undo(seq uint64, e *Event) *Event {
	if e.Kind != KindAdded && e.Kind != KindRelocated {
		return nil
	}
	u := &Event{Kind: KindUndone, At: max(c.now, c.lastAt), Spans: []Span{{seq, Seqs(e)}}}
	if a := e.Added; a != nil && !a.Producer.IsZero() {
		u.Producer, u.ProducerSeq = a.Producer, a.ProducerSeq-1
	}
	c.mustApply(c.next, u)
	c.again, c.undone = true, u
	return u
}

// applyUndone takes messages out as if they had never been sent.
func (c *Core) applyUndone(e *Event) {
	lo := e.Spans[0].Seq
	hi := lo + e.Spans[0].Count
	c.counts.sent -= c.live.Count(lo, hi)
	c.flights.Each(lo, hi, func(lo, hi uint64, f flight) bool {
		if r := c.receivers[f.receiver]; r != nil {
			r.used -= hi - lo
			r.usedBytes -= min(r.usedBytes, c.sizes.Sum(lo, hi))
			c.wake(r)
		}
		return true
	})
	for a, b := range c.live.Runs(lo, hi) {
		c.leave(a, b)
		c.gone(a, b)
	}
	if !e.Producer.IsZero() {
		if last, known := c.producers.Next(e.Producer.key()); known && last > e.ProducerSeq {
			c.producers.Load(e.Producer.key(), window.Entry{Last: e.ProducerSeq, At: e.At})
		}
	}
	c.dedup.forget(lo, hi)
	c.space.undo(lo)
}

// visibility returns a lease's length in ms.
func (c *Core) visibility(own int64) int64 {
	if own > 0 {
		return own
	}
	return c.cfg.VisibilityTimeout.Milliseconds()
}

// commonRuns calls f for the runs of a range that are in both sets. f may remove from either what it is given.
func commonRuns(a, b *seqset.Set, lo, hi uint64, f func(lo, hi uint64)) {
	if a.Len() == 0 || b.Len() == 0 {
		return
	}
	for {
		x, y, ok := seqset.NextCommonRun(a, b, lo, hi)
		if !ok {
			return
		}
		f(x, y)
		lo = y
	}
}
