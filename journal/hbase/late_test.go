package hbase

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// holdAt is the key of a context whose calls stop at a step.
type holdAt struct{}

type holdup struct {
	n                int // of the steps, from 1
	reached, release chan struct{}
}

// holdHook stops calls whose context says so before or after one of their writes.
func holdHook(ctx context.Context, _, _ string, _ bool) error {
	h, ok := ctx.Value(holdAt{}).(*holdup)
	if !ok {
		return nil
	}
	if h.n--; h.n == 0 {
		close(h.reached)
		<-h.release
	}
	return nil
}

// seen is all that can be read of a stream.
func seen(t *testing.T, r journal.Reader) string {
	t.Helper()
	var b strings.Builder
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%+v\n", info)
	hs, err := metas(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hs {
		fmt.Fprintf(&b, "meta %d\n", h.First)
	}
	var first []uint64
	for seq := uint64(1); seq <= info.End; seq++ {
		first = append(first, seq)
	}
	for rec, err := range r.ReadBodies(t.Context(), first) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "body %d %s\n", rec.First, rec.Body)
	}
	names, err := r.Parts(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		data, err := r.ReadPart(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "part %s %s\n", n, data)
	}
	return b.String()
}

// G5, §4: a change that is held up at any of its steps while a successor acquires the stream changes nothing that the successor has seen, whatever
// is left of it: also discards over buckets that are closed, which have no fence of their own any more.
func TestLateChanges(t *testing.T) {
	o := testOptions(t, server)
	o.BucketRecords, o.hook = 4, holdHook
	j := mustOpen(t, o)
	for name, change := range map[string]func(ctx context.Context, s journal.Stream) error{
		"discard bodies everywhere": func(ctx context.Context, s journal.Stream) error {
			return s.DiscardBodies(ctx, []journal.Range{{From: 1, To: 1 << 40}})
		},
		"discard bodies here and there": func(ctx context.Context, s journal.Stream) error {
			return s.DiscardBodies(ctx, []journal.Range{{From: 2, To: 3}, {From: 6, To: 6}, {From: 10, To: 10}})
		},
		"discard bodies in the open bucket": func(ctx context.Context, s journal.Stream) error {
			return s.DiscardBodies(ctx, []journal.Range{{From: 9, To: 9}})
		},
		"discard bodies in the open bucket, filled meanwhile": func(ctx context.Context, s journal.Stream) error {
			return s.DiscardBodies(ctx, []journal.Range{{From: 9, To: 9}})
		},
		"discard metas":                        func(ctx context.Context, s journal.Stream) error { return s.DiscardMeta(ctx, 7) },
		"write a part":                         func(ctx context.Context, s journal.Stream) error { return s.WritePart(ctx, "p", []byte("late")) },
		"delete parts":                         func(ctx context.Context, s journal.Stream) error { return s.DeleteParts(ctx, []string{"p", "q"}) },
		"drop":                                 func(ctx context.Context, s journal.Stream) error { return s.Drop(ctx) },
		"drop, behind a bucket that is closed": func(ctx context.Context, s journal.Stream) error { return s.Drop(ctx) },
	} {
		for n := 1; ; n++ {
			stream := fmt.Sprintf("%s %d", name, n)
			if !lateChange(t, j, stream, n, strings.Contains(name, "closed"), change) {
				break
			}
		}
	}
}

// lateChange holds a change up at its n-th step, and tells whether it has so many.
func lateChange(t *testing.T, j *Journal, stream string, n int, full bool, change func(ctx context.Context, s journal.Stream) error) bool {
	t.Helper()
	old := acquire(t, j, stream)
	for i := range map[bool]int{false: 10, true: 8}[full] {
		old.add(fmt.Appendf(nil, "body %d", i))
	}
	for _, p := range []string{"p", "q"} {
		if err := old.s.WritePart(t.Context(), p, []byte("data")); err != nil {
			t.Fatal(err)
		}
	}
	h := &holdup{n: n, reached: make(chan struct{}), release: make(chan struct{})}
	outcome := make(chan error, 1)
	ctx := context.WithValue(t.Context(), holdAt{}, h)
	go func() { outcome <- change(ctx, old.s) }()
	select {
	case <-h.reached:
	case err := <-outcome:
		if err != nil {
			t.Errorf("%s, that nobody disturbs: %v", stream, err)
		}
		return false
	}
	for strings.Contains(stream, "filled") && old.at.End < 12 {
		old.add([]byte("meanwhile"))
	}
	w := acquire(t, j, stream)
	before := seen(t, w.s)
	close(h.release)
	err := <-outcome
	if after := seen(t, w.s); after != before {
		t.Errorf("%s: a change that was held up (%v) has changed what its owner's successor saw from\n%sto\n%s", stream, err, before, after)
	}
	w.add([]byte("more"))
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: w.at.End}}); err != nil {
		t.Error(err)
	}
	if err := w.s.DiscardMeta(t.Context(), w.at.End+1); err != nil {
		t.Error(err)
	}
	wantCells(t, j, stream, 0)
	return true
}

