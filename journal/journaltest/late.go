package journaltest

import (
	"context"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

var lateRules = []Rule{
	{Name: "append", Promise: "An owner that was held up before its append is fenced, whatever its successor has filled, discarded and dropped meanwhile, and leaves no trace.", check: lateAppend},
	{Name: "append-to-dropped", Promise: "An append that comes after the stream was dropped, or dropped and made anew, is not stored.", check: lateAppendToDropped},
	{Name: "steps", Promise: "The same, held up at any step of an append: the end that a successor acquired is final.", needs: needs{hooks: true}, check: lateSteps},
	{Name: "acquire", Promise: "An Acquire that was held up at any step is either the newest owner, at the true end, or fenced.", needs: needs{hooks: true}, check: lateAcquire},
	{Name: "own-drop", Promise: "An append under way when its own owner drops the stream leaves no trace in its next life.", needs: needs{hooks: true}, check: lateOwnDrop},
}

// overtake makes a successor that appends beyond the next bucket, discards everything, and
// goes on, in several rounds.
func (e *env) overtake(j journal.Journal, name string, drop bool) *owner {
	e.Helper()
	o := e.acquire(j, name)
	if drop {
		o.append(1)
		e.must("drop", func() error { return o.s.Drop(e.ctx) })
		o = e.acquire(j, name)
	}
	for range 2 {
		o.append(e.cfg.Span + 1)
		o.discardBodies(journal.Range{From: 0, To: all})
		o.discardMeta(all)
	}
	return o
}

// goesOn requires that a stream whose metas are all discarded is as it should be, and can be
// used on.
func (o *owner) goesOn(late *journal.Record) {
	o.Helper()
	o.wantEnd(o.s)
	o.wantMetas(o.s, 0, all, nil)
	o.wantBodies(o.s, []*journal.Record{late}, nil)
	recs := o.append(o.cfg.Span + 1)
	o.wantStream(o.s, recs)
	o2 := o.acquire(o.j, o.s.Acquired().Name)
	recs = append(recs, o2.append(1)...)
	o2.wantStream(o2.s, recs)
}

func lateAppend(e *env) {
	j := e.second()
	for lead := range e.cfg.Span {
		name := fmt.Sprintf("late %d", lead)
		old := e.acquire(e.j, name)
		old.append(lead)
		late := old.random()
		o := e.overtake(j, name, false)
		before := e.photo(o.s)
		for range 3 {
			e.refused(fmt.Sprintf("an append behind %d records of its owner, late by all of its successor's", lead),
				func() error { return old.s.Append(e.ctx, late.First-1, late) }, journal.ErrFenced)
			e.unchanged("a late append", o.s, before)
		}
		o.goesOn(late)
	}
}

func lateAppendToDropped(e *env) {
	j := e.second()
	for _, again := range []bool{false, true} {
		for _, lead := range []int{0, 1, e.cfg.Span} {
			name := fmt.Sprintf("late %d %v", lead, again)
			old := e.acquire(e.j, name)
			old.append(lead)
			late := old.random()
			o := e.acquire(j, name)
			o.append(1)
			e.must("drop", func() error { return o.s.Drop(e.ctx) })
			if again {
				o = e.overtake(j, name, true)
			}
			r := e.reader(j, name)
			before := e.photo(r)
			e.refused("an append that comes after its successor has dropped the stream",
				func() error { return old.s.Append(e.ctx, late.First-1, late) }, journal.ErrFenced)
			e.unchanged("a late append", r, before)
			if again {
				o.goesOn(late)
			}
		}
	}
}

// holdup makes a call stop at its n-th step.
type holdup struct {
	hook    Hook // for the call
	reached chan struct{}
	release chan struct{}
}

// hold returns a holdup at the n-th time, from 1, that the call is about to write, or has
// written.
func (e *env) hold(n int) *holdup {
	h := &holdup{reached: make(chan struct{}), release: make(chan struct{})}
	steps := 0 // of one call, in its goroutine
	h.hook = func(ctx context.Context, _, _ string, _ bool) error {
		steps++
		if steps != n {
			return nil
		}
		close(h.reached)
		select {
		case <-h.release:
		case <-ctx.Done():
		}
		return nil
	}
	return h
}

// start makes an append in a goroutine. It returns its outcome, and whether it
// was held up.
func (o *owner) start(h *holdup, r *journal.Record) (outcome chan error, held bool) {
	outcome = make(chan error, 1)
	ctx := o.hooked(h.hook)
	go func() { outcome <- o.s.Append(ctx, r.First-1, r) }()
	select {
	case <-h.reached:
		return outcome, true
	case err := <-outcome:
		outcome <- err
		return outcome, false
	}
}

func lateSteps(e *env) {
	j := e.second()
	held := 0
	for lead := range e.cfg.Span {
		for n := 1; ; n++ {
			name := fmt.Sprintf("late %d step %d", lead, n)
			old := e.acquire(e.j, name)
			old.append(lead)
			late := old.random()
			h := e.hold(n)
			outcome, was := old.start(h, late)
			if !was {
				if err := <-outcome; err != nil {
					e.Fatalf("append that nobody disturbs: %v", err)
				}
				break
			}
			held++
			e.lateStep(j, old, late, h, outcome)
		}
	}
	if held == 0 {
		e.Fatalf("the hook was never called from Append with the context of the call")
	}
}

// lateStep takes over while late is held up, and then lets it go on.
func (e *env) lateStep(j journal.Journal, old *owner, late *journal.Record, h *holdup, outcome chan error) {
	e.Helper()
	name := old.s.Acquired().Name
	first := e.acquire(j, name)
	stored := false
	for _, r := range e.mustMetas(first.s, 0, all) {
		stored = stored || r.CRC == late.CRC && r.First == late.First
	}
	o := e.overtake(j, name, false)
	before := e.photo(o.s)
	close(h.release)
	err := <-outcome
	if !settled(err) {
		// Nothing was injected, so this should not be; but the contract allows it.
		err = old.try(late)
	}
	switch {
	case stored && err != nil:
		e.Fatalf("an append that was stored before its successor acquired the stream is told as %v", err)
	case !stored && !isFenced(err):
		e.Fatalf("an append that was not stored when its successor acquired the stream is told as %v, want ErrFenced", err)
	}
	e.unchanged("an append that was held up on its way", o.s, before)
	o.goesOn(late)
}

func lateOwnDrop(e *env) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("dropped at step %d", n)
		old := e.acquire(e.j, name)
		old.append(2)
		late := old.random()
		h := e.hold(n)
		outcome, held := old.start(h, late)
		if !held {
			return
		}
		e.must("drop", func() error { return old.s.Drop(e.ctx) })
		close(h.release)
		<-outcome //nolint:errcheck // stored and then dropped, or refused: either is right
		r := e.reader(e.j, name)
		e.wantMetas(r, 0, all, nil)
		e.wantBodies(r, []*journal.Record{late}, nil)
		o := e.acquire(e.second(), name)
		recs := o.append(3)
		o.wantStream(o.s, recs)
	}
}

