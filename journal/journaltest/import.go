package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

var importRules = []Rule{
	{Name: "copy", Promise: "A copied stream has the records of its source unchanged: uid, seqs, epochs, CRCs; an owner goes on behind them under a higher epoch.", needs: needs{imports: true}, check: importCopy},
	{Name: "from-the-middle", Promise: "A copy can begin behind what its source has discarded.", needs: needs{imports: true}, check: importFromTheMiddle},
	{Name: "without-bodies", Promise: "A record whose body was discarded is stored as such, and takes no other's place.", needs: needs{imports: true}, check: importWithoutBodies},
	{Name: "larger-before", Promise: "Of a record whose body was discarded only what is left of it has to fit.", needs: needs{imports: true}, check: importLargerBefore},
	{Name: "resume", Promise: "Import goes on with a copy under its uid where that ends, and its epoch is no lower than told.", needs: needs{imports: true}, check: importResume},
	{Name: "another-stream", Promise: "Import into a stream of another uid, or one that was dropped, is ErrConflict and changes nothing.", needs: needs{imports: true}, check: importAnotherStream},
	{Name: "refuses", Promise: "An importer's Append refuses what does not follow, is of a higher epoch, or of another uid.", needs: needs{imports: true}, check: importRefuses},
	{Name: "fenced", Promise: "Acquire fences an importer, and Import an owner.", needs: needs{imports: true}, check: importFenced},
	{Name: "unknown", Promise: "An Import or an imported record whose request or answer was lost is settled by repeating it.", needs: needs{imports: true, hooks: true}, check: importUnknown},
	{Name: "persistent", Promise: "A copy is there after the journal was opened again.", needs: needs{imports: true, persistent: true}, check: importPersistent},
}

// source is a stream as it might be read from another journal: of several epochs.
type source struct {
	info journal.Info
	recs []*journal.Record
}

// newSource makes a source of n records behind seq end.
func (e *env) newSource(end uint64, n int) *source {
	e.Helper()
	s := &source{info: journal.Info{UID: journal.UID(e.blob(16)), Epoch: 3, End: end}}
	if end > 0 {
		s.info.EndCRC, s.info.EndTime = uint32(e.rng.Uint64()), 1000
	}
	s.extend(e, n)
	return s
}

// extend adds n records; every third is of a higher epoch.
func (s *source) extend(e *env, n int) []*journal.Record {
	e.Helper()
	last := journal.Header{First: s.info.End, Count: 1, CRC: s.info.EndCRC, Time: s.info.EndTime}
	if len(s.recs) > 0 {
		last = s.recs[len(s.recs)-1].Header
	}
	for i := range n {
		if i%3 == 2 {
			s.info.Epoch += uint64(1 + e.rng.IntN(3))
		}
		r := &journal.Record{
			Header: journal.Header{
				UID: s.info.UID, Epoch: s.info.Epoch, First: last.Last() + 1, Count: uint64(1 + e.rng.IntN(4)),
				Kind: journal.KindEvents, Time: last.Time + int64(e.rng.IntN(2)),
			},
			Meta: e.blob(1 + e.rng.IntN(60)), Body: e.chunks(e.blob(1 + e.rng.IntN(300))),
		}
		if err := r.Seal(last.CRC); err != nil {
			e.Fatalf("seal: %v", err)
		}
		s.recs = append(s.recs, r)
		last = r.Header
	}
	return s.recs[len(s.recs)-n:]
}

func (e *env) importer(j journal.Journal) journal.Importer {
	e.Helper()
	i, ok := j.(journal.Importer)
	if !ok {
		e.Fatalf("Config.Imports is set, but the journal is no journal.Importer")
	}
	return i
}

func (e *env) imports(j journal.Journal, name string, from journal.Info) *owner {
	e.Helper()
	var s journal.Stream
	e.must(fmt.Sprintf("import stream %q", name), func() (err error) {
		s, err = e.importer(j).Import(e.ctx, name, from)
		return err
	})
	if at := s.Acquired(); at.UID != from.UID || at.Epoch < from.Epoch || at.Dropped || at.Name != name {
		e.Fatalf("imported from %+v, the state is %+v", from, at)
	}
	return e.ownerOf(s)
}

func (o *owner) putAll(recs []*journal.Record) {
	o.Helper()
	for _, r := range recs {
		o.put(r)
	}
}

