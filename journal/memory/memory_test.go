package memory_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// appendRecord appends one record of count events behind the given state and returns the
// new end.
func appendRecord(t *testing.T, s journal.Stream, at journal.Info, count uint64, buffered bool) journal.Info {
	t.Helper()
	r := &journal.Record{
		Header:   journal.Header{UID: s.Acquired().UID, Epoch: s.Acquired().Epoch, First: at.End + 1, Count: count, Kind: journal.KindEvents, Time: at.EndTime + 1},
		Meta:     fmt.Appendf(nil, "meta %d", at.End+1),
		Body:     [][]byte{[]byte("body "), fmt.Appendf(nil, "%d", at.End+1)},
		Buffered: buffered,
	}
	if err := r.Seal(at.EndCRC); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), at.End, r); err != nil {
		t.Fatal(err)
	}
	at.End, at.EndCRC, at.EndTime = r.Last(), r.CRC, r.Time
	return at
}

func acquire(t *testing.T, j journal.Journal, name string) journal.Stream {
	t.Helper()
	s, err := j.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// §4: what Crash may lose is what was Buffered and had nothing synced behind it.
func TestCrashLosesOnlyBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.NewStore(memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := store.Open()
		s := acquire(t, j, "q")
		at := appendRecord(t, s, s.Acquired(), 3, true)
		at = appendRecord(t, s, at, 2, false)
		kept := at
		at = appendRecord(t, s, at, 1, true)
		store.Crash()
		if _, err := s.Info(t.Context()); !errors.Is(err, journal.ErrClosed) {
			t.Fatalf("Info on a crashed handle: %v, want ErrClosed", err)
		}
		s = acquire(t, store.Open(), "q")
		if got := s.Acquired(); got.End != kept.End || got.EndCRC != kept.EndCRC || got.Epoch != 2 {
			t.Fatalf("after the crash: %+v, want the end %d of before the buffered record, epoch 2", got, kept.End)
		}
		n := 0
		for _, err := range s.ReadMeta(t.Context(), 0, math.MaxUint64) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 2 || at.End != 6 {
			t.Fatalf("%d records after the crash, want 2", n)
		}
	})
}

// §12: a record that ReadMeta yielded is overwritten by the next step, so that a caller that
// keeps it is found by its own tests.
func TestReadMetaReusesItsBuffer(t *testing.T) {
	s := acquire(t, memory.New(), "q")
	at := s.Acquired()
	for range 3 {
		at = appendRecord(t, s, at, 1, false)
	}
	var kept []byte
	for r, err := range s.ReadMeta(t.Context(), 1, at.End) {
		if err != nil {
			t.Fatal(err)
		}
		if kept == nil {
			kept = r.Meta
		}
	}
	if string(kept) != "meta 3" {
		t.Fatalf("the first record's meta reads %q after the iteration", kept)
	}
}

// G11: all faults of the options are reported together.
func TestOptionsRefused(t *testing.T) {
	_, err := memory.NewStore(memory.Options{MaxRecordBytes: -1, MaxPartBytes: -2})
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 2 {
		t.Fatalf("got %v, want two faults", err)
	}
	if _, err := memory.Open(t.Context(), "memory:x"); err == nil {
		t.Fatal("memory:x was accepted")
	}
}
