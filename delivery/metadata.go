package delivery

import (
	"context"

	"github.com/holdfastmq/holdfast/delivery/window"
)

// Metadata says which message a handler is called with.
type Metadata struct {
	// ProducerID and Incarnation name its producer.
	ProducerID, Incarnation string
	// Seq is its number. With InOrder, and for business state that keeps the last processed number of each
	// producer id and incarnation, it tells what was processed before.
	Seq uint64
}

// MetadataOf returns the metadata of the message that a handler was called with, from the handler's context or
// one derived from it. ok is false for any other context.
func MetadataOf(ctx context.Context) (m Metadata, ok bool) {
	c, ok := ctx.Value(metadataKey{}).(*messageContext)
	if !ok {
		return m, false
	}
	return c.metadata(), true
}

type metadataKey struct{}

// messageContext is the context of one handler call. A type of its own, small and made by the block, costs a
// fraction of an allocation where context.WithValue costs several.
type messageContext struct {
	context.Context
	key *window.Key
	seq uint64
}

func (c *messageContext) metadata() Metadata {
	return Metadata{ProducerID: c.key.Producer, Incarnation: c.key.Incarnation, Seq: c.seq}
}

// Value returns itself for the key of MetadataOf and asks the parent for all others.
func (c *messageContext) Value(key any) any {
	if _, ok := key.(metadataKey); ok {
		return c
	}
	return c.Context.Value(key)
}
