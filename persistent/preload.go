package persistent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

const (
	// preloadTries is how often a stream is read anew whose owner has discarded meanwhile what was to be read next.
	preloadTries = 3
	// preloadRounds bounds how often a stream that grows is read to its end before it is acquired.
	preloadRounds = 8
	// preloadNear is how little a round may take for the rest to be read after Acquire.
	preloadNear = 50 * time.Millisecond
)

// preload reads the stream up to its end, or nearly so, without owning it: who owns it goes on meanwhile, and is not
// disturbed at all if the stream cannot be read.
func (a *Context[E]) preload(ctx context.Context, j journal.Journal, r *recovery[E]) error {
	from, err := j.Open(ctx, a.stream)
	for try := 1; err == nil; try++ {
		err = a.preloadOnce(ctx, from, r)
		if err == nil || try == preloadTries || !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNotFound) {
			break
		}
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("preload: %w", err)
	}
	return nil
}

func (a *Context[E]) preloadOnce(ctx context.Context, from journal.Reader, r *recovery[E]) (err error) {
	*r = recovery[E]{}
	if a.own, err = from.Info(ctx); err != nil || a.own.Dropped || a.own.Epoch == 0 {
		return err // without an error: there is nothing to read
	}
	if err := a.restore(ctx, from, r); err != nil {
		return err
	}
	for range preloadRounds {
		began := time.Now()
		a.clock = newClock(a.opts.Clock, max(a.own.EndTime, r.from.Time))
		if err := a.replayTo(ctx, from, r, a.own.End); err != nil || time.Since(began) < preloadNear {
			return err
		}
		if a.own, err = from.Info(ctx); err != nil {
			return err
		}
	}
	return nil
}
