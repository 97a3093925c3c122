package cassandra

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// §4, space: a queue that lives at a constant depth, with small buckets, so that many come and go: an append and a discard cost the same at the end as at the beginning,
// opening costs what is alive, and nothing piles up. How long they take is compared at full counts only, where the machine has nothing else to do.
func TestDecay(t *testing.T) {
	cycles, depth := 600*soak, uint64(100)
	o := options(t, server.URL())
	o.BucketRecords = 32
	j := open(t, o)
	w := newWriter(t, j, "orders")
	w.append(int(depth), 1000)
	var took []time.Duration
	for i := range cycles {
		began := time.Now()
		w.append(1, 1000)
		dead := w.end.end - depth
		if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: dead, To: dead}}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			if err := w.s.DiscardMeta(t.Context(), dead); err != nil {
				t.Fatal(err)
			}
		}
		took = append(took, time.Since(began))
	}
	n := rows(t, raw(t, o), o.prefix+"orders")
	if n["streams"] > 12 || n["records"] > 12*32*2 || n["bodies"] > 0 {
		t.Errorf("left after %d cycles at depth %d: %v", cycles, depth, n)
	}
	began := time.Now()
	again := newWriter(t, open(t, o), "orders")
	if got := headers(t, again.s, false); len(got) < int(depth) {
		t.Errorf("%d metas are left", len(got))
	}
	opened := time.Since(began)
	median := func(d []time.Duration) time.Duration {
		d = slices.Clone(d)
		slices.Sort(d)
		return d[len(d)/2]
	}
	first, last := median(took[:cycles/10]), median(took[cycles-cycles/10:])
	t.Logf("%d cycles: median %v in the first tenth, %v in the last; opened in %v; left %v", cycles, first, last, opened, n)
	if soak > 1 && (last > 2*first || opened > 2*time.Second) {
		t.Errorf("a cycle takes %v at the end, %v at the beginning; opening takes %v", last, first, opened)
	}
}