// wantCells requires that a stream has so many metas and bodies in its rows.
func wantCells(t *testing.T, j *Journal, stream string, want int) {
	t.Helper()
	base := j.streamRow(stream)
	n := 0
	for _, family := range []string{familyMetas, familyBodies} {
		rows, err := j.scan(t.Context(), base, base+afterBuckets, false, 1000, column{family: family})
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			n += len(rows[i].cells)
		}
	}
	if n != want {
		t.Errorf("%s: %d metas and bodies are in the table, want %d", stream, n, want)
	}
}

// §4: space comes back, by whichever owner, and after a drop; heads stay.
func TestSpaceComesBack(t *testing.T) {
	o := testOptions(t, server)
	o.BucketRecords = 4
	j := mustOpen(t, o)
	w := acquire(t, j, "orders")
	for range 11 {
		w.add([]byte("body"))
	}
	wantCells(t, j, "orders", 22)
	w = acquire(t, j, "orders") // who knows nothing of these bodies
	discard := func(ranges ...journal.Range) {
		t.Helper()
		if err := w.s.DiscardBodies(t.Context(), ranges); err != nil {
			t.Fatal(err)
		}
	}
	discard(journal.Range{From: 2, To: 2}, journal.Range{From: 9, To: 9})
	wantCells(t, j, "orders", 20)
	discard(journal.Range{From: 1, To: 6})
	wantCells(t, j, "orders", 15)
	if err := w.s.DiscardMeta(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	wantCells(t, j, "orders", 9)
	discard(journal.Range{From: 1, To: 10})
	wantCells(t, j, "orders", 6)
	w.add([]byte("body"))
	w.add([]byte("body"))
	wantCells(t, j, "orders", 10)
	if err := w.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCells(t, j, "orders", 0)
	base := j.streamRow("orders")
	heads, err := j.scan(t.Context(), base, base+afterBuckets, false, 100, colHead)
	if err != nil || len(heads) != 4 {
		t.Errorf("%d heads are left (%v), want all four", len(heads), err)
	}
}

// Entries of members that were deleted long ago are taken out.
func TestMembersForgotten(t *testing.T) {
	j := mustOpen(t, testOptions(t, server))
	if err := j.PutMember(t.Context(), "here", []byte("x")); err != nil {
		t.Fatal(err)
	}
	stamp := int64(1)
	err := j.pool.do(t.Context(), func(ctx context.Context, c client) error {
		return c.Put(ctx, j.table, &thrift2.TPut{Row: []byte(j.rowMembers()), Durability: &synced, ColumnValues: []*thrift2.TColumnValue{
			{Family: []byte(familyParts), Qualifier: []byte("gone"), Value: []byte{memberGone}, Timestamp: &stamp},
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []int{2, 1} {
		r, err := j.get(t.Context(), j.rowMembers(), newGet(), column{family: familyParts})
		if err != nil || len(r.cells) != left {
			t.Fatalf("%d cells (%v), want %d", len(r.cells), err, left)
		}
		if all, err := j.Members(t.Context()); err != nil || len(all) != 1 || string(all["here"]) != "x" {
			t.Fatalf("members %v, %v", all, err)
		}
	}
	if err := j.PutMember(t.Context(), "gone", []byte("again")); err != nil {
		t.Fatal(err)
	}
	if all, err := j.Members(t.Context()); err != nil || string(all["gone"]) != "again" {
		t.Fatalf("a member that was forgotten comes back as %v, %v", all, err)
	}
}
