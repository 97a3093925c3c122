package persistent

import (
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// fullness is what is known about the room in the store.
type fullness struct {
	is    bool          // the store refused a record, and has not taken one with a body since
	trial bool          // an event with a body was let through, to see
	until time.Duration // since the clock's start: none is let through before
	again time.Duration // since the clock's start: the first pending record is not tried before; 0: at once
}

// storageFull goes on after the store refused batch b, the first pending one, for lack of room.
//
// All pending events are decided and applied, and later ones were decided on top of them, so none of them
// can be taken back. They can be undone: each event with a body is followed, behind everything that is
// decided, by one without a body that undoes it. Then the bodies are left out, and what is to be
// stored is small enough for the room that the store keeps for deletes.
//
// A frame in the meta tells recovery which events are bodyless and which are undone: the two may be in
// different records, and where a crash comes between them recovery does the undoing. So once an event stands in
// the stream without its body, it is proved that it will never count, and those who wait for it are told.
func (a *Context[E]) storageFull(b *batch[E]) error {
	if b.maybe {
		a.doubt = b.last()
	}
	now := a.clock.elapsed()
	a.full.trial, a.full.until = false, now+a.opts.FullRetry
	if !a.full.is {
		a.full.is = true
		a.log.Warn("storage full: bodies are refused, the rest goes on", "seq", b.rec.First, "bytes", b.rec.Size())
		a.begin()
		a.beh.Full(a, true)
	}
	a.dropCapture()
	n, err := a.refuse()
	if err != nil {
		return err
	}
	if n == 0 {
		a.full.again = now + a.opts.FullRetry
		return nil
	}
	a.rebatch()
	return nil
}

// refuse undoes the pending events with bodies, and returns how many it could.
func (a *Context[E]) refuse() (n int, err error) {
	a.begin()
	for i := range len(a.pending) {
		for k := range len(a.pending[i].events) {
			en := a.pending[i].events[k]
			if en.bodyLen == 0 {
				continue
			}
			a.locked = true
			undo, ok := a.beh.Refuse(en.seq, en.at, en.e)
			a.locked = false
			if !ok {
				continue
			}
			if err := a.undo(undo, en.seq); err != nil {
				return n, err
			}
			// Undoing may have moved the events.
			a.pending[i].events[k].bodyless = true
			n++
			for w := range a.after.len() {
				if w := &a.after.all()[w]; en.seq <= w.seq && (w.none || w.from <= en.seq) {
					w.err = notStored(fmt.Errorf("event at seq %d: %w", en.seq, journal.ErrFull))
				}
			}
		}
	}
	return n, nil
}

// undo persists the event that undoes the one at seq.
func (a *Context[E]) undo(e E, seq uint64) error {
	a.scratch.body = a.codec.AppendBody(a.scratch.body[:0], e)
	for _, c := range a.scratch.body {
		if len(c) > 0 {
			return fmt.Errorf("event that undoes the refused one at seq %d has a body", seq)
		}
	}
	if err := a.persist([]E{e}, seq); err != nil {
		return fmt.Errorf("undo the refused event at seq %d: %w", seq, err)
	}
	return nil
}

// rebatch forms the pending records anew, without the bodies of refused events.
func (a *Context[E]) rebatch() {
	old := a.pending
	a.pending, a.pendingBytes = nil, 0
	for _, b := range old {
		for rest := b.events; len(rest) > 0; {
			n := 1
			for n < len(rest) && !rest[n].head {
				n++
			}
			a.readd(b, rest[:n])
			rest = rest[n:]
		}
	}
}

// readd adds a group of the batch b, that was formed before, to the pending ones. A record never has both
// bodies and events whose body was left out, so that it is clear where in its body part each body is.
func (a *Context[E]) readd(b *batch[E], group []entry[E]) {
	size, bodies, bodyless := 0, false, false
	for i := range group {
		en := &group[i]
		size += en.meta.to - en.meta.from
		bodyless = bodyless || en.bodyless
		if !en.bodyless {
			size += en.bodyLen
			bodies = bodies || en.bodyLen > 0
		}
	}
	if n := len(a.pending); n > 0 {
		p := a.pending[n-1]
		p.closed = p.closed || bodies && p.bodyless || bodyless && p.bodies
	}
	to := a.openBatch(size, len(group))
	before := to.size
	for _, en := range group {
		to.add(en, b.rec.Meta[en.meta.from:en.meta.to], b.rec.Body[en.body.from:en.body.to])
	}
	a.pendingBytes += to.size - before
}
