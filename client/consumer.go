package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// ConsumerLink is the way to a consumer of reliable delivery in another program, by the client's connection: what a
// delivery.ProducerController takes as its Remote. Several producers may use one. Its methods may be called
// concurrently.
//
// It opens its stream when there is something to deliver, and again when it broke. What is lost meanwhile, as on any
// link, the producers send again.
type ConsumerLink struct {
	c    *Client
	name string
	done chan struct{} // closed by Close

	mu      sync.Mutex
	stream  *deliveryStream // nil: none is open
	opening chan struct{}   // closed when the opening that is under way has ended; nil if none is
	began   time.Time       // when it began
	early   []wire.Envelope // came while a stream is being opened, and go first on it
	waits   int             // bytes of their bodies
	next    time.Time       // no stream is opened before
	why     error           // none could be opened the last time
	warned  time.Time
	closed  bool
	replies map[replyKey]delivery.ReplyTo
}

type replyKey struct{ producer, incarnation string }

const (
	// reopenAfter is the pause after a stream could not be opened.
	reopenAfter = 200 * time.Millisecond
	// warnEvery is the least time between two warnings that none can be opened.
	warnEvery = time.Minute
	// maxReplies bounds the producers of a link whose addresses are known: not all say farewell. One that is
	// forgotten is known again by its next envelope.
	maxReplies = 1 << 16
	// maxEarly and maxEarlyBytes bound what waits for a stream that is being opened.
	maxEarly      = 1 << 10
	maxEarlyBytes = 512 << 10
	// maxQueued is how much may wait to be written on the connection before envelopes wait for their turn. It is below
	// what holds up reading, so that acknowledgements come in.
	maxQueued = 512 << 10
	// largeEnvelope is the size of bodies from which an envelope has memory of its own on its way out.
	largeEnvelope = 4 << 10
	// patience is how long they wait while nothing is written.
	patience = 2 * time.Second
)

var (
	_ delivery.Link[[]byte] = (*ConsumerLink)(nil)
	_ delivery.FrameLimiter = (*ConsumerLink)(nil)

	errNoStream = errors.New("no stream to the consumer")
	errNoRoom   = errors.New("too much waits to be written")
)

// Consumer returns a link to the consumer that the program at the client's address serves under a name (see
// rpc.Server.AddConsumer). It takes the right to send to that name. It does not connect yet.
func (c *Client) Consumer(name string) *ConsumerLink {
	return &ConsumerLink{c: c, name: name, done: make(chan struct{}), replies: make(map[replyKey]delivery.ReplyTo)}
}

// FrameLimit implements delivery.FrameLimiter: 256 KiB.
func (l *ConsumerLink) FrameLimit() int { return wire.MaxEnvelopeBodies }

// Deliver implements delivery.Link. While the connection does not take more, it waits, which holds back the producer; once
// nothing was written for two seconds, nothing waits until the connection moves again. An error says that the envelope is lost, and
// why: there is no stream at present (matching the reason for which none could be opened, such as
// holdfast.ErrDenied), or too much waits to be written; or that it has more than a frame can, which is a
// *message.FieldError.
func (l *ConsumerLink) Deliver(d delivery.Delivery[[]byte]) error {
	m, err := envelope(&d)
	if err != nil {
		return fmt.Errorf("deliver to consumer %q: %w", l.name, err)
	}
	st, opening, err := l.way(&m, d.ReplyTo)
	if opening != nil && l.wait(opening) {
		st, _, err = l.way(&m, d.ReplyTo)
	}
	if err == nil && st != nil {
		if err = st.room(); err == nil {
			st.send(&m)
		}
	}
	if err != nil {
		return fmt.Errorf("deliver to consumer %q: %w", l.name, err)
	}
	return nil
}

// envelope checks what would break the connection instead of being lost.
func envelope(d *delivery.Delivery[[]byte]) (m wire.Envelope, err error) {
	refuse := func(field, limit, format string, args ...any) {
		err = &message.FieldError{Field: field, Fault: fmt.Sprintf(format, args...), Limit: limit}
	}
	size := 0
	for _, b := range d.Bodies {
		size += len(b)
	}
	switch {
	case size > wire.MaxEnvelopeBodies:
		refuse("bodies", fmt.Sprintf("%d bytes", wire.MaxEnvelopeBodies), "have %d bytes", size)
	case len(d.Bodies) > wire.MaxEnvelopeCount:
		refuse("bodies", fmt.Sprint(wire.MaxEnvelopeCount), "are %d", len(d.Bodies))
	case len(d.ProducerID) > wire.MaxString || len(d.Incarnation) > wire.MaxString:
		refuse("producer id or incarnation", fmt.Sprintf("%d bytes", delivery.MaxIDBytes), "has more than %d bytes", wire.MaxString)
	}
	for _, v := range [...]int{d.Part, d.Parts, d.Total} {
		if v < 0 || uint64(v) > math.MaxUint32 {
			refuse("part", fmt.Sprintf("0 to %d", uint32(math.MaxUint32)), "has a number of %d", v)
		}
	}
	return wire.Envelope{
		ProducerID: d.ProducerID, Incarnation: d.Incarnation, Seq: d.Seq, Floor: d.Floor, Bodies: d.Bodies,
		Part: uint32(d.Part), Parts: uint32(d.Parts), Total: uint32(d.Total),
	}, err
}