// wantNext requires that an owner can go on behind recs, under an epoch above all of src.
func (e *env) wantNext(j journal.Journal, name string, src *source, recs []*journal.Record) {
	e.Helper()
	o := e.acquire(j, name)
	last := recs[len(recs)-1]
	if at := o.s.Acquired(); at.Epoch <= src.info.Epoch || at.UID != src.info.UID || at.End < last.Last() || at.End > last.Last()+1 {
		e.Fatalf("acquired a copy that ends at seq %d, epoch %d: %+v", last.Last(), src.info.Epoch, at)
	}
	recs = append(slices.Clip(recs), o.append(2)...)
	o.wantStream(e.reader(j, name), recs)
}

func importCopy(e *env) {
	src := e.newSource(0, 40)
	o := e.imports(e.j, "copy", src.info)
	if at := o.s.Acquired(); at.End != 0 || at.EndCRC != 0 || at.EndTime != 0 || at.Low != 1 {
		e.Fatalf("the state of a new copy is %+v", at)
	}
	o.putAll(src.recs)
	o.wantStream(o.s, src.recs)
	part := e.blob(500)
	o.writePart("p", part)
	o.discardBodies(journal.Range{From: src.recs[2].First, To: src.recs[3].Last()})
	o.wantBodies(o.s, src.recs, slices.Concat(src.recs[:2], src.recs[4:]))
	if err := o.s.Release(); err != nil {
		e.Fatalf("release: %v", err)
	}
	j := e.second()
	n := e.acquire(j, "copy")
	if at := n.s.Acquired(); at.Epoch <= src.info.Epoch || at.UID != src.info.UID {
		e.Fatalf("acquired a copy up to epoch %d: %+v", src.info.Epoch, at)
	}
	e.wantPart(n.s, "p", part)
	recs := append(slices.Clip(src.recs), n.append(3)...)
	e.wantMetas(e.reader(j, "copy"), 0, all, recs)
	n.wantEnd(n.s)
}

func importFromTheMiddle(e *env) {
	for i, end := range []uint64{1, 70, 1 << 40} {
		name := fmt.Sprintf("copy %d", i)
		src := e.newSource(end, 5)
		o := e.imports(e.j, name, src.info)
		at := o.s.Acquired()
		if at.End != end || at.EndCRC != src.info.EndCRC || at.EndTime != src.info.EndTime || at.Low != end+1 {
			e.Fatalf("the state of a copy from seq %d on is %+v, want %+v", end+1, at, src.info)
		}
		o.wantStream(e.reader(e.second(), name), nil)
		o.putAll(src.recs)
		o.wantStream(o.s, src.recs)
		e.wantNext(e.second(), name, src, src.recs)
	}
	// A stream of which nothing is left keeps its end, and can be dropped.
	src := e.newSource(99, 0)
	o := e.imports(e.j, "empty", src.info)
	e.must("drop", func() error { return o.s.Drop(e.ctx) })
	if at := e.acquire(e.second(), "empty").s.Acquired(); at.End < 99 || at.UID == src.info.UID || at.Epoch <= src.info.Epoch {
		e.Fatalf("a copy that was dropped at end 99, epoch %d comes back as %+v", src.info.Epoch, at)
	}
}

func importWithoutBodies(e *env) {
	src := e.newSource(0, 12)
	o := e.imports(e.j, "copy", src.info)
	var kept []*journal.Record
	for i, r := range src.recs {
		if i%2 == 0 {
			bare := clone(r)
			bare.Body = nil
			o.put(bare)
		} else {
			o.put(r)
			kept = append(kept, r)
		}
	}
	for _, r := range []journal.Reader{o.s, e.reader(e.second(), "copy")} {
		e.wantMetas(r, 0, all, src.recs)
		e.wantBodies(r, src.recs, kept)
	}
	o.discardBodies(journal.Range{From: 1, To: o.end})
	e.wantBodies(o.s, src.recs, nil)
	e.refused("append of a record with half of its body", func() error {
		half := clone(src.extend(e, 1)[0])
		body := bytes.Join(half.Body, nil)
		half.Body = [][]byte{body[:len(body)/2], {1}}
		if len(body) < 4 {
			half.Body = [][]byte{append(body, 1)}
		}
		return o.s.Append(e.ctx, o.end, half)
	}, journal.ErrInvalid)
}

