package persistent

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// watched is an actor's hold on its stream for all others. What it learns of a newer owner ends the actor.
type watched struct {
	journal.Stream
	kill context.CancelCauseFunc
}

// watch passes err on.
func (w watched) watch(err error) error {
	if errors.Is(err, journal.ErrFenced) {
		w.kill(err)
	}
	return err
}

func (w watched) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return w.watch(w.Stream.DiscardBodies(ctx, ranges))
}

func (w watched) WritePart(ctx context.Context, name string, data []byte) error {
	return w.watch(w.Stream.WritePart(ctx, name, data))
}

func (w watched) DeleteParts(ctx context.Context, names []string) error {
	return w.watch(w.Stream.DeleteParts(ctx, names))
}

func (w watched) Info(ctx context.Context) (journal.Info, error) {
	info, err := w.Stream.Info(ctx)
	if own := w.Acquired(); err == nil && (info.Epoch > own.Epoch || info.UID != own.UID) {
		w.kill(fmt.Errorf("stream %q is owned under epoch %d, by this actor under %d: %w", own.Name, info.Epoch, own.Epoch, journal.ErrFenced))
	}
	return info, w.watch(err)
}

// Journal returns the actor's hold on its stream, for what goes beside its events: reading, and discarding bodies. It may be
// used from any goroutine; calls after the actor's end return journal.ErrClosed. Appending, discarding metas, dropping and
// releasing are the actor's alone. A call of Info, or one that changes something, that learns of a newer owner ends the actor.
func (a *Context[E]) Journal() journal.Stream { return watched{a.st, a.kill} }

// Journal returns what [Context.Journal] does.
func (a *Actor[C, E]) Journal() journal.Stream { return a.c.Journal() }

// CheckOwner asks the store whether the actor still owns its stream, and ends the actor if not: the error
// then matches journal.ErrFenced. Called about once a second, it tells an idle actor that it was replaced.
func (a *Actor[C, E]) CheckOwner(ctx context.Context) error {
	info, err := a.Journal().Info(ctx)
	if own := a.c.own; err == nil && (info.Epoch > own.Epoch || info.UID != own.UID) {
		err = fmt.Errorf("stream %q has an owner of epoch %d: %w", own.Name, info.Epoch, journal.ErrFenced)
	}
	return err
}

// Fail ends the actor like Kill, with a cause of the caller's: damage that it found in what the actor has stored, say. Err
// tells it, and so do the errors of all who wait.
func (a *Actor[C, E]) Fail(cause error) { a.kill(cause) }