// way returns the open stream. If there is none, it sees to it that there will be, and puts the envelope aside for it. If
// there is no room for that either, opening is what to wait for, and err says that.
func (l *ConsumerLink) way(m *wire.Envelope, reply delivery.ReplyTo) (st *deliveryStream, opening chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, fmt.Errorf("%w: the link is closed", errNoStream)
	}
	key := replyKey{m.ProducerID, m.Incarnation}
	if _, known := l.replies[key]; !known && len(l.replies) >= maxReplies {
		clear(l.replies)
	}
	l.replies[key] = reply
	if l.stream != nil {
		return l.stream, nil, nil
	}
	if l.opening == nil {
		if time.Now().Before(l.next) {
			return nil, nil, fmt.Errorf("%w: %w", errNoStream, l.why)
		}
		if err := l.begin(); err != nil {
			return nil, nil, err
		}
	}
	size := 0
	for _, b := range m.Bodies {
		size += len(b)
	}
	if len(l.early) >= maxEarly || len(l.early) > 0 && size > maxEarlyBytes-l.waits {
		return nil, l.opening, fmt.Errorf("%w yet: %w", errNoStream, errNoRoom)
	}
	kept := *m
	kept.Bodies = slices.Clone(m.Bodies) // the slice is the caller's
	l.early = append(l.early, kept)
	l.waits += size
	return nil, nil, nil
}

// wait waits for the end of an opening, for as long as patience lasts. It reports whether it has ended.
func (l *ConsumerLink) wait(opening chan struct{}) bool {
	l.mu.Lock()
	left := patience - time.Since(l.began)
	l.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-opening:
		return true
	case <-l.done:
	case <-timer.C:
	}
	return false
}

// begin starts the opening of a stream. The lock is held.
func (l *ConsumerLink) begin() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.closed {
		return errClosed
	}
	l.opening, l.began = make(chan struct{}), time.Now()
	l.c.background(l.open)
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

// Close closes the link's stream, behind what was delivered before. Everything that comes after it is lost,
// acknowledgements too; so producers are closed first. It is idempotent.
func (l *ConsumerLink) Close() {
	l.mu.Lock()
	st := l.stream
	if !l.closed {
		close(l.done)
	}
	l.stream, l.closed, l.early = nil, true, nil
	clear(l.replies)
	l.mu.Unlock()
	if st != nil {
		st.answer.abandon()
		st.cn.close(st.id, true)
	}
}

// open opens a stream, and sends what waits for it.
func (l *ConsumerLink) open(ctx context.Context) {
	var st *deliveryStream
	_, err := l.c.open(ctx, "", func(cn *conn, id uint32) (stream, *answer) {
		st = &deliveryStream{answer: newAnswer(), l: l, cn: cn, id: id}
		return st, st.answer
	}, func(b []byte, id uint32) []byte { return wire.AppendOpenDelivery(b, id, l.name) })

	l.mu.Lock()
	defer l.mu.Unlock()
	early := l.early
	close(l.opening)
	l.opening, l.early, l.waits = nil, nil, 0
	switch {
	case err != nil:
		now := time.Now()
		l.next, l.why = now.Add(reopenAfter), err
		if ctx.Err() == nil && (l.warned.IsZero() || now.Sub(l.warned) >= warnEvery) {
			l.warned = now
			l.c.o.Logger.Warn("no way to the consumer, what is for it is sent again", "consumer", l.name, "error", err)
		}
	case l.closed:
		st.answer.abandon()
		st.cn.close(st.id, true)
	case st.over.Load():
		// It broke already. If it breaks from here on, lost takes it out again.
	default:
		l.stream = st
		for i := range early {
			st.send(&early[i])
		}
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

// deliveryStream is an open stream to a consumer, or one that is being opened.
type deliveryStream struct {
	*answer
	l  *ConsumerLink
	cn *conn
	id uint32

	mu      sync.Mutex
	stalled bool // nothing was written for patience
}

// room waits for the connection to take more.
func (st *deliveryStream) room() error {
	t := st.cn.t
	full := t.Full(maxQueued)
	st.mu.Lock()
	stalled := st.stalled && full != nil
	st.stalled = stalled
	st.mu.Unlock()
	if stalled {
		return errNoRoom
	}
	if full == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for full != nil {
		select {
		case <-full:
			full = t.Full(maxQueued)
			timer.Reset(patience)
		case <-t.Done():
			return errNoStream
		case <-st.l.done:
			return errNoStream
		case <-timer.C:
			st.mu.Lock()
			st.stalled = true
			st.mu.Unlock()
			return errNoRoom
		}
	}
	return nil
}

// send queues an envelope. A large one is written from where it is encoded, instead of in a row with what waits.
func (st *deliveryStream) send(m *wire.Envelope) {
	size := 0
	for _, b := range m.Bodies {
		size += len(b)
	}
	t := st.cn.t
	if size < largeEnvelope {
		t.End(wire.AppendEnvelope(t.Begin(), st.id, m))
		return
	}
	frame := wire.AppendEnvelope(nil, st.id, m)
	t.EndBulk(t.Begin(), [][]byte{frame}, 0, 0, 0)
}

func (st *deliveryStream) broken(err error) {
	st.end(err, func(error) {})
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
		if !st.isOpen() {
			return outOfSequence(h, "comes before the stream is open")
		}
		acks, err := wire.DecodeAcknowledge(payload)
		if err != nil {
			return err
		}
		st.event(func() { st.acknowledged(acks) })
		return nil
	}
	return outOfSequence(h, "is not one of a delivery stream")
}

// acknowledged hands acknowledgements to their producers. What is for one that is not known here is lost.
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
