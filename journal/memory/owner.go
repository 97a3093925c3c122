package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// owner is a hold on a stream: a journal.Stream.
type owner struct {
	reader
	st       *stream
	acquired journal.Info
	// importing is set on a hold of Import, whose records have the epochs of their source.
	importing bool
	dropped   atomic.Bool
}

var _ journal.Stream = (*owner)(nil)

// Acquired returns the stream's state at Acquire.
func (o *owner) Acquired() journal.Info { return o.acquired }

func (o *owner) fail(what string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, o.name, err)
}

// change runs f in one atomic step under the owner's epoch.
func (o *owner) change(ctx context.Context, what string, f func()) error {
	err := o.check(ctx)
	if err == nil {
		err = o.st.change(o.acquired, f)
	}
	if err != nil {
		return o.fail(what, err)
	}
	return nil
}

// Append stores a copy of rec.
func (o *owner) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	check := journal.CheckAppend
	if o.importing {
		check = journal.CheckImported
	}
	err := check(o.acquired, o.j.Limits(), after, rec)
	if err == nil {
		err = o.check(ctx)
	}
	if err == nil {
		body := slices.Concat(rec.Body...)
		e := &entry{Header: rec.Header, meta: bytes.Clone(rec.Meta), body: body, bodyGone: len(body) == 0}
		err = o.st.append(o.acquired, after, e, rec.Buffered)
	}
	if err != nil {
		return o.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	return nil
}

// DiscardBodies gives back bodies.
func (o *owner) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return o.change(ctx, "discard bodies of", func() { o.st.discardBodies(ranges) })
}

// DiscardMeta gives back metas.
func (o *owner) DiscardMeta(ctx context.Context, low uint64) error {
	return o.change(ctx, "discard metas of", func() { o.st.discardMeta(low) })
}

// WritePart stores a copy of data.
func (o *owner) WritePart(ctx context.Context, name string, data []byte) error {
	if err := journal.CheckPart(o.j.Limits(), name, data); err != nil {
		return o.fail("write to", err)
	}
	return o.change(ctx, fmt.Sprintf("write part %q of", name), func() {
		o.st.parts[name] = append([]byte{}, data...)
	})
}

// DeleteParts deletes parts.
func (o *owner) DeleteParts(ctx context.Context, names []string) error {
	return o.change(ctx, "delete parts of", func() {
		for _, name := range names {
			delete(o.st.parts, name)
		}
	})
}

// Drop discards the stream and ends the hold.
func (o *owner) Drop(ctx context.Context) error {
	if o.dropped.Load() {
		return nil // repeated because its first outcome was unknown to the caller
	}
	return o.change(ctx, "drop", func() {
		o.st.drop()
		o.dropped.Store(true)
		o.released.Store(true)
	})
}

// Release ends the hold.
func (o *owner) Release() error {
	o.released.Store(true)
	return nil
}
