package jetstream

import (
	"context"
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
	ctlSeq  uint64
	late    uint64 // a part that was sent on the condition that ctlSeq is late may still arrive
	head    tip    // the last message of the record subject
	dropped bool
	try     attempt // the append whose outcome is unknown
	// recent has the bodies of all records from floor on that are not discarded, by first seq.
	recent []bodyRef
	floor  uint64

	// The cleaner deletes what is discarded.
	tasks    []task
	cleaning bool
	stop     context.CancelFunc
	cleaned  map[any]struct{} // spans and partGones whose messages are deleted
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
	case c.Epoch != o.acquired.Epoch || c.UID != o.acquired.UID.String():
		return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, o.acquired.Epoch, c.Epoch)
	case c.Dropped:
		return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)
	}
	return nil
}

// state returns what is known of the control state.
func (o *owner) state() (*control, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctl, o.ctlSeq
}

// adopt keeps a control state that was stored, unless a later one is known.
func (o *owner) adopt(c *control, seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq > o.ctlSeq {
		o.ctl, o.ctlSeq = c, seq
	}
}

// reload reads the control state from the store, after a publish that it should have allowed was refused.
func (o *owner) reload(ctx context.Context, n int) error {
	if n > 0 && !pause(ctx, time.Duration(mathrand.IntN(2+min(2*n, 50)))*time.Millisecond) {
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
	h, err := o.j.head(ctx, o.name, false)
	if err != nil {
		return err
	}
	if err := o.fenced(h.ctl); err != nil {
		return err
	}
	o.adopt(h.ctl, h.seq)
	return nil
}

// change stores what f makes of the control state, and returns the number of its message. f may be called several times.
func (o *owner) change(ctx context.Context, op string, f func(next *control)) (uint64, error) {
	for n := 0; ; n++ {
		o.mu.Lock()
		next, last := o.ctl.clone(), o.ctlSeq
		next.End = o.head.end
		if _, ok := o.cleaned[livesDone{}]; ok {
			next.Unclean = false
		}
		next.Gone = slices.DeleteFunc(next.Gone, o.isCleaned)
		next.Parts = slices.DeleteFunc(next.Parts, o.isCleanedPart)
		o.mu.Unlock()
		f(next)
		seq, err := o.j.write(ctx, op, o.name,
			message{subject: o.j.names.control(o.name), data: [][]byte{encode(next)}, cond: o.j.names.control(o.name), last: last})
		if err == nil {
			next.at(seq)
			o.adopt(next, seq)
			o.changed(seq)
			return seq, nil
		}
		if o.j.dropBallast(ctx, err) {
			continue
		}
		if !errors.Is(err, errMismatch) && !errors.Is(err, errBusy) {
			return 0, err
		}
		if err := o.reload(ctx, n); err != nil {
			return 0, err
		}
	}
}

// WritePart stores a part.
func (o *owner) WritePart(ctx context.Context, name string, data []byte) error {
	if err := journal.CheckPart(o.j.limits, name, data); err != nil {
		return o.fail("write to", err)
	}
	return o.call(ctx, fmt.Sprintf("write part %q of", name), func(ctx context.Context) error {
		for n := 0; ; n++ {
			_, last := o.state()
			if o.mayComeLate(last) {
				// Something that was sent before this could replace it later. A new control message keeps it out.
				if _, err := o.change(ctx, "confirm state", func(*control) {}); err != nil {
					return err
				}
				continue
			}
			_, err := o.j.write(ctx, "write part", o.name,
				message{subject: o.j.names.part(o.name, name), data: [][]byte{data}, cond: o.j.names.control(o.name), last: last, rollup: true})
			switch {
			case err == nil:
				return nil
			case errors.Is(err, errMismatch), errors.Is(err, errBusy):
				if err := o.reload(ctx, n); err != nil {
					return err
				}
			default:
				if errors.Is(err, errNoAnswer) {
					o.mu.Lock()
					o.late = last
					o.mu.Unlock()
				}
				return err
			}
		}
	})
}

func (o *owner) mayComeLate(last uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late == last
}

// DeleteParts deletes parts.
func (o *owner) DeleteParts(ctx context.Context, names []string) error {
	return o.call(ctx, "delete parts of", func(ctx context.Context) error {
		var gone []partGone
		for _, name := range names {
			if journal.CheckName("part", name) == nil && !slices.Contains(gone, partGone{Name: name}) {
				gone = append(gone, partGone{Name: name})
			}
		}
		for first := true; first || len(gone) > 0; first = false {
			step := gone[:min(len(gone), maxPartsGone)]
			gone = gone[len(step):]
			if err := o.makeRoom(ctx); err != nil {
				return err
			}
			seq, err := o.change(ctx, "delete parts", func(next *control) { next.Parts = append(next.Parts, step...) })
			if err != nil {
				return err
			}
			for _, p := range step {
				o.add(o.gonePart(partGone{p.Name, seq}))
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
		seq, err := o.drop(ctx)
		if err != nil {
			return err
		}
		// What is left if this ends early, the next Acquire deletes. Drop is unknown until it is done.
		n := o.j.names
		for _, filter := range []string{n.bodies(o.name), n.parts(o.name)} {
			if err := o.j.purgeHooked(ctx, o.name, filter, seq); err != nil {
				return err
			}
		}
		if err := o.j.purgeHooked(ctx, o.name, n.records(o.name), seq-1); err != nil {
			return err
		}
		if err := o.j.purgeHooked(ctx, o.name, n.control(o.name), seq); err != nil {
			return err
		}
		o.mu.Lock()
		o.dropped = true
		o.mu.Unlock()
		return o.Release()
	})
}

// purgeHooked deletes messages in a call of the caller's.
func (j *Journal) purgeHooked(ctx context.Context, stream, filter string, before uint64) error {
	err := j.hooked(ctx, "delete messages", stream, func() error { return j.c.purge(ctx, filter, before) })
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return nil
}

// drop stores that the stream is dropped, and returns the number of the control message.
func (o *owner) drop(ctx context.Context) (uint64, error) {
	for n := 0; ; n++ {
		if n > 0 && !pause(ctx, time.Duration(mathrand.IntN(2+min(2*n, 50)))*time.Millisecond) {
			return 0, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		h, err := o.j.head(ctx, o.name, false)
		if err != nil {
			return 0, err
		}
		if h.broken != nil {
			return 0, h.broken
		}
		if err := o.fenced(h.ctl); err != nil {
			if errors.Is(err, journal.ErrClosed) {
				return h.seq, nil // by an earlier try
			}
			return 0, err
		}
		next := &control{
			Version: formatVersion, UID: h.ctl.UID, Epoch: h.ctl.Epoch, Low: h.tip.end + 1, LowAt: h.tip.seq + 1,
			End: h.tip.end, Dropped: true, Since: h.ctl.Since, Fences: h.ctl.Fences,
		}
		k := mark{Version: formatVersion, UID: next.UID, Epoch: next.Epoch, End: h.tip.end, CRC: h.tip.crc, Time: h.tip.time}
		rs, cs := o.j.names.records(o.name), o.j.names.control(o.name)
		seq, err := o.j.write(ctx, "drop", o.name,
			message{subject: rs, data: [][]byte{encode(k)}, cond: rs, last: h.tip.seq},
			message{subject: cs, data: [][]byte{encode(next)}, cond: cs, last: h.seq})
		if err == nil {
			return seq, nil
		}
		if !errors.Is(err, errMismatch) && !errors.Is(err, errBusy) {
			return 0, err
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
