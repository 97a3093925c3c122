package segment

import (
	"bytes"
	"math"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// verifyStream reads a stream and compares it with what was appended.
func verifyStream(t testing.TB, j journal.Journal, name string, want []*journal.Record) {
	t.Helper()
	r, err := j.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for rec, err := range r.ReadMeta(t.Context(), 1, math.MaxUint64) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(want) || rec.Header != want[i].Header || !bytes.Equal(rec.Meta, want[i].Meta) {
			t.Fatalf("stream %s: record %d is %+v", name, i, rec.Header)
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("stream %s has %d records, want %d", name, i, len(want))
	}
}
