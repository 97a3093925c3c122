package persistent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Actor is a running actor: the owner of one stream. All of its methods may be called concurrently.
type Actor[C, E any] struct {
	c     *Context[E]
	beh   Behavior[C, E]
	box   *mailbox[C]
	taken []item[C] // out of the mailbox
	begun int       // of taken
	first []item[C] // out of the mailbox, before those
	ahead int       // begun of first
	timer *time.Timer
	fired atomic.Bool // it has, since armed was set
	final bool        // the last snapshot is under way
	//holdfast:allow context: it is that of the actor's life, which no turn brings along
	life   context.Context
	unlink func() bool   // ends what life's end does
	armed  time.Duration // when timer fires, since the clock's start; 0: it does not
	kill   context.CancelCauseFunc
	ready  chan struct{} // closed once recovered
	done   chan struct{} // closed at the end
	err    error         // valid once done is closed
	failed error         // why it could not be opened, valid once done is closed
}

// Open acquires the stream, which fences whoever owned it, rebuilds the state of b from it, and starts the
// actor. It returns once the state is rebuilt, when ctx ends, or when that fails: with an error that matches
// journal.ErrCorrupt or journal.ErrNewerFormat where the stored data is at fault; then nothing but the epoch was changed.
// b is used by this actor alone, and not again.
func Open[C, E any](ctx context.Context, j journal.Journal, stream string, b Behavior[C, E], codec Codec[E], o Options) (*Actor[C, E], error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Context[E]{stream: stream, opts: o, log: o.Logger, codec: codec, beh: b}
	c.app = appender{done: make(chan appendResult, 1)}
	c.snap.done = make(chan saved, 1)
	a := &Actor[C, E]{
		c: c, beh: b, box: newMailbox[C](o.Mailbox), kill: kill,
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	c.app.poke, c.poke = a.box.poke, a.box.poke
	c.kill, c.quit = kill, func() { a.box.close(a.stopped(nil)) }
	if o.Pool != nil {
		o.Pool.join()
		a.box.up = func() { o.Pool.submit(a) }
	}
	unlink := context.AfterFunc(ctx, func() { kill(context.Cause(ctx)) })
	go a.run(life, j, unlink)
	select {
	case <-a.ready:
		return a, nil
	case <-a.done:
		return nil, fmt.Errorf("open actor %q: %w", stream, a.failed)
	}
}

// run is the actor's goroutine.
func (a *Actor[C, E]) run(ctx context.Context, j journal.Journal, unlink func() bool) {
	opened, pooled, err := false, false, errGoexit()
	defer func() {
		if p := a.panicked(recover()); p != nil {
			err = p
		}
		if !pooled {
			a.finish(opened, err)
		}
	}()

	r, err2 := a.c.recover(ctx, j)
	if !unlink() { // the context of Open has ended
		<-ctx.Done()
		if err = context.Cause(ctx); err2 != nil {
			err = fmt.Errorf("%w: %w", err, err2)
		}
		return
	}
	if err2 != nil {
		err = err2
		return
	}
	a.c.app.begin(ctx, a.c.st, &a.c.opts, a.c.log)
	a.c.phase = running
	if err2 = a.c.undoRefused(r); err2 != nil {
		err = err2
		return
	}
	a.c.begin()
	a.beh.Recovered(a.c)
	opened = true
	a.life, a.unlink = ctx, context.AfterFunc(ctx, a.box.poke)
	close(a.ready)
	if pool := a.c.opts.Pool; pool != nil {
		pooled = true
		pool.submit(a)
		return
	}
	err = a.loop(ctx)
}

// errGoexit is why an actor ends whose behavior ended the goroutine.
func errGoexit() error { return &PanicError{Value: "the goroutine was ended (runtime.Goexit)"} }

// panicked tells of a panic; v is what was recovered.
func (a *Actor[C, E]) panicked(v any) error {
	if v == nil {
		return nil
	}
	p := &PanicError{Value: v, Stack: debug.Stack()}
	a.c.log.Error("behavior panicked, its actor stops", "panic", v, "stack", string(p.Stack))
	return p
}

// finish ends the actor, for the reason err; nil means cleanly.
func (a *Actor[C, E]) finish(opened bool, err error) {
	c := a.c
	if a.unlink != nil {
		a.unlink()
	}
	if c.opts.Pool != nil {
		defer c.opts.Pool.leave()
	}
	c.phase = ended
	a.failed, a.err = err, a.stopped(err)
	a.box.close(a.err)
	a.kill(errKilled)
	c.app.end()
	if a.timer != nil {
		a.timer.Stop()
	}
	if opened {
		c.giveUp(a.err)
		a.undelivered(a.err)
		if err != nil && !errors.Is(err, errKilled) {
			c.log.Error("actor stopped", "err", err)
		}
	}
	if c.st != nil {
		if err := c.st.Release(); err != nil {
			c.log.Warn("release of the stream failed", "err", err)
		}
	}
	close(a.done)
}

// undelivered tells of every command that was not begun.
func (a *Actor[C, E]) undelivered(err error) {
	err = notStored(err)
	drop := func(all []item[C]) {
		for _, it := range all {
			a.c.guard("Undelivered", func() { a.beh.Undelivered(it.cmd, err) })
			if it.drop != nil {
				it.drop(err)
			}
		}
	}
	drop(a.first[a.ahead:])
	drop(a.box.takeFirst(nil))
	for {
		drop(a.taken[a.begun:])
		if a.taken, a.begun = a.box.take(a.taken), 0; len(a.taken) == 0 {
			return
		}
	}
}

func (a *Actor[C, E]) stopped(cause error) error { return &stopError{stream: a.c.stream, cause: cause} }

// Tell puts a command into the mailbox. It waits for room until ctx ends. nil means that the command will be handled, unless
// the actor ends before; an error, which matches ErrNotStored, that it will not.
func (a *Actor[C, E]) Tell(ctx context.Context, cmd C) error {
	return a.refused(a.box.tell(ctx, item[C]{cmd: cmd}))
}

// TryTell is Tell without waiting: the error matches ErrMailboxFull if there is no room.
func (a *Actor[C, E]) TryTell(cmd C) error {
	return a.refused(a.box.tryTell(item[C]{cmd: cmd}))
}

// Push puts a command into the mailbox whatever Options.Mailbox says, and never waits. It is for callers
// that bound their commands by other means, such as credit.
func (a *Actor[C, E]) Push(cmd C) error {
	return a.refused(a.box.push(item[C]{cmd: cmd}))
}

// PushFirst is Push for a command that is begun before all that wait and were not given by PushFirst. It is for those that must not
// wait behind a long queue of work, and of which there are few: among themselves they keep their order.
func (a *Actor[C, E]) PushFirst(cmd C) error {
	return a.refused(a.box.pushFirst(item[C]{cmd: cmd}))
}

func (a *Actor[C, E]) refused(err error) error {
	if err == nil {
		return nil
	}
	return notStored(fmt.Errorf("tell actor %q: %w", a.c.stream, err))
}

// Stop stops the actor cleanly: it takes no more commands, handles those that it has, stores what they decided,
// makes a snapshot, and gives up the stream. It returns nil once that is done, also if it was done before;
// the error that stopped the actor otherwise; and the error of ctx if that ends first: then the actor is killed.
// It must not be called by the actor's own behavior: see [Context.Stop].
func (a *Actor[C, E]) Stop(ctx context.Context) error {
	a.c.quit()
	select {
	case <-a.done:
	case <-ctx.Done():
		select {
		case <-a.done:
		default:
			a.Kill()
			return fmt.Errorf("stop actor %q: %w", a.c.stream, context.Cause(ctx))
		}
	}
	return a.failed
}

// Kill ends the actor as a crash would, but that all who wait are told: nothing is drained and no snapshot made. What
// is being stored at that moment becomes unknown. It returns at once; wait on [Actor.Done] for the end,
// which comes as soon as the behavior's method in progress has returned.
func (a *Actor[C, E]) Kill() { a.kill(errKilled) }

// Done is closed once the actor has ended and everybody was told.
func (a *Actor[C, E]) Done() <-chan struct{} { return a.done }

// Err returns nil while the actor runs, and why it ended after Done is closed: it matches ErrStopped, and the cause,
// journal.ErrFenced or a *PanicError say, unless it ended by Stop.
func (a *Actor[C, E]) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// Stats returns figures about the actor.
func (a *Actor[C, E]) Stats() Stats { return a.c.stats.read() }
