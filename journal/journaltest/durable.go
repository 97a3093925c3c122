package journaltest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

var durableRules = []Rule{
	{Name: "reopen", Promise: "All that was stored is there after closing and opening.", needs: needs{persistent: true}, check: durableReopen},
	{Name: "power-cut", Promise: "Append returns nil once the record is on stable storage: a power cut loses nothing that was acknowledged, nor an epoch, nor a part.", needs: needs{crashes: true}, check: durableCrash},
	{Name: "power-cut-discards", Promise: "A discard may be lost by a power cut, and takes nothing else with it; the end and the epoch survive discarding everything.", needs: needs{crashes: true}, check: durableDiscards},
	{Name: "buffered", Promise: "A power cut may lose records that were Buffered, together with all later ones, until one that is not Buffered has been stored.", needs: needs{crashes: true}, check: durableBuffered},
}

func durableReopen(e *env) {
	var recs, bodies []*journal.Record
	gone := e.acquire(e.j, "gone")
	gone.append(3)
	e.must("drop", func() error { return gone.s.Drop(e.ctx) })
	for i := range 4 {
		o := e.acquire(e.j, "orders")
		added := o.append(e.cfg.Span + i)
		recs, bodies = append(recs, added...), append(bodies, added...)
		part := e.blob(100)
		o.writePart(fmt.Sprintf("part %d", i), part)
		o.discardBodies(journal.Range{From: 1, To: bodies[1].Last()})
		o.discardMeta(recs[2].First)
		recs, bodies = recs[2:], bodies[2:]
		e.must("delete parts", func() error { return o.s.DeleteParts(e.ctx, []string{fmt.Sprintf("part %d", i-2)}) })
		before := e.photo(o.s)
		e.reopen()
		r := e.reader(e.j, "orders")
		e.unchanged("closing and opening", r, before)
		e.wantMetas(r, 0, all, recs)
		e.wantBodies(r, bodies, bodies)
		e.wantPart(r, fmt.Sprintf("part %d", i), part)
		e.wantNoPart(r, fmt.Sprintf("part %d", i-2))
		if info := e.info(e.reader(e.j, "gone")); !info.Dropped || info.End != gone.end {
			e.Fatalf("the dropped stream, after opening: %+v", info)
		}
	}
}

// cut cuts the power and opens the store anew.
func (e *env) cut() {
	e.Helper()
	e.store.Crash(e)
	_ = e.j.Close()
	e.j = e.open()
}

func durableCrash(e *env) {
	var recs []*journal.Record
	var epoch uint64
	parts := map[string][]byte{}
	for i := range 12 {
		o := e.acquire(e.j, "orders")
		if at := o.s.Acquired(); at.Epoch <= epoch {
			e.Fatalf("after a power cut, epoch %d behind epoch %d", at.Epoch, epoch)
		}
		epoch = o.s.Acquired().Epoch
		o.wantStream(o.s, recs)
		for name, data := range parts {
			e.wantPart(o.s, name, data)
		}
		// What is last before the cut is an append, a part, or nothing but the Acquire.
		if i%3 > 0 {
			recs = append(recs, o.append(1+e.rng.IntN(3))...)
		}
		if i%3 == 2 {
			name := fmt.Sprintf("part %d", i%2)
			parts[name] = e.blob(200)
			o.writePart(name, parts[name])
		}
		e.cut()
		o.wantEnd(e.reader(e.j, "orders"))
	}
}

func durableDiscards(e *env) {
	var recs, bodies []*journal.Record
	low := uint64(1)
	for range 12 {
		o := e.acquire(e.j, "orders")
		added := o.append(1 + e.rng.IntN(4))
		recs, bodies = append(recs, added...), append(bodies, added...)
		if e.rng.IntN(2) == 0 {
			n := e.rng.IntN(len(bodies) + 1)
			bodies = bodies[n:]
			if n > 0 {
				o.discardBodies(journal.Range{From: 0, To: recs[len(recs)-len(bodies)-1].Last()})
			}
		}
		switch e.rng.IntN(3) {
		case 0:
			low = max(low, recs[e.rng.IntN(len(recs))].First)
			o.discardMeta(low)
		case 1:
			low = o.end + 1
			o.discardMeta(all)
		}
		e.cut()
		r := e.reader(e.j, "orders")
		o.wantEnd(r)
		got := e.info(r).Low
		if got > low {
			e.Fatalf("Info.Low is %d after a power cut, but only what is below %d was discarded", got, low)
		}
		i, _ := slices.BinarySearchFunc(recs, got, func(rec *journal.Record, seq uint64) int { return cmp.Compare(rec.First, seq) })
		e.wantMetas(r, 0, all, recs[i:])
		e.wantBodies(r, bodies, bodies)
	}
}

func durableBuffered(e *env) {
	var recs []*journal.Record
	for range 15 {
		o := e.acquire(e.j, "orders")
		kept := len(recs) // what must survive the next power cut
		for range 1 + e.rng.IntN(8) {
			r := o.random()
			r.Buffered = e.rng.IntN(3) > 0
			o.put(r)
			recs = append(recs, r)
			if !r.Buffered {
				kept = len(recs)
			}
		}
		o.wantStream(o.s, recs)
		e.cut()
		got := e.mustMetas(e.reader(e.j, "orders"), 0, all)
		if len(got) < kept || len(got) > len(recs) {
			e.Fatalf("%d records after a power cut; %d were on stable storage, %d appended", len(got), kept, len(recs))
		}
		recs = slices.Clone(recs[:len(got)])
		r := e.reader(e.j, "orders")
		e.wantMetas(r, 0, all, recs)
		e.wantBodies(r, recs, recs)
		if n := len(recs); n > 0 && e.info(r).End < recs[n-1].Last() {
			e.Fatalf("Info.End is %d after a power cut, behind the last record at %d", e.info(r).End, recs[n-1].Last())
		}
	}
}
