package journaltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

var unknownRules = []Rule{
	{Name: "append", Promise: "An append whose request or answer was lost is stored once when it is repeated.", needs: needs{hooks: true}, check: unknownAppend},
	{Name: "stored-then-fenced", Promise: "An append that was stored, whose answer was lost, and whose retry is refused by a newer epoch, is told as stored.", needs: needs{hooks: true}, check: unknownStoredThenFenced},
	{Name: "lost-then-fenced", Promise: "An append whose request was lost, and whose retry is refused by a newer epoch, is told as fenced and leaves no trace.", needs: needs{hooks: true}, check: unknownLostThenFenced},
	{Name: "acquire", Promise: "An Acquire whose request or answer was lost is settled by acquiring again.", needs: needs{hooks: true}, check: unknownAcquire},
	{Name: "changes", Promise: "Discards, parts and Drop whose request or answer was lost are settled by repeating them.", needs: needs{hooks: true}, check: unknownChanges},
	{Name: "many", Promise: "Any number of lost requests and answers loses, doubles and reorders nothing.", needs: needs{hooks: true}, check: unknownMany},
}

// loseAt returns a hook that loses the n-th request (after false) or answer (after true) of the
// calls made with it, having first run meanwhile, if not nil. hit is set once it did.
func loseAt(n int, after bool, meanwhile func()) (h Hook, hit *bool) {
	hit = new(bool)
	calls := 0
	return func(_ context.Context, _, _ string, a bool) error {
		if a != after {
			return nil
		}
		calls++
		if calls != n {
			return nil
		}
		*hit = true
		if meanwhile != nil {
			meanwhile()
		}
		return errInjected
	}, hit
}

// eachLoss runs f with every single request, or answer, of a call lost in turn. f makes
// the call with ctx and settles it.
func (e *env) eachLoss(after bool, f func(what string, ctx context.Context)) {
	e.Helper()
	kind := map[bool]string{false: "request", true: "answer"}[after]
	for n := 1; ; n++ {
		h, hit := loseAt(n, after, nil)
		f(fmt.Sprintf("%s %d lost", kind, n), e.hooked(h))
		if !*hit {
			if n == 1 {
				e.Fatalf("the hook was never called with the context of the call")
			}
			return
		}
	}
}

func unknownAppend(e *env) {
	o := e.acquire(e.j, "orders")
	var recs []*journal.Record
	for range e.cfg.Span {
		for _, after := range []bool{false, true} {
			e.eachLoss(after, func(what string, ctx context.Context) {
				r := o.random()
				if err := e.settle(func() error { return o.s.Append(ctx, o.end, r) }); err != nil {
					e.Fatalf("append with %s, repeated: %v", what, err)
				}
				recs = append(recs, r)
				o.end, o.crc, o.time = r.Last(), r.CRC, r.Time
				o.wantEnd(o.s)
			})
		}
	}
	o.wantStream(o.s, recs)
}

func unknownStoredThenFenced(e *env) {
	j := e.second()
	for lead := range e.cfg.Span {
		for n := 1; ; n++ {
			name := fmt.Sprintf("stored %d, answer %d", lead, n)
			old := e.acquire(e.j, name)
			old.append(lead)
			r := old.random()
			var o *owner
			stored := false
			h, hit := loseAt(n, true, func() {
				o = e.acquire(j, name)
				for _, got := range e.mustMetas(o.s, 0, all) {
					stored = stored || got.CRC == r.CRC && got.First == r.First
				}
				o.append(1)
			})
			err := old.settleFenced(e.hooked(h), r)
			if !*hit {
				break
			}
			if stored && err != nil {
				e.Fatalf("an append that is stored, with its answer lost and its retry refused, is told as %v", err)
			}
			if !stored && !isFenced(err) {
				e.Fatalf("an append that is not stored, with an answer lost and its retry refused, is told as %v", err)
			}
			o.append(1)
			o.wantEnd(o.s)
			e.wantPlace(o.s, r, stored)
		}
	}
}

// settleFenced appends r and repeats it while the outcome is unknown.
func (o *owner) settleFenced(ctx context.Context, r *journal.Record) error {
	return o.settle(func() error { return o.s.Append(ctx, r.First-1, r) })
}

