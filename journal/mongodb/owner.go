package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// owner is a hold on a stream: a journal.Stream.
type owner struct {
	reader
	acquired journal.Info
	// importing is set on a hold of Import, whose records have the epochs of their source.
	importing bool

	mu      sync.Mutex // never held during a request
	ctl     *control   // as it was stored last, as far as is known
	ctlV    int64
	head    tip // the last document of the record lane
	dropped bool
	tried   journal.Header // of the append whose outcome is unknown, if unknown is set
	unknown bool

	// The cleaner removes what is discarded.
	tasks    []task
	cleaning bool
	stop     context.CancelFunc
	cleaned  map[any]struct{} // spans, partRefs and partGones that the documents tell themselves
	changes  int
}

var _ journal.Stream = (*owner)(nil)

// Acquired returns the stream's state at Acquire.
func (o *owner) Acquired() journal.Info { return o.acquired }

func (o *owner) fail(what string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, o.name, unknown(err))
}

// call makes a call of the hold.
func (o *owner) call(ctx context.Context, what string, f func(ctx context.Context) error) error {
	err := o.check()
	if err == nil {
		err = o.j.call(ctx, f)
	}
	if err != nil {
		return o.fail(what, err)
	}
	return nil
}

// fenced tells whether the state is another owner's, or that of a dropped stream.
func (o *owner) fenced(c *control) error {
	switch {
	case c == nil:
		return &journal.CorruptError{Stream: o.name, What: "its control state is gone"}
	case uint64(c.Epoch) != o.acquired.Epoch || c.UID != o.acquired.UID.String():
		return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, o.acquired.Epoch, c.Epoch)
	case c.Dropped:
		return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)
	}
	return nil
}

// reload reads the control state from the store, after a number that should have been free was taken.
func (o *owner) reload(ctx context.Context, n int) error {
	if n > 0 && !pause(ctx, time.Duration(mathrand.IntN(2+min(2*n, 50)))*time.Millisecond) {
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
	h, err := o.j.head(ctx, o.name, true)
	if err != nil {
		return err
	}
	if err := o.fenced(h.ctl); err != nil {
		return err
	}
	o.adopt(h.ctl, h.v)
	return nil
}

// adopt keeps a control state that was stored, unless a later one is known.
func (o *owner) adopt(c *control, v int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v > o.ctlV {
		o.ctl, o.ctlV = c, v
	}
}

// change stores what f makes of the control state as number v, and returns v. f may be called several times.
func (o *owner) change(ctx context.Context, op string, f func(next *control, v int64)) (int64, error) {
	for n := 0; ; n++ {
		o.mu.Lock()
		next, v := o.ctl.clone(), o.ctlV+1
		next.End = int64(o.head.end)
		next.Gone = slices.DeleteFunc(next.Gone, func(s span) bool { return o.isCleaned(s) })
		next.Parts = slices.DeleteFunc(next.Parts, func(p partRef) bool { return o.isCleaned(p) })
		next.GoneParts = slices.DeleteFunc(next.GoneParts, func(p partGone) bool { return o.isCleaned(p) })
		o.mu.Unlock()
		f(next, v)
		err := o.j.insert(ctx, op, o.name, o.j.control, &controlDoc{ID: key(o.name, v), Stream: o.name, V: v, State: *next})
		if err == nil {
			o.adopt(next, v)
			o.changed(v)
			return v, nil
		}
		if !errors.Is(err, errTaken) {
			return 0, err
		}
		if err := o.reload(ctx, n); err != nil {
			return 0, err
		}
	}
}

// DiscardBodies gives back bodies: which ones is stored in the control state, so that a fenced owner discards nothing; they are
// removed afterwards.
func (o *owner) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return o.call(ctx, "discard bodies of", func(ctx context.Context) error {
		o.mu.Lock()
		end := o.head.end
		o.mu.Unlock()
		var spans []span
		for _, r := range ranges {
			if from, to := max(r.From, 1), min(r.To, end); from <= to {
				spans = append(spans, span{int64(from), int64(to)})
			}
		}
		for first := true; first || len(spans) > 0; first = false {
			step := spans[:min(len(spans), maxStep)]
			spans = spans[len(step):]
			if err := o.makeRoom(ctx); err != nil {
				return err
			}
			if _, err := o.change(ctx, "discard bodies", func(next *control, _ int64) { next.Gone = append(next.Gone, step...) }); err != nil {
				return err
			}
			for _, s := range step {
				o.add(o.goneBodies(s))
			}
		}
		return nil
	})
}

