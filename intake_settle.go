package holdfast

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

const (
	// smallOps is how many settlements are on their way at most before more are gathered first: batches grow by
	// themselves with the time that the broker takes to answer.
	smallOps = 4
	// largeOp is the number of messages from which a settlement is sent however many are on their way.
	largeOp = 2048
	// maxOpSpans bounds the spans of one settlement.
	maxOpSpans = 8192
	// resettle is the pause before a settlement is repeated that the broker could not carry out.
	resettle = 200 * time.Millisecond
)

// settleKind is what is done with messages.
type settleKind uint8

const (
	settleAck settleKind = iota + 1
	settleNack
	settleRelease
	settleExtend
)

func (k settleKind) String() string {
	return [...]string{"", "acknowledge", "give back", "release", "extend"}[k]
}

// settling is one settlement of some messages, repeated until it is answered.
type settling struct {
	kind    settleKind
	delay   time.Duration
	spans   []queue.LeaseSpan
	n       int
	sent    *intakeStream // on which it waits for its answer; nil while it is to be sent
	retryAt time.Time

	done chan struct{} // closed with the answer; nil while nobody waits
	bad  []queue.Outcome
	err  error
}

// count returns the number of messages that the broker holds for the receiver until it has the settlement.
func (op *settling) count() int {
	if op.kind == settleExtend {
		return 0
	}
	return op.n
}

// add appends a span, joined with the last one if it goes on where that ends.
func (op *settling) add(s queue.LeaseSpan) {
	op.n += int(s.Count)
	if k := len(op.spans) - 1; k >= 0 {
		last := &op.spans[k]
		if last.Lease+last.Count == s.Lease && last.Seq+last.Count == s.Seq {
			last.Count += s.Count
			return
		}
	}
	op.spans = append(op.spans, s)
}

// merge puts the spans of several workers in order and joins them.
func (op *settling) merge() {
	if len(op.spans) < 2 {
		return
	}
	slices.SortFunc(op.spans, func(a, b queue.LeaseSpan) int { return cmp.Compare(a.Lease, b.Lease) })
	out := op.spans[:1]
	for _, s := range op.spans[1:] {
		last := &out[len(out)-1]
		if last.Lease+last.Count == s.Lease && last.Seq+last.Count == s.Seq {
			last.Count += s.Count
		} else {
			out = append(out, s)
		}
	}
	op.spans = out
}

// answer ends the wait for the answer. Under the intake's lock.
func (op *settling) answer(err error) {
	op.err = err
	if op.done != nil {
		close(op.done)
		op.done = nil
	}
}

// settle marks messages from…to-1 of a block as done and has the broker told. It returns the settlement that the messages
// are part of, nil if there was nothing left to settle.
func (c *intake) settle(b *block, from, to int, kind settleKind, delay time.Duration) *settling {
	if c.err != nil {
		c.markDone(b, from, to)
		return nil
	}
	if !b.touched.Load() { // none of them is done
		op := c.openOp(kind, delay)
		op.add(b.span(from, to))
		c.unsent += c.markDone(b, from, to)
		return op
	}
	var op *settling
	for _, s := range b.open(nil, from, to) {
		if op == nil {
			op = c.openOp(kind, delay)
		}
		op.add(s)
	}
	c.unsent += c.markDone(b, from, to)
	return op
}

// open returns the leases of messages from…to-1 of a block that are not done.
func (c *intake) open(b *block, from, to int) []queue.LeaseSpan {
	if !b.touched.Load() {
		return []queue.LeaseSpan{b.span(from, to)}
	}
	return b.open(nil, from, to)
}

// openOp returns the settlement that takes more messages of this kind.
func (c *intake) openOp(kind settleKind, delay time.Duration) *settling {
	for _, op := range c.openOps {
		if op.kind == kind && op.delay == delay && len(op.spans) < maxOpSpans {
			return op
		}
	}
	op := &settling{kind: kind, delay: delay}
	c.ops = append(c.ops, op)
	c.openOps = append(c.openOps, op)
	return op
}

// settleNext sends a settlement, and reports whether it did, giving the lock away.
func (c *intake) settleNext(st *intakeStream) bool {
	for _, op := range c.ops {
		if op.sent != nil || (!op.retryAt.IsZero() && time.Until(op.retryAt) > 0) {
			continue
		}
		if c.answering >= smallOps && op.n < largeOp && op.kind == settleAck {
			continue
		}
		if k := slices.Index(c.openOps, op); k >= 0 {
			c.openOps = slices.Delete(c.openOps, k, k+1)
			op.merge()
		}
		op.sent = st
		c.unsent -= op.count()
		c.answering++
		reply := func(outcomes []queue.Outcome, err error) { c.settled(op, st, outcomes, err) }
		c.mu.Unlock()
		switch op.kind {
		case settleAck:
			st.link.Ack(op.spans, reply)
		case settleNack:
			st.link.Nack(op.spans, op.delay, reply)
		case settleRelease:
			st.link.Release(op.spans, reply)
		case settleExtend:
			st.link.Extend(op.spans, op.delay, reply)
		}
		c.mu.Lock()
		return true
	}
	return false
}

