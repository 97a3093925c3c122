package journaltest

import (
	"slices"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

var readRules = []Rule{
	{Name: "unknown-stream", Promise: "A stream that does not exist reads as empty, with End 0, and is not made by reading.", check: readUnknownStream},
	{Name: "empty-range", Promise: "from > to reads nothing.", check: readEmptyRange},
	{Name: "ranges", Promise: "ReadMeta yields the records that hold any seq in from…to, in order.", check: readRanges},
	{Name: "bodies-order", Promise: "ReadBodies yields the records asked for, in that order, and skips what is not there.", check: readBodiesOrder},
	{Name: "early-end", Promise: "An iteration may be ended early, and begun again; other calls may be made inside it.", check: readEarlyEnd},
	{Name: "bulk", Promise: "Long streams read completely, and in order.", check: readBulk},
	{Name: "linearizable", Promise: "Reads see every append that was acknowledged before they began, by whichever owner.", check: readLinearizable},
}

func readUnknownStream(e *env) {
	for _, j := range []journal.Journal{e.j, e.second()} {
		r := e.reader(j, "nothing")
		if info, want := e.info(r), (journal.Info{Name: "nothing", Low: 1}); info != want {
			e.Fatalf("info of a stream that does not exist: %+v, want %+v", info, want)
		}
		e.wantMetas(r, 0, all, nil)
		e.wantMetas(r, 1, 10, nil)
		e.wantBodies(r, []*journal.Record{{Header: journal.Header{First: 1}}, {Header: journal.Header{First: 2}}}, nil)
		e.wantParts(r, "")
		e.wantNoPart(r, "p")
	}
	for info, err := range e.j.Streams(e.ctx) {
		e.Fatalf("reading made a stream: Streams yields %+v, %v", info, err)
	}
	r := e.reader(e.j, "later")
	o := e.acquire(e.j, "later")
	recs := o.append(2)
	o.wantStream(r, recs) // a reader of before the stream
}

func readEmptyRange(e *env) {
	o := e.acquire(e.j, "orders")
	o.append(5)
	for _, rng := range []journal.Range{{From: 1, To: 0}, {From: 2, To: 1}, {From: 4, To: 2}, {From: o.end, To: 1}, {From: all, To: 0}, {From: all, To: all - 1}} {
		e.wantMetas(o.s, rng.From, rng.To, nil)
	}
	e.wantMetas(o.s, o.end+1, all, nil)
	e.wantMetas(o.s, all, all, nil)
	e.wantMetas(o.s, 0, 0, nil)
	e.wantBodies(o.s, nil, nil)
}

func readRanges(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(12)
	o = e.acquire(e.second(), "orders")
	recs = append(recs, o.append(12)...)
	for range 80 {
		from, to := e.rng.Uint64N(o.end+3), e.rng.Uint64N(o.end+3)
		if e.rng.IntN(8) == 0 {
			to = all
		}
		var want []*journal.Record
		for _, r := range recs {
			if from <= to && r.First <= to && r.Last() >= from {
				want = append(want, r)
			}
		}
		e.wantMetas(o.s, from, to, want)
	}
}

func readBodiesOrder(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(30)
	for range 20 {
		ask := slices.Clone(recs)
		e.rng.Shuffle(len(ask), func(i, k int) { ask[i], ask[k] = ask[k], ask[i] })
		ask = ask[:1+e.rng.IntN(len(ask))]
		want := slices.Clone(ask)
		// What is not there: beyond the end, seq 0, inside a record.
		absent := []*journal.Record{{Header: journal.Header{First: o.end + 1}}, {Header: journal.Header{First: 0}}}
		for _, r := range recs {
			if r.Count > 1 {
				absent = append(absent, &journal.Record{Header: journal.Header{First: r.First + 1}})
			}
		}
		for _, r := range absent {
			ask = slices.Insert(ask, e.rng.IntN(len(ask)+1), r)
		}
		e.wantBodies(o.s, ask, want)
	}
}

func readEarlyEnd(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(20)
	metas := o.s.ReadMeta(e.ctx, 1, all)
	var first []uint64
	for _, r := range recs {
		first = append(first, r.First)
	}
	bodies := o.s.ReadBodies(e.ctx, first)
	for n := range 5 {
		for name, seq := range map[string]func(func(*journal.Record, error) bool){"ReadMeta": metas, "ReadBodies": bodies} {
			i := 0
			for rec, err := range seq {
				if err != nil {
					e.Fatalf("%s: %v", name, err)
				}
				if rec.Kind == journal.KindEpoch {
					continue
				}
				if rec.First != recs[i].First {
					e.Fatalf("%s, ranged over again, yields seq %d, want %d", name, rec.First, recs[i].First)
				}
				if i++; i > n {
					break
				}
			}
			if i != n+1 {
				e.Fatalf("%s, ranged over again, ends after %d records", name, i)
			}
		}
	}
	// The journal can be used from inside the loop.
	inside := 0
	for rec, err := range o.s.ReadMeta(e.ctx, 1, recs[9].Last()) {
		if err != nil {
			e.Fatalf("ReadMeta: %v", err)
		}
		if rec.Kind == journal.KindEpoch {
			continue
		}
		e.wantBodies(o.s, recs[inside:inside+1], recs[inside:inside+1])
		recs = append(recs, o.append(1)...)
		inside++
	}
	if inside != 10 {
		e.Fatalf("ReadMeta with other calls inside the loop yields %d records, want 10", inside)
	}
	o.wantStream(o.s, recs)
}

func readBulk(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(e.cfg.Records)
	o.wantStream(o.s, recs)
	o.wantStream(e.reader(e.second(), "orders"), recs)
	// With most bodies gone, and the metas of a third.
	var kept []*journal.Record
	for i, r := range recs {
		if i%7 == 0 {
			kept = append(kept, r)
		} else {
			o.discardBodies(journal.Range{From: r.First, To: r.Last()})
		}
	}
	third := len(recs) / 3
	o.discardMeta(recs[third].First)
	e.wantMetas(o.s, 0, all, recs[third:])
	e.wantBodies(o.s, recs, kept)
}

func readLinearizable(e *env) {
	o := e.acquire(e.j, "orders")
	r := e.reader(e.second(), "orders")
	for i := range 40 {
		if i == 20 {
			o = e.acquire(e.second(), "orders")
		}
		o.append(1)
		o.wantEnd(r)
		if got := e.mustMetas(r, o.end, all); len(got) != 1 || got[0].CRC != o.crc {
			e.Fatalf("a record that was acknowledged is not seen by a read that began afterwards")
		}
	}
	// And with reads and appends at the same time.
	var acked atomic.Uint64
	acked.Store(o.end)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < e.cfg.Records && err == nil; i++ {
			rec := o.random()
			if err = o.try(rec); err == nil {
				acked.Store(rec.Last())
			}
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				e.Fatalf("append: %v", err)
			}
			running = false
		default:
		}
		low := acked.Load()
		if info := e.info(r); info.End < low {
			e.Fatalf("Info.End is %d after seq %d was acknowledged", info.End, low)
		}
		low = acked.Load()
		got := e.mustMetas(r, low, all)
		if len(got) == 0 || got[0].Last() < low {
			e.Fatalf("ReadMeta from seq %d, which was acknowledged, yields nothing of it", low)
		}
	}
}
