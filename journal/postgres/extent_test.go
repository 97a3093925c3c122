package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// rollNow makes the journal's current tables be followed by others, and returns those that were current.
func rollNow(t *testing.T, j *Journal) (old [3]int64) {
	t.Helper()
	old = j.tables.current
	for kind := range kindNames {
		err := pgx.BeginFunc(t.Context(), j.pool, func(tx pgx.Tx) error {
			_, err := makeTable(t.Context(), tx, kind, true)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := j.tables.refresh(t.Context(), j.pool); err != nil {
		t.Fatal(err)
	}
	return old
}

// G3 and §4: two processes, or two requests of one, may differ for a moment about which tables are current. A record that goes to a table
// that another has followed is found all the same, also if the answer of the one before it, which was the first in its table, was lost.
func TestOldTableAfterLostAnswer(t *testing.T) {
	url := newSchema(t, server)
	lose := false
	opts := Options{}
	opts.hook = func(_ context.Context, op, _ string, after bool) error {
		if op == "append" && after && lose {
			lose = false
			return errors.New("lost")
		}
		return nil
	}
	j := openTest(t, url, opts)
	w := newWriter(t, j, "orders")
	var want []journal.Header
	put := func() {
		t.Helper()
		r := w.next(40, 100)
		if err := w.settle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		want = append(want, r.Header)
	}
	put()
	old := rollNow(t, j)
	lose = true
	put()
	if lose {
		t.Fatal("no answer was lost")
	}
	j.tables.current = old // as a request that was answered late leaves it
	put()
	put()
	w.wantHeaders(want)

	other := openTest(t, url, Options{})
	n := newWriter(t, other, "orders")
	if at := n.s.Acquired(); at.End != w.last.Last() || at.EndCRC != w.last.CRC {
		t.Fatalf("a successor finds the end %d, want %d", at.End, w.last.Last())
	}
	n.wantHeaders(want)
}