// wantPlace requires that r stands in the stream, or that it does not.
func (e *env) wantPlace(rd journal.Reader, r *journal.Record, stored bool) {
	e.Helper()
	found := false
	for _, got := range e.mustMetas(rd, 0, all) {
		found = found || got.Header == r.Header
	}
	if found != stored {
		e.Fatalf("the record at seq %d of epoch %d: in the stream %v, want %v", r.First, r.Epoch, found, stored)
	}
}

func unknownLostThenFenced(e *env) {
	j := e.second()
	for lead := range e.cfg.Span {
		name := fmt.Sprintf("lost %d", lead)
		old := e.acquire(e.j, name)
		old.append(lead)
		r := old.random()
		var o *owner
		h, hit := loseAt(1, false, func() {
			o = e.acquire(j, name)
			o.append(e.cfg.Span)
		})
		err := old.settleFenced(e.hooked(h), r)
		if !*hit {
			e.Fatalf("the hook was never called from Append with the context of the call")
		}
		if !isFenced(err) {
			e.Fatalf("an append whose request was lost, with a newer owner meanwhile: %v, want ErrFenced", err)
		}
		o.append(1)
		o.wantEnd(o.s)
		e.wantPlace(o.s, r, false)
	}
}

func unknownAcquire(e *env) {
	var recs []*journal.Record
	epoch := uint64(0)
	for _, after := range []bool{false, true} {
		e.eachLoss(after, func(what string, ctx context.Context) {
			var s journal.Stream
			if err := e.settle(func() (err error) { s, err = e.j.Acquire(ctx, "orders"); return err }); err != nil {
				e.Fatalf("acquire with %s, repeated: %v", what, err)
			}
			at := s.Acquired()
			if at.Epoch <= epoch {
				e.Fatalf("acquire with %s: epoch %d after %d", what, at.Epoch, epoch)
			}
			epoch = at.Epoch
			o := e.ownerOf(s)
			recs = append(recs, o.append(2)...)
			o.wantStream(o.s, recs)
		})
	}
}

func unknownChanges(e *env) {
	for _, after := range []bool{false, true} {
		i := 0
		e.eachLoss(after, func(what string, ctx context.Context) {
			i++
			o := e.acquire(e.j, fmt.Sprintf("orders %v %d", after, i))
			recs := o.append(4)
			o.writePart("old", []byte("data"))
			again := func(name string, f func() error) {
				e.Helper()
				if err := e.settle(f); err != nil {
					e.Fatalf("%s with %s, repeated: %v", name, what, err)
				}
			}
			// One hook for all of them: each loss meets one of the calls.
			again("write part", func() error { return o.s.WritePart(ctx, "new", []byte("more")) })
			again("delete parts", func() error { return o.s.DeleteParts(ctx, []string{"old"}) })
			again("discard bodies", func() error { return o.s.DiscardBodies(ctx, []journal.Range{{From: 1, To: recs[1].Last()}}) })
			again("discard metas", func() error { return o.s.DiscardMeta(ctx, recs[2].First) })
			e.wantPart(o.s, "new", []byte("more"))
			e.wantParts(o.s, "", "new")
			o.wantStream(o.s, recs[2:])
			e.wantBodies(o.s, recs[:2], nil)
			again("drop", func() error { return o.s.Drop(ctx) })
			r := e.reader(e.j, o.s.Acquired().Name)
			if info := e.info(r); !info.Dropped || info.End != o.end {
				e.Fatalf("drop with %s, repeated, leaves %+v, want it dropped with end %d", what, info, o.end)
			}
		})
	}
}

func unknownMany(e *env) {
	ctx := e.hooked(e.flaky(0.3))
	var recs []*journal.Record
	j := e.second()
	for i := range 4 {
		var s journal.Stream
		e.must("acquire", func() (err error) {
			s, err = []journal.Journal{e.j, j}[i%2].Acquire(ctx, "orders")
			return err
		})
		o := e.ownerOf(s)
		for range e.cfg.Records / 8 {
			r := o.random()
			if err := e.settle(func() error { return o.s.Append(ctx, o.end, r) }); err != nil {
				e.Fatalf("append: %v", err)
			}
			o.end, o.crc, o.time = r.Last(), r.CRC, r.Time
			recs = append(recs, r)
		}
		o.wantStream(o.s, recs)
	}
}

// isFenced tells ErrFenced from an outcome that is unknown.
func isFenced(err error) bool {
	return errors.Is(err, journal.ErrFenced) && !errors.Is(err, journal.ErrUnknown)
}

func isNotFound(err error) bool { return errors.Is(err, journal.ErrNotFound) }
