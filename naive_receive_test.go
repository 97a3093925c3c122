package holdfast_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

type naiveReceiver struct {
	n         *naive
	cfg       holdfast.ReceiverConfig
	ev        holdfast.ReceiverEvents
	announces bool
	closed    bool
	ended     atomic.Bool

	messages, bytes   uint64
	usedMsgs, usedLen uint64
	holds             int
	most              int // it ever held
}

// OpenReceiver implements holdfast.Link.
func (n *naive) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	if e := n.openErr.Load(); e != nil {
		return nil, holdfast.ReceiverOpened{}, *e
	}
	r := &naiveReceiver{n: n, cfg: c, ev: ev, announces: c.Announces}
	done := make(chan holdfast.ReceiverOpened, 1)
	n.post(func() {
		o := holdfast.ReceiverOpened{StreamUID: n.uid, Epoch: n.epoch, Visibility: n.visibility}
		if c.Visibility != 0 {
			o.Visibility = c.Visibility
		}
		for _, s := range c.Held {
			for k := range s.Count {
				if m := n.leased(s.Lease+k, s.Seq+k); m != nil && m.r != nil && m.r.cfg.Session == c.Session {
					m.r.holds--
					m.r, m.deadline = r, time.Now().Add(o.Visibility)
					r.holds++
					o.Kept = append(o.Kept, queue.LeaseSpan{Lease: s.Lease + k, Seq: s.Seq + k, Count: 1})
				}
			}
		}
		for _, old := range n.receivers { // its connection has not been missed yet
			if !old.closed && !old.cfg.Unbound && old.cfg.Session == c.Session {
				if !old.ended.Swap(true) {
					n.after(func() { old.ev.Broken(fmt.Errorf("opened again: %w", holdfast.ErrClosed)) })
				}
				old.end(true)
			}
		}
		n.receivers = append(n.receivers, r)
		n.after(func() { done <- o })
	})
	select {
	case o := <-done:
		return r, o, nil
	case <-ctx.Done():
		r.Close(false)
		return nil, holdfast.ReceiverOpened{}, context.Cause(ctx)
	case <-n.stopped:
		return nil, holdfast.ReceiverOpened{}, holdfast.ErrClosed
	}
}

// leased returns the message if it is held under that lease.
func (n *naive) leased(lease, seq uint64) *naiveMsg {
	if seq < 1 || seq > uint64(len(n.msgs)) || n.msgs[seq-1].lease != lease {
		return nil
	}
	return &n.msgs[seq-1]
}

// hand hands out what is ready.
func (n *naive) hand() {
	for _, r := range n.receivers {
		if r.closed {
			continue
		}
		var runs []holdfast.Run
		for r.usedMsgs < r.messages {
			seq := n.next()
			if seq == 0 {
				break
			}
			m := &n.msgs[seq-1]
			size := uint64(m.to - m.from)
			if r.usedLen >= r.bytes || (r.usedLen+size > r.bytes && r.holds > 0) {
				break
			}
			n.take(seq)
			n.leases = append(n.leases, seq)
			m.lease, m.r, m.deadline = uint64(len(n.leases)), r, time.Now().Add(n.visibility)
			r.usedMsgs++
			r.usedLen += size
			r.holds++
			n.held++
			r.most = max(r.most, r.holds)
			if k := len(runs) - 1; k >= 0 {
				last := &runs[k]
				if last.Seq+last.Count == seq && m.attempt == 0 && last.Attempt == 1 && n.joins(seq) {
					last.Count++
					last.Data = last.Data[:len(last.Data)+m.to-m.from]
					continue
				}
			}
			runs = append(runs, holdfast.Run{
				Delivery: queue.Delivery{
					LeaseSpan: queue.LeaseSpan{Lease: m.lease, Seq: seq, Count: 1},
					Attempt:   m.attempt + 1, ConfirmStart: m.attempt > 0 && r.announces,
				},
				Data: m.frame[m.from:m.to],
			})
		}
		if len(runs) > 0 {
			n.after(func() { r.tell(func() { r.ev.Deliver(runs) }) })
		}
	}
}

// joins tells whether a message lies right behind the one before it in the same frame.
func (n *naive) joins(seq uint64) bool {
	m, prev := &n.msgs[seq-1], &n.msgs[seq-2]
	return len(prev.frame) > 0 && &prev.frame[0] == &m.frame[0] && prev.to == m.from
}

func (n *naive) next() uint64 {
	for len(n.retry) > 0 && (n.msgs[n.retry[0]-1].gone || n.msgs[n.retry[0]-1].lease != 0) {
		n.retry = n.retry[1:]
	}
	if len(n.retry) > 0 {
		return n.retry[0]
	}
	if n.fresh < len(n.msgs) {
		return uint64(n.fresh + 1)
	}
	return 0
}

func (n *naive) take(seq uint64) {
	if len(n.retry) > 0 && n.retry[0] == seq {
		n.retry = n.retry[1:]
	} else {
		n.fresh++
	}
}

