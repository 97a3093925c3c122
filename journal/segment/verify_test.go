package segment

import (
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// Verify runs beside moves: what it has read already may be moved into one block with what it has not.
func TestVerifyBesideMoves(t *testing.T) {
	j := mustOpen(t, t.TempDir(), Options{})
	w := acquire(t, j, "q")
	const records, gone = blockSlots + 72, 100
	for range records {
		w.add(1, []byte("meta"), random(100))
	}
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: gone}}); err != nil {
		t.Fatal(err)
	}
	if err := w.s.DiscardMeta(t.Context(), gone+1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is discarded is so in the log", func() bool { return settled(j) })
	st := j.lookup("q")
	v := &verifier{j: j, st: st, report: func(d Damage) { t.Error(d) }}
	step := func(want bool) {
		t.Helper()
		if more, err := v.step(t.Context()); err != nil || more != want {
			t.Fatalf("more %v, error %v", more, err)
		}
	}
	step(true)
	if v.from != blockSlots+1 {
		t.Fatalf("the first step ended before seq %d", v.from)
	}
	if err := j.empty(t.Context(), j.current.Load()); err != nil {
		t.Fatal(err)
	}
	st.mu.Lock()
	first := st.index.blocks[st.index.find(v.from)].first
	st.mu.Unlock()
	if first != gone+1 {
		t.Fatalf("the next block begins at seq %d: nothing was moved into one", first)
	}
	step(true)
	step(false)
}
