package persistent_test

import (
	"errors"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// §12: whatever a meta part holds, reading it ends with its events or with one typed error, and the events
// have the record's seqs, in order.
func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("\x01\x00\x10n\x07\x00\x00"), uint64(1))
	f.Add([]byte("\x01\x00\x16\x11p\x02\x00\x01\x10u\x04\x02\x00\x13"), uint64(3))
	f.Add([]byte("\x02\x00"), uint64(1))
	f.Fuzz(func(t *testing.T, meta []byte, count uint64) {
		rec := &journal.Record{Header: journal.Header{First: 7, Count: count%1000 + 1, Kind: journal.KindEvents, Time: 100}, Meta: meta}
		next, at, ended := rec.First, int64(-1<<63), false
		for e, err := range persistent.ReadEvents(rec, codec{}) {
			if ended {
				t.Fatal("it goes on behind an error")
			}
			if err != nil {
				if ended = true; errors.Is(err, journal.ErrCorrupt) == errors.Is(err, journal.ErrNewerFormat) {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if e.Seq != next || e.Count == 0 || e.At < at || e.At > rec.Time {
				t.Fatalf("event %+v, expected seq %d, at least at %d", e, next, at)
			}
			next, at = e.Seq+e.Count, e.At
		}
		if !ended && next != rec.Last()+1 {
			t.Fatalf("events end at %d, the record at %d", next-1, rec.Last())
		}
	})
}
