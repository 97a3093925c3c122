package journaltest

import (
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

var discardRules = []Rule{
	{Name: "bodies", Promise: "DiscardBodies gives back the bodies of records that lie wholly inside one of the ranges, and of no other.", check: discardBodies},
	{Name: "bodies-beyond-end", Promise: "A discard that reaches beyond the end does not touch what is appended later.", check: discardBeyondEnd},
	{Name: "meta", Promise: "DiscardMeta gives back the metas of records that end before low, and raises Info.Low to the first one kept.", check: discardMeta},
	{Name: "meta-keeps-bodies", Promise: "Bodies of records below Info.Low stay readable until they are discarded themselves.", check: discardMetaKeepsBodies},
	{Name: "everything", Promise: "The end, its CRC and time, the uid and the epoch survive discarding everything.", check: discardEverything},
	{Name: "repeated", Promise: "Discarding what is discarded, or never was, is no error.", check: discardRepeated},
	{Name: "while-reading", Promise: "What is discarded while it is being read is skipped, and not taken for missing.", check: discardWhileReading},
}

func discardBodies(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(30)
	gone := map[uint64]bool{}
	for range 12 {
		var ranges []journal.Range
		for range 1 + e.rng.IntN(3) {
			from := e.rng.Uint64N(o.end + 2)
			rng := journal.Range{From: from, To: from + e.rng.Uint64N(12)}
			if e.rng.IntN(6) == 0 {
				rng.From, rng.To = rng.To+1, rng.From // empty
			}
			ranges = append(ranges, rng)
		}
		var kept []*journal.Record
		for _, r := range recs {
			for _, rng := range ranges {
				if rng.From <= r.First && r.Last() <= rng.To {
					gone[r.First] = true
				}
			}
			if !gone[r.First] {
				kept = append(kept, r)
			}
		}
		given := slices.Clone(ranges)
		o.discardBodies(given...)
		if !slices.Equal(given, ranges) {
			e.Errorf("DiscardBodies has changed the ranges that it was given")
		}
		clear(given)
		e.wantBodies(o.s, recs, kept)
		e.wantMetas(o.s, 0, all, recs)
	}
	o.wantEnd(o.s)
	if low := e.info(o.s).Low; low != 1 {
		e.Fatalf("DiscardBodies has changed Info.Low to %d", low)
	}
}

func discardBeyondEnd(e *env) {
	o := e.acquire(e.j, "orders")
	for range 3 {
		gone := o.append(3)
		o.discardBodies(journal.Range{From: 0, To: all})
		o.discardBodies(journal.Range{From: o.end + 1, To: o.end + 1000})
		recs := o.append(3)
		e.wantBodies(o.s, append(gone, recs...), recs)
		o.discardMeta(all)
		recs2 := o.append(3)
		o.wantStream(o.s, recs2)
		e.wantBodies(o.s, recs, recs)
	}
	o = e.acquire(e.second(), "orders")
	recs := o.append(3)
	e.wantBodies(o.s, recs, recs)
	e.wantMetas(o.s, recs[0].First, all, recs)
}

func discardMeta(e *env) {
	o := e.acquire(e.j, "orders")
	var recs []*journal.Record
	for range 12 {
		r := o.record(4, o.blob(20), o.blob(100))
		o.put(r)
		recs = append(recs, r)
	}
	wantLow := func(low uint64, kept []*journal.Record) {
		e.Helper()
		o.wantEnd(o.s)
		if got := e.info(o.s).Low; got != low {
			e.Fatalf("Info.Low is %d, want %d", got, low)
		}
		e.wantMetas(o.s, 0, all, kept)
		e.wantMetas(e.reader(e.second(), "orders"), low, all, kept)
	}
	for _, nothing := range []uint64{0, 1} {
		o.discardMeta(nothing)
		wantLow(1, recs)
	}
	for _, step := range []struct {
		low  uint64
		kept int
	}{
		{recs[2].First, 2},
		{recs[2].First + 1, 2}, // inside a record: it is kept
		{recs[2].Last(), 2},
		{recs[2].Last() + 1, 3},
		{recs[1].First, 3}, // lower than what is discarded already
		{recs[11].First, 11},
		{recs[11].Last(), 11},
	} {
		o.discardMeta(step.low)
		wantLow(recs[step.kept].First, recs[step.kept:])
	}
	o.discardMeta(o.end + 1)
	wantLow(o.end+1, nil)
	// Nothing is left to begin with.
	for _, low := range []uint64{all, o.end + 1, o.end, recs[1].First, 1} {
		o.discardMeta(low)
		wantLow(o.end+1, nil)
	}
	low := o.end + 1
	recs = o.append(2)
	wantLow(low, recs)
	o.discardMeta(all)
	low = o.end + 1
	o = e.acquire(e.second(), "orders")
	o.discardMeta(1)
	if at := e.info(o.s); at.Low != low {
		e.Fatalf("Info.Low is %d with everything discarded below %d", at.Low, low)
	}
}

func discardMetaKeepsBodies(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(12)
	o.discardBodies(journal.Range{From: recs[3].First, To: recs[5].Last()})
	o.discardMeta(recs[8].First)
	kept := slices.Concat(recs[:3], recs[6:])
	e.wantBodies(o.s, recs, kept)
	o = e.acquire(e.second(), "orders")
	e.wantBodies(o.s, recs, kept)
	o.discardBodies(journal.Range{From: recs[1].First, To: recs[1].Last()}, journal.Range{From: recs[7].First, To: recs[8].Last()})
	e.wantBodies(o.s, recs, []*journal.Record{recs[0], recs[2], recs[6], recs[9], recs[10], recs[11]})
	o.discardMeta(all)
	e.wantBodies(o.s, recs, []*journal.Record{recs[0], recs[2], recs[6], recs[9], recs[10], recs[11]})
	o.discardBodies(journal.Range{From: 0, To: all})
	e.wantBodies(o.s, recs, nil)
}

func discardEverything(e *env) {
	o := e.acquire(e.j, "orders")
	for i := range 3 {
		o.append(e.cfg.Span + 1)
		o.discardBodies(journal.Range{From: 0, To: all})
		o.discardMeta(all)
		o.wantEnd(o.s)
		if low := e.info(o.s).Low; low != o.end+1 {
			e.Fatalf("Info.Low is %d with everything discarded up to %d", low, o.end)
		}
		before := e.info(o.s)
		if err := o.s.Release(); err != nil {
			e.Fatalf("release: %v", err)
		}
		if e.cfg.Persistent {
			e.reopen()
		}
		if after := e.info(e.reader(e.j, "orders")); after != before {
			e.Fatalf("with everything discarded, the info was\n%+v and is now\n%+v", before, after)
		}
		next := e.acquire([]journal.Journal{e.j, e.second()}[i%2], "orders")
		at := next.s.Acquired()
		if at.UID != before.UID || at.End < o.end || at.End == o.end && (at.EndCRC != o.crc || at.EndTime != o.time) || at.Epoch <= before.Epoch {
			e.Fatalf("acquired\n%+v, behind\n%+v with everything discarded", at, before)
		}
		o = next
		recs := o.append(1)
		e.wantMetas(o.s, recs[0].First, all, recs)
	}
}

func discardRepeated(e *env) {
	o := e.acquire(e.j, "orders")
	o.discardBodies(journal.Range{From: 0, To: all}) // of an empty stream
	o.discardMeta(all)
	recs := o.append(6)
	for range 3 {
		o.discardBodies(journal.Range{From: 1, To: recs[2].Last()}, journal.Range{From: 1, To: recs[1].Last()})
		o.discardMeta(recs[2].First)
		o.discardBodies()
		o.discardBodies(journal.Range{From: 5, To: 4})
	}
	e.wantMetas(o.s, 0, all, recs[2:])
	e.wantBodies(o.s, recs, recs[3:])
	o.wantEnd(o.s)
}

func discardWhileReading(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(e.cfg.Records)
	i := 0
	last := uint64(0)
	for rec, err := range o.s.ReadMeta(e.ctx, 1, all) {
		if err != nil {
			e.Fatalf("ReadMeta, with discards at the same time: %v", err)
		}
		if rec.First <= last {
			e.Fatalf("ReadMeta yields seq %d after %d", rec.First, last)
		}
		last = rec.Last()
		if i++; i%10 == 1 {
			// Up to somewhere before or behind what is being read.
			low := recs[min(len(recs)-1, i+[]int{70, 0, 3, 25}[i/10%4])].First
			o.discardBodies(journal.Range{From: 1, To: low - 1})
			o.discardMeta(low)
		}
	}
	if last != o.end {
		e.Fatalf("ReadMeta, with discards at the same time, ends at seq %d, want %d", last, o.end)
	}
}
