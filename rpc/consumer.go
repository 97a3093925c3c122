package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// AddConsumer serves a consumer of reliable delivery (see package delivery) under a name: producers in other programs reach it by
// client.Client.Consumer. Names are those of queues, and so are rights: a producer needs the right to send to the
// name. The link is usually delivery.ConsumerController.Remote(). It takes the place of what was served under
// the name before, also for streams that are open.
//
// To stop without a message being handled again: shut the consumer down first, which still acknowledges what it
// had accepted, then RemoveConsumer or Shutdown.
func (s *Server) AddConsumer(name string, to delivery.Link[[]byte]) error {
	if err := queue.ValidName(name); err != nil {
		return fmt.Errorf("add consumer: %w", err)
	}
	if to == nil {
		return fmt.Errorf("add consumer %q: there is none", name)
	}
	s.consumers.Store(name, to)
	return nil
}

// RemoveConsumer ends the serving of a consumer and the streams to it. Producers keep what is not acknowledged, and come
// again for as long as they live. It does nothing if there is no consumer of that name.
func (s *Server) RemoveConsumer(name string) {
	s.consumers.Delete(name)
	s.mu.Lock()
	conns := make([]*dataConn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		for _, st := range c.deliveries() {
			if st.name == name {
				st.broken(noConsumer(name))
			}
		}
	}
}

func (s *Server) consumer(name string) delivery.Link[[]byte] {
	to, _ := s.consumers.Load(name)
	link, _ := to.(delivery.Link[[]byte])
	return link
}

func noConsumer(name string) error {
	return fmt.Errorf("delivery: no consumer %q: %w", name, holdfast.ErrUnavailable)
}

// maxAcks is how much may wait to be written on a connection before acknowledgements are lost, in bytes.
const maxAcks = 1 << 20

var (
	errNotOpen = errors.New("stream is not open")
	errNoRoom  = errors.New("too much waits to be written")
)

// deliveryStream brings the envelopes of producers in another program to a consumer here.
type deliveryStream struct {
	life
	name string
	back *backway
}

// backway takes acknowledgements back on the connection that the envelopes came by. The consumer keeps it with what it
// remembers of a producer; so it lets go of the connection when the stream ends.
type backway struct {
	st atomic.Pointer[deliveryStream]
}

func (c *dataConn) openDelivery(ctx context.Context, id uint32, name string) error {
	st := &deliveryStream{life: life{c: c, id: id}, name: name, back: new(backway)}
	st.back.st.Store(st)
	return c.open(ctx, id, access.Send, name, st, func(context.Context) error {
		if c.s.consumer(name) == nil {
			if st.life.close() == closed {
				return nil
			}
			return noConsumer(name)
		}
		st.opened(func() { c.t.End(wire.AppendDeliveryOpened(c.t.Begin(), id)) })
		return nil
	})
}

// deliveries returns the streams of producers.
func (c *dataConn) deliveries() []*deliveryStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*deliveryStream
	for _, st := range c.streams {
		if d, ok := st.(*deliveryStream); ok {
			all = append(all, d)
		}
	}
	return all
}

func (st *deliveryStream) kind() string { return kindDelivery }

func (st *deliveryStream) close(bool) {
	st.life.close()
	st.back.st.Store(nil)
}

func (st *deliveryStream) broken(err error) {
	st.back.st.Store(nil)
	st.life.broken(err)
}

func (st *deliveryStream) frame(h wire.Header, payload []byte) error {
	if h.Type != wire.TypeEnvelope && h.Type != wire.TypeFarewell {
		return outOfSequence(h, "is not one of a delivery stream")
	}
	if ok, err := st.ready(h); !ok {
		return err
	}
	to := st.c.s.consumer(st.name)
	if to == nil { // removed while the stream was being opened
		st.broken(noConsumer(st.name))
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
	detach(m.Bodies)
	// What the consumer has no room for, it loses, and it comes again. One that is closed may still acknowledge what
	// it took before; so the stream stays.
	_ = to.Deliver(delivery.Delivery[[]byte]{
		ProducerID: m.ProducerID, Incarnation: m.Incarnation, Seq: m.Seq, Floor: m.Floor, Bodies: m.Bodies, ReplyTo: st.back,
		Part: int(m.Part), Parts: int(m.Parts), Total: int(m.Total),
	})
	return nil
}

// shared is up to how many bytes bodies share memory.
const shared = 1 << 10

// detach gives bodies memory of their own, in small groups, so that one that waits long does not keep all those that came
// in the same frame. A single one has its frame for itself.
func detach(bodies [][]byte) {
	if len(bodies) < 2 {
		return
	}
	var group []byte
	for i, b := range bodies {
		if len(b) > cap(group)-len(group) {
			size := 0
			for _, next := range bodies[i:] {
				if size > 0 && size+len(next) > shared {
					break
				}
				size += len(next)
			}
			group = make([]byte, 0, size)
		}
		at := len(group)
		group = append(group, b...)
		bodies[i] = group[at:len(group):len(group)]
	}
}

// Acknowledge implements delivery.ReplyTo.
func (w *backway) Acknowledge(acks []delivery.Acknowledgment) error {
	st := w.st.Load()
	if st == nil || !st.is(open) {
		return fmt.Errorf("acknowledge: %w", errNotOpen)
	}
	t := st.c.t
	if t.Full(maxAcks) != nil {
		return fmt.Errorf("acknowledge to %s: %w", st.c.remote, errNoRoom)
	}
	for len(acks) > 0 {
		var few [8]wire.Acknowledgment
		n := min(len(acks), wire.MaxAcknowledgments)
		out := few[:0]
		for _, a := range acks[:n] {
			out = append(out, wire.Acknowledgment(a))
		}
		t.End(wire.AppendAcknowledge(t.Begin(), st.id, out))
		acks = acks[n:]
	}
	return nil
}
