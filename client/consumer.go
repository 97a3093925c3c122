package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// ConsumerLink is the way to a consumer of reliable delivery in another program, by the client's connection: what a
// delivery.ProducerController takes as its consumer. Its methods may be called concurrently, and none of them waits.
//
// It opens its stream when there is something to deliver, and again when it broke; what comes meanwhile is lost, as on
// any link, and the producer sends it again.
type ConsumerLink struct {
	c    *Client
	name string

	mu      sync.Mutex
	stream  *deliveryStream // nil: none is open
	opening bool
	next    time.Time // no stream is opened before
	closed  bool
	replies map[replyKey]delivery.ReplyTo
}

type replyKey struct{ producer, incarnation string }

const (
	// reopenAfter is the pause after a stream could not be opened.
	reopenAfter = 200 * time.Millisecond
	// maxReplies bounds the producers of a link whose addresses are known; it is a help against those that never say farewell.
	maxReplies = 1 << 16
)

var (
	_ delivery.Link[[]byte] = (*ConsumerLink)(nil)
	_ delivery.FrameLimiter = (*ConsumerLink)(nil)

	errNoStream = errors.New("no stream to the consumer")
	errNoRoom   = errors.New("too much waits to be written")
)

// Consumer returns a link to the consumer that the program at the client's address serves under a name (see
// rpc.Server.AddConsumer). It does not connect yet.
func (c *Client) Consumer(name string) *ConsumerLink {
	return &ConsumerLink{c: c, name: name, replies: make(map[replyKey]delivery.ReplyTo)}
}

// FrameLimit implements delivery.FrameLimiter: 256 KiB.
func (l *ConsumerLink) FrameLimit() int { return wire.MaxEnvelopeBodies }

// Deliver implements delivery.Link. An error says that the envelope is lost: there is no stream at present, or too
// much waits to be written.
func (l *ConsumerLink) Deliver(d delivery.Delivery[[]byte]) error {
	st, err := l.current()
	if err != nil {
		return err
	}
	key := replyKey{d.ProducerID, d.Incarnation}
	l.mu.Lock()
	if l.replies[key] != d.ReplyTo {
		if len(l.replies) >= maxReplies {
			clear(l.replies)
		}
		l.replies[key] = d.ReplyTo
	}
	l.mu.Unlock()
	t := st.cn.t
	if !t.Room() {
		return fmt.Errorf("deliver to consumer %q: %w", l.name, errNoRoom)
	}
	t.End(wire.AppendEnvelope(t.Begin(), st.id, &wire.Envelope{
		ProducerID: d.ProducerID, Incarnation: d.Incarnation, Seq: d.Seq, Floor: d.Floor, Bodies: d.Bodies,
		Part: uint32(d.Part), Parts: uint32(d.Parts), Total: uint32(d.Total),
	}))
	return nil
}

// Farewell implements delivery.Link.
func (l *ConsumerLink) Farewell(f delivery.Farewell) error {
	l.mu.Lock()
	delete(l.replies, replyKey{f.ProducerID, f.Incarnation})
	st := l.stream
	l.mu.Unlock()
	if st == nil {
		return fmt.Errorf("farewell to consumer %q: %w", l.name, errNoStream)
	}
	m := wire.Farewell(f)
	st.cn.t.End(wire.AppendFarewell(st.cn.t.Begin(), st.id, &m))
	return nil
}

// Close closes the link's stream, behind what was delivered before. Everything that comes after it is lost.
func (l *ConsumerLink) Close() {
	l.mu.Lock()
	st := l.stream
	l.stream, l.closed = nil, true
	clear(l.replies)
	l.mu.Unlock()
	if st != nil {
		st.answer.abandon()
		st.cn.close(st.id, true)
	}
}

// current returns the open stream, or sees to it that there will be one.
func (l *ConsumerLink) current() (*deliveryStream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil {
		return l.stream, nil
	}
	if !l.closed && !l.opening && !time.Now().Before(l.next) {
		l.c.mu.Lock()
		if !l.c.closed {
			l.opening = true
			l.c.background(l.open)
		}
		l.c.mu.Unlock()
	}
	return nil, fmt.Errorf("deliver to consumer %q: %w", l.name, errNoStream)
}

func (l *ConsumerLink) open(ctx context.Context) {
	var st *deliveryStream
	_, err := l.c.open(ctx, func(cn *conn, id uint32) (stream, *answer) {
		st = &deliveryStream{l: l, cn: cn, id: id, answer: newAnswer()}
		return st, st.answer
	}, func(b []byte, id uint32) []byte { return wire.AppendOpenDelivery(b, id, l.name) })
	l.mu.Lock()
	l.opening = false
	switch {
	case err != nil:
		l.next = time.Now().Add(reopenAfter)
	case l.closed:
		defer st.cn.close(st.id, true)
	case !st.over.Load():
		l.stream = st
	}
	l.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		l.c.o.Logger.Debug("no stream to a consumer", "consumer", l.name, "error", err)
	}
}

// lost forgets a stream that ended.
func (l *ConsumerLink) lost(st *deliveryStream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream == st {
		l.stream = nil
		l.c.o.Logger.Debug("stream to a consumer broke", "consumer", l.name, "error", err)
	}
}

// deliveryStream is an open stream to a consumer.
type deliveryStream struct {
	*answer
	l  *ConsumerLink
	cn *conn
	id uint32
}

func (st *deliveryStream) broken(err error) {
	st.end(err, func(err error) { st.l.lost(st, err) })
	st.l.lost(st, err)
}

func (st *deliveryStream) frame(h wire.Header, payload []byte) error {
	switch h.Type {
	case wire.TypeDeliveryOpened:
		if err := wire.DecodeDeliveryOpened(payload); err != nil {
			return err
		}
		if !st.opened() {
			return outOfSequence(h, "came before")
		}
		return nil
	case wire.TypeAcknowledge:
		acks, err := wire.DecodeAcknowledge(payload)
		if err != nil {
			return err
		}
		st.event(func() { st.acknowledged(acks) })
		return nil
	}
	return outOfSequence(h, "is not one of a delivery stream")
}

// acknowledged hands acknowledgements to their producers. One that is not known here any more is lost.
func (st *deliveryStream) acknowledged(acks []wire.Acknowledgment) {
	for len(acks) > 0 {
		key := replyKey{acks[0].ProducerID, acks[0].Incarnation}
		n := 1
		for n < len(acks) && acks[n].ProducerID == key.producer && acks[n].Incarnation == key.incarnation {
			n++
		}
		st.l.mu.Lock()
		to := st.l.replies[key]
		st.l.mu.Unlock()
		if to != nil {
			out := make([]delivery.Acknowledgment, n)
			for i := range out {
				out[i] = delivery.Acknowledgment(acks[i])
			}
			_ = to.Acknowledge(out) // a lost one comes again
		}
		acks = acks[n:]
	}
}