func (r *naiveReceiver) tell(f func()) {
	if !r.ended.Load() {
		f()
	}
}

// Credit implements holdfast.ReceiverLink.
func (r *naiveReceiver) Credit(messages, bytes uint64) {
	if messages == 0 || bytes == 0 {
		r.n.t.Errorf("credit of %d messages and %d bytes", messages, bytes)
	}
	r.n.post(func() { r.messages, r.bytes = max(r.messages, messages), max(r.bytes, bytes) })
}

// each carries out f on each message of spans that is held, and answers.
func (r *naiveReceiver) each(spans []queue.LeaseSpan, reply holdfast.Outcomes, f func(seq uint64, m *naiveMsg)) {
	spans = slices.Clone(spans)
	r.n.post(func() {
		if r.closed {
			if reply != nil {
				r.n.after(func() { reply(nil, fmt.Errorf("settle: %w", holdfast.ErrClosed)) })
			}
			return
		}
		var bad []queue.Outcome
		for _, s := range spans {
			for k := range s.Count {
				if m := r.n.leased(s.Lease+k, s.Seq+k); m != nil {
					f(s.Seq+k, m)
					continue
				}
				o := queue.Outcome{LeaseSpan: queue.LeaseSpan{Lease: s.Lease + k, Seq: s.Seq + k, Count: 1}, Result: queue.AckLost}
				if r.n.msgs[s.Seq+k-1].gone {
					o.Result = queue.AckGone
				}
				bad = append(bad, o)
			}
		}
		r.n.roomy()
		if reply != nil {
			r.n.after(func() { reply(bad, nil) })
		}
	})
}

// Started implements holdfast.ReceiverLink.
func (r *naiveReceiver) Started(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.each(spans, reply, func(_ uint64, m *naiveMsg) { m.started = true })
}

// Ack implements holdfast.ReceiverLink.
func (r *naiveReceiver) Ack(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.each(spans, reply, func(_ uint64, m *naiveMsg) {
		if m.r != nil {
			m.r.holds--
		}
		m.gone, m.lease, m.r, m.frame = true, 0, nil, nil
		r.n.live--
		r.n.held--
	})
}

// Nack implements holdfast.ReceiverLink.
func (r *naiveReceiver) Nack(spans []queue.LeaseSpan, delay time.Duration, reply holdfast.Outcomes) {
	if delay < 0 {
		delay = r.n.retryDelay
	}
	r.each(spans, reply, func(seq uint64, _ *naiveMsg) { r.n.giveBack(seq, true, delay) })
}

// Release implements holdfast.ReceiverLink.
func (r *naiveReceiver) Release(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.each(spans, reply, func(seq uint64, _ *naiveMsg) { r.n.giveBack(seq, false, 0) })
}

// Extend implements holdfast.ReceiverLink.
func (r *naiveReceiver) Extend(spans []queue.LeaseSpan, by time.Duration, reply holdfast.Outcomes) {
	if by == 0 {
		by = r.n.visibility
	}
	r.each(spans, reply, func(_ uint64, m *naiveMsg) { m.deadline = time.Now().Add(by) })
}

// Close implements holdfast.ReceiverLink.
func (r *naiveReceiver) Close(clean bool) {
	r.ended.Store(true)
	r.n.post(func() { r.end(clean) })
}

func (r *naiveReceiver) end(clean bool) {
	if r.closed {
		return
	}
	r.closed = true
	if r.cfg.Unbound {
		return
	}
	for i := range r.n.msgs {
		m := &r.n.msgs[i]
		if m.r != r {
			continue
		}
		if clean || !m.started {
			r.n.giveBack(uint64(i+1), m.started && !clean, 0)
			continue
		}
		lease, seq := m.lease, uint64(i+1)
		time.AfterFunc(5*time.Second, func() {
			r.n.post(func() {
				if m := r.n.leased(lease, seq); m != nil && m.r == r {
					r.n.giveBack(seq, true, 0)
				}
			})
		})
	}
}

func bodyOf(span []byte) string {
	c := message.NewSpanCursor(span)
	raw, _ := c.Next()
	return string(raw.Body)
}

// breakAll ends all streams, as a lost connection does.
func (n *naive) breakAll(err error) {
	n.ask(func() {
		for _, s := range n.senders {
			if !s.closed {
				s.end(err)
			}
		}
		for _, r := range n.receivers {
			if !r.closed && !r.ended.Swap(true) {
				n.after(func() { r.ev.Broken(err) })
				r.end(false)
			}
		}
	})
}

// bodies returns the bodies of what is stored and not gone, in order.
func (n *naive) bodies() (out []string) {
	n.ask(func() {
		for i := range n.msgs {
			if m := &n.msgs[i]; !m.gone {
				out = append(out, bodyOf(m.frame[m.from:m.to]))
			}
		}
	})
	return out
}
