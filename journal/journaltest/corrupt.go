package journaltest

import (
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

var corruptRules = []Rule{
	corrupted(FlipHeader), corrupted(FlipMeta), corrupted(FlipBody), corrupted(Remove), corrupted(NewerVersion),
}

// corrupted is the rule that one kind of damage is found.
func corrupted(kind DamageKind) Rule {
	names := map[DamageKind]string{FlipHeader: "header", FlipMeta: "meta", FlipBody: "body", Remove: "missing", NewerVersion: "newer-version"}
	promise := "A record that is damaged, or missing without having been discarded, ends the reading with a CorruptError that names it."
	if kind == NewerVersion {
		promise = "A record of a newer format is ErrNewerFormat."
	}
	return Rule{Name: names[kind], Promise: promise, needs: needs{damages: true}, check: func(e *env) {
		for _, at := range []int{0, 1, 5, 8} {
			for _, discarded := range []int{0, 2} {
				if at >= discarded && !e.damageOne(kind, at, discarded) {
					e.Logf("%v: this store cannot be damaged so", kind)
					return
				}
			}
		}
	}}
}

// damageOne damages record number at of a stream whose first records are discarded.
func (e *env) damageOne(kind DamageKind, at, discarded int) bool {
	e.Helper()
	name := fmt.Sprintf("%v %d %d", kind, at, discarded)
	o := e.acquire(e.j, name)
	recs := o.append(9)
	healthy := e.acquire(e.j, "healthy "+name)
	other := healthy.append(3)
	if discarded > 0 {
		o.discardBodies(journal.Range{From: 1, To: recs[discarded-1].Last()})
		o.discardMeta(recs[discarded].First)
	}
	bad := recs[at]
	err := e.store.Damage(e.ctx, Damage{Stream: name, Seq: bad.First, Kind: kind})
	if errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if err != nil {
		e.Fatalf("damage: %v", err)
	}
	for _, r := range []journal.Reader{o.s, e.reader(e.second(), name)} {
		if kind == FlipBody {
			e.wantMetas(r, 0, all, recs[discarded:])
		} else {
			e.wantMetaDamage(r, kind, recs[discarded:], bad)
		}
		if kind == FlipBody || kind == FlipHeader {
			got, err := e.bodies(r, recs[at:at+1])
			if !errors.Is(err, journal.ErrCorrupt) || len(got) > 0 {
				e.Fatalf("ReadBodies of a record with a %v: %d records and %v, want ErrCorrupt", kind, len(got), err)
			}
		}
		for i, rec := range recs[discarded:] {
			if i+discarded != at {
				e.wantBodies(r, []*journal.Record{rec}, []*journal.Record{rec})
			}
		}
	}
	healthy.wantStream(healthy.s, other)
	return true
}

// wantMetaDamage requires that reading recs yields those before bad, and then an error that names bad.
func (e *env) wantMetaDamage(r journal.Reader, kind DamageKind, recs []*journal.Record, bad *journal.Record) {
	e.Helper()
	for _, to := range []uint64{all, bad.Last()} {
		got, err := e.metas(r, 0, to)
		if kind == NewerVersion {
			if !errors.Is(err, journal.ErrNewerFormat) {
				e.Fatalf("reading a record of a newer format: %v, want ErrNewerFormat", err)
			}
			continue
		}
		var ce *journal.CorruptError
		if !errors.As(err, &ce) || !errors.Is(err, journal.ErrCorrupt) {
			e.Fatalf("reading a stream with a %v at seq %d: %v, want a CorruptError", kind, bad.First, err)
		}
		if ce.Seq < bad.First || ce.Seq > bad.Last() {
			e.Fatalf("the CorruptError for a %v at seq %d names seq %d: %v", kind, bad.First, ce.Seq, err)
		}
		for i, rec := range recs {
			if rec == bad {
				if len(got) != i {
					e.Fatalf("%d records were read before a %v at seq %d, want %d", len(got), kind, bad.First, i)
				}
				break
			}
		}
	}
}
