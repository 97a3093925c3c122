package journaltest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// metas reads from…to, verifying what must hold of any reading. It returns copies of the records, but not
// those that a driver may write on Acquire, and the error that the reading ended with.
func (e *env) metas(r journal.Reader, from, to uint64) ([]*journal.Record, error) {
	e.Helper()
	var recs []*journal.Record
	var chain journal.Chain
	var ended error
	for rec, err := range r.ReadMeta(e.ctx, from, to) {
		if ended != nil {
			e.Fatalf("ReadMeta goes on after the error %v", ended)
		}
		if ended = err; err != nil {
			continue
		}
		if rec.Body != nil {
			e.Errorf("ReadMeta yields a record with a body (seq %d)", rec.First)
		}
		if err := chain.Next(&rec.Header); err != nil {
			e.Fatalf("ReadMeta(%d, %d) yields records that do not follow one another: %v", from, to, err)
		}
		if err := rec.VerifyMeta(rec.Meta); err != nil {
			e.Fatalf("ReadMeta(%d, %d) yields a damaged record: %v", from, to, err)
		}
		if rec.Last() < from || rec.First > to {
			e.Fatalf("ReadMeta(%d, %d) yields the record of seqs %d…%d", from, to, rec.First, rec.Last())
		}
		if rec.Kind != journal.KindEpoch {
			recs = append(recs, clone(rec))
		}
	}
	if e.ctx.Err() != nil {
		e.Fatalf("out of time while reading metas: %v", ended)
	}
	return recs, ended
}

// mustMetas is metas where no error may be.
func (e *env) mustMetas(r journal.Reader, from, to uint64) []*journal.Record {
	e.Helper()
	recs, err := e.metas(r, from, to)
	if err != nil {
		e.Fatalf("ReadMeta(%d, %d): %v", from, to, err)
	}
	return recs
}

// wantMetas requires that from…to reads as the metas of want.
func (e *env) wantMetas(r journal.Reader, from, to uint64, want []*journal.Record) {
	e.Helper()
	got := e.mustMetas(r, from, to)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			e.Fatalf("ReadMeta(%d, %d) yields %d records, want %d: the one of seqs %d…%d is missing",
				from, to, len(got), len(want), want[i].First, want[i].Last())
		case i >= len(want):
			e.Fatalf("ReadMeta(%d, %d) yields %d records, want %d: the one of seqs %d…%d is not expected",
				from, to, len(got), len(want), got[i].First, got[i].Last())
		case got[i].Header != want[i].Header:
			e.Fatalf("ReadMeta(%d, %d): record %d has the header\n%+v, want\n%+v", from, to, i, got[i].Header, want[i].Header)
		case !bytes.Equal(got[i].Meta, want[i].Meta):
			e.Fatalf("ReadMeta(%d, %d): the record at seq %d has another meta than was appended", from, to, want[i].First)
		}
	}
}

// bodies reads the bodies of recs and destroys what the driver gave, which belongs to the
// caller. It returns copies.
func (e *env) bodies(r journal.Reader, recs []*journal.Record) ([]*journal.Record, error) {
	e.Helper()
	var first []uint64
	for _, rec := range recs {
		first = append(first, rec.First)
	}
	var got, given []*journal.Record
	var ended error
	for rec, err := range r.ReadBodies(e.ctx, first) {
		if ended != nil {
			e.Fatalf("ReadBodies goes on after the error %v", ended)
		}
		if ended = err; err != nil {
			continue
		}
		got = append(got, clone(rec))
		given = append(given, rec)
	}
	if e.ctx.Err() != nil {
		e.Fatalf("out of time while reading bodies: %v", ended)
	}
	for i, rec := range given {
		if !sameRecord(rec, got[i]) {
			e.Fatalf("the record that ReadBodies yielded for seq %d changed in a later step, but belongs to the caller", got[i].First)
		}
		scribble(rec)
	}
	return got, ended
}

