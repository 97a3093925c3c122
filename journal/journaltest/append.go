package journaltest

import (
	"bytes"

	"github.com/holdfastmq/holdfast/journal"
)

var appendRules = []Rule{
	{Name: "stores", Promise: "Append returns nil once the record is stored, whole and as it was given.", check: appendStores},
	{Name: "shapes", Promise: "A record may lack a meta, a body, or both; parts may be of any bytes.", check: appendShapes},
	{Name: "skip", Promise: "A record of KindSkip takes all its seqs, however many.", check: appendSkip},
	{Name: "conflict", Promise: "ErrConflict: the stream does not end at after. Nothing is stored.", check: appendConflict},
	{Name: "invalid", Promise: "ErrInvalid: a record that is not sealed, or of another stream, epoch or seq. Nothing is stored.", check: appendInvalid},
	{Name: "repeat", Promise: "Append returns nil if that identical record already stands there; another one at its place is ErrConflict.", check: appendRepeat},
	{Name: "isolated", Promise: "Streams do not touch each other.", check: appendIsolated},
}

func appendStores(e *env) {
	o := e.acquire(e.j, "orders")
	var recs []*journal.Record
	for range 20 {
		recs = append(recs, o.append(1)...)
		o.wantEnd(o.s)
	}
	o.wantStream(o.s, recs)
	o.wantStream(e.reader(e.j, "orders"), recs)
	o.wantStream(e.reader(e.second(), "orders"), recs)
	if low := e.info(o.s).Low; low != 1 {
		e.Fatalf("Info.Low is %d, want 1 with nothing discarded", low)
	}
	at := o.s.Acquired()
	if at.End >= recs[0].First {
		e.Fatalf("Acquired changed with the appends: End %d", at.End)
	}
}

func appendShapes(e *env) {
	o := e.acquire(e.j, "orders")
	var recs, withBody []*journal.Record
	every := make([]byte, 512)
	for i := range every {
		every[i] = byte(i)
	}
	for _, r := range []struct{ meta, body []byte }{
		{nil, nil},
		{[]byte("m"), nil},
		{nil, []byte("b")},
		{every, every},
		{bytes.Repeat([]byte{0}, 100), bytes.Repeat([]byte{0xff}, 100)},
		{e.blob(20_000), e.blob(50_000)},
	} {
		rec := o.record(3, r.meta, r.body)
		o.put(rec)
		recs = append(recs, rec)
		if len(r.body) > 0 {
			withBody = append(withBody, rec)
		}
	}
	same := o.record(1, []byte("same time"), nil)
	same.Time = o.time
	o.seal(same)
	o.put(same)
	recs = append(recs, same)
	o.wantEnd(o.s)
	o.wantMetas(o.s, 1, all, recs)
	o.wantBodies(o.s, withBody, withBody)
}

func appendSkip(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(2)
	skip := o.record(1, nil, nil)
	skip.Kind, skip.Count = journal.KindSkip, 10_000_000_000
	o.seal(skip)
	o.put(skip)
	recs = append(recs, skip)
	recs = append(recs, o.append(2)...)
	o.wantEnd(o.s)
	o.wantMetas(o.s, 1, all, recs)
	o.wantMetas(o.s, skip.First+5_000_000_000, skip.Last(), recs[2:3])
	o.wantBodies(o.s, recs[3:], recs[3:])
}

func appendConflict(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(5)
	before := e.photo(o.s)
	for _, after := range []uint64{0, recs[1].Last(), recs[3].Last(), o.end + 1, o.end + 1000} {
		r := o.random()
		r.First = after + 1
		o.seal(r)
		e.refused("append at another place than the end", func() error { return o.s.Append(e.ctx, after, r) }, journal.ErrConflict)
		e.unchanged("a refused append", o.s, before)
	}
	r := o.random()
	if err := r.Seal(o.crc + 1); err != nil {
		e.Fatal(err)
	}
	e.refused("append of a record that follows another one than the last",
		func() error { return o.s.Append(e.ctx, o.end, r) }, journal.ErrConflict, journal.ErrInvalid)
	e.unchanged("a refused append", o.s, before)
	recs = append(recs, o.append(2)...)
	o.wantStream(o.s, recs)
}

