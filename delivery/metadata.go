package delivery

import "context"

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
	p, ok := ctx.Value(metadataKey{}).(*Metadata)
	if !ok {
		return m, false
	}
	return *p, true
}

type metadataKey struct{}

// messageContext is the context of one handler call. A type of its own, made by the block, costs a
// fraction of an allocation where context.WithValue costs several.
type messageContext struct {
	context.Context
	meta Metadata
}

// Value returns the metadata for its key and asks the parent for all others.
func (c *messageContext) Value(key any) any {
	if _, ok := key.(metadataKey); ok {
		return &c.meta
	}
	return c.Context.Value(key)
}
