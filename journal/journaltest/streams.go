package journaltest

import (
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

var streamRules = []Rule{
	{Name: "list", Promise: "Streams lists the streams with their state, dropped ones included.", check: streamsList},
	{Name: "drop", Promise: "Drop discards the whole stream, parts included; name, epoch and End survive.", check: streamsDrop},
	{Name: "drop-ends-hold", Promise: "The hold ends with Drop: no later call of it has an effect; Drop itself may be repeated.", check: streamsDropEndsHold},
	{Name: "again", Promise: "A dropped stream, acquired again, goes on from its End under a higher epoch and a new uid.", check: streamsAgain},
}

// list reads Streams into a map.
func (e *env) list(j journal.Journal) map[string]journal.Info {
	e.Helper()
	infos := map[string]journal.Info{}
	for info, err := range j.Streams(e.ctx) {
		if err != nil {
			e.Fatalf("streams: %v", err)
		}
		if _, twice := infos[info.Name]; twice {
			e.Fatalf("Streams yields %q twice", info.Name)
		}
		infos[info.Name] = info
	}
	return infos
}

func streamsList(e *env) {
	if got := e.list(e.j); len(got) != 0 {
		e.Fatalf("a new store has the streams %v", got)
	}
	want := map[string]journal.Info{}
	for i := range 12 {
		name := fmt.Sprintf("stream %d", i)
		o := e.acquire(e.j, name)
		o.append(i)
		switch i % 4 {
		case 1:
			o.discardMeta(all)
		case 2:
			e.must("drop", func() error { return o.s.Drop(e.ctx) })
		}
		want[name] = e.info(e.reader(e.j, name))
		if want[name].Dropped != (i%4 == 2) || want[name].End != o.end {
			e.Fatalf("info of stream %d is %+v", i, want[name])
		}
	}
	for _, j := range []journal.Journal{e.j, e.second()} {
		got := e.list(j)
		if len(got) != len(want) {
			e.Fatalf("Streams yields %d streams, want %d", len(got), len(want))
		}
		for name, w := range want {
			if got[name] != w {
				e.Fatalf("Streams yields\n%+v, want\n%+v", got[name], w)
			}
		}
	}
	n := 0
	for _, err := range e.j.Streams(e.ctx) {
		if err != nil {
			e.Fatalf("Streams: %v", err)
		}
		if n++; n == 3 {
			break
		}
	}
}

func streamsDrop(e *env) {
	for _, n := range []int{0, 1, e.cfg.Span * 2} {
		name := fmt.Sprintf("orders %d", n)
		o := e.acquire(e.j, name)
		recs := o.append(n)
		o.writePart("p", []byte("data"))
		o.discardMeta(1 + o.end/2)
		e.must("drop", func() error { return o.s.Drop(e.ctx) })
		for _, j := range []journal.Journal{e.j, e.second()} {
			r := e.reader(j, name)
			info := e.info(r)
			if !info.Dropped || info.Epoch != o.s.Acquired().Epoch || info.End != o.end || info.EndCRC != o.crc || info.EndTime != o.time || info.Low != o.end+1 {
				e.Fatalf("info of a dropped stream that ended at %d: %+v", o.end, info)
			}
			e.wantMetas(r, 0, all, nil)
			e.wantBodies(r, recs, nil)
			e.wantParts(r, "")
			e.wantNoPart(r, "p")
		}
	}
}

func streamsDropEndsHold(e *env) {
	o := e.acquire(e.j, "orders")
	o.append(3)
	next := o.random()
	e.must("drop", func() error { return o.s.Drop(e.ctx) })
	r := e.reader(e.j, "orders")
	before := e.photo(r)
	for range 2 {
		for what, f := range o.changes(next) {
			if what == "drop" {
				e.must("drop again", f)
				continue
			}
			e.refused(what+" after Drop", f, journal.ErrClosed, journal.ErrFenced)
		}
	}
	if err := o.s.Release(); err != nil {
		e.Fatalf("release after drop: %v", err)
	}
	e.unchanged("what was tried after Drop", r, before)

	o2 := e.acquire(e.j, "orders")
	recs := o2.append(2)
	before = e.photo(o2.s)
	for what, f := range o.changes(next) {
		if err := e.settle(f); err == nil && what != "drop" {
			e.Fatalf("%s by the hold of the stream's last life: no error", what)
		}
	}
	e.unchanged("what was tried in the stream's last life", o2.s, before)
	o2.wantStream(o2.s, recs)
}

func streamsAgain(e *env) {
	uids := map[journal.UID]bool{}
	var epoch, end uint64
	for i := range 4 {
		o := e.acquire([]journal.Journal{e.j, e.second()}[i%2], "orders")
		at := o.s.Acquired()
		if uids[at.UID] {
			e.Fatalf("life %d of the stream has the uid of an earlier one", i+1)
		}
		uids[at.UID] = true
		if at.Epoch <= epoch || at.End < end || at.End > end+1 || at.Dropped {
			e.Fatalf("life %d begins with %+v, behind epoch %d and end %d", i+1, at, epoch, end)
		}
		e.wantMetas(o.s, 0, all, nil)
		e.wantParts(o.s, "")
		recs := o.append(i * (e.cfg.Span - 1))
		o.wantStream(o.s, recs)
		o.writePart("p", []byte("data"))
		next := e.acquire(e.j, "orders")
		recs = append(recs, next.append(1)...)
		next.wantStream(next.s, recs)
		epoch, end = next.s.Acquired().Epoch, next.end
		e.must("drop", func() error { return next.s.Drop(e.ctx) })
		if i%2 == 1 && e.cfg.Persistent {
			e.reopen()
		}
	}
}
