package journaltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

var contextRules = []Rule{
	{Name: "ended", Promise: "A call whose context has ended returns at once, and an append that it gave up is settled by repeating it.", check: contextEnded},
	{Name: "cut", Promise: "A call returns soon after its context ends, wherever it is held up; a change that was under way is unknown, and settled by repeating it.", needs: needs{hooks: true}, check: contextCut},
}

// soon is what "soon after its context ends" may be on a busy machine.
func (e *env) soon() time.Duration { return min(5*time.Second, e.cfg.Timeout/2) }

// calls returns every call of a journal and a hold, by name. r is the hold's next record.
func (e *env) calls(j journal.Journal, o *owner, r *journal.Record) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := j.Acquire(ctx, "another"); return err },
		"Open":    func(ctx context.Context) error { _, err := j.Open(ctx, "orders"); return err },
		"Streams": func(ctx context.Context) (err error) {
			for _, err = range j.Streams(ctx) {
			}
			return err
		},
		"Info": func(ctx context.Context) error { _, err := o.s.Info(ctx); return err },
		"ReadMeta": func(ctx context.Context) (err error) {
			for _, err = range o.s.ReadMeta(ctx, 1, all) {
			}
			return err
		},
		"ReadBodies": func(ctx context.Context) (err error) {
			for _, err = range o.s.ReadBodies(ctx, []uint64{1, 2, 3, 4, 5}) {
			}
			return err
		},
		"ReadPart":      func(ctx context.Context) error { _, err := o.s.ReadPart(ctx, "p"); return err },
		"Parts":         func(ctx context.Context) error { _, err := o.s.Parts(ctx, ""); return err },
		"Append":        func(ctx context.Context) error { return o.s.Append(ctx, r.First-1, r) },
		"DiscardBodies": func(ctx context.Context) error { return o.s.DiscardBodies(ctx, []journal.Range{{From: 1, To: 1}}) },
		"DiscardMeta":   func(ctx context.Context) error { return o.s.DiscardMeta(ctx, 1) },
		"WritePart":     func(ctx context.Context) error { return o.s.WritePart(ctx, "p", []byte("data")) },
		"DeleteParts":   func(ctx context.Context) error { return o.s.DeleteParts(ctx, []string{"q"}) },
	}
}

// wantContextError requires that err is none, or says that the context has ended.
func (e *env) wantContextError(what string, ctx context.Context, err error) {
	e.Helper()
	if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, journal.ErrUnknown) {
		e.Fatalf("%s with an ended context: %v, want an error that matches the context's or ErrUnknown", what, err)
	}
}

func contextEnded(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(3)
	o.writePart("p", []byte("data"))
	r := o.random()
	cancelled, cancel := context.WithCancel(e.ctx)
	cancel()
	late, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		for what, f := range e.calls(e.j, o, r) {
			var err error
			e.within(what+" with an ended context", e.soon(), func() { err = f(ctx) })
			e.wantContextError(what, ctx, err)
		}
	}
	o.put(r)
	recs = append(recs, r)
	recs = append(recs, o.append(1)...)
	o.wantEnd(o.s)
	o.wantMetas(o.s, 0, all, recs)
	e.wantPart(o.s, "p", []byte("data"))
}

func contextCut(e *env) {
	for n := 1; ; n++ {
		reached := 0
		o := e.acquire(e.j, fmt.Sprintf("orders %d", n))
		recs := o.append(2)
		o.writePart("p", []byte("data"))
		r := o.random()
		for what, f := range e.calls(e.j, o, r) {
			steps := 0
			ctx, cancel := context.WithCancel(e.ctx)
			ctx = context.WithValue(ctx, hookKey{}, func(c context.Context, _, _ string, _ bool) error {
				if steps++; steps == n {
					reached++
					cancel()
					select {
					case <-c.Done():
					case <-e.ctx.Done():
					}
				}
				return nil
			})
			var err error
			e.within(fmt.Sprintf("%s, whose context ends at step %d,", what, n), e.soon(), func() { err = f(ctx) })
			e.wantContextError(what, ctx, err)
			cancel()
		}
		o.put(r)
		recs = append(recs, r)
		recs = append(recs, o.append(1)...)
		o.wantEnd(o.s)
		o.wantMetas(o.s, 0, all, recs)
		if reached == 0 {
			return
		}
	}
}
