package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// receiverStream is a receiver's stream at the client.
type receiverStream struct {
	*answer
	cn *conn
	id uint32
	ev holdfast.ReceiverEvents

	o         holdfast.ReceiverOpened // set before the stream is open
	credit    atomic.Uint64           // messages, given so far
	delivered uint64                  // messages, of the reading goroutine alone
}

// OpenReceiver implements holdfast.Link.
func (c *Client) OpenReceiver(ctx context.Context, name string, cfg holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	var st *receiverStream
	err := queue.ValidName(name)
	if err == nil {
		m := wire.OpenReceiver{
			Queue: name, Session: cfg.Session, Announces: cfg.Announces, Unbound: cfg.Unbound, Visibility: cfg.Visibility,
			// What does not fit is not asked for, and hence not kept.
			Held: cfg.Held[:min(len(cfg.Held), wire.MaxSpans)],
		}
		_, err = c.open(ctx, name, func(cn *conn, id uint32) (stream, *answer) {
			st = &receiverStream{answer: newAnswer(), cn: cn, id: id, ev: ev}
			return st, st.answer
		}, func(b []byte, id uint32) []byte {
			m.Seen = c.lastSeen(name)
			return wire.AppendOpenReceiver(b, id, &m)
		})
	}
	if err != nil {
		return nil, holdfast.ReceiverOpened{}, doing(err, "open receiver from queue %q", name)
	}
	c.saw(name, wire.Seen{StreamUID: st.o.StreamUID, Epoch: st.o.Epoch})
	return st, st.o, nil
}

// Credit implements holdfast.ReceiverLink.
func (st *receiverStream) Credit(messages, bytes uint64) {
	if st.over.Load() || messages == 0 && bytes == 0 {
		return
	}
	for have := st.credit.Load(); messages > have && !st.credit.CompareAndSwap(have, messages); have = st.credit.Load() {
	}
	t := st.cn.t
	t.End(wire.AppendCredit(t.Begin(), st.id, wire.Credit{Messages: messages, Bytes: bytes}))
}

// Started implements holdfast.ReceiverLink.
func (st *receiverStream) Started(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	st.command(wire.TypeStarted, spans, 0, reply)
}

// Ack implements holdfast.ReceiverLink.
func (st *receiverStream) Ack(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	st.command(wire.TypeAck, spans, 0, reply)
}

// Nack implements holdfast.ReceiverLink.
func (st *receiverStream) Nack(spans []queue.LeaseSpan, delay time.Duration, reply holdfast.Outcomes) {
	st.command(wire.TypeNack, spans, delay, reply)
}

// Release implements holdfast.ReceiverLink.
func (st *receiverStream) Release(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	st.command(wire.TypeRelease, spans, 0, reply)
}

// Extend implements holdfast.ReceiverLink.
func (st *receiverStream) Extend(spans []queue.LeaseSpan, by time.Duration, reply holdfast.Outcomes) {
	st.command(wire.TypeExtend, spans, by, reply)
}

// Close implements holdfast.ReceiverLink.
func (st *receiverStream) Close(clean bool) {
	st.abandon()
	st.cn.close(st.id, clean)
}

// command sends a command, in several frames if it is long.
func (st *receiverStream) command(typ wire.Type, spans []queue.LeaseSpan, delay time.Duration, fn holdfast.Outcomes) {
	if len(spans) > wire.MaxSpans && fn != nil {
		fn = joinOutcomes(spans, fn)
	}
	for first := true; first || len(spans) > 0; first = false {
		part := spans[:min(len(spans), wire.MaxSpans)]
		spans = spans[len(part):]
		m := wire.Command{Type: typ, Delay: delay, Spans: part}
		if fn != nil {
			if m.Token = st.cn.expect(&reply{stream: st.id, fn: fn}); m.Token == 0 {
				// Not from here: the caller may hold what the answer needs.
				go fn(nil, st.cn.gone())
				continue
			}
		} else if st.over.Load() {
			return
		}
		t := st.cn.t
		t.End(wire.AppendCommand(t.Begin(), st.id, &m))
	}
}

// joinOutcomes returns what each frame of a long command is to be answered to; fn gets it all together. The answers come in
// the order of the frames, or with an error.
func joinOutcomes(spans []queue.LeaseSpan, fn holdfast.Outcomes) holdfast.Outcomes {
	var mu sync.Mutex
	var all []queue.Outcome
	var failed error
	exact := false // any frame has outcomes of its own
	left := (len(spans) + wire.MaxSpans - 1) / wire.MaxSpans
	return func(outcomes []queue.Outcome, err error) {
		mu.Lock()
		if err != nil && failed == nil {
			failed = err
		}
		if exact = exact || outcomes != nil; outcomes == nil {
			for _, s := range spans[:min(len(spans), wire.MaxSpans)] {
				outcomes = append(outcomes, queue.Outcome{LeaseSpan: s, Result: queue.AckDone})
			}
		}
		all = append(all, outcomes...)
		spans = spans[min(len(spans), wire.MaxSpans):]
		left--
		last := left == 0
		mu.Unlock()
		switch {
		case !last:
		case failed != nil:
			fn(nil, failed)
		case exact:
			fn(all, nil)
		default:
			fn(nil, nil)
		}
	}
}

func (st *receiverStream) broken(err error) { st.end(err, st.ev.Broken) }

func (st *receiverStream) frame(h wire.Header, payload []byte) error {
	if h.Type == wire.TypeReceiverOpened {
		m, err := wire.DecodeReceiverOpened(payload)
		if err != nil {
			return err
		}
		if st.isOpen() {
			return outOfSequence(h, "came before")
		}
		st.o = holdfast.ReceiverOpened{StreamUID: m.StreamUID, Epoch: m.Epoch, Visibility: m.Visibility, Kept: m.Kept}
		st.opened()
		return nil
	}
	if !st.isOpen() {
		return outOfSequence(h, "comes before the stream is open")
	}
	switch h.Type {
	case wire.TypeDeliver:
		return st.deliver(h, payload)
	case wire.TypeLost:
		spans, reason, err := wire.DecodeLost(payload)
		if err != nil {
			return err
		}
		st.event(func() { st.ev.Lost(spans, reason) })
	default:
		return outOfSequence(h, "is not one of a receiver's stream")
	}
	return nil
}

func (st *receiverStream) deliver(h wire.Header, payload []byte) error {
	list, err := wire.DecodeDeliver(payload)
	if err != nil {
		return err
	}
	runs := make([]holdfast.Run, len(list))
	for i := range list {
		st.delivered += list[i].Count
		runs[i] = holdfast.Run(list[i])
	}
	if have := st.credit.Load(); st.delivered > have {
		return outOfSequence(h, fmt.Sprintf("brings %d messages in all, with credit for %d", st.delivered, have))
	}
	st.tell.Lock()
	defer st.tell.Unlock()
	if !st.over.Load() {
		st.ev.Deliver(runs)
	}
	return nil
}