func lateAcquire(e *env) {
	j := e.second()
	for n := 1; ; n++ {
		name := fmt.Sprintf("acquired late %d", n)
		e.acquire(e.j, name).append(2)
		h := e.hold(n)
		outcome := make(chan journal.Stream, 1)
		ctx := e.hooked(h.hook)
		go func() {
			s, _ := e.j.Acquire(ctx, name) // it may give up when it is overtaken
			outcome <- s
		}()
		select {
		case <-h.reached:
		case <-outcome:
			if n == 1 {
				e.Fatalf("the hook was never called from Acquire with the context of the call")
			}
			return
		}
		o := e.overtake(j, name, n%4 >= 2)
		recs := o.append(2)
		close(h.release)
		if s := <-outcome; s != nil {
			late := e.ownerOf(s)
			loser, winner := late, o
			if s.Acquired().Epoch > o.s.Acquired().Epoch {
				loser, winner = o, late
			}
			r := loser.random()
			e.refused(fmt.Sprintf("append by epoch %d, with an epoch %d", loser.s.Acquired().Epoch, winner.s.Acquired().Epoch),
				func() error { return loser.s.Append(e.ctx, loser.end, r) }, journal.ErrFenced)
			recs = append(recs, winner.append(1)...)
			winner.wantStream(winner.s, recs)
		}
		last := e.acquire(j, name)
		recs = append(recs, last.append(1)...)
		last.wantStream(last.s, recs)
	}
}