func appendInvalid(e *env) {
	other := e.acquire(e.j, "other")
	o := e.acquire(e.j, "orders")
	recs := o.append(2)
	before := e.photo(o.s)
	for what, spoil := range map[string]func(r *journal.Record){
		"not sealed":               func(r *journal.Record) { r.CRC = 0 },
		"changed after sealing":    func(r *journal.Record) { r.Time++ },
		"with another meta length": func(r *journal.Record) { r.Meta = append(r.Meta, 'x') },
		"with another body length": func(r *journal.Record) { r.Body = append(r.Body, []byte("x")) },
		"of no events":             func(r *journal.Record) { r.Count = 0; o.seal(r) },
		"of an unknown kind":       func(r *journal.Record) { r.Kind = 0; o.seal(r) },
		"of another stream":        func(r *journal.Record) { r.UID = other.s.Acquired().UID; o.seal(r) },
		"of an earlier epoch":      func(r *journal.Record) { r.Epoch--; o.seal(r) },
		"of a later epoch":         func(r *journal.Record) { r.Epoch++; o.seal(r) },
		"that is not behind after": func(r *journal.Record) { r.First++; o.seal(r) },
		"that begins before after": func(r *journal.Record) { r.First--; o.seal(r) },
		"whose seqs are too large": func(r *journal.Record) { r.Count = all; o.seal(r) },
	} {
		r := o.random()
		spoil(r)
		after := o.end
		e.refused("append a record "+what, func() error { return o.s.Append(e.ctx, after, r) }, journal.ErrInvalid)
		e.unchanged("an append of a record "+what, o.s, before)
	}
	recs = append(recs, o.append(1)...)
	o.wantStream(o.s, recs)
}

func appendRepeat(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(4)
	before := e.photo(o.s)
	for range 3 {
		for _, r := range recs {
			c := clone(r)
			if err := e.settle(func() error { return o.s.Append(e.ctx, c.First-1, c) }); err != nil {
				e.Fatalf("repeat the append of a stored record: %v", err)
			}
		}
	}
	e.unchanged("repeating stored appends", o.s, before)

	// At the place of the last record, another one of the same epoch.
	last := recs[3]
	r := clone(last)
	r.Meta = e.blob(len(last.Meta) + 1)
	if err := r.Seal(last.PrevCRC); err != nil {
		e.Fatal(err)
	}
	e.refused("append another record at the place of a stored one",
		func() error { return o.s.Append(e.ctx, r.First-1, r) }, journal.ErrConflict)
	e.unchanged("a refused append", o.s, before)
	recs = append(recs, o.append(1)...)
	o.wantStream(o.s, recs)
}

func appendIsolated(e *env) {
	names := []string{"a", "b", "A", "a/b", "ab", "a.b"}
	owners := map[string]*owner{}
	recs := map[string][]*journal.Record{}
	for _, name := range names {
		owners[name] = e.acquire(e.j, name)
	}
	for i := range 30 {
		name := names[e.rng.IntN(len(names))]
		recs[name] = append(recs[name], owners[name].append(1)...)
		if i%3 == 0 {
			owners[name].writePart("p", []byte(name))
		}
	}
	for _, name := range names {
		owners[name].wantStream(e.reader(e.second(), name), recs[name])
	}
	o := owners["a"]
	photos := map[string]string{}
	for _, name := range names[1:] {
		photos[name] = e.photo(owners[name].s)
	}
	o.discardBodies(journal.Range{From: 0, To: all})
	o.discardMeta(all)
	e.must("drop", func() error { return o.s.Drop(e.ctx) })
	for _, name := range names[1:] {
		e.unchanged("discarding and dropping stream \"a\"", owners[name].s, photos[name])
	}
}
