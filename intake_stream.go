package holdfast

import (
	"errors"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// intakeStream is one stream of an intake; it takes the link's events, which mean nothing any more once the intake has
// another stream. Its fields are under the intake's lock, but for those that never change.
type intakeStream struct {
	c     *intake
	link  ReceiverLink
	uid   [16]byte
	epoch uint64
	err   error         // why it broke
	gone  chan struct{} // closed when the intake does not use it any more

	since           time.Time
	messages, bytes uint64 // credit given
	delivered       uint64 // messages that came
	freed           uint64 // bytes of them that are settled

	// asked is the credit in messages that was given at askedAt, when the workers had found nothing to do. See starved.
	asked   uint64
	askedAt time.Time
}

// isGone tells whether the intake does not use the stream any more.
func (st *intakeStream) isGone() bool {
	select {
	case <-st.gone:
		return true
	default:
		return false
	}
}

// drop ends the use of the stream.
func (c *intake) drop() {
	if c.stream != nil {
		close(c.stream.gone)
		c.stream = nil
		c.online.Store(false)
	}
}

// Deliver implements ReceiverEvents.
func (st *intakeStream) Deliver(runs []Run) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != st {
		return
	}
	now := time.Now()
	if c.held.head == nil {
		c.kick() // there is something to renew
	}
	for i := range runs {
		r := &runs[i]
		n := int(r.Count)
		if n == 0 {
			continue
		}
		b := &block{
			lease: r.Lease, seq: r.Seq, n: n, attempt: r.Attempt, confirm: r.ConfirmStart, stream: st,
			done: newBitset(n), left: n, since: now, renewed: now, final: c.renewal < 0,
		}
		c.held.push(b)
		c.holds += n
		st.delivered += uint64(n)
		c.stats.Received += uint64(n)
		c.waiting.push(portion{b: b, to: n, cur: message.NewSpanCursor(r.Data)})
	}
	c.backoff.reset()
	if c.stopping {
		c.stop()
		return
	}
	c.wakeWorkers()
	c.arrivedNow()
}

// wakeWorkers wakes as many waiting workers as there may be work for.
func (c *intake) wakeWorkers() {
	if c.waiting.n >= len(c.workers) {
		c.cond.Broadcast()
		return
	}
	for range c.waiting.n {
		c.cond.Signal()
	}
}

// Lost implements ReceiverEvents.
func (st *intakeStream) Lost(spans []queue.LeaseSpan, reason string) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == st {
		c.loseLeases(spans, reason)
		c.kick()
	}
}

// Broken implements ReceiverEvents.
func (st *intakeStream) Broken(err error) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err == nil {
		st.err = err
	}
	if c.stream != st {
		return
	}
	if errors.Is(err, ErrNoQueue) {
		c.deleted()
		return
	}
	if time.Since(st.since) > retryCap {
		c.backoff.reset()
	}
	c.drop()
	c.lose(err)
	c.log.Debug("receiver's stream broke", "error", err, "held", c.holds)
	for _, op := range c.ops {
		if op.sent != nil {
			c.unsent += op.count()
			op.sent = nil
		}
	}
	c.answering = 0
	if !c.config.Unbound {
		// The broker takes back what was not started; what was is asked for again. Another broker, which takes over from one that
		// died, cannot know what was started, and is told.
		var again portions
		for _, w := range c.workers {
			if p := w.cut(maxSlice); p.from < p.to {
				again.push(p)
			}
		}
		for p := c.waiting.first(); p != nil; p = c.waiting.first() {
			one := c.waiting.take(p.to - p.from)
			if one.announced {
				again.push(one)
			} else {
				if len(c.unbegun) < maxOpSpans {
					c.unbegun = append(c.unbegun, c.open(one.b, one.from, one.to)...)
				}
				c.loseSpan(one.b, one.from, one.to, lostGivenBack)
			}
		}
		c.waiting = again
	}
	c.cond.Broadcast()
	c.kick()
}

// deleted ends the intake when its queue was deleted, and with it all that is held.
func (c *intake) deleted() {
	c.drop()
	c.log.Warn("the queue was deleted")
	for b := c.held.head; b != nil; {
		next := b.next
		c.loseSpan(b, 0, b.n, "queue deleted")
		b = next
	}
	c.fail(ErrDeleted)
	c.cond.Broadcast()
	c.kick()
}

// lostGivenBack is the reason of messages that nobody had begun with.
const lostGivenBack = "given back"

