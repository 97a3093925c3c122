package persistent

import (
	"context"
	"fmt"
	"sync"
)

// Reply answers an [Ask]. It may be called from anywhere; the first call counts. A behavior normally calls it
// in a function given to [Context.After], with that function's err:
//
//	a.After(func(err error) { cmd.Reply(result, err) })
type Reply[R any] func(result R, err error)

// Ask tells an actor a command that answers, and waits for the answer. command is called once to make the command,
// with where the answer goes.
//
// The error is that of the answer, or: if ctx ends while the command waits for room in the mailbox, or the
// actor stops before it has begun it, one that matches ErrNotStored; if ctx ends later, or the actor stops
// without having answered, one that matches ErrUnknown.
func Ask[R, C, E any](ctx context.Context, a *Actor[C, E], command func(Reply[R]) C) (R, error) {
	type answer struct {
		result R
		err    error
	}
	got := make(chan answer, 1)
	var once sync.Once
	reply := func(result R, err error) { once.Do(func() { got <- answer{result, err} }) }
	var none R
	drop := func(err error) { reply(none, err) }

	if err := a.box.tell(ctx, item[C]{cmd: command(reply), drop: drop}); err != nil {
		return none, a.refused(err)
	}
	select {
	case an := <-got:
		return an.result, an.err
	case <-ctx.Done():
	case <-a.done:
	}
	select {
	case an := <-got:
		return an.result, an.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return none, unknown(fmt.Errorf("ask actor %q: %w", a.c.stream, context.Cause(ctx)))
	}
	return none, unknown(a.err)
}
