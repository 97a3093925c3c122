package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// AddConsumer serves a consumer of reliable delivery (see package delivery) under a name: producers in other programs reach it by
// client.Client.Consumer. Names are those of queues, and so are rights: a producer needs the right to send to the
// name. It replaces one of that name. The link is usually delivery.ConsumerController.Remote().
func (s *Server) AddConsumer(name string, to delivery.Link[[]byte]) error {
	if err := queue.ValidName(name); err != nil {
		return fmt.Errorf("add consumer: %w", err)
	}
	s.consumers.Store(name, to)
	return nil
}

// RemoveConsumer ends the serving of a consumer: what comes for it on open streams is lost from then on.
func (s *Server) RemoveConsumer(name string) { s.consumers.Delete(name) }

func (s *Server) consumer(name string) delivery.Link[[]byte] {
	to, _ := s.consumers.Load(name)
	link, _ := to.(delivery.Link[[]byte])
	return link
}

var (
	errNotOpen = errors.New("stream is not open")
	errNoRoom  = errors.New("too much waits to be written")
)

// deliveryStream brings the envelopes of producers in another program to a consumer here, and takes back its
// acknowledgements.
type deliveryStream struct {
	life
	name string
}

func (c *dataConn) openDelivery(ctx context.Context, id uint32, name string) error {
	st := &deliveryStream{life: life{c: c, id: id}, name: name}
	return c.open(ctx, id, access.Send, name, st, func(context.Context) error {
		if c.s.consumer(name) == nil {
			if st.life.close() == closed {
				return nil
			}
			return fmt.Errorf("open delivery: consumer %q: %w", name, holdfast.ErrUnavailable)
		}
		st.opened(func() { c.t.End(wire.AppendDeliveryOpened(c.t.Begin(), id)) })
		return nil
	})
}

func (st *deliveryStream) kind() string { return kindDelivery }

func (st *deliveryStream) close(bool) { st.life.close() }

func (st *deliveryStream) frame(h wire.Header, payload []byte) error {
	if h.Type != wire.TypeEnvelope && h.Type != wire.TypeFarewell {
		return outOfSequence(h, "is not one of a delivery stream")
	}
	if ok, err := st.ready(h); !ok {
		return err
	}
	to := st.c.s.consumer(st.name)
	if to == nil {
		st.broken(fmt.Errorf("delivery: consumer %q: %w", st.name, holdfast.ErrUnavailable))
		return nil
	}
	if h.Type == wire.TypeFarewell {
		m, err := wire.DecodeFarewell(payload)
		if err == nil {
			_ = to.Farewell(delivery.Farewell(m)) // best effort
		}
		return err
	}
	m, err := wire.DecodeEnvelope(payload)
	if err != nil {
		return err
	}
	// What the consumer has no room for, it loses, and it comes again.
	_ = to.Deliver(delivery.Delivery[[]byte]{
		ProducerID: m.ProducerID, Incarnation: m.Incarnation, Seq: m.Seq, Floor: m.Floor, Bodies: m.Bodies, ReplyTo: st,
		Part: int(m.Part), Parts: int(m.Parts), Total: int(m.Total),
	})
	return nil
}

// Acknowledge implements delivery.ReplyTo: acknowledgements go back on the connection that the envelopes came by.
func (st *deliveryStream) Acknowledge(acks []delivery.Acknowledgment) error {
	t := st.c.t
	for len(acks) > 0 {
		if !st.is(open) {
			return fmt.Errorf("acknowledge to %s: %w", st.c.remote, errNotOpen)
		}
		if !t.Room() {
			return fmt.Errorf("acknowledge to %s: %w", st.c.remote, errNoRoom)
		}
		n := min(len(acks), wire.MaxAcknowledgments)
		out := make([]wire.Acknowledgment, n)
		for i, a := range acks[:n] {
			out[i] = wire.Acknowledgment(a)
		}
		t.End(wire.AppendAcknowledge(t.Begin(), st.id, out))
		acks = acks[n:]
	}
	return nil
}