// loseLeases marks messages as lost and cancels their handlers.
func (c *intake) loseLeases(spans []queue.LeaseSpan, reason string) {
	for b := c.held.head; b != nil; {
		next := b.next
		for _, s := range spans {
			if from, to := b.within(s); from < to {
				c.loseSpan(b, from, to, reason)
			}
		}
		b = next
	}
}

// loseSpan marks messages from…to-1 of a block as lost, those that are not done, and cancels their handlers.
func (c *intake) loseSpan(b *block, from, to int, reason string) {
	if from >= to {
		return
	}
	b.touched.Store(true)
	if c.onLost != nil && reason != lostGivenBack {
		for _, s := range b.open(nil, from, to) {
			for i := range s.Count {
				c.onLost(Receipt{Stream: b.stream.uid, Epoch: b.stream.epoch, Lease: s.Lease + i, Seq: s.Seq + i})
			}
		}
	}
	n := c.markDone(b, from, to)
	if n == 0 {
		return
	}
	if reason != lostGivenBack {
		c.stats.Lost += uint64(n)
		c.log.Debug("leases lost", "reason", reason, "seq", b.seq+uint64(from), "count", n)
	}
	// A worker shows what it is about to begin with before it looks whether that is done; so one of both sees the other.
	for _, w := range c.workers {
		w.cancel(b, from, to, reason)
	}
}

// markDone marks messages as settled or lost and returns how many were not before.
func (c *intake) markDone(b *block, from, to int) int {
	n := b.done.set(from, to)
	if n == 0 {
		return 0
	}
	c.holds -= n
	if b.left -= n; b.left == 0 {
		c.held.remove(b)
	}
	return n
}

// giveCredit gives the credit that is due, and reports whether it did, giving the lock away.
func (c *intake) giveCredit(st *intakeStream) bool {
	if c.stopping {
		return false
	}
	messages, bytes := st.messages, st.bytes
	if c.pull {
		if need := c.demand - c.waiting.n; need > 0 {
			messages = max(messages, st.delivered+uint64(need))
		}
	} else if target := int64(st.delivered) + int64(c.window) - int64(c.holds) - int64(c.unsent); target > int64(messages) {
		// Not for every message: an eighth of the window at a time, or of a small one up to four, unless that is what the receiver waits for.
		if target-int64(messages) >= int64(max(c.window/8, min(c.window/2, 4))) || messages == st.delivered {
			messages = uint64(target)
		}
	}
	if messages == 0 {
		return false
	}
	if target := st.freed + uint64(c.maxHeld); messages > st.messages || target-bytes >= uint64(c.maxHeld/8) {
		bytes = max(bytes, target)
	}
	if messages == st.messages && bytes == st.bytes {
		return false
	}
	st.messages, st.bytes = messages, bytes
	c.mu.Unlock()
	st.link.Credit(messages, bytes)
	c.mu.Lock()
	return true
}

// flowTime is how long a window should keep the workers busy: what the broker needs for an answer when it reads messages from storage, and much
// less than anybody would call hoarding.
const flowTime = 50 * time.Millisecond

// starved widens the window of a consumer whose workers find nothing to do although the broker may have more: it has handed over
// most of what it may, or it did hand over all that it might a moment ago, so that the window is less than it can do in that time.
func (c *intake) starved() {
	st := c.stream
	if st == nil || c.window >= c.capWindow || c.stopping {
		return
	}
	if st.messages-st.delivered > uint64(c.window/4) {
		if st.delivered < st.asked {
			return
		}
		now := time.Now()
		soon := st.asked > 0 && now.Sub(st.askedAt) < flowTime
		st.asked, st.askedAt = st.messages, now
		if !soon {
			return
		}
	}
	c.window = min(2*c.window, c.capWindow)
	c.kick()
}

// stale narrows it if messages wait for long, and gives back what is beyond it: others may have time for that.
func (c *intake) stale(since time.Time) {
	if c.window == c.minWindow {
		return
	}
	now := time.Now()
	if now.Sub(since) < time.Second || now.Sub(c.shrunk) < time.Second {
		return
	}
	c.shrunk = now
	c.window = max(c.window/2, c.minWindow)
	for c.waiting.n > c.window && c.stream != nil {
		p := c.waiting.cut(c.waiting.n - c.window)
		c.settle(p.b, p.from, p.to, settleRelease, 0)
		if p.b.stream == c.stream {
			c.stream.freed += uint64(p.size())
		}
		c.kick()
	}
}

// arrivedNow wakes those who wait for messages with a context.
func (c *intake) arrivedNow() {
	if c.watched {
		close(c.arrived)
		c.arrived, c.watched = make(chan struct{}), false
	}
}
