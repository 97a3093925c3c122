package segment

import (
	"runtime"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// G7, G8: a backlog of a million records of one message each, of which the metas are discarded as behind a snapshot: memory is some bytes a
// record, and opening reads a checkpoint and not the log.
func TestBacklogOfSingleMessages(t *testing.T) {
	n := 100_000
	if soak > 1 {
		n = 1_000_000
	}
	dir := t.TempDir()
	j := mustOpen(t, dir, Options{})
	w := acquire(t, j, "q")
	before := heap()
	meta, body := random(40), random(110)
	for i := range n {
		r := w.next(1, meta, body)
		r.Buffered = i%1000 != 999
		if err := w.s.Append(t.Context(), w.at.End, r); err != nil {
			t.Fatal(err)
		}
		w.stored(r)
	}
	if err := w.s.DiscardMeta(t.Context(), w.at.End+1); err != nil {
		t.Fatal(err)
	}
	if each := float64(heap()-before) / float64(n); each > 30 {
		t.Errorf("%.0f bytes of memory a record", each)
	}
	m := j.Metrics()
	mustClose(t, j)
	begin := time.Now()
	j = mustOpen(t, dir, Options{})
	took := time.Since(begin)
	w = acquire(t, j, "q")
	found := 0
	for rec, err := range w.s.ReadBodies(t.Context(), []uint64{1, uint64(n / 2), uint64(n)}) {
		if err != nil || rec.VerifyBody(body) != nil {
			t.Fatal(rec, err)
		}
		found++
	}
	if found != 3 || w.at.End != uint64(n) || w.at.Low != uint64(n)+1 {
		t.Errorf("%d bodies, %+v", found, w.at)
	}
	t.Logf("%d records: log %d MiB, checkpoint %d KiB, %.1f bytes of memory a record, opened in %v",
		n, m.DiskBytes>>20, j.Metrics().CheckpointBytes>>10, float64(heap()-before)/float64(n), took)
	// All of it gone, the store is small again.
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: w.at.End}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the segments are given back", func() bool {
		return settled(j) && j.Metrics().LiveBytes == 0 && diskUsage(t, dir) < 4*DefaultSegmentBytes
	})
	mustClose(t, j)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
