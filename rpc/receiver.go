package rpc

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// aheadMessages and aheadBytes are how far a receiver's credit is passed on ahead of what has been written to its
// connection. The bytes are raised to two of the largest frames.
const (
	aheadMessages = 1 << 16
	aheadBytes    = 1 << 20
)

// receiverStream is a receiver's stream: the events of the link on one side, the frames of the client on the other.
type receiverStream struct {
	life
	link holdfast.ReceiverLink // set before the stream is open
	out  deliverer

	flow sync.Mutex
	// Cumulative, since the stream was opened: what the client gave, what of it the link was told, and what has been
	// written to the connection.
	client, given, sent wire.Credit
}

func (c *dataConn) openReceiver(ctx context.Context, id uint32, m wire.OpenReceiver) error {
	st := &receiverStream{life: life{c: c, id: id}}
	return c.open(ctx, id, access.Receive, m.Queue, st, func(ctx context.Context) error {
		ctx, cancel := st.start(ctx)
		defer cancel()
		link, o, err := c.link.OpenReceiver(ctx, m.Queue, holdfast.ReceiverConfig{
			Session: m.Session, Held: m.Held, Announces: m.Announces, Unbound: m.Unbound, Visibility: m.Visibility,
		}, st)
		if err == nil {
			if err = checkEpoch(m.Queue, m.Seen, wire.Seen{StreamUID: o.StreamUID, Epoch: o.Epoch}); err == nil && len(o.Kept) > wire.MaxSpans {
				err = fmt.Errorf("open receiver from queue %q: %w", m.Queue, &message.FieldError{
					Field: "held messages", Fault: fmt.Sprintf("are in %d runs", len(o.Kept)), Limit: fmt.Sprint(wire.MaxSpans)})
			}
			if err != nil {
				link.Close(false)
			}
		}
		if err != nil {
			if st.life.close() == closed {
				return nil
			}
			return err
		}
		st.link = link
		ok := st.opened(func() {
			c.t.End(wire.AppendReceiverOpened(c.t.Begin(), id, &wire.ReceiverOpened{
				StreamUID: o.StreamUID, Epoch: o.Epoch, Visibility: o.Visibility, Kept: o.Kept,
			}))
		})
		if !ok {
			link.Close(false)
		}
		return nil
	})
}

func (st *receiverStream) kind() string { return kindReceiver }

func (st *receiverStream) frame(h wire.Header, payload []byte) error {
	switch h.Type {
	case wire.TypeCredit:
		credit, err := wire.DecodeCredit(payload)
		if err != nil {
			return err
		}
		if ok, err := st.ready(h); !ok {
			return err
		}
		if err := st.credit(credit); err != nil {
			st.fail(err)
		}
		return nil
	case wire.TypeStarted, wire.TypeAck, wire.TypeNack, wire.TypeRelease, wire.TypeExtend:
		m, err := wire.DecodeCommand(h.Type, payload)
		if err != nil {
			return err
		}
		if ok, err := st.ready(h); !ok {
			return err
		}
		st.command(m)
		return nil
	}
	return outOfSequence(h, "is not one of a receiver's stream")
}

// fail ends the stream because of what the client did on it.
func (st *receiverStream) fail(err error) {
	if st.life.close() == open {
		st.link.Close(false)
		st.c.breakStream(st.id, err)
	}
}

// credit checks what the client gives and passes it on.
func (st *receiverStream) credit(c wire.Credit) error {
	st.flow.Lock()
	defer st.flow.Unlock()
	for _, f := range []struct {
		field    string
		v, prior uint64
	}{{"credit in messages", c.Messages, st.client.Messages}, {"credit in bytes", c.Bytes, st.client.Bytes}} {
		switch {
		case f.v == 0:
			return &message.FieldError{Field: f.field, Fault: "is 0", Limit: "1 or more, counted from the opening of the stream"}
		case f.v > wire.MaxCredit:
			return &message.FieldError{Field: f.field, Fault: fmt.Sprintf("is %d", f.v), Limit: fmt.Sprint(uint64(wire.MaxCredit))}
		case f.v < f.prior:
			return &message.FieldError{Field: f.field, Fault: fmt.Sprintf("is %d after %d", f.v, f.prior), Limit: "it only grows"}
		}
	}
	st.client = c
	st.pass()
	return nil
}