// wantBodies requires that the bodies of want are there, in that order, and no other.
func (e *env) wantBodies(r journal.Reader, ask, want []*journal.Record) {
	e.Helper()
	got, err := e.bodies(r, ask)
	if err != nil {
		e.Fatalf("ReadBodies: %v", err)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			e.Fatalf("ReadBodies yields %d records, want %d: the one at seq %d is missing", len(got), len(want), want[i].First)
		case i >= len(want):
			e.Fatalf("ReadBodies yields %d records, want %d: the one at seq %d is not expected", len(got), len(want), got[i].First)
		case got[i].Header != want[i].Header:
			e.Fatalf("ReadBodies: record %d has the header\n%+v, want\n%+v", i, got[i].Header, want[i].Header)
		case !bytes.Equal(bytes.Join(got[i].Body, nil), bytes.Join(want[i].Body, nil)):
			e.Fatalf("ReadBodies: the record at seq %d has another body than was appended", want[i].First)
		case len(got[i].Meta) > 0 && !bytes.Equal(got[i].Meta, want[i].Meta):
			e.Fatalf("ReadBodies: the record at seq %d has another meta than was appended", want[i].First)
		}
	}
}

// wantStream requires that the stream holds exactly recs, from its lowest seq on, and ends
// where o believes.
func (o *owner) wantStream(r journal.Reader, recs []*journal.Record) {
	o.Helper()
	o.wantEnd(r)
	o.wantMetas(r, 0, all, recs)
	o.wantBodies(r, recs, recs)
}

// wantEnd requires that the stream ends where o believes, under o's epoch.
func (o *owner) wantEnd(r journal.Reader) {
	o.Helper()
	at := o.s.Acquired()
	got := o.info(r)
	want := journal.Info{
		Name: at.Name, UID: at.UID, Epoch: at.Epoch, End: o.end, EndCRC: o.crc, EndTime: o.time, Low: got.Low,
	}
	if got != want {
		o.Fatalf("the stream's info is\n%+v, want\n%+v", got, want)
	}
}

// wantNoPart requires that there is no such part.
func (e *env) wantNoPart(r journal.Reader, name string) {
	e.Helper()
	if data, err := r.ReadPart(e.ctx, name); !isNotFound(err) {
		e.Fatalf("part %q: got %d bytes and %v, want ErrNotFound", name, len(data), err)
	}
}

// wantPart requires that a part has this data.
func (e *env) wantPart(r journal.Reader, name string, want []byte) {
	e.Helper()
	got, err := r.ReadPart(e.ctx, name)
	if err != nil {
		e.Fatalf("read part %q: %v", name, err)
	}
	if !bytes.Equal(got, want) {
		e.Fatalf("part %q has not the %d bytes that were written to it, but %d others", name, len(want), len(got))
	}
}

// wantParts requires that these are the names of the parts with prefix.
func (e *env) wantParts(r journal.Reader, prefix string, want ...string) {
	e.Helper()
	got, err := r.Parts(e.ctx, prefix)
	if err != nil {
		e.Fatalf("parts: %v", err)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		e.Fatalf("parts with prefix %q: got %q, want %q", prefix, got, want)
	}
}

// photo is all that can be read of a stream, as text.
func (e *env) photo(r journal.Reader) string {
	e.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "info %+v\n", e.info(r))
	recs := e.mustMetas(r, 0, all)
	for _, rec := range recs {
		fmt.Fprintf(&b, "record %+v\n", rec.Header)
	}
	bodies, err := e.bodies(r, recs)
	if err != nil {
		e.Fatalf("ReadBodies: %v", err)
	}
	for _, rec := range bodies {
		fmt.Fprintf(&b, "body of %d, %d bytes, CRC %08x\n", rec.First, rec.BodyLen, journal.Checksum(rec.Body...))
	}
	names, err := r.Parts(e.ctx, "")
	if err != nil {
		e.Fatalf("parts: %v", err)
	}
	for _, name := range names {
		data, err := r.ReadPart(e.ctx, name)
		if err != nil {
			e.Fatalf("read part %q: %v", name, err)
		}
		fmt.Fprintf(&b, "part %q, %d bytes, CRC %08x\n", name, len(data), journal.Checksum(data))
	}
	return b.String()
}

// unchanged requires that nothing can be seen of what was done since the photo.
func (e *env) unchanged(what string, r journal.Reader, before string) {
	e.Helper()
	after := e.photo(r)
	if after == before {
		return
	}
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	i := 0
	for i < min(len(old), len(now)) && old[i] == now[i] {
		i++
	}
	e.Fatalf("%s has changed the stream: before\n%s\nnow\n%s", what, strings.Join(old[i:], "\n"), strings.Join(now[i:], "\n"))
}