func importLargerBefore(e *env) {
	src := e.newSource(0, 1)
	last := src.recs[0]
	large := &journal.Record{
		Header: journal.Header{UID: src.info.UID, Epoch: src.info.Epoch, First: last.Last() + 1, Count: 1, Kind: journal.KindEvents, Time: last.Time},
		Meta:   e.blob(10), Body: [][]byte{make([]byte, e.j.Limits().MaxRecordBytes)},
	}
	if err := large.Seal(last.CRC); err != nil {
		e.Fatalf("seal: %v", err)
	}
	o := e.imports(e.j, "copy", src.info)
	o.putAll(src.recs)
	e.refused("append of a record that is too large", func() error { return o.s.Append(e.ctx, o.end, large) }, journal.ErrTooLarge)
	large.Body = nil
	o.put(large)
	src.recs = append(src.recs, large)
	src.extend(e, 2)
	o.putAll(src.recs[2:])
	r := e.reader(e.second(), "copy")
	e.wantMetas(r, 0, all, src.recs)
	e.wantBodies(r, src.recs, slices.Concat(src.recs[:1], src.recs[2:]))
}

func importResume(e *env) {
	src := e.newSource(10, 4)
	handles := []journal.Journal{e.j, e.second()}
	from := src.info
	for i := range 4 {
		o := e.imports(handles[i%2], "copy", src.info)
		done := len(src.recs)
		if i == 0 {
			done = 0
		}
		if done > 0 && (o.end != src.recs[done-1].Last() || o.crc != src.recs[done-1].CRC) {
			e.Fatalf("import %d goes on at seq %d, the copy ended at %d", i, o.end, src.recs[done-1].Last())
		}
		if i > 0 {
			src.extend(e, 5)
			o = e.imports(handles[i%2], "copy", src.info) // the source has a higher epoch by now
		}
		o.putAll(src.recs[done:])
		o.wantStream(o.s, src.recs)
	}
	// Of a lower epoch: the copy's own stays.
	o := e.imports(e.j, "copy", from)
	if at := o.s.Acquired(); at.Epoch < src.info.Epoch {
		e.Fatalf("the epoch went back from %d to %d", src.info.Epoch, at.Epoch)
	}
	e.wantNext(handles[1], "copy", src, src.recs)
}

func importAnotherStream(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(2)
	src := e.newSource(0, 3)
	e.refused("import into another stream", func() error {
		_, err := e.importer(e.second()).Import(e.ctx, "orders", src.info)
		return err
	}, journal.ErrConflict)
	recs = append(recs, o.append(1)...)
	o.wantStream(o.s, recs)
	own := journal.Info{UID: o.s.Acquired().UID, Epoch: o.s.Acquired().Epoch}
	e.must("drop", func() error { return o.s.Drop(e.ctx) })
	e.refused("import into a dropped stream", func() error {
		_, err := e.importer(e.j).Import(e.ctx, "orders", own)
		return err
	}, journal.ErrConflict)
	for what, bad := range map[string]journal.Info{
		"no uid": {Epoch: 1}, "no epoch": {UID: own.UID}, "a CRC before the beginning": {UID: own.UID, Epoch: 1, EndCRC: 5},
	} {
		e.refused("import with "+what, func() error {
			_, err := e.importer(e.j).Import(e.ctx, "bad", bad)
			return err
		}, journal.ErrInvalid)
	}
	e.refused("import under an empty name", func() error {
		_, err := e.importer(e.j).Import(e.ctx, "", src.info)
		return err
	}, journal.ErrInvalid)
}