// pass gives the link as much of the client's credit as it may have now. The lock keeps the calls in order; the link
// does not wait.
func (st *receiverStream) pass() {
	ahead := max(aheadBytes, 2*uint64(st.c.s.o.MaxFrameBytes))
	next := wire.Credit{
		Messages: min(st.client.Messages, st.sent.Messages+aheadMessages),
		Bytes:    min(st.client.Bytes, st.sent.Bytes+ahead),
	}
	if next != st.given {
		st.given = next
		st.link.Credit(next.Messages, next.Bytes)
	}
}

// written is told what has gone out to the client.
func (st *receiverStream) written(messages, bytes uint64) {
	st.flow.Lock()
	defer st.flow.Unlock()
	st.sent.Messages += messages
	st.sent.Bytes += bytes
	if st.is(open) {
		st.pass()
	}
}

// command passes on what the client says about messages that it holds.
func (st *receiverStream) command(m wire.Command) {
	var reply holdfast.Outcomes
	if m.Token != 0 {
		reply = func(outcomes []queue.Outcome, err error) { st.outcomes(m.Token, outcomes, err) }
	}
	if len(m.Spans) == 0 {
		if reply != nil {
			reply(nil, &message.FieldError{Field: "messages", Fault: "are none", Limit: "1 or more"})
		}
		return
	}
	switch m.Type {
	case wire.TypeStarted:
		st.link.Started(m.Spans, reply)
	case wire.TypeAck:
		st.link.Ack(m.Spans, reply)
	case wire.TypeNack:
		st.link.Nack(m.Spans, m.Delay, reply)
	case wire.TypeRelease:
		st.link.Release(m.Spans, reply)
	case wire.TypeExtend:
		st.link.Extend(m.Spans, m.Delay, reply)
	}
}

// outcomes answers a command. The answer goes out even when the stream has been closed since: somebody may wait.
func (st *receiverStream) outcomes(token uint64, outcomes []queue.Outcome, err error) {
	t := st.c.t
	m := wire.Outcomes{Token: token, Err: status.FromError(err), Outcomes: outcomes}
	for m.Err == nil && len(m.Outcomes) > wire.MaxSpans {
		part := wire.Outcomes{Token: token, More: true, Outcomes: m.Outcomes[:wire.MaxSpans]}
		t.End(wire.AppendOutcomes(t.Begin(), st.id, &part))
		m.Outcomes = m.Outcomes[wire.MaxSpans:]
	}
	t.End(wire.AppendOutcomes(t.Begin(), st.id, &m))
}

func (st *receiverStream) close(clean bool) {
	if st.life.close() == open {
		st.link.Close(clean)
	}
}

// Deliver implements holdfast.ReceiverEvents.
func (st *receiverStream) Deliver(runs []holdfast.Run) {
	if !st.is(open) {
		return // nothing is handed over before there is credit, and nobody takes it behind the end
	}
	if err := st.out.send(st.c.t, st.id, st.c.maxFrame, runs); err != nil {
		st.fail(err)
	}
}

// Lost implements holdfast.ReceiverEvents.
func (st *receiverStream) Lost(spans []queue.LeaseSpan, reason string) {
	st.event(func() {
		for len(spans) > 0 {
			n := min(len(spans), wire.MaxSpans)
			t := st.c.t
			t.End(wire.AppendLost(t.Begin(), st.id, spans[:n], reason))
			spans = spans[n:]
		}
	})
}

// Broken implements holdfast.ReceiverEvents.
func (st *receiverStream) Broken(err error) { st.broken(err) }
