package persistent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// fullness is what is known about the room in the store.
type fullness struct {
	is    bool            // the store refused a record, and has not taken one with a body since
	again time.Duration   // since the clock's start: the first pending record is not tried before; 0: at once
	next  time.Duration   // since the clock's start: when the store is asked again
	asked *journal.Record // the question that is under way, or nil
}

// probeBytes is the size of the body that asks whether there is room.
const probeBytes = 4 << 10

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
	a.full.next = now + a.opts.FullRetry
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

// probeDue tells whether it is time to ask the store whether it has room again. No command is begun then, so that
// the seq of the question is not given to an event meanwhile: if there is no room, it was never used.
func (a *Context[E]) probeDue() bool {
	return a.full.is && a.full.again == 0 && (a.full.asked != nil || a.clock.elapsed() >= a.full.next)
}

// probe asks: it appends a record that is of no meaning, but has a body.
func (a *Context[E]) probe() {
	n := min(probeBytes, a.lim.MaxRecordBytes-journal.HeaderSize)
	a.full.asked = &journal.Record{
		Header: journal.Header{UID: a.own.UID, Epoch: a.own.Epoch, Kind: journal.KindEpoch, First: a.next, Count: 1, Time: a.clock.ms()},
		Body:   [][]byte{make([]byte, n)},
	}
	a.give(appendJob{after: a.stored.Last(), prev: a.stored.CRC, rec: a.full.asked})
}

// probed goes on from the answer.
func (a *Context[E]) probed(ctx context.Context, res appendResult) error {
	rec := a.full.asked
	a.full.asked = nil
	switch {
	case res.err == nil:
	case errors.Is(res.err, journal.ErrFull) && res.settled:
		a.full.next = a.clock.elapsed() + a.opts.FullRetry
		return nil
	default:
		return a.appendFailed(ctx, res, rec.First)
	}
	a.next, a.stored, a.storedBuffered = rec.Last()+1, rec.Header, false
	a.stats.appended(&rec.Header, 0, 0)
	st, log := a.st, a.log
	go func() {
		if err := st.DiscardBodies(ctx, []journal.Range{{From: rec.First, To: rec.First}}); err != nil {
			log.Debug("discard of a body that asked for room failed", "seq", rec.First, "err", err)
		}
	}()
	a.begin()
	a.beh.Stored(a, &rec.Header)
	a.hasRoom(rec.First)
	return nil
}

// hasRoom goes on once a record with a body was stored.
func (a *Context[E]) hasRoom(seq uint64) {
	a.full = fullness{}
	a.log.Info("storage has room again", "seq", seq)
	a.begin()
	a.beh.Full(a, false)
}
