package cassandra

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// rows counts what is stored for a stream, by table.
func rows(t testing.TB, s *gocql.Session, key string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for table, column := range map[string]string{"streams": "start", "records": "seq", "bodies": "seq", "parts": "slot"} {
		it := s.Query("SELECT stream, " + column + " FROM " + table).PageSize(1000).Iter()
		var stream string
		var n *int64
		for it.Scan(&stream, &n) {
			if stream == key && n != nil {
				counts[table]++
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return counts
}

func wantRows(t *testing.T, s *gocql.Session, key string, want map[string]int) {
	t.Helper()
	got := rows(t, s, key)
	for table, n := range want {
		if got[table] != n {
			t.Errorf("%d rows in %s, want %d (of %v)", got[table], table, n, got)
		}
	}
}

// §4: space comes back: of what is discarded, bodies in large pieces, and buckets whole, with their rows.
func TestSpace(t *testing.T) {
	o := options(t, server.URL())
	o.BucketRecords, o.InlineBytes = 4, 1000
	j := open(t, o)
	tools := raw(t, o)
	key := o.prefix + "orders"
	w := newWriter(t, j, "orders")
	for i := range 22 {
		w.append(1, 100+1000*(i%2))
	}
	// Five full buckets, and one with two records.
	wantRows(t, tools, key, map[string]int{"streams": 6, "records": 44, "bodies": 11, "parts": 0})
	discard := func(from, to, low uint64) {
		t.Helper()
		if from <= to {
			if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: from, To: to}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.s.DiscardMeta(t.Context(), low); err != nil {
			t.Fatal(err)
		}
	}
	// The second bucket keeps a body; all others are dead but the newest.
	discard(1, 5, 1)
	discard(7, math.MaxUint64, 1)
	discard(1, 0, 1<<60)
	wantRows(t, tools, key, map[string]int{"streams": 2, "records": 8 + 4, "bodies": 2 + 1})
	if got := headers(t, w.s, false); len(got) != 0 {
		t.Errorf("%d metas are left", len(got))
	}
	n := 0
	for rec, err := range w.s.ReadBodies(t.Context(), []uint64{5, 6, 7, 22}) {
		if err != nil || rec.First != 6 {
			t.Errorf("%v, %v", rec, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d bodies are alive, want 1", n)
	}
	discard(6, 6, 1<<60)
	wantRows(t, tools, key, map[string]int{"streams": 1, "records": 4, "bodies": 1})
	for i := range 3 {
		name := fmt.Sprintf("p%d", i%2)
		if err := w.s.WritePart(t.Context(), name, []byte("data")); err != nil {
			t.Fatal(err)
		}
	}
	wantRows(t, tools, key, map[string]int{"parts": 2})
	if err := w.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, tools, key, map[string]int{"streams": 0, "records": 0, "bodies": 0, "parts": 0})
}

// §4: large discarded bodies are deleted while their bucket lives on.
func TestLargeBodiesComeBack(t *testing.T) {
	o := options(t, server.URL())
	j := open(t, o)
	tools := raw(t, o)
	w := newWriter(t, j, "orders")
	w.append(6, 300_000)
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: 3}}); err != nil {
		t.Fatal(err)
	}
	wantRows(t, tools, o.prefix+"orders", map[string]int{"bodies": 6}) // less than a piece
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 5, To: 5}}); err != nil {
		t.Fatal(err)
	}
	wantRows(t, tools, o.prefix+"orders", map[string]int{"streams": 1, "bodies": 2, "records": 6 + 2})
	if got := headers(t, w.s, false); len(got) != 6 {
		t.Errorf("%d metas, want 6", len(got))
	}
}

// §4: what a deletion that failed has left behind is deleted by the next owner: nothing leaks.
func TestNothingLeaks(t *testing.T) {
	o := options(t, server.URL())
	o.BucketRecords, o.InlineBytes = 3, 50
	var failing atomic.Bool
	o.hook = func(_ context.Context, op, _ string, _ bool) error {
		switch op {
		case "delete bucket", "delete bodies", "forget buckets", "delete part":
			if failing.Load() {
				return errors.New("lost")
			}
		}
		return nil
	}
	j := open(t, o)
	tools := raw(t, o)
	key := o.prefix + "orders"
	all := []journal.Range{{From: 1, To: math.MaxUint64}}
	for range 2 { // in two lives of the stream
		failing.Store(true)
		w := newWriter(t, j, "orders")
		w.append(10, 100)
		for i := range 3 {
			if err := errors.Join(w.s.WritePart(t.Context(), "p", []byte{byte(i)}), w.s.DiscardBodies(t.Context(), all), w.s.DiscardMeta(t.Context(), 1<<60)); err != nil {
				t.Fatal(err)
			}
		}
		if n := rows(t, tools, key); n["streams"] < 4 || n["bodies"] < 10 || n["parts"] < 3 {
			t.Fatalf("something was deleted: %v", n)
		}
		w = newWriter(t, j, "orders")
		failing.Store(false)
		if err := errors.Join(w.s.DiscardMeta(t.Context(), 1<<60), w.s.WritePart(t.Context(), "p", []byte("last"))); err != nil {
			t.Fatal(err)
		}
		wantRows(t, tools, key, map[string]int{"streams": 1, "parts": 1})
		// And a drop, of which nothing is done but the drop itself.
		failing.Store(true)
		w.append(7, 100)
		if err := w.s.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := rows(t, tools, key); n["parts"] != 1 || n["streams"] < 3 {
			t.Fatalf("something was deleted: %v", n)
		}
	}
	failing.Store(false)
	w := newWriter(t, j, "orders")
	w.append(1, 10)
	if err := errors.Join(w.s.DiscardMeta(t.Context(), 1<<60), w.s.WritePart(t.Context(), "p", nil)); err != nil {
		t.Fatal(err)
	}
	wantRows(t, tools, key, map[string]int{"streams": 1, "records": 2, "bodies": 0, "parts": 1})
}