// settled takes the answer to a settlement.
func (c *intake) settled(op *settling, st *intakeStream, outcomes []queue.Outcome, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if op.sent != st { // a later stream asks again
		return
	}
	op.sent = nil
	c.answering--
	var field *message.FieldError
	if err != nil && !errors.As(err, &field) {
		// It may have been carried out; asking again does no harm.
		c.unsent += op.count()
		op.retryAt = time.Now().Add(resettle)
		c.kick()
		return
	}
	k := slices.Index(c.ops, op)
	if k < 0 {
		return
	}
	c.ops = slices.Delete(c.ops, k, k+1)
	if err != nil {
		c.log.Error("the broker refused a settlement", "what", op.kind, "error", err)
	}
	lost := 0
	for _, o := range outcomes {
		if o.Result != queue.AckDone {
			op.bad = append(op.bad, o)
		}
		if o.Result == queue.AckLost {
			lost += int(o.Count)
		}
	}
	switch op.kind {
	case settleAck:
		c.stats.Acked += uint64(op.n - lost)
		c.stats.LateAcks += uint64(lost)
		if lost > 0 {
			c.log.Debug("acknowledged too late: the messages will be, or were, handed to somebody else", "count", lost)
		}
	case settleExtend:
		c.extended(op.bad)
	}
	op.answer(err)
	c.kick()
}

// result returns what became of one message of an answered settlement.
func (op *settling) result(s queue.LeaseSpan) error {
	if op.err != nil {
		return op.err
	}
	for _, o := range op.bad {
		if s.Lease >= o.Lease && s.Lease < o.Lease+o.Count && (o.Result == queue.AckLost || op.kind == settleExtend) {
			return ErrLeaseLost
		}
	}
	return nil
}

// heldSpans returns the leases of all that is held, and of all whose settlement is not answered, in order.
func (c *intake) heldSpans() []queue.LeaseSpan {
	var op settling
	for b := c.held.head; b != nil; b = b.next {
		for _, s := range b.open(nil, 0, b.n) {
			op.add(s)
		}
	}
	for _, o := range c.ops {
		if o.kind != settleExtend {
			op.spans = append(op.spans, o.spans...)
		}
	}
	op.merge()
	return op.spans
}

// renew extends the leases that have used up a third of their time, and reports whether it did, giving the lock away. Otherwise it
// returns when to look again.
func (c *intake) renew(st *intakeStream) (wait time.Duration, did bool) {
	now := time.Now()
	for _, op := range c.ops {
		if op.sent == nil && !op.retryAt.IsZero() {
			wait = shorter(wait, op.retryAt.Sub(now))
		}
	}
	var spans settling
	for b := c.held.head; b != nil; b = b.next {
		if b.final {
			continue
		}
		if now.Sub(b.since) >= c.renewal {
			b.final = true
			c.log.Warn("leases are not renewed any longer", "seq", b.seq, "count", b.left, "held for", now.Sub(b.since))
			continue
		}
		if left := b.renewed.Add(c.visibility / 3).Sub(now); left > 0 {
			wait = shorter(wait, left)
			continue
		}
		b.renewed = now
		for _, s := range b.open(nil, 0, b.n) {
			spans.add(s)
		}
	}
	if len(spans.spans) == 0 {
		return wait, false
	}
	c.stats.Renewals += uint64(spans.n)
	c.mu.Unlock()
	st.link.Extend(spans.spans, 0, func(outcomes []queue.Outcome, err error) {
		// With an error nothing is known: the next renewal, or the next stream, tells.
		if err == nil && outcomes != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.extended(outcomes)
		}
	})
	c.mu.Lock()
	return 0, true
}

// extended gives up what could not be renewed.
func (c *intake) extended(outcomes []queue.Outcome) {
	for _, o := range outcomes {
		if o.Result != queue.AckDone {
			c.loseLeases([]queue.LeaseSpan{o.LeaseSpan}, "not renewed")
			c.kick()
		}
	}
}

// offline returns when to look again while there is no stream. What could not be renewed in time is given up: somebody
// else may have it by now.
func (c *intake) offline() (wait time.Duration) {
	now := time.Now()
	wait = max(c.retryAt.Sub(now), time.Millisecond)
	if c.config.Unbound || c.visibility == 0 {
		return wait
	}
	for b := c.held.head; b != nil; {
		next := b.next
		if left := b.renewed.Add(c.visibility).Sub(now); left > 0 {
			wait = shorter(wait, left)
		} else {
			c.loseSpan(b, 0, b.n, "could not be renewed")
		}
		b = next
	}
	return wait
}

// shorter is the shorter of two waits, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if b <= 0 {
		b = time.Millisecond
	}
	if a == 0 || b < a {
		return b
	}
	return a
}
