package persistent

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// handOver gives the first pending batch to the appender, if that is idle, or asks for room, and tells whether it did.
func (a *Context[E]) handOver() bool {
	if a.app.busy || a.full.again > 0 {
		return false
	}
	if len(a.pending) == 0 {
		due := a.probeDue()
		if due {
			a.probe()
		}
		return due
	}
	b := a.pending[0]
	if !b.handed {
		b.handed, b.first = true, a.clock.elapsed()
		b.rec.UID, b.rec.Epoch, b.rec.Kind = a.own.UID, a.own.Epoch, journal.KindEvents
	}
	a.give(appendJob{after: a.stored.Last(), prev: a.stored.CRC, rec: &b.rec, sealed: b.sealed})
	b.unsure, b.sealed = true, true
	return true
}

// give starts an append.
func (a *Context[E]) give(job appendJob) {
	if a.app.starts() {
		a.app.remind = a.clock.elapsed() + a.opts.AppendTimeout
	}
	a.app.give(job)
}

// stillNoAnswer says that the append under way has had no answer for long.
func (a *Context[E]) stillNoAnswer() {
	a.app.remind = a.clock.elapsed() + a.opts.AppendTimeout
	if !a.app.repeats.Load() { // else that is told
		a.log.Warn("append without an answer, it is waited for", "seq", a.app.job.rec.First)
	}
}

// settle takes the result of the append that was under way. An error ends the actor.
func (a *Context[E]) settle(ctx context.Context, res appendResult) error {
	a.app.busy, a.app.remind = false, 0
	if a.full.asked != nil {
		return a.probed(ctx, res)
	}
	b := a.pending[0]
	b.maybe, b.unsure = b.maybe || res.maybe, !res.settled
	switch {
	case res.err == nil:
		a.storedBatch(ctx, b)
		return nil
	case errors.Is(res.err, journal.ErrFull) && res.settled:
		return a.storageFull(b)
	}
	return a.appendFailed(ctx, res, b.rec.First)
}

// appendFailed is the error that ends the actor after an append.
func (a *Context[E]) appendFailed(ctx context.Context, res appendResult, seq uint64) error {
	if ctx.Err() != nil && !res.settled {
		return context.Cause(ctx)
	}
	return fmt.Errorf("append at seq %d: %w", seq, res.err)
}

// storedBatch goes on from a batch that is stored.
func (a *Context[E]) storedBatch(ctx context.Context, b *batch[E]) {
	h := b.rec.Header
	a.stored, a.storedBuffered = h, b.rec.Buffered
	a.pendingBytes -= b.size
	n := copy(a.pending, a.pending[1:])
	a.pending[n] = nil
	a.pending = a.pending[:n]
	took, events := a.clock.elapsed()-b.first, len(b.events)
	a.stats.appended(&h, events, took)
	if b.recyclable() {
		a.pool.Put(b)
	}

	a.begin()
	a.beh.Stored(a, &h)
	if h.BodyLen > 0 && a.full.is {
		a.hasRoom(h.First)
	}
	if a.opts.OnAppend != nil {
		a.opts.OnAppend(&h, events, took)
	}
	a.startSnapshot(ctx)
}

// blocked tells whether no command may be begun now.
func (a *Context[E]) blocked() bool {
	return a.hold > a.stored.Last() || a.pendingBytes >= a.opts.MaxPendingBytes || a.probeDue()
}

// begins tells whether a command may be begun now.
func (a *Context[E]) begins() bool { return !a.blocked() && !a.ripe() }

// ripe tells whether what is pending is worth an append before more commands are begun.
func (a *Context[E]) ripe() bool {
	return !a.app.busy && len(a.pending) > 0 && (len(a.pending) > 1 || a.pending[0].size >= a.opts.MaxBatchBytes)
}

// giveUp tells everybody who waits what is known, after the actor has ended with err.
func (a *Context[E]) giveUp(err error) {
	// Everything up to possible may be stored by a try that nobody knows the outcome of.
	possible := max(a.stored.Last(), a.doubt)
	if len(a.pending) > 0 && a.pending[0].unsure {
		possible = max(possible, a.pending[0].last())
	}
	for a.after.len() > 0 {
		w := a.after.pop()
		switch {
		case w.seq <= a.stored.Last():
			// Stored, but the actor ended before it was told.
		case w.err != nil && w.from > a.doubt:
			// Refused: with its body it was not stored, and without, it will be undone.
		case w.from <= possible:
			w.err = unknown(err)
		default:
			w.err = notStored(err)
		}
		a.guard("a function given to After", func() { w.fn(w.err) })
	}
	a.guard("Stopped", func() { a.beh.Stopped(err) })
}

// guard calls f of a behavior that has already failed, perhaps, and only logs if it panics.
func (a *Context[E]) guard(what string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			a.log.Error("behavior panicked while its actor was stopping", "in", what, "panic", v)
		}
	}()
	f()
}
