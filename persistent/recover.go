package persistent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// recovery is what a recovery has done so far.
type recovery[E any] struct {
	from            journal.SnapshotID // restored; its zero value means none
	records, events int64
	bytes           int64               // of meta
	refused         map[uint64]entry[E] // without their bodies, and not undone so far
}

// recover acquires the stream and rebuilds the state: the newest snapshot, and the events behind it.
func (a *Context[E]) recover(ctx context.Context, j journal.Journal) (*recovery[E], error) {
	began := time.Now()
	st, err := j.Acquire(ctx, a.stream)
	if err != nil {
		return nil, err
	}
	a.st, a.own, a.lim = st, st.Acquired(), j.Limits()
	a.log = a.log.With("stream", a.stream, "epoch", a.own.Epoch)

	r := &recovery[E]{refused: map[uint64]entry[E]{}}
	if err := a.restore(ctx, r); err != nil {
		return nil, err
	}
	base := r.from
	a.clock = newClock(a.opts.Clock, max(a.own.EndTime, base.Time))
	if err := a.replayAll(ctx, r, base.Seq+1); err != nil {
		return nil, err
	}
	a.next = a.own.End + 1 // also of a stream without records
	a.stored = journal.Header{First: a.own.End, Count: 1, CRC: a.own.EndCRC, Time: a.own.EndTime}
	if r.events > 0 {
		a.snap.count(r.bytes, r.events, a.clock.elapsed, a.opts.SnapshotEvery)
	}
	a.stats.recovered(a.own, r.from.Seq)
	a.log.Info("recovered", "snapshot", r.from.Seq, "end", a.own.End, "records", r.records, "events", r.events, "bytes", r.bytes, "took", time.Since(began))
	return r, nil
}

// restore gives the behavior the state to begin with, and says in r.from which.
func (a *Context[E]) restore(ctx context.Context, r *recovery[E]) error {
	loaded, err := journal.LoadSnapshot(ctx, a.st, func(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
		a.snap.size = 0
		return a.beh.Restore(id, func(yield func([]byte, error) bool) {
			for c, err := range chunks {
				a.snap.size += int64(len(c))
				if !yield(c, err) {
					return
				}
			}
		})
	})
	if err != nil {
		return err
	}
	for _, err := range loaded.Skipped {
		a.log.Warn("snapshot passed over", "err", err)
	}
	if r.from = loaded.ID; r.from != (journal.SnapshotID{}) {
		return nil
	}
	// Of a stream that was dropped and made anew the seqs go on from what it had.
	r.from.Seq = max(a.own.Low, 1) - 1
	if err := a.beh.Restore(r.from, nil); err != nil {
		return fmt.Errorf("restore the initial state: %w", err)
	}
	return nil
}

// replayAll has the behavior apply everything that is stored from seq first on.
func (a *Context[E]) replayAll(ctx context.Context, r *recovery[E], first uint64) error {
	want, crc := first, r.from.CRC
	for rec, err := range a.st.ReadMeta(ctx, first, math.MaxUint64) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("replay from seq %d: %w", want, err)
		}
		if rec.First != want {
			return a.corrupt(want, fmt.Sprintf("want a record that begins there, the next one begins at seq %d", rec.First))
		}
		if err := a.replay(ctx, r, rec); err != nil {
			return err
		}
		want, crc = rec.Last()+1, rec.CRC
		r.records++
		r.bytes += int64(len(rec.Meta))
		if a.opts.OnProgress != nil && r.records%1024 == 0 {
			a.opts.OnProgress(rec.Last(), a.own.End)
		}
	}
	if want != a.own.End+1 || r.records > 0 && crc != a.own.EndCRC {
		return a.corrupt(want, fmt.Sprintf("the stream ends at seq %d, not at seq %d as it did when it was acquired", want-1, a.own.End))
	}
	return nil
}

// replay has the behavior apply one record.
func (a *Context[E]) replay(ctx context.Context, r *recovery[E], rec *journal.Record) error {
	switch rec.Kind {
	case journal.KindEvents:
		if err := a.replayEvents(r, rec); err != nil {
			return err
		}
	case journal.KindEpoch:
	case journal.KindSkip:
		if err := a.checkSkip(ctx, r, rec); err != nil {
			return err
		}
	default:
		return fmt.Errorf("stream %q: record at seq %d is of kind %d: %w", a.stream, rec.First, rec.Kind, journal.ErrNewerFormat)
	}
	a.next, a.stored = rec.Last()+1, rec.Header
	a.begin()
	a.beh.Stored(a, &rec.Header)
	return nil
}

// checkSkip accepts a skip record only as the beginning of a stream that never had a snapshot: then what was
// skipped was of an earlier life of the stream that it was copied from.
func (a *Context[E]) checkSkip(ctx context.Context, r *recovery[E], rec *journal.Record) error {
	if r.records == 0 && r.from.Epoch == 0 {
		parts, err := a.st.Parts(ctx, "m/")
		if err != nil {
			return fmt.Errorf("replay from seq %d: %w", rec.First, err)
		}
		if len(parts) == 0 {
			return nil
		}
	}
	return a.corrupt(rec.First, fmt.Sprintf("the events up to seq %d are discarded, and no snapshot has them", rec.Last()))
}

func (a *Context[E]) replayEvents(r *recovery[E], rec *journal.Record) error {
	for e, err := range ReadEvents(rec, a.codec) {
		if err != nil {
			if ce := (*journal.CorruptError)(nil); errors.As(err, &ce) && ce.Stream == "" {
				ce.Stream = a.stream
				return err
			}
			return fmt.Errorf("stream %q: %w", a.stream, err)
		}
		en := entry[E]{e: e.Event, seq: e.Seq, count: e.Count, at: e.At}
		a.apply(&en)
		if e.Bodyless {
			r.refused[e.Seq] = en
		}
		if e.Undoes != 0 {
			delete(r.refused, e.Undoes)
		}
		r.events++
	}
	return nil
}

// undoRefused undoes what was refused for lack of room, where a crash came before that was stored.
func (a *Context[E]) undoRefused(r *recovery[E]) error {
	for _, seq := range slices.Sorted(maps.Keys(r.refused)) {
		en := r.refused[seq]
		a.begin()
		a.locked = true
		e, ok := a.beh.Refuse(en.seq, en.at, en.e)
		a.locked = false
		if !ok {
			return a.corrupt(seq, "the event's body was refused by the store, and the behavior does not undo it any more")
		}
		if err := a.undo(e, seq); err != nil {
			return err
		}
	}
	return nil
}

func (a *Context[E]) corrupt(seq uint64, what string) error {
	return &journal.CorruptError{Stream: a.stream, Seq: seq, What: what}
}
