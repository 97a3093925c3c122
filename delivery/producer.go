package delivery

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/delivery/producer"
)

// ProducerController sends messages of type T to one consumer and confirms each once it was handled. Several
// goroutines may send at once; the messages of each go in the order in which it sent them.
//
// There are four ways to send. Send waits until the message was handled. Post waits for room in the window and
// returns a Confirmation; PostFunc does so with a function instead. Offer never waits. With none of them is
// there a list that grows in silence: with the window full the first three hold their caller, and the buffer of Offer
// is bounded and says when it is full.
//
// Fan-out is several ProducerControllers: each has one consumer.
type ProducerController[T any] struct {
	codec Codec[T]
	typed *sender[T]      // for Consumer,
	bytes *sender[[]byte] // or for Remote; the other is nil
	store bool
	limit int // bytes of an encoded body

	waiting sync.Pool // of the *Confirmation of a Send
}

// shell is what the controller needs of its sender, whatever the body type.
type shell interface {
	stop(cause error)
	drain(ctx context.Context) error
	stats() ProducerStats
}

// NewProducerController returns a running producer. It does no I/O. The error joins all faults of the options;
// each matches ErrInvalidOption.
func NewProducerController[T any](opts ProducerOptions[T]) (*ProducerController[T], error) {
	o, err := opts.withDefaults()
	state := ProducerState{ProducerID: o.ProducerID, Incarnation: rand.Text(), Next: 1}
	if state.ProducerID == "" {
		state.ProducerID = rand.Text()
	}
	if o.Journal != nil {
		state = o.Journal.State()
		if o.ProducerID != "" && o.ProducerID != state.ProducerID {
			err = errors.Join(err, optionError("ProducerID", "is %q, the journal is that of %q", o.ProducerID, state.ProducerID))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("new producer controller: %w", err)
	}
	if l, ok := any(o.Consumer).(neighbour); ok {
		if ttl := l.idleTTL(); ttl/4 < o.ResendCap {
			o.Logger.Warn("ResendCap is over a quarter of the consumer's ProducerIdleTTL: a message can be forgotten and handled again between two transmissions",
				"producer_id", state.ProducerID, "resend_cap", o.ResendCap, "idle_ttl", ttl)
		}
		if most := l.maxWaiting(); most < o.WindowSize {
			o.Logger.Warn("WindowSize is more than the consumer lets wait: what is beyond is ignored and sent again later",
				"producer_id", state.ProducerID, "window_size", o.WindowSize, "max_waiting", most)
		}
	}
	p := &ProducerController[T]{codec: o.Codec, store: o.Journal != nil, limit: Unlimited}
	if p.store {
		p.limit = o.Journal.MaxBodyBytes()
	}
	if o.Consumer != nil {
		p.typed, err = newSender(&o, o.Consumer, state, o.Codec.Decode, cutter[T]{})
	} else {
		same := func(b []byte) ([]byte, error) { return b, nil }
		p.bytes, err = newSender(&o, o.Remote, state, same, cutter[[]byte]{o.MaxFrameBytes, bodyLen, splitBody})
	}
	if err != nil {
		return nil, fmt.Errorf("new producer controller: %w", err)
	}
	return p, nil
}

// neighbour is a consumer of the same process, whose options can be compared with the producer's.
type neighbour interface {
	idleTTL() time.Duration
	maxWaiting() int
}

func bodyLen(b []byte) int { return len(b) }

func splitBody(b []byte, size int) [][]byte { return slices.Collect(slices.Chunk(b, size)) }

// newSender makes and starts a sender that goes on from state.
func newSender[T, B any](o *ProducerOptions[T], link Link[B], state ProducerState, decode func([]byte) (B, error), cut cutter[B]) (*sender[B], error) {
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // it never fails
	core := producer.Options{
		Window:        o.WindowSize,
		ResendTimeout: int64(o.ResendTimeout),
		ResendCap:     int64(o.ResendCap),
		Hold:          o.Journal != nil,
		Seed:          binary.LittleEndian.Uint64(seed[:]),
	}
	var unsettled []producer.Range
	for _, m := range state.Unconfirmed {
		if n := len(unsettled); n > 0 && unsettled[n-1].Last+1 == m.Seq {
			unsettled[n-1].Last = m.Seq
		} else {
			unsettled = append(unsettled, producer.Range{First: m.Seq, Last: m.Seq})
		}
	}
	s := &sender[B]{
		id: state.ProducerID, incarnation: state.Incarnation, link: link, cut: cut,
		opts: senderOptions{window: o.WindowSize, windowBytes: o.WindowBytes, buffer: o.BufferSize, onRetransmit: o.OnRetransmit},
		log:  o.Logger, born: time.Now(), core: producer.Restore(core, max(state.Next, 1), unsettled),
	}
	for _, m := range state.Unconfirmed {
		body, err := decode(m.Body)
		if err != nil {
			return nil, fmt.Errorf("stored message %d of producer %q: %w", m.Seq, s.id, err)
		}
		s.slots.put(m.Seq, s.core.Floor(), message[B]{body: body, size: len(m.Body)})
		s.bytes += len(m.Body)
	}
	if o.Journal != nil {
		s.store = newStorer[B](o.Journal)
	}
	s.start()
	return s, nil
}

// ID returns the producer id.
func (p *ProducerController[T]) ID() string {
	if p.typed != nil {
		return p.typed.id
	}
	return p.bytes.id
}

// Incarnation returns what this construction minted, or the durable producer resumed.
func (p *ProducerController[T]) Incarnation() string {
	if p.typed != nil {
		return p.typed.incarnation
	}
	return p.bytes.incarnation
}

func (p *ProducerController[T]) shell() shell {
	if p.typed != nil {
		return p.typed
	}
	return p.bytes
}

// Send sends v and waits until its handler has returned nil. An error that matches ErrNotSent says that the
// message never left and uses no number; one that matches ErrUnconfirmed that it may have been handled or, if only
// ctx ended, still will be.
func (p *ProducerController[T]) Send(ctx context.Context, v T) error {
	c, ok := p.waiting.Get().(*Confirmation)
	if !ok {
		c = &Confirmation{once: make(chan error, 1)}
	}
	if err := p.post(ctx, v, c, nil); err != nil {
		p.waiting.Put(c)
		return err
	}
	select {
	case err := <-c.once:
		p.waiting.Put(c)
		return err
	case <-ctx.Done():
		return &outcome{ErrUnconfirmed, context.Cause(ctx)} // c is settled later, and left to the collector
	}
}

// Post sends v without waiting for its handler: it waits only for room in the window, until ctx ends. With
// an error, which matches ErrNotSent, there is no confirmation; the message uses no number.
func (p *ProducerController[T]) Post(ctx context.Context, v T) (*Confirmation, error) {
	c := &Confirmation{}
	if err := p.post(ctx, v, c, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// PostFunc is Post with a function that is called once with the outcome, in the order of acknowledgement, on
// the controller's goroutine: it must not block, or nothing is transmitted meanwhile, and must not wait for
// another message. With an error it is not called. confirm may be nil.
func (p *ProducerController[T]) PostFunc(ctx context.Context, v T, confirm func(error)) error {
	return p.post(ctx, v, nil, confirm)
}

// Offer sends v if that needs no waiting: it is numbered if there is room in the window, else put into the buffer of
// BufferSize, else refused with ErrBufferFull. confirm is as for PostFunc, and is also called, with ErrNotSent,
// for a buffered message that is given up because the producer stops.
func (p *ProducerController[T]) Offer(v T, confirm func(error)) error {
	if p.typed != nil {
		m := message[T]{body: v, fn: confirm}
		raw, err := p.encodeForStore(v)
		if err != nil {
			return err
		}
		m.size = len(raw)
		return p.typed.offer(m, raw)
	}
	b, err := p.encode(v)
	if err != nil {
		return err
	}
	return p.bytes.offer(message[[]byte]{body: b, size: len(b), fn: confirm}, b)
}

// Buffered returns how many messages wait in the buffer of Offer.
func (p *ProducerController[T]) Buffered() int { return p.shell().stats().Buffered }

func (p *ProducerController[T]) post(ctx context.Context, v T, conf *Confirmation, fn func(error)) error {
	if p.typed != nil {
		m := message[T]{body: v, conf: conf, fn: fn}
		raw, err := p.encodeForStore(v)
		if err != nil {
			return err
		}
		m.size = len(raw)
		return p.typed.post(ctx, m, raw)
	}
	b, err := p.encode(v)
	if err != nil {
		return err
	}
	return p.bytes.post(ctx, message[[]byte]{body: b, size: len(b), conf: conf, fn: fn}, b)
}

func (p *ProducerController[T]) encodeForStore(v T) ([]byte, error) {
	if !p.store {
		return nil, nil
	}
	return p.encode(v)
}

func (p *ProducerController[T]) encode(v T) ([]byte, error) {
	var b []byte
	err := protect(func() (err error) {
		b, err = p.codec.Encode(v)
		return err
	})
	if err == nil && len(b) > p.limit {
		err = fmt.Errorf("%w: body of %d bytes, the journal takes %d", ErrTooLarge, len(b), p.limit)
	}
	if err != nil {
		return nil, &outcome{ErrNotSent, err}
	}
	return b, nil
}

// Stats returns figures about the producer.
func (p *ProducerController[T]) Stats() ProducerStats { return p.shell().stats() }

// Shutdown takes no more messages, waits until all that were accepted are confirmed, and closes. If ctx ends first it
// closes all the same and returns an error that matches the context's.
func (p *ProducerController[T]) Shutdown(ctx context.Context) error {
	err := p.shell().drain(ctx)
	p.Close()
	if err != nil {
		return fmt.Errorf("shut down producer %q: %w", p.ID(), err)
	}
	return nil
}

// Close stops the producer and returns at once. What is not confirmed is settled with ErrStopped, each once: handles
// and blocked callers before Close returns, functions before Stopped is closed. If nothing was
// unconfirmed, the consumer is told, so that it can free its entry. A durable producer's journal is closed; what
// was unconfirmed is sent by the next one. Closing again does nothing.
func (p *ProducerController[T]) Close() { p.shell().stop(ErrStopped) }

// Stopped is closed once the controller's goroutines have ended after Close, or after its journal was lost.
func (p *ProducerController[T]) Stopped() <-chan struct{} {
	if p.typed != nil {
		return p.typed.stopped
	}
	return p.bytes.stopped
}
