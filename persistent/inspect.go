package persistent

import (
	"errors"
	"fmt"
	"iter"

	"github.com/holdfastmq/holdfast/journal"
)

// StoredEvent is an event as it stands in a record.
type StoredEvent[E any] struct {
	Event E
	// Seq is the first of the Count seqs that the event takes.
	Seq, Count uint64
	// At is the queue time of its decision, Unix ms.
	At int64
	// Bodyless tells that the store refused its body, so that it counts as undone.
	Bodyless bool
	// Undoes is the seq of the bodyless event that this one undoes, 0 if none.
	Undoes uint64
}

// ReadEvents yields the events of a record of journal.KindEvents, in order, as recovery reads them, for whoever looks at a
// stream without running it. The codec decides what is decoded. An error ends it: it matches
// journal.ErrNewerFormat if a later version wrote the events, else it is a *journal.CorruptError without the stream's name.
func ReadEvents[E any](rec *journal.Record, c Codec[E]) iter.Seq2[StoredEvent[E], error] {
	return func(yield func(StoredEvent[E], error) bool) {
		r := eventReader[E]{rec: rec, codec: c, seq: rec.First}
		var err error
		if r.meta, err = newMetaReader(rec.Meta); err != nil {
			yield(StoredEvent[E]{}, r.fault(err))
			return
		}
		var held *StoredEvent[E] // a frame behind it may say more of it
		for len(r.meta.rest) > 0 {
			e, err := r.next(held)
			if err != nil {
				yield(StoredEvent[E]{}, err)
				return
			}
			if e == nil {
				continue
			}
			if held != nil && !yield(*held, nil) {
				return
			}
			held = e
		}
		if held != nil && !yield(*held, nil) {
			return
		}
		if r.seq != rec.Last()+1 {
			yield(StoredEvent[E]{}, r.corrupt(fmt.Sprintf("the record's events end before its last seq, %d", rec.Last()), nil))
		}
	}
}

// eventReader reads the events of one record.
type eventReader[E any] struct {
	rec   *journal.Record
	codec Codec[E]
	meta  metaReader
	seq   uint64 // of the next event
	buf   [2]StoredEvent[E]
	n     int
}

// next reads one frame. It returns the event that is in it, or nil if it has none: then the frame may have said more of
// the one before.
func (r *eventReader[E]) next(before *StoredEvent[E]) (*StoredEvent[E], error) {
	kind, value, bytes, err := r.meta.next()
	switch {
	case err != nil:
		return nil, r.fault(err)
	case kind == frameUndone && before == nil:
		return nil, r.fault(errMeta)
	case kind == frameUndone:
		before.Undoes = value
		return nil, nil
	case kind == frameTime:
		return nil, nil
	}
	e, err := r.codec.DecodeMeta(bytes)
	if err != nil {
		return nil, r.fault(err)
	}
	n := r.codec.Seqs(e)
	if n == 0 || n > r.rec.Last()-r.seq+1 {
		return nil, r.corrupt(fmt.Sprintf("event of %d seqs in a record that ends at seq %d", n, r.rec.Last()), nil)
	}
	if r.meta.at > r.rec.Time {
		return nil, r.corrupt("the record's events are later than the record", nil)
	}
	out := &r.buf[r.n%2]
	r.n++
	*out = StoredEvent[E]{Event: e, Seq: r.seq, Count: n, At: r.meta.at, Bodyless: kind == frameBodyless}
	r.seq += n
	return out, nil
}

// fault tells data of a later version from damage.
func (r *eventReader[E]) fault(err error) error {
	if errors.Is(err, journal.ErrNewerFormat) {
		return fmt.Errorf("events at seq %d: %w", r.seq, err)
	}
	return r.corrupt("event does not decode", err)
}

func (r *eventReader[E]) corrupt(what string, err error) error {
	return &journal.CorruptError{Seq: r.seq, What: what, Err: err}
}
