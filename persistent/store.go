package persistent

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// Store is what others than the actor may do to its stream while it runs. Calls after its end return
// journal.ErrClosed. If one of them learns that the stream has a newer owner, the actor ends.
type Store[C, E any] struct {
	journal.Reader
	a *Actor[C, E]
}

// Store returns access to the actor's stream.
func (a *Actor[C, E]) Store() Store[C, E] { return Store[C, E]{a.c.st, a} }

// DiscardBodies gives back the space of bodies, see journal.Stream.
func (s Store[C, E]) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	err := s.a.c.st.DiscardBodies(ctx, ranges)
	if errors.Is(err, journal.ErrFenced) {
		s.a.kill(err)
	}
	return err
}

// CheckOwner asks the store whether the actor still owns its stream, and ends the actor if not: the error
// then matches journal.ErrFenced. Called about once a second, it tells an idle actor that it was replaced.
func (s Store[C, E]) CheckOwner(ctx context.Context) error {
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if own := s.a.c.own; info.Epoch > own.Epoch || info.UID != own.UID {
		err := fmt.Errorf("stream %q is owned under epoch %d, by this actor under %d: %w", own.Name, info.Epoch, own.Epoch, journal.ErrFenced)
		s.a.kill(err)
		return err
	}
	return nil
}
