package hbase

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// §4: the contract, on a real HBase, with buckets of four records.
func TestConformance(t *testing.T) {
	journaltest.Run(t, journaltest.Config{
		NewStore: newStore,
		Shared:   true, Persistent: true, Hooks: true, Damages: true, Coordinates: true, Imports: true,
		Records: 50, Takeovers: 25, Span: 5, MaxBytes: 9 << 20, Timeout: 3 * time.Minute,
		Parallel: true,
	})
}

// newStore makes a store for one rule: rows of its own in the table that all share.
func newStore(t testing.TB) journaltest.Store {
	o := testOptions(t, server)
	o.BucketRecords = 4
	var last *Journal
	return journaltest.Store{
		Open: func(ctx context.Context) (journal.Journal, error) {
			j, err := Open(ctx, o)
			if err != nil {
				return nil, err
			}
			last = j
			return j, nil
		},
		SetHook: func(h journaltest.Hook) { o.hook = h },
		Damage:  func(ctx context.Context, d journaltest.Damage) error { return damage(ctx, last, d) },
	}
}

// damage changes the cells of a record.
func damage(ctx context.Context, j *Journal, d journaltest.Damage) error {
	c := j.newChain(d.Stream)
	b, err := c.at(ctx, d.Seq)
	if err != nil {
		return err
	}
	key := bucketRow(c.base, b.first)
	g := newGet()
	g.FilterString, g.StoreLimit = columnsFrom(hex(d.Seq)), limit(1)
	metas, err := j.get(ctx, key, g, column{family: familyMetas})
	if err != nil {
		return err
	}
	h, err := journal.ParseHeader(metas.cells[0].Value)
	if err != nil {
		return err
	}
	meta, body := colMeta(h.Last()), colBody(h.First, h.Last())
	bodies, err := j.get(ctx, key, newGet(), body)
	if err != nil {
		return err
	}
	flip := func(col column, r *row, at int) error {
		v := bytes.Clone(r.value(col))
		if v == nil {
			return nil // no body
		}
		v[at] ^= 0x80
		return putCell(ctx, j, key, col, v)
	}
	both := func(at int) error {
		if err := flip(meta, &metas, at); err != nil {
			return err
		}
		return flip(body, &bodies, at)
	}
	switch d.Kind {
	case journaltest.FlipHeader:
		return both(20)
	case journaltest.NewerVersion:
		return both(0)
	case journaltest.FlipMeta:
		return flip(meta, &metas, journal.HeaderSize)
	case journaltest.FlipBody:
		return flip(body, &bodies, journal.HeaderSize)
	case journaltest.Remove:
		return j.sweep(ctx, "damage", d.Stream, key, meta, body)
	}
	return fmt.Errorf("damage %v is not known", d.Kind)
}

// Rows of a store begin with its prefix alone.
func TestPrefix(t *testing.T) {
	o := testOptions(t, server)
	j := mustOpen(t, o)
	if !strings.HasPrefix(j.streamRow("orders"), o.prefix) {
		t.Fatal(j.streamRow("orders"))
	}
}
