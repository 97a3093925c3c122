package journaltest

import (
	"errors"

	"github.com/holdfastmq/holdfast/journal"
)

var fenceRules = []Rule{
	fenced("append", "append"),
	fenced("discard-bodies", "discard bodies"),
	fenced("discard-meta", "discard metas"),
	fenced("write-part", "write a part"),
	fenced("add-part", "add a part"),
	fenced("delete-parts", "delete parts"),
	fenced("drop", "drop"),
	{Name: "reads", Promise: "An owner that is fenced can read on, and sees what its successor stored.", check: fenceReads},
	{Name: "stored-then-fenced", Promise: "An append that was stored before the fence is told as stored when it is repeated behind it, never as ErrFenced or ErrConflict.", check: fenceStored},
	{Name: "same-place", Promise: "An owner whose record's place was taken by its successor gets ErrFenced.", check: fenceSamePlace},
}

// fenced is the rule that one kind of change by a fenced owner is ErrFenced and has no effect.
func fenced(name, change string) Rule {
	return Rule{
		Name:    name,
		Promise: "A caller whose epoch is no longer the newest gets ErrFenced from every change, and none of them has an effect.",
		check: func(e *env) {
			old := e.acquire(e.j, "orders")
			recs := old.append(3)
			old.writePart("p", []byte("data"))
			next := old.random()
			o := e.acquire(e.second(), "orders")
			before := e.photo(o.s)
			for range 2 {
				e.refused(change+" by a fenced owner", old.changes(next)[change], journal.ErrFenced)
				e.unchanged("what a fenced owner tried,", o.s, before)
			}
			recs = append(recs, o.append(2)...)
			before = e.photo(o.s)
			e.refused(change+" by a fenced owner", old.changes(next)[change], journal.ErrFenced)
			e.unchanged("what a fenced owner tried,", o.s, before)
			o.wantStream(o.s, recs)
			e.wantPart(o.s, "p", []byte("data"))
		},
	}
}

func fenceReads(e *env) {
	old := e.acquire(e.j, "orders")
	recs := old.append(3)
	o := e.acquire(e.second(), "orders")
	recs = append(recs, o.append(2)...)
	o.writePart("p", []byte("data"))
	o.wantStream(old.s, recs)
	e.wantPart(old.s, "p", []byte("data"))
	if at := old.s.Acquired(); at.Epoch >= o.s.Acquired().Epoch {
		e.Fatalf("Acquired of the fenced owner now says epoch %d", at.Epoch)
	}
}

func fenceStored(e *env) {
	for _, n := range []int{1, 2, 5} { // how many records the owner had appended
		for _, later := range []int{0, 1, 5} { // and its successor
			old := e.acquire(e.j, "orders")
			recs := old.append(n)
			o := e.acquire(e.second(), "orders")
			o.append(later)
			before := e.photo(o.s)
			for _, r := range recs {
				err := e.settle(func() error { return old.s.Append(e.ctx, r.First-1, r) })
				if err != nil {
					e.Fatalf("repeat an append that was stored before the fence: %v, want nil", err)
				}
			}
			e.unchanged("repeating appends of before the fence", o.s, before)
		}
	}
	// Even where the record has been discarded meanwhile, it is not told as refused.
	old := e.acquire(e.j, "orders")
	recs := old.append(2)
	o := e.acquire(e.second(), "orders")
	o.append(3)
	o.discardBodies(journal.Range{From: 0, To: all})
	o.discardMeta(all)
	for _, r := range recs {
		if err := old.s.Append(e.ctx, r.First-1, r); errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrConflict) {
			e.Fatalf("repeat an append that was stored, and discarded by the successor: %v, want nil or ErrUnknown", err)
		}
	}
}

func fenceSamePlace(e *env) {
	for _, lead := range []int{0, 1, 4} {
		old := e.acquire(e.j, "orders")
		old.append(lead)
		next := old.random()
		o := e.acquire(e.second(), "orders")
		o.append(3)
		before := e.photo(o.s)
		for range 2 {
			e.refused("append at a place that the successor has taken",
				func() error { return old.s.Append(e.ctx, next.First-1, next) }, journal.ErrFenced)
		}
		e.unchanged("the append of a fenced owner", o.s, before)
	}
}
