package journaltest

import (
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

var acquireRules = []Rule{
	{Name: "new", Promise: "Acquire makes a stream that does not exist.", check: acquireNew},
	{Name: "epochs", Promise: "Every Acquire has a higher epoch than any before, and finds the end and the uid.", check: acquireEpochs},
	{Name: "concurrent", Promise: "Of concurrent Acquires each has another epoch, and one of them can append.", check: acquireConcurrent},
	{Name: "waits-for-nobody", Promise: "Acquire waits for nobody: the owner before it need not release.", check: acquireWaitsForNobody},
	{Name: "release", Promise: "Release ends the hold without a change to the stream. Calls after it return ErrClosed. It is idempotent.", check: acquireRelease},
}

func acquireNew(e *env) {
	o := e.acquire(e.j, "orders")
	at := o.s.Acquired()
	if at.Name != "orders" || at.Epoch == 0 || at.UID == (journal.UID{}) || at.Dropped || at.End > 1 || at.Low != 1 {
		// A driver may have written its record of KindEpoch at seq 1.
		e.Fatalf("the state of a new stream is %+v", at)
	}
	if at.End == 0 && (at.EndCRC != 0 || at.EndTime != 0) {
		e.Fatalf("the state of an empty stream is %+v, want EndCRC and EndTime 0", at)
	}
	o.wantStream(o.s, nil)
	if other := e.acquire(e.j, "others").s.Acquired(); other.UID == at.UID {
		e.Fatalf("two streams have the uid %s", at.UID)
	}
}

func acquireEpochs(e *env) {
	handles := []journal.Journal{e.j, e.second()}
	var recs []*journal.Record
	var before journal.Info
	for i := range 12 {
		o := e.acquire(handles[i%2], "orders")
		at := o.s.Acquired()
		if at.Epoch <= before.Epoch {
			e.Fatalf("epoch %d after epoch %d", at.Epoch, before.Epoch)
		}
		if i > 0 && at.UID != before.UID {
			e.Fatalf("the uid has changed from %s to %s", before.UID, at.UID)
		}
		// A driver may have added one record of KindEpoch.
		if at.End < before.End || at.End > before.End+1 || at.End == before.End && at.EndCRC != before.EndCRC || at.EndTime < before.EndTime {
			e.Fatalf("acquired %+v, but the owner before ended at %+v", at, before)
		}
		if i%4 != 3 { // some owners append nothing
			recs = append(recs, o.append(2)...)
		}
		if i%2 == 0 { // and nobody looks at what the others have
			o.wantEnd(o.s)
		}
		before = journal.Info{UID: at.UID, Epoch: at.Epoch, End: o.end, EndCRC: o.crc, EndTime: o.time}
		if i%3 == 0 {
			if err := o.s.Release(); err != nil {
				e.Fatalf("release: %v", err)
			}
		}
	}
	e.wantMetas(e.reader(e.j, "orders"), 0, all, recs)
}

func acquireConcurrent(e *env) {
	handles := []journal.Journal{e.j, e.second()}
	for range 5 {
		const n = 8
		streams := make([]journal.Stream, n)
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				errs[i] = e.settle(func() (err error) {
					streams[i], err = handles[i%2].Acquire(e.ctx, "orders")
					return err
				})
			})
		}
		wg.Wait()
		newest := 0
		seen := map[uint64]bool{}
		for i := range n {
			if errs[i] != nil {
				e.Fatalf("acquire: %v", errs[i])
			}
			epoch := streams[i].Acquired().Epoch
			if seen[epoch] {
				e.Fatalf("epoch %d was given to two owners", epoch)
			}
			seen[epoch] = true
			if epoch > streams[newest].Acquired().Epoch {
				newest = i
			}
		}
		if uid := streams[0].Acquired().UID; uid != streams[newest].Acquired().UID {
			e.Fatalf("concurrent Acquires of one stream got the uids %s and %s", uid, streams[newest].Acquired().UID)
		}
		for i, s := range streams {
			if i == newest {
				continue
			}
			o := e.ownerOf(s)
			r := o.random()
			e.refused("append by an owner that was overtaken at once", func() error { return s.Append(e.ctx, o.end, r) }, journal.ErrFenced)
		}
		o := e.ownerOf(streams[newest])
		o.append(1)
		o.wantEnd(o.s)
	}
}

func acquireWaitsForNobody(e *env) {
	old := e.acquire(e.j, "orders")
	old.append(1)
	j := e.second()
	var o *owner
	e.within("Acquire of a stream that has an owner", e.cfg.Timeout/2, func() {
		s, err := j.Acquire(e.ctx, "orders")
		if err == nil {
			o = e.ownerOf(s)
		}
	})
	if o == nil {
		o = e.acquire(j, "orders") // the first outcome may have been unknown
	}
	o.append(1)
	o.wantEnd(o.s)
}

func acquireRelease(e *env) {
	o := e.acquire(e.j, "orders")
	recs := o.append(3)
	o.writePart("p", []byte("data"))
	r := e.reader(e.j, "orders")
	before := e.photo(r)
	next := o.random()
	for range 3 {
		if err := o.s.Release(); err != nil {
			e.Fatalf("release: %v", err)
		}
	}
	e.unchanged("Release", r, before)
	e.wantClosed(o, next)
	e.unchanged("calls after Release", r, before)

	o2 := e.acquire(e.j, "orders")
	recs = append(recs, o2.append(1)...)
	o2.wantStream(o2.s, recs)
	if err := o.s.Release(); err != nil {
		e.Fatalf("release again: %v", err)
	}
	recs = append(recs, o2.append(1)...)
	o2.wantStream(o2.s, recs)
}

// changes returns each call that changes a stream, by name. None of them changes anything
// when it is refused.
func (o *owner) changes(next *journal.Record) map[string]func() error {
	return map[string]func() error{
		"append":         func() error { return o.s.Append(o.ctx, next.First-1, next) },
		"discard bodies": func() error { return o.s.DiscardBodies(o.ctx, []journal.Range{{From: 1, To: all}}) },
		"discard metas":  func() error { return o.s.DiscardMeta(o.ctx, all) },
		"write a part":   func() error { return o.s.WritePart(o.ctx, "p", []byte("by a late owner")) },
		"add a part":     func() error { return o.s.WritePart(o.ctx, "late", []byte("by a late owner")) },
		"delete parts":   func() error { return o.s.DeleteParts(o.ctx, []string{"p"}) },
		"drop":           func() error { return o.s.Drop(o.ctx) },
	}
}

// wantClosed requires that every call on o is ErrClosed.
func (e *env) wantClosed(o *owner, next *journal.Record) {
	e.Helper()
	for what, f := range o.changes(next) {
		e.refused(what+" after the end", f, journal.ErrClosed)
	}
	e.wantClosedReads(o.s)
}

// wantClosedReads requires that every read is ErrClosed.
func (e *env) wantClosedReads(r journal.Reader) {
	e.Helper()
	_, infoErr := r.Info(e.ctx)
	_, partErr := r.ReadPart(e.ctx, "p")
	_, partsErr := r.Parts(e.ctx, "")
	var metaErr, bodyErr error
	for _, metaErr = range r.ReadMeta(e.ctx, 1, all) {
	}
	for _, bodyErr = range r.ReadBodies(e.ctx, []uint64{1, 2}) {
	}
	for what, err := range map[string]error{
		"Info": infoErr, "ReadPart": partErr, "Parts": partsErr, "ReadMeta": metaErr, "ReadBodies": bodyErr,
	} {
		e.refused(what+" after the end", func() error { return err }, journal.ErrClosed)
	}
}
