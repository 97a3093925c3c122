package persistent

import (
	"context"
	"time"
)

// after is what comes after a step.
type after uint8

const (
	another after = iota // step
	rest                 // nothing, until something comes
	end
)

// loop runs the actor until it stops.
func (a *Actor[C, E]) loop(ctx context.Context) error {
	for {
		next, err := a.step(ctx)
		switch {
		case next == end:
			return err
		case next == rest && a.rests():
			<-a.box.wake
		}
	}
}

// stepsAtOnce is how many steps a turn in a pool has, if others wait for theirs.
const stepsAtOnce = 8

// turn runs the actor until there is nothing to do, or for a while.
func (a *Actor[C, E]) turn() {
	ended, err := true, errGoexit()
	defer func() {
		if p := a.panicked(recover()); p != nil {
			err = p
		}
		if ended {
			go a.finish(true, err) // which may wait
		}
	}()
	for n := 1; ; n++ {
		next, err2 := a.step(a.life)
		switch {
		case next == end:
			err = err2
			return
		case next == rest && a.rests():
			ended = false // and from here on it is another goroutine's
			return
		case n == stepsAtOnce:
			ended = false
			a.c.opts.Pool.submit(a)
			return
		}
	}
}

// step does what there is to do. An error is the end, and so is none after a stop.
func (a *Actor[C, E]) step(ctx context.Context) (after, error) {
	c := a.c
	if ctx.Err() != nil {
		return end, context.Cause(ctx)
	}
	c.clock.look()
	if a.fired.Load() && a.fired.Swap(false) {
		a.armed = 0
	}
	if err := a.collect(ctx); err != nil {
		return end, err
	}
	c.runAfter()
	a.wake()
	worked := a.work(ctx)
	c.runAfter()
	c.capture(ctx, false)
	gave := c.handOver()
	c.stats.state(c.next, c.pendingBytes, c.full.is)
	if worked || gave || c.after.len() > 0 && c.after.front().seq <= c.stored.Last() {
		return another, nil
	}
	if a.idle() && a.box.drained() {
		if a.final || c.snap.events == 0 || c.opts.NoFinalSnapshot || !c.capture(ctx, true) {
			return end, nil
		}
		a.final = true
		return another, nil
	}
	return rest, nil
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
	if c.app.remind > 0 && c.clock.elapsed() >= c.app.remind {
		c.stillNoAnswer()
	}
	if c.wakeAt != 0 && !c.blocked() && c.clock.ms() >= c.wakeAt {
		c.wakeAt = 0
		c.begin()
		a.beh.Wake(c)
	}
}

// commandsALook is how many commands are begun in a row before the clock is looked at again.
const commandsALook = 16

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
	worked, n := false, 0
	for c.begins() && len(c.app.done) == 0 && ctx.Err() == nil {
		it := a.nextCommand()
		if it == nil {
			break
		}
		if n++; n%commandsALook == 0 {
			c.clock.look()
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

// rests announces that the actor waits until something comes: commands, or what comes with a poke, which are the result of an append or of a
// snapshot, a deadline, and the end of its life. It returns false if there is something already.
func (a *Actor[C, E]) rests() bool {
	a.arm()
	return a.box.sleep(a.allBegun() && a.c.begins())
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
	add(c.app.remind)
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
		a.timer = time.AfterFunc(d, func() {
			a.fired.Store(true)
			a.box.poke()
		})
	} else {
		a.timer.Reset(d)
	}
}
