package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
)

// existing is a journal whose streams are acquired only where they exist, for queues that are to be opened and not to be made: one that is deleted
// while another broker takes it over does not come back empty.
type existing struct{ journal.Journal }

// Acquire acquires a stream. If it was dropped, the error is holdfast.ErrNoQueue. The store cannot tell an owner that makes a stream from one that goes on
// with it; so what Acquire has made is dropped again.
func (e existing) Acquire(ctx context.Context, stream string) (journal.Stream, error) {
	r, err := e.Open(ctx, stream)
	if err != nil {
		return nil, err
	}
	before, err := r.Info(ctx)
	if err != nil {
		return nil, err
	}
	if before.Epoch == 0 || before.Dropped {
		return nil, holdfast.ErrNoQueue
	}
	s, err := e.Journal.Acquire(ctx, stream)
	if err != nil || s.Acquired().UID == before.UID {
		return s, err
	}
	// It was dropped in between. Somebody may have made it anew since, and stored something.
	used, err := used(ctx, s)
	if err == nil && used {
		return s, nil
	}
	if err == nil {
		err = dropNew(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the queue was deleted while it was opened: %w", err), s.Release())
	}
	return nil, holdfast.ErrNoQueue
}

// used tells whether events or a snapshot are stored in a stream.
func used(ctx context.Context, s journal.Stream) (bool, error) {
	at := s.Acquired()
	for rec, err := range s.ReadMeta(ctx, max(at.Low, 1), at.End) {
		if err != nil || rec.Kind != journal.KindEpoch {
			return err == nil, err
		}
	}
	parts, err := s.Parts(ctx, "")
	return len(parts) > 0, err
}

// dropTries is how often a drop is tried whose outcome is unknown, and dropWithin how long that may take.
const (
	dropTries  = 5
	dropWithin = 5 * time.Second
)

// dropNew drops what Acquire has made, also if whoever wanted the queue has given up meanwhile: an empty queue would stay.
func dropNew(ctx context.Context, s journal.Stream) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWithin)
	defer cancel()
	err := s.Drop(ctx)
	for try := 1; try < dropTries && errors.Is(err, journal.ErrUnknown) && ctx.Err() == nil; try++ {
		err = s.Drop(ctx)
	}
	return err
}

// droppedWithin bounds how long a broker that was fenced asks why.
const droppedWithin = 300 * time.Millisecond

// dropped tells that the queue does not exist any more, as far as the store says so at once.
func (o *owner) dropped() bool {
	ctx, cancel := context.WithTimeout(o.b.life, droppedWithin)
	defer cancel()
	ok, err := o.b.stored(ctx, o.name)
	return err == nil && !ok
}
