package journaltest

import (
	"bytes"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

var partRules = []Rule{
	{Name: "write-read", Promise: "WritePart stores a part, replacing one of that name; ReadPart returns what was written last.", check: partsWriteRead},
	{Name: "list", Promise: "Parts lists the names that begin with prefix, ascending.", check: partsList},
	{Name: "delete", Promise: "DeleteParts deletes parts; one that is not there is no error.", check: partsDelete},
	{Name: "ownership", Promise: "A part's data belongs to the caller, on both ways.", check: partsOwnership},
	{Name: "snapshots", Promise: "Snapshots saved by one owner are loaded by the next; what is behind the older one can be discarded.", check: partsSnapshots},
}

func partsWriteRead(e *env) {
	o := e.acquire(e.j, "orders")
	e.wantNoPart(o.s, "p")
	last := map[string][]byte{}
	for range 20 {
		name := fmt.Sprintf("part %d", e.rng.IntN(4))
		last[name] = e.blob(e.rng.IntN(3000))
		o.writePart(name, last[name])
		e.wantPart(o.s, name, last[name])
	}
	o.writePart("empty", nil)
	e.wantPart(o.s, "empty", nil)
	for name, data := range last {
		e.wantPart(e.reader(e.second(), "orders"), name, data)
	}
	// Parts have no part in the numbering, and are not touched by discards.
	recs := o.append(2)
	o.wantStream(o.s, recs)
	o.discardBodies(journal.Range{From: 0, To: all})
	o.discardMeta(all)
	o = e.acquire(e.second(), "orders")
	for name, data := range last {
		e.wantPart(o.s, name, data)
	}
	o.writePart("empty", []byte("no more"))
	e.wantPart(o.s, "empty", []byte("no more"))
}

func partsList(e *env) {
	o := e.acquire(e.j, "orders")
	other := e.acquire(e.j, "orders2")
	other.writePart("a/9", nil)
	e.wantParts(o.s, "")
	names := []string{"a/10", "b", "a/2", "a/1", "a", "A", "ab", "a/2/x", "a b", "z~"}
	for _, name := range names {
		o.writePart(name, nil)
	}
	slices.Sort(names)
	for _, r := range []journal.Reader{o.s, e.reader(e.second(), "orders")} {
		e.wantParts(r, "", names...)
		for _, prefix := range []string{"a", "a/", "a/1", "a/2", "z~", "zz", "B", " "} {
			var want []string
			for _, name := range names {
				if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
					want = append(want, name)
				}
			}
			e.wantParts(r, prefix, want...)
		}
	}
	var many []string
	for i := range e.cfg.Records {
		name := fmt.Sprintf("many/%06d", i)
		o.writePart(name, []byte(name))
		many = append(many, name)
	}
	e.wantParts(o.s, "many/", many...)
}

func partsDelete(e *env) {
	o := e.acquire(e.j, "orders")
	for _, name := range []string{"a", "b", "c", "d"} {
		o.writePart(name, []byte(name))
	}
	del := func(names ...string) {
		e.Helper()
		e.must("delete parts", func() error { return o.s.DeleteParts(e.ctx, names) })
	}
	del("a", "c", "never there")
	e.wantParts(o.s, "", "b", "d")
	e.wantNoPart(o.s, "a")
	e.wantPart(o.s, "b", []byte("b"))
	del("a")
	del()
	del("b", "b")
	e.wantParts(o.s, "", "d")
	o.writePart("a", []byte("again"))
	e.wantPart(o.s, "a", []byte("again"))
	e.wantParts(e.reader(e.second(), "orders"), "", "a", "d")
}

func partsOwnership(e *env) {
	o := e.acquire(e.j, "orders")
	data := e.blob(1000)
	given := bytes.Clone(data)
	o.must("write part", func() error { return o.s.WritePart(e.ctx, "p", given) })
	if !bytes.Equal(given, data) {
		e.Fatalf("WritePart has changed the data that it was given")
	}
	clear(given)
	for range 2 {
		got, err := o.s.ReadPart(e.ctx, "p")
		if err != nil || !bytes.Equal(got, data) {
			e.Fatalf("the part has changed with a slice of the caller (%v)", err)
		}
		clear(got)
	}
	names, err := o.s.Parts(e.ctx, "")
	if err != nil {
		e.Fatalf("parts: %v", err)
	}
	names[0] = "changed"
	e.wantParts(o.s, "", "p")
}

func partsSnapshots(e *env) {
	lim := e.j.Limits()
	lim.MaxPartBytes = min(lim.MaxPartBytes, 4096)
	shared := e.blob(9000)
	j := e.second()
	var state [][]byte
	var low uint64
	for i := range 5 {
		o := e.acquire([]journal.Journal{e.j, j}[i%2], "orders")
		got, restored, err := e.load(o.s)
		if err != nil {
			e.Fatalf("load: %v", err)
		}
		if i > 0 && !slices.EqualFunc(restored, state, bytes.Equal) {
			e.Fatalf("the snapshot of owner %d, loaded by its successor as %v, is not what was saved", i-1, got)
		}
		replayed := e.mustMetas(o.s, got.ID.Seq+1, all)
		if i > 0 && len(replayed) != 1 {
			e.Fatalf("%d records behind the snapshot, want 1", len(replayed))
		}
		o.append(4)
		state = [][]byte{shared, e.blob(700), nil, e.blob(20)}
		id := journal.SnapshotID{Seq: o.end, Epoch: o.s.Acquired().Epoch, CRC: o.crc, Time: o.time}
		var saved journal.SavedSnapshot
		e.must("save a snapshot", func() error {
			saved, err = journal.SaveSnapshot(e.ctx, o.s, lim, id, slices.Values(state))
			return err
		})
		if saved.DiscardLow < low || (i > 0) != (saved.DiscardLow > 0) {
			e.Fatalf("snapshot %d allows discarding below %d", i, saved.DiscardLow)
		}
		low = saved.DiscardLow
		o.discardMeta(low)
		o.append(1)
	}
	// The newest is lost: the one before loads, and the events behind it are there.
	r := e.reader(j, "orders")
	newest, _, err := e.load(r)
	if err != nil {
		e.Fatalf("load: %v", err)
	}
	names, err := r.Parts(e.ctx, fmt.Sprintf("m/%016x", newest.ID.Seq))
	if err != nil || len(names) != 1 {
		e.Fatalf("the newest snapshot's manifests: %q, %v", names, err)
	}
	o := e.acquire(j, "orders")
	e.must("delete parts", func() error { return o.s.DeleteParts(e.ctx, names) })
	older, _, err := e.load(o.s)
	if err != nil || older.ID.Seq == 0 || older.ID.Seq >= newest.ID.Seq || older.ID.Seq+1 != low {
		e.Fatalf("with the newest snapshot deleted: loaded %+v, %v; want the one at %d", older, err, low-1)
	}
	if got := e.mustMetas(o.s, low, all); len(got) != 6 {
		e.Fatalf("%d records behind the older snapshot, want 6", len(got))
	}
}

// load loads the newest snapshot's chunks.
func (e *env) load(r journal.Reader) (res journal.LoadedSnapshot, chunks [][]byte, err error) {
	res, err = journal.LoadSnapshot(e.ctx, r, func(_ journal.SnapshotID, in iter.Seq2[[]byte, error]) error {
		chunks = nil
		for c, err := range in {
			if err != nil {
				return err
			}
			chunks = append(chunks, c)
		}
		return nil
	})
	return res, chunks, err
}
