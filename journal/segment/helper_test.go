package segment

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// quiet makes a store log nothing.
func quiet(o Options) Options {
	o.Logger = slog.New(slog.DiscardHandler)
	return o
}

func mustOpen(t testing.TB, dir string, o Options) *Journal {
	t.Helper()
	j, err := Open(dir, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func mustClose(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// writer is an owner and where its stream ends.
type writer struct {
	testing.TB
	s  journal.Stream
	at journal.Info
}

func acquire(t testing.TB, j journal.Journal, name string) *writer {
	t.Helper()
	s, err := j.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &writer{t, s, s.Acquired()}
}

// next makes the record that comes next.
func (w *writer) next(count uint64, meta, body []byte) *journal.Record {
	w.Helper()
	r := &journal.Record{
		Header: journal.Header{
			UID: w.at.UID, Epoch: w.at.Epoch, First: w.at.End + 1, Count: count, Kind: journal.KindEvents, Time: w.at.EndTime + 1,
		},
		Meta: meta,
	}
	if body != nil {
		r.Body = [][]byte{body}
	}
	if err := r.Seal(w.at.EndCRC); err != nil {
		w.Fatal(err)
	}
	return r
}

// stored moves the end behind a record.
func (w *writer) stored(r *journal.Record) {
	w.at.End, w.at.EndCRC, w.at.EndTime = r.Last(), r.CRC, r.Time
}

// add appends a record.
func (w *writer) add(count uint64, meta, body []byte) *journal.Record {
	w.Helper()
	r := w.next(count, meta, body)
	if err := w.s.Append(w.Context(), w.at.End, r); err != nil {
		w.Fatal(err)
	}
	w.stored(r)
	return r
}

// random returns bytes that do not compress.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// eventually waits until f is true, for a minute at most.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
