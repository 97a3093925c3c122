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

	want uint64 // seq at which the next record begins
	crc  uint32 // of the record before; as said by the snapshot if there was none
	uid  journal.UID
}

// recover acquires the stream and rebuilds the state: the newest snapshot, and the events behind it.
func (a *Context[E]) recover(ctx context.Context, j journal.Journal) (*recovery[E], error) {
	began := time.Now()
	r := &recovery[E]{}
	a.lim = j.Limits()
	if a.opts.Preload {
		if err := a.preload(ctx, j, r); err != nil {
			return nil, err
		}
	}
	preloaded := time.Since(began)
	st, err := j.Acquire(ctx, a.stream)
	if err != nil {
		return nil, err
	}
	a.st, a.own = st, st.Acquired()
	a.log = a.log.With("stream", a.stream, "epoch", a.own.Epoch)
	if err := a.rebuild(ctx, r); err != nil {
		return nil, err
	}
	a.next = a.own.End + 1 // also of a stream without records
	a.stored = journal.Header{First: a.own.End, Count: 1, CRC: a.own.EndCRC, Time: a.own.EndTime}
	if r.events > 0 {
		a.snap.count(r.bytes, r.events, a.clock.elapsed, a.opts.SnapshotEvery)
	}
	a.stats.recovered(a.own, r.from.Seq)
	a.log.Info("recovered", "snapshot", r.from.Seq, "end", a.own.End, "records", r.records, "events", r.events, "bytes", r.bytes,
		"took", time.Since(began), "preloaded", preloaded)
	return r, nil
}

// rebuild rebuilds the state of the acquired stream, beginning with what was preloaded if the stream goes on there.
func (a *Context[E]) rebuild(ctx context.Context, r *recovery[E]) error {
	if r.from != (journal.SnapshotID{}) || r.records > 0 {
		if a.own.UID == r.uid && a.own.Low <= r.want && r.want <= a.own.End+1 {
			a.clock = newClock(a.opts.Clock, max(a.own.EndTime, r.from.Time))
			err := a.replayAll(ctx, r)
			if !errors.Is(err, journal.ErrCorrupt) {
				return err
			}
		}
		a.log.Info("the stream is not what was preloaded, it is read anew")
	}
	if err := a.restore(ctx, a.st, r); err != nil {
		return err
	}
	a.clock = newClock(a.opts.Clock, max(a.own.EndTime, r.from.Time))
	return a.replayAll(ctx, r)
}

// replayAll has the behavior apply everything from r.want to the end of the acquired stream.
func (a *Context[E]) replayAll(ctx context.Context, r *recovery[E]) error {
	if err := a.replayTo(ctx, a.st, r, math.MaxUint64); err != nil {
		return err
	}
	if r.want != a.own.End+1 || r.records > 0 && r.crc != a.own.EndCRC {
		return a.corrupt(r.want, fmt.Sprintf("the stream ends at seq %d, not at seq %d as it did when it was acquired", r.want-1, a.own.End))
	}
	return nil
}

// restore gives the behavior the state to begin with, and says in r.from which. What r had is forgotten.
func (a *Context[E]) restore(ctx context.Context, from journal.Reader, r *recovery[E]) error {
	*r = recovery[E]{refused: map[uint64]entry[E]{}, uid: a.own.UID}
	loaded, err := journal.LoadSnapshot(ctx, from, func(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
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
		r.want, r.crc = r.from.Seq+1, r.from.CRC
		return nil
	}
	// Of a stream that was dropped and made anew the seqs go on from what it had.
	r.from.Seq = max(a.own.Low, 1) - 1
	r.want = r.from.Seq + 1
	if err := a.beh.Restore(r.from, nil); err != nil {
		return fmt.Errorf("restore the initial state: %w", err)
	}
	return nil
}

// replayTo has the behavior apply everything that is stored from r.want to seq to.
func (a *Context[E]) replayTo(ctx context.Context, from journal.Reader, r *recovery[E], to uint64) error {
	joint := r.records > 0 // where the journal does not know what was read before
	for rec, err := range from.ReadMeta(ctx, r.want, to) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("replay from seq %d: %w", r.want, err)
		}
		if rec.First != r.want {
			return a.corrupt(r.want, fmt.Sprintf("want a record that begins there, the next one begins at seq %d", rec.First))
		}
		if joint && rec.PrevCRC != r.crc {
			return a.corrupt(r.want, "the record does not follow the one that was read before it")
		}
		joint = false
		if err := a.replay(ctx, from, r, rec); err != nil {
			return err
		}
		r.want, r.crc = rec.Last()+1, rec.CRC
		r.records++
		r.bytes += int64(len(rec.Meta))
		if a.opts.OnProgress != nil && r.records%1024 == 0 {
			a.opts.OnProgress(rec.Last(), a.own.End)
		}
	}
	return nil
}

// replay has the behavior apply one record.
func (a *Context[E]) replay(ctx context.Context, from journal.Reader, r *recovery[E], rec *journal.Record) error {
	switch rec.Kind {
	case journal.KindEvents:
		if err := a.replayEvents(r, rec); err != nil {
			return err
		}
	case journal.KindEpoch:
	case journal.KindSkip:
		if err := a.checkSkip(ctx, from, r, rec); err != nil {
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
func (a *Context[E]) checkSkip(ctx context.Context, from journal.Reader, r *recovery[E], rec *journal.Record) error {
	if r.records == 0 && r.from.Epoch == 0 {
		parts, err := from.Parts(ctx, "m/")
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
