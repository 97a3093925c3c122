package delivery

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Codec turns messages into bytes and back, for links between processes and for durable producers. Both
// methods must be safe for concurrent use.
type Codec[T any] interface {
	// Encode returns the bytes of v. They belong to the caller. An error refuses the send.
	Encode(v T) ([]byte, error)
	// Decode reads what Encode wrote. It may keep b, but must not change it. An error makes the message a dead
	// letter: it is not handled and not acknowledged.
	Decode(b []byte) (T, error)
}

// JSON returns the default codec, encoding/json. Fields that T does not have are ignored.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(v T) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T as JSON: %w", v, err)
	}
	return b, nil
}

func (jsonCodec[T]) Decode(b []byte) (v T, err error) {
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("decode %d bytes of JSON as %T: %w", len(b), v, err)
	}
	return v, nil
}

// Raw returns the codec of messages that are bytes already. Bodies are passed on, not copied.
func Raw() Codec[[]byte] { return rawCodec{} }

type rawCodec struct{}

func (rawCodec) Encode(v []byte) ([]byte, error) { return v, nil }
func (rawCodec) Decode(b []byte) ([]byte, error) { return b, nil }

// Protobuf returns the codec of a generated protobuf message type, *M being the message:
//
//	delivery.Protobuf[orderpb.Order]() // a Codec[*orderpb.Order]
func Protobuf[M any, P interface {
	*M
	proto.Message
}]() Codec[P] {
	return protoCodec[M, P]{}
}

type protoCodec[M any, P interface {
	*M
	proto.Message
}] struct{}

func (protoCodec[M, P]) Encode(v P) ([]byte, error) {
	b, err := proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T as protobuf: %w", v, err)
	}
	return b, nil
}

func (protoCodec[M, P]) Decode(b []byte) (P, error) {
	v := P(new(M))
	if err := proto.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("decode %d bytes of protobuf as %T: %w", len(b), v, err)
	}
	return v, nil
}

// CodecFunc makes a codec of two functions.
func CodecFunc[T any](encode func(T) ([]byte, error), decode func([]byte) (T, error)) Codec[T] {
	return funcCodec[T]{encode, decode}
}

type funcCodec[T any] struct {
	encode func(T) ([]byte, error)
	decode func([]byte) (T, error)
}

func (c funcCodec[T]) Encode(v T) ([]byte, error) { return c.encode(v) }
func (c funcCodec[T]) Decode(b []byte) (T, error) { return c.decode(b) }
