package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
)

// Codec turns values of one type into message bodies and back. Both functions may be called concurrently. Encode may return a slice that
// it uses again after the message was sent; Decode must not change the body.
type Codec[T any] struct {
	Encode func(v T) ([]byte, error)
	Decode func(body []byte) (T, error)
}

// JSON is the codec of encoding/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(body []byte) (v T, err error) {
			err = json.Unmarshal(body, &v)
			return v, err
		},
	}
}

// Raw is the codec of bytes as they are. What it decodes is shared with the message and must not be changed.
func Raw() Codec[[]byte] {
	same := func(b []byte) ([]byte, error) { return b, nil }
	return Codec[[]byte]{Encode: same, Decode: same}
}

// TypedQueue is a view of a queue whose messages are values of one type. All methods may be called concurrently.
type TypedQueue[T any] struct {
	q     *Queue
	codec Codec[T]
}

// Typed returns a view of a queue whose messages are values of type T. A codec that lacks a function gets that of JSON.
func Typed[T any](q *Queue, codec Codec[T]) *TypedQueue[T] {
	def := JSON[T]()
	if codec.Encode == nil {
		codec.Encode = def.Encode
	}
	if codec.Decode == nil {
		codec.Decode = def.Decode
	}
	return &TypedQueue[T]{q, codec}
}

// Queue returns the queue under the view.
func (t *TypedQueue[T]) Queue() *Queue { return t.q }

// Send sends a value and returns its id once it is stored. See Queue.Send. A value that cannot be encoded is not stored.
func (t *TypedQueue[T]) Send(ctx context.Context, v T) (ID, error) {
	return t.SendMessage(ctx, v, Message{})
}

// SendMessage sends a value with the delay, key, headers and so on of m, whose body is replaced.
func (t *TypedQueue[T]) SendMessage(ctx context.Context, v T, m Message) (ID, error) {
	body, err := t.codec.Encode(v)
	if err != nil {
		return ID{}, fmt.Errorf("send to queue %q: not stored: encode %T: %w", t.q.name, v, err)
	}
	m.Body = body
	return t.q.Send(ctx, m)
}

// Consume calls handler for each value until ctx ends. See Queue.Consume, all of which holds. A body that cannot be decoded counts as a
// failed delivery, with the cause in the log: it comes again by the retry policy (a newer program may understand it) until the
// queue's limit of deliveries sends it to the dead-letter queue. FromContext gives the handler the delivery itself.
func (t *TypedQueue[T]) Consume(ctx context.Context, handler func(ctx context.Context, v T) error, o ConsumeOptions) error {
	if handler == nil {
		return t.q.Consume(ctx, nil, o)
	}
	return t.q.Consume(ctx, func(ctx context.Context, d *Delivery) error {
		v, err := t.codec.Decode(d.Body)
		if err != nil {
			return fmt.Errorf("decode message as %T: %w", v, err)
		}
		return handler(ctx, v)
	}, o)
}

// FromContext returns the delivery that a handler under Consume works on, from its context. ok is false for other contexts.
func FromContext(ctx context.Context) (d *Delivery, ok bool) {
	d, ok = ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

type deliveryKey struct{}
