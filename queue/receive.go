package queue

import (
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// ReceiverOptions describe a receiver as it is opened.
type ReceiverOptions struct {
	// Announces tells that the receiver announces starts: what it was handed but did not start is given back uncounted.
	Announces bool
	// Unbound leases outlive the receiver: they end by their deadline alone.
	Unbound bool
	// Visibility replaces the queue's visibility timeout, in ms. 0 means the queue's; 1 s to 12 h.
	Visibility int64
	// Session tells the receiver from others across recoveries, 0 if nothing does. One that is opened under the session of leases
	// from before a recovery, and does not say that it holds them (ResumeReceiver), never got them, or has given them up: they are
	// given back at once. It means nothing where leases are unbound.
	Session uint64
}

// session is what leases of a receiver are stored with.
func (o *ReceiverOptions) session() uint64 {
	if o.Unbound {
		return 0
	}
	return o.Session
}

// receiver is an open receiver, or a lost one whose messages are not given back yet.
type receiver struct {
	id ReceiverID
	o  ReceiverOptions

	credit, used           uint64 // messages, both in all
	creditBytes, usedBytes uint64
	held                   seqset.Set // what it holds
	isolated               bool       // holds a message that is to be alone
	hungry                 bool       // is in Core.hungry

	lost  bool
	clean bool  // it was closed in good order: nothing is held against it
	until int64 // when its messages are given back, if lost
}

const (
	// maxGrant bounds the messages of one hand-over.
	maxGrant = 1 << 16
	// maxScan bounds the runs and blocked messages that one command comes across.
	maxScan = 1 << 15
)

// OpenReceiver opens a receiver, without credit, under a new id, one that was never used before. ErrOpen, or a FieldError for
// options out of range.
func (c *Core) OpenReceiver(now int64, id ReceiverID, o ReceiverOptions) error {
	if err := c.checkReceiver(id, o); err != nil {
		return fmt.Errorf("open receiver: %w", err)
	}
	c.begin(now)
	c.receivers[id] = &receiver{id: id, o: o}
	c.abandon(o.session())
	c.finish()
	return nil
}

func (c *Core) checkReceiver(id ReceiverID, o ReceiverOptions) error {
	if v := o.Visibility; v != 0 && (v < MinVisibility.Milliseconds() || v > MaxVisibility.Milliseconds()) {
		return &message.FieldError{Field: "visibility timeout", Fault: fmt.Sprintf("is %d ms", v), Limit: fmt.Sprintf("%v to %v", MinVisibility, MaxVisibility)}
	}
	switch {
	case id == 0:
		return &message.FieldError{Field: "receiver id", Fault: "is 0"}
	case c.receivers[id] != nil:
		return ErrOpen
	}
	return nil
}

// Credit says how many messages and bytes (of attributes and bodies) the receiver has been willing to take in all since it was
// opened. Totals below earlier ones are taken for those. A message larger than the bytes that are left is handed out nevertheless if some
// are left and the receiver holds nothing, so that it cannot starve.
func (c *Core) Credit(now int64, id ReceiverID, messages, bytes uint64) error {
	r := c.receivers[id]
	if r == nil || r.lost {
		return fmt.Errorf("credit: %w", ErrUnknownReceiver)
	}
	c.begin(now)
	r.credit = max(r.credit, messages)
	r.creditBytes = max(r.creditBytes, bytes)
	c.wake(r)
	c.finish()
	return nil
}

// able tells whether a receiver can be handed anything at present.
func (c *Core) able(r *receiver) bool {
	return !r.lost && r.used < r.credit && r.usedBytes < r.creditBytes && !r.isolated && (r != c.reserved || r.held.Len() == 0)
}

// wake puts a receiver among those that are handed messages, if it is able.
func (c *Core) wake(r *receiver) {
	if !r.hungry && c.able(r) {
		r.hungry = true
		c.hungry = append(c.hungry, r)
	}
}

// distribute hands out ready messages, to the receivers in turn (design §7, Receivers).
func (c *Core) distribute() {
	if c.paused || c.replaying || len(c.hungry) == 0 {
		return
	}
	scan := maxScan // what may be come across, spans that are handed out included
	for idle := 0; idle < len(c.hungry); {
		ready := c.readyLen()
		if ready == 0 {
			break
		}
		if scan <= 0 {
			break
		}
		c.turn %= len(c.hungry)
		r := c.hungry[c.turn]
		if !c.able(r) {
			r.hungry = false
			c.hungry = slices.Delete(c.hungry, c.turn, c.turn+1)
			continue
		}
		n := uint64(len(c.hungry))
		if c.grant(r, min((ready+n-1)/n, r.credit-r.used, maxGrant), &scan) {
			idle = 0
		} else {
			idle++
		}
		c.turn++
	}
	c.again = c.again || scan <= 0
	if c.reserved != nil && !c.readyIsolated() {
		r := c.reserved
		c.reserved = nil
		c.wake(r)
	}
}

// readyIsolated tells whether a message that is handed out alone is ready.
func (c *Core) readyIsolated() bool {
	for p := range c.ready {
		if _, _, ok := seqset.NextCommonRun(&c.isolated, &c.ready[p], 0, maxSeq); ok {
			return true
		}
	}
	return false
}

// grant hands a receiver up to n messages, and tells whether there were any.
func (c *Core) grant(r *receiver, n uint64, scan *int) bool {
	c.scratch.spans = c.scratch.spans[:0]
	clear(c.scratch.picked)
	k := picking{c: c, r: r, left: n, bytes: r.creditBytes - r.usedBytes, scan: scan}
	for p := maxPriority; p >= 0 && !k.done; p-- {
		k.from(p)
	}
	spans := c.scratch.spans
	if len(spans) == 0 {
		return false
	}
	*scan -= len(spans)
	c.grantee, c.scratch.runs = r, c.scratch.runs[:0]
	c.emit(Event{Kind: KindLeased, Spans: slices.Clone(spans), Lease: c.nextLease, Announces: r.o.Announces, Visibility: r.o.Visibility, Session: r.o.session()})
	c.grantee = nil
	c.effect(Deliver{r.id, slices.Clone(c.scratch.runs)})
	return true
}

// picking is the choice of messages for one hand-over.
type picking struct {
	c     *Core
	r     *receiver
	left  uint64 // messages
	bytes uint64
	scan  *int // blocked messages that may still be come across
	done  bool
}

// from picks messages from a ready set, in order.
func (k *picking) from(p int) {
	c := k.c
	for at := uint64(0); !k.done; {
		if k.left == 0 || *k.scan <= 0 {
			k.done = true
			return
		}
		lo, hi, ok := c.ready[p].NextRun(at, maxSeq)
		if !ok {
			return
		}
		hi = min(hi, lo+k.left)
		if plain := c.plain(lo, hi); plain > lo {
			at = k.take(lo, plain)
			continue
		}
		at = lo + 1
		if c.keys.keyed.Contains(lo) && !c.keys.claim(c, p, lo, c.scratch.picked) {
			*k.scan--
			continue
		}
		if c.isolated.Contains(lo) {
			k.alone(lo)
			continue
		}
		k.take(lo, lo+1)
	}
}

// plain returns the end of the messages from lo on that can be picked without looking at each.
func (c *Core) plain(lo, hi uint64) uint64 {
	for _, s := range [...]*seqset.Set{&c.keys.keyed, &c.isolated} {
		if s.Len() > 0 {
			if x, _, ok := s.NextRun(lo, hi); ok {
				hi = x
			}
		}
	}
	return hi
}

// take picks messages as far as the receiver's bytes allow, and returns where it ended.
func (k *picking) take(lo, hi uint64) uint64 {
	c := k.c
	n, sum := c.sizes.Fit(lo, hi, k.bytes)
	if n < hi-lo {
		k.done = true
		if n == 0 && (len(c.scratch.spans) > 0 || k.r.held.Len() > 0) {
			return lo
		}
		if n == 0 { // larger than all of its bytes: better than never
			n, sum = 1, k.bytes
		}
	}
	k.bytes -= sum
	k.left -= n
	if s := len(c.scratch.spans); s > 0 && c.scratch.spans[s-1].Seq+c.scratch.spans[s-1].Count == lo {
		c.scratch.spans[s-1].Count += n
	} else {
		c.scratch.spans = append(c.scratch.spans, Span{lo, n})
		k.done = k.done || len(c.scratch.spans) >= maxSpans
	}
	k.done = k.done || k.left == 0 || k.bytes == 0
	return lo + n
}

// alone picks a message that is handed out alone, if the receiver holds nothing. Otherwise it is set apart for the message, unless another
// one is, and gets nothing more until it holds nothing. Where leases outlive the receiver, nothing tells whether it was lost, and alone
// says nothing.
func (k *picking) alone(x uint64) {
	c := k.c
	switch {
	case k.r.o.Unbound:
		k.take(x, x+1)
	case len(c.scratch.spans) == 0 && k.r.held.Len() == 0:
		k.take(x, x+1)
		k.done = true
		if c.reserved != nil {
			r := c.reserved
			c.reserved = nil
			c.wake(r)
		}
	case c.reserved == nil:
		c.reserved, k.done = k.r, true
	}
}