func importRefuses(e *env) {
	src := e.newSource(5, 6)
	o := e.imports(e.j, "copy", src.info)
	o.putAll(src.recs[:4])
	next := src.recs[4]
	change := func(f func(r *journal.Record)) *journal.Record {
		r := clone(next)
		f(r)
		o.seal(r)
		return r
	}
	for what, bad := range map[string]*journal.Record{
		"of a higher epoch": change(func(r *journal.Record) { r.Epoch = o.s.Acquired().Epoch + 1 }),
		"of another uid":    change(func(r *journal.Record) { r.UID[3]++ }),
	} {
		e.refused("append of a record "+what, func() error { return o.s.Append(e.ctx, o.end, bad) }, journal.ErrInvalid)
	}
	e.refused("append of a record behind a gap", func() error { return o.s.Append(e.ctx, src.recs[4].Last(), src.recs[5]) }, journal.ErrConflict)
	e.refused("append of another record where one is", func() error {
		r := clone(src.recs[3])
		r.Time++
		if err := r.Seal(r.PrevCRC); err != nil {
			e.Fatalf("seal: %v", err)
		}
		return o.s.Append(e.ctx, r.First-1, r)
	}, journal.ErrConflict)
	e.must("repeat the last append", func() error { return o.s.Append(e.ctx, src.recs[3].First-1, clone(src.recs[3])) })
	o.wantStream(o.s, src.recs[:4])
	o.putAll(src.recs[4:])
	o.wantStream(o.s, src.recs)
}

func importFenced(e *env) {
	src := e.newSource(0, 6)
	old := e.imports(e.j, "copy", src.info)
	old.putAll(src.recs[:3])
	o := e.acquire(e.second(), "copy")
	e.refused("append by an importer that an owner has fenced", func() error { return old.s.Append(e.ctx, old.end, src.recs[3]) }, journal.ErrFenced)
	e.refused("part of an importer that an owner has fenced", func() error { return old.s.WritePart(e.ctx, "p", nil) }, journal.ErrFenced)
	recs := append(slices.Clip(src.recs[:3]), o.append(2)...)
	o.wantStream(o.s, recs)

	n := e.imports(e.j, "copy", src.info)
	if at := n.s.Acquired(); at.Epoch <= o.s.Acquired().Epoch || at.End != o.end || at.EndCRC != o.crc {
		e.Fatalf("import behind an owner: %+v, the owner had epoch %d and ended at %d", at, o.s.Acquired().Epoch, o.end)
	}
	e.refused("part of an owner that an importer has fenced", func() error { return o.s.WritePart(e.ctx, "p", nil) }, journal.ErrFenced)
	n.wantEnd(n.s)
	n.wantMetas(n.s, 0, all, recs)
}

func importUnknown(e *env) {
	src := e.newSource(20, 0)
	for _, after := range []bool{false, true} {
		e.eachLoss(after, func(what string, ctx context.Context) {
			var s journal.Stream
			if err := e.settle(func() (err error) {
				s, err = e.importer(e.j).Import(ctx, "copy", src.info)
				return err
			}); err != nil {
				e.Fatalf("import with %s, repeated: %v", what, err)
			}
			o := e.ownerOf(s)
			if n := len(src.recs); n > 0 && o.end != src.recs[n-1].Last() {
				e.Fatalf("import with %s: the copy ends at %d, want %d", what, o.end, src.recs[n-1].Last())
			}
			o.putAll(src.extend(e, 1))
		})
		o := e.imports(e.j, "copy", src.info)
		e.eachLoss(after, func(what string, ctx context.Context) {
			r := src.extend(e, 1)[0]
			if r.Epoch > o.s.Acquired().Epoch {
				o = e.imports(e.j, "copy", src.info)
			}
			if err := e.settle(func() error { return o.s.Append(ctx, o.end, r) }); err != nil {
				e.Fatalf("append with %s, repeated: %v", what, err)
			}
			o.end, o.crc, o.time = r.Last(), r.CRC, r.Time
		})
		o.wantStream(o.s, src.recs)
	}
}

func importPersistent(e *env) {
	src := e.newSource(7, 9)
	o := e.imports(e.j, "copy", src.info)
	o.putAll(src.recs[:5])
	e.reopen()
	o.wantStream(e.reader(e.j, "copy"), src.recs[:5])
	o = e.imports(e.j, "copy", src.info)
	bare := clone(src.recs[5])
	bare.Body = nil
	o.put(bare)
	o.putAll(src.recs[6:])
	e.reopen()
	r := e.reader(e.j, "copy")
	e.wantMetas(r, 0, all, src.recs)
	e.wantBodies(r, src.recs, slices.Concat(src.recs[:5], src.recs[6:]))
	n := e.acquire(e.j, "copy")
	recs := append(slices.Clip(src.recs), n.append(1)...)
	e.wantMetas(n.s, 0, all, recs)
}
