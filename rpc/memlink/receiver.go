package memlink

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// receiver implements holdfast.ReceiverLink.
type receiver struct {
	q               *memory
	c               holdfast.ReceiverConfig
	ev              holdfast.ReceiverEvents
	over            bool
	messages, bytes uint64 // credit
	got, gotBytes   uint64
}

// OpenReceiver implements holdfast.Link.
func (l *Link) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	if err := l.opening(ctx, name); err != nil {
		return nil, holdfast.ReceiverOpened{}, err
	}
	r := &receiver{c: c, ev: ev}
	var o holdfast.ReceiverOpened
	l.do(func() {
		q := l.queue(name)
		r.q = q
		q.receivers = append(q.receivers, r)
		l.open++
		o = holdfast.ReceiverOpened{StreamUID: q.uid, Epoch: 1, Visibility: c.Visibility}
		if c.Visibility == 0 {
			o.Visibility = visibility
		}
		for _, m := range q.messages {
			if m.session == c.Session && c.Session != [16]byte{} && within(c.Held, m) {
				m.holder, m.session = r, [16]byte{}
				o.Kept = append(o.Kept, queue.LeaseSpan{Lease: m.lease, Seq: m.seq, Count: 1})
			}
		}
	})
	return r, o, nil
}

func within(spans []queue.LeaseSpan, m *stored) bool {
	return slices.ContainsFunc(spans, func(s queue.LeaseSpan) bool {
		return m.seq >= s.Seq && m.seq-s.Seq < s.Count && m.lease == s.Lease+m.seq-s.Seq
	})
}

// hand gives ready messages to receivers with credit, each in runs of consecutive ones.
func (q *memory) hand() {
	for _, r := range slices.Clone(q.receivers) {
		var runs []holdfast.Run
		for _, m := range q.messages {
			if m.holder != nil || m.session != [16]byte{} {
				continue
			}
			if r.got >= r.messages || r.gotBytes+uint64(m.size) > r.bytes {
				break
			}
			m.holder, m.lease = r, q.lease
			m.attempts++
			q.lease++
			r.got++
			r.gotBytes += uint64(m.size)
			if n := len(runs); n > 0 && runs[n-1].Seq+runs[n-1].Count == m.seq && runs[n-1].Attempt == m.attempts {
				runs[n-1].Count++
				runs[n-1].Data = append(slices.Clip(runs[n-1].Data), m.data...)
				continue
			}
			runs = append(runs, holdfast.Run{
				Delivery: queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: m.lease, Seq: m.seq, Count: 1}, Attempt: m.attempts, ConfirmStart: m.attempts > 1},
				Data:     m.data,
			})
		}
		if len(runs) > 0 {
			r.ev.Deliver(runs)
		}
	}
}

// Credit implements holdfast.ReceiverLink.
func (r *receiver) Credit(messages, bytes uint64) {
	r.q.l.post(func() {
		r.messages, r.bytes = max(r.messages, messages), max(r.bytes, bytes)
		r.q.hand()
	})
}

// settle does f with each message of the spans that is leased under them, and answers.
func (r *receiver) settle(spans []queue.LeaseSpan, reply holdfast.Outcomes, f func(m *stored)) {
	r.q.l.post(func() {
		var out []queue.Outcome
		all := true
		for _, s := range spans {
			for i := range s.Count {
				o := queue.Outcome{LeaseSpan: queue.LeaseSpan{Lease: s.Lease + i, Seq: s.Seq + i, Count: 1}}
				at := slices.IndexFunc(r.q.messages, func(m *stored) bool { return m.seq == o.Seq })
				switch {
				case at < 0:
					o.Result = queue.AckGone
				case r.q.messages[at].holder == nil || r.q.messages[at].lease != o.Lease:
					o.Result = queue.AckLost
				default:
					f(r.q.messages[at])
				}
				all = all && o.Result == queue.AckDone
				out = append(out, o)
			}
		}
		if all {
			out = nil
		}
		if reply != nil {
			reply(out, nil)
		}
		r.q.hand()
	})
}

// Started implements holdfast.ReceiverLink.
func (r *receiver) Started(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(spans, reply, func(*stored) {})
}

// Ack implements holdfast.ReceiverLink.
func (r *receiver) Ack(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(spans, reply, func(m *stored) {
		r.q.messages = slices.DeleteFunc(r.q.messages, func(x *stored) bool { return x == m })
	})
}

// Nack implements holdfast.ReceiverLink. The delay does not matter.
func (r *receiver) Nack(spans []queue.LeaseSpan, _ time.Duration, reply holdfast.Outcomes) {
	r.settle(spans, reply, func(m *stored) { m.holder = nil })
}

// Release implements holdfast.ReceiverLink.
func (r *receiver) Release(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(spans, reply, func(m *stored) { m.holder = nil; m.attempts-- })
}

// Extend implements holdfast.ReceiverLink.
func (r *receiver) Extend(spans []queue.LeaseSpan, _ time.Duration, reply holdfast.Outcomes) {
	r.settle(spans, reply, func(*stored) {})
}

// Close implements holdfast.ReceiverLink. The messages of a receiver with a session wait for it to come back, for good.
func (r *receiver) Close(clean bool) {
	r.q.l.post(func() { r.end(!clean) })
}

func (r *receiver) end(hold bool) {
	if r.over {
		return
	}
	r.over = true
	r.q.l.open--
	r.q.receivers = slices.DeleteFunc(r.q.receivers, func(x *receiver) bool { return x == r })
	for _, m := range r.q.messages {
		if m.holder != r {
			continue
		}
		m.holder = nil
		if hold {
			m.session = r.c.Session
		}
	}
	r.q.hand()
}
