package jetstream

import (
	"context"
	"time"
)

// task deletes messages that mean nothing any more. It may be done late, twice, or by the next owner.
type task struct {
	done any // what of the control state is then superfluous: a span or a partGone; or nil
	run  func(ctx context.Context) error
}

const (
	// maxGone is the number of discards in the control state above which an owner waits until their messages are deleted.
	maxGone = 512
	// maxPartsGone is how many parts one change of the control state deletes.
	maxPartsGone = 256
	// keptControls is how many older control messages may be left on their subject.
	keptControls = 64
)

// add gives the cleaner a task.
func (o *owner) add(t task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tasks = append(o.tasks, t)
	if o.cleaning || o.released.Load() {
		return
	}
	o.cleaning = o.j.start(o.clean)
}

// start runs f until the journal is closed, and tells whether it could.
func (j *Journal) start(f func(ctx context.Context)) bool {
	ctx, end, err := j.begin(context.Background())
	if err != nil {
		return false
	}
	j.running.Go(func() {
		f(ctx)
		_ = end(nil)
	})
	return true
}

// clean does the tasks, and ends when there are none.
func (o *owner) clean(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o.mu.Lock()
	o.stop = stop
	o.mu.Unlock()
	for {
		t, ok := o.next(ctx)
		if !ok {
			return
		}
		if o.do(ctx, t) != nil {
			pause(ctx, 500*time.Millisecond) // not to press a store that is away
		} else if o.j.light.Load() {
			o.j.layBallast(ctx)
		}
	}
}

// next takes a task. If there is none, the cleaner has ended.
func (o *owner) next(ctx context.Context) (task, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tasks) == 0 || ctx.Err() != nil || o.released.Load() {
		o.cleaning, o.stop = false, nil
		return task{}, false
	}
	t := o.tasks[0]
	o.tasks = o.tasks[1:]
	return t, true
}

// do runs a task, which is put back if it fails.
func (o *owner) do(ctx context.Context, t task) error {
	err := t.run(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.tasks = append([]task{t}, o.tasks...)
	} else if t.done != nil {
		o.cleaned[t.done] = struct{}{}
	}
	return err
}

// makeRoom helps the cleaner if the control state has become large.
func (o *owner) makeRoom(ctx context.Context) error {
	for {
		o.mu.Lock()
		if len(o.ctl.Gone)+len(o.ctl.Parts)-len(o.cleaned) < maxGone || len(o.tasks) == 0 {
			o.mu.Unlock()
			return nil
		}
		t := o.tasks[0]
		o.tasks = o.tasks[1:]
		o.mu.Unlock()
		if err := o.do(ctx, t); err != nil {
			return unknown(err)
		}
	}
}

func (o *owner) isCleaned(s span) bool         { _, ok := o.cleaned[s]; return ok }
func (o *owner) isCleanedPart(p partGone) bool { _, ok := o.cleaned[p]; return ok }

// changed is called after a change of the control state, in message seq.
func (o *owner) changed(seq uint64) {
	o.mu.Lock()
	for done := range o.cleaned {
		keep := done == any(livesDone{}) && o.ctl.Unclean
		for _, s := range o.ctl.Gone {
			keep = keep || done == any(s)
		}
		for _, p := range o.ctl.Parts {
			keep = keep || done == any(p)
		}
		if !keep {
			delete(o.cleaned, done)
		}
	}
	o.changes++
	tidy := o.changes%keptControls == 0
	o.mu.Unlock()
	if tidy {
		o.add(task{run: func(ctx context.Context) error { return o.j.c.purge(ctx, o.j.names.control(o.name), seq) }})
	}
}

// livesDone is what earlierLives makes superfluous: control.Unclean.
type livesDone struct{}

// earlierLives deletes what is left of the stream before it was dropped.
func (o *owner) earlierLives(since uint64) task {
	return task{done: livesDone{}, run: func(ctx context.Context) error {
		n := o.j.names
		for _, filter := range []string{n.bodies(o.name), n.parts(o.name), n.control(o.name)} {
			if err := o.j.c.purge(ctx, filter, since); err != nil {
				return err
			}
		}
		return o.j.c.purge(ctx, n.records(o.name), since-1)
	}}
}

// goneBodies deletes the bodies of a discard that an earlier owner has not finished.
func (o *owner) goneBodies(s span) task {
	return task{done: s, run: func(ctx context.Context) error {
		if s.From == s.To {
			return o.j.c.purge(ctx, o.j.names.bodyAt(o.name, s.From), s.Before)
		}
		filter := o.j.names.bodies(o.name)
		if s.From>>blockBits == s.To>>blockBits {
			filter = o.j.names.block(o.name, s.From>>blockBits)
		}
		refs, err := o.list(ctx, filter)
		if err != nil {
			return err
		}
		for _, b := range refs {
			if b.first < s.From || b.first > s.To {
				continue
			}
			if err := o.j.c.purge(ctx, b.subject, s.Before); err != nil {
				return err
			}
		}
		return nil
	}}
}

// deleteBodies deletes the bodies of a discard.
func (o *owner) deleteBodies(s bodySet) task {
	return task{done: s.span, run: func(ctx context.Context) error {
		for _, filter := range s.blocks {
			if err := o.j.c.purge(ctx, filter, s.span.Before); err != nil {
				return err
			}
		}
		for _, b := range s.bodies {
			var err error
			if b.seq > 0 {
				err = o.j.c.deleteMessage(ctx, b.seq)
			} else {
				err = o.j.c.purge(ctx, b.subject, s.span.Before)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}
}

// gonePart deletes the messages of a deleted part.
func (o *owner) gonePart(p partGone) task {
	return task{done: p, run: func(ctx context.Context) error {
		return o.j.c.purge(ctx, o.j.names.part(o.name, p.Name), p.Before)
	}}
}
