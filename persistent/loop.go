package persistent

import (
	"context"
	"time"
)

// loop runs the actor until it stops.
func (a *Actor[C, E]) loop(ctx context.Context) error {
	c, final := a.c, false
	for ctx.Err() == nil {
		if err := a.collect(ctx); err != nil {
			return err
		}
		c.runAfter()
		a.wake()
		worked := a.work(ctx)
		c.runAfter()
		c.capture(ctx, false)
		gave := c.handOver()
		c.stats.state(c.next, c.pendingBytes, c.full.is)
		if worked || gave || c.after.len() > 0 && c.after.front().seq <= c.stored.Last() {
			continue
		}
		if a.idle() && a.box.drained() {
			if final || c.snap.events == 0 || c.opts.NoFinalSnapshot || !c.capture(ctx, true) {
				return nil
			}
			final = true
			continue
		}
		if err := a.wait(ctx); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// collect takes the results that are there.
func (a *Actor[C, E]) collect(ctx context.Context) error {
	select {
	case res := <-a.c.app.done:
		if err := a.c.settle(ctx, res); err != nil {
			return err
		}
	default:
	}
	select {
	case out := <-a.c.snap.done:
		return a.c.snapshotDone(out)
	default:
	}
	return nil
}

// wake does what has become due.
func (a *Actor[C, E]) wake() {
	c := a.c
	if c.full.again > 0 && c.clock.elapsed() >= c.full.again {
		c.full.again = 0
	}
	if c.wakeAt != 0 && !c.blocked() && c.clock.ms() >= c.wakeAt {
		c.wakeAt = 0
		c.begin()
		a.beh.Wake(c)
	}
}

// work begins the commands that wait, until there are no more of those taken at once, or it is time to see
// to storage. It returns false if it did nothing.
func (a *Actor[C, E]) work(ctx context.Context) bool {
	c := a.c
	if a.begun == len(a.taken) {
		if c.blocked() {
			return false
		}
		a.taken, a.begun = a.box.take(a.taken), 0
	}
	worked := false
	for !c.blocked() && !c.ripe() && len(c.app.done) == 0 && ctx.Err() == nil {
		it := a.nextCommand()
		if it == nil {
			break
		}
		c.begin()
		a.beh.Command(c, it.cmd)
		worked = true
	}
	return worked
}

// nextCommand returns the command to begin with next, of those that were taken; nil if there is none.
func (a *Actor[C, E]) nextCommand() *item[C] {
	if a.ahead == len(a.first) && a.box.hurry.Load() {
		a.first, a.ahead = a.box.takeFirst(a.first), 0
	}
	switch {
	case a.ahead < len(a.first):
		a.ahead++
		return &a.first[a.ahead-1]
	case a.begun < len(a.taken):
		a.begun++
		return &a.taken[a.begun-1]
	}
	return nil
}

// allBegun tells that no command that was taken out of the mailbox waits.
func (a *Actor[C, E]) allBegun() bool { return a.begun == len(a.taken) && a.ahead == len(a.first) }

// idle tells that nothing is left to do but commands that are still in the mailbox.
func (a *Actor[C, E]) idle() bool {
	c := a.c
	return a.allBegun() && len(c.pending) == 0 && !c.app.busy && c.after.len() == 0 && !c.snap.saving && c.snap.chunks == nil
}

// wait sleeps until something comes.
func (a *Actor[C, E]) wait(ctx context.Context) error {
	c := a.c
	if a.allBegun() && !c.blocked() && !a.box.sleep() {
		return nil
	}
	defer a.box.awake()
	a.arm()
	select {
	case <-a.box.wake:
	case res := <-c.app.done:
		return c.settle(ctx, res)
	case out := <-c.snap.done:
		return c.snapshotDone(out)
	case <-a.timerC():
		a.armed = 0
	case <-ctx.Done():
	}
	return nil
}

// arm sets the timer to the next deadline. One that is armed for an earlier time is left alone: it is
// cheaper to wake up once in vain than to set a timer with every command.
func (a *Actor[C, E]) arm() {
	c := a.c
	next := time.Duration(0)
	add := func(d time.Duration) {
		if d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	add(c.full.again)
	if c.full.is && c.full.again == 0 && c.full.asked == nil && len(c.pending) == 0 {
		add(c.full.next)
	}
	if c.wakeAt != 0 && !c.blocked() {
		add(max(c.clock.at(c.wakeAt), 1))
	}
	if s := &c.snap; s.events > 0 && s.chunks == nil && !s.saving && s.due > 0 && c.cuttable() {
		add(max(s.due, s.notBefore))
	}
	if next == 0 || a.armed > 0 && a.armed <= next {
		return
	}
	a.armed = next
	if d := next - c.clock.elapsed(); a.timer == nil {
		a.timer = time.NewTimer(d)
	} else {
		a.timer.Reset(d)
	}
}

func (a *Actor[C, E]) timerC() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C
}