// DiscardMeta gives back metas.
func (o *owner) DiscardMeta(ctx context.Context, low uint64) error {
	return o.call(ctx, "discard metas of", func(ctx context.Context) error {
		o.mu.Lock()
		end := o.head.end
		o.mu.Unlock()
		first := int64(end) + 1
		if low <= end {
			var d recordDoc
			found, err := o.j.findOne(ctx, o.j.records, o.holding(low), &d, lastFirst().SetProjection(noParts))
			if err != nil {
				return err
			}
			first = 1
			if found && uint64(d.Last) >= low {
				first = d.First
			}
		}
		if _, err := o.change(ctx, "discard metas", func(next *control, _ int64) { next.Low = max(next.Low, first) }); err != nil {
			return err
		}
		o.add(o.goneMetas())
		return nil
	})
}

// WritePart stores a part: its document first, and then the control state that makes it valid.
func (o *owner) WritePart(ctx context.Context, name string, data []byte) error {
	if err := journal.CheckPart(o.j.limits, name, data); err != nil {
		return o.fail("write to", err)
	}
	return o.call(ctx, fmt.Sprintf("write part %q of", name), func(ctx context.Context) error {
		if err := o.makeRoom(ctx); err != nil {
			return err
		}
		d := &partDoc{
			ID: o.name + "\t" + name + "\t" + rand.Text(), Stream: o.name, Name: name, Epoch: int64(o.acquired.Epoch), Data: data,
		}
		if d.Data == nil {
			d.Data = []byte{}
		}
		if err := o.j.insert(ctx, "write part", o.name, o.j.parts, d); err != nil {
			return err
		}
		ref := partRef{Name: name, ID: d.ID}
		v, err := o.change(ctx, "write part", func(next *control, v int64) {
			ref.V = v
			next.Parts = append(next.Parts, ref)
		})
		if err != nil {
			return err
		}
		o.add(o.writtenPart(partRef{name, d.ID, v}))
		return nil
	})
}

// DeleteParts deletes parts.
func (o *owner) DeleteParts(ctx context.Context, names []string) error {
	return o.call(ctx, "delete parts of", func(ctx context.Context) error {
		names := slices.Clone(names)
		for first := true; first || len(names) > 0; first = false {
			step := names[:min(len(names), maxStep)]
			names = names[len(step):]
			if err := o.makeRoom(ctx); err != nil {
				return err
			}
			v, err := o.change(ctx, "delete parts", func(next *control, v int64) {
				for _, name := range step {
					next.GoneParts = append(next.GoneParts, partGone{name, v})
				}
			})
			if err != nil {
				return err
			}
			for _, name := range step {
				o.add(o.gonePart(partGone{name, v}))
			}
		}
		return nil
	})
}

// Drop discards the stream and ends the hold.
func (o *owner) Drop(ctx context.Context) error {
	o.mu.Lock()
	dropped := o.dropped
	o.mu.Unlock()
	if dropped {
		return nil // repeated because its first outcome was unknown to the caller
	}
	return o.call(ctx, "drop", func(ctx context.Context) error {
		if err := o.drop(ctx); err != nil {
			return err
		}
		// What is left if this ends early, the next Acquire removes. Drop is unknown until it is done.
		if err := o.j.hooked(ctx, "remove", o.name, o.earlier().run); err != nil {
			return err
		}
		o.mu.Lock()
		o.dropped = true
		o.mu.Unlock()
		return o.Release()
	})
}

// drop inserts a mark, so that an append of the owner's own that is under way is refused, and a control state that says that the
// stream is dropped.
func (o *owner) drop(ctx context.Context) error {
	for n := 0; ; n++ {
		if n > 0 && !pause(ctx, time.Duration(mathrand.IntN(2+min(2*n, 50)))*time.Millisecond) {
			return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		h, err := o.j.head(ctx, o.name, true)
		if err == nil {
			err = h.broken
		}
		if err != nil {
			return err
		}
		if err := o.fenced(h.ctl); err != nil {
			if errors.Is(err, journal.ErrClosed) {
				return nil // by an earlier try
			}
			return err
		}
		next := &control{
			Version: schemaVersion, UID: h.ctl.UID, Epoch: h.ctl.Epoch, Low: int64(h.tip.end) + 1, End: int64(h.tip.end),
			Begin: int64(h.tip.end) + 1, Since: h.v + 1, Dropped: true, Fences: h.ctl.Fences,
		}
		err = o.j.insert(ctx, "drop", o.name, o.j.records, &recordDoc{
			ID: key(o.name, h.tip.pos+1), Stream: o.name, Pos: h.tip.pos + 1, Owner: next.Epoch,
			Mark: &mark{UID: next.UID, Rec: h.tip.last, End: next.End, CRC: int64(h.tip.crc), Time: h.tip.time},
		})
		if err == nil {
			err = o.j.insert(ctx, "drop", o.name, o.j.control, &controlDoc{ID: key(o.name, h.v+1), Stream: o.name, V: h.v + 1, State: *next})
		}
		if err == nil || !errors.Is(err, errTaken) {
			return err
		}
	}
}

// Release ends the hold.
func (o *owner) Release() error {
	o.released.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		o.stop()
	}
	return nil
}
