package cassandra

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// ownServer starts a server that the test may harm.
func ownServer(t testing.TB, env ...string) *testserver.Server {
	t.Helper()
	s, err := testserver.StartOwn("cassandra", env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// writer is a hold, and where its owner believes the stream to end.
type writer struct {
	t testing.TB
	s journal.Stream

	mu    sync.Mutex
	end   place
	acked []journal.Header
}

func newWriter(t testing.TB, j journal.Journal, name string) *writer {
	t.Helper()
	for {
		s, err := j.Acquire(t.Context(), name)
		if err == nil {
			at := s.Acquired()
			return &writer{t: t, s: s, end: place{at.End, at.EndCRC, at.EndTime}}
		}
		if !errors.Is(err, journal.ErrUnknown) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// next makes the next record.
func (w *writer) next(count uint64, body int) *journal.Record {
	at := w.s.Acquired()
	r := &journal.Record{
		Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: w.end.end + 1, Count: count, Kind: journal.KindEvents, Time: w.end.time + 1},
		Meta:   []byte("meta"),
	}
	if body > 0 {
		b := make([]byte, body)
		rand.Read(b) // never fails
		r.Body = [][]byte{b}
	}
	if err := r.Seal(w.end.crc); err != nil {
		w.t.Error(err)
	}
	return r
}

func (w *writer) took(r *journal.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = place{r.Last(), r.CRC, r.Time}
	w.acked = append(w.acked, r.Header)
}

// count returns how many records were acknowledged.
func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// put appends a record until its outcome is known.
func (w *writer) put(ctx context.Context, r *journal.Record) error {
	for {
		err := w.s.Append(ctx, r.First-1, r)
		if err == nil {
			w.took(r)
			return nil
		}
		if !errors.Is(err, journal.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// append appends n records of one event, which must succeed.
func (w *writer) append(n, body int) {
	w.t.Helper()
	for range n {
		if err := w.put(w.t.Context(), w.next(1, body)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// wait waits for d, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); wait(t.Context(), 10*time.Millisecond) {
		if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatalf("waiting in vain for %s", what)
		}
	}
}

// headers reads a stream, with its bodies if they are wanted.
func headers(t testing.TB, r journal.Reader, bodies bool) []journal.Header {
	t.Helper()
	var all []journal.Header
	var first []uint64
	for rec, err := range r.ReadMeta(t.Context(), 1, 1<<62) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec.Header)
		if rec.BodyLen > 0 {
			first = append(first, rec.First)
		}
	}
	if !bodies {
		return all
	}
	n := 0
	for rec, err := range r.ReadBodies(t.Context(), first) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.First != first[n] {
			t.Fatalf("body %d is of seq %d, want %d", n, rec.First, first[n])
		}
		n++
	}
	if n != len(first) {
		t.Fatalf("%d bodies, want %d", n, len(first))
	}
	return all
}

// wantAcked requires that the stream holds exactly what was acknowledged.
func (w *writer) wantAcked(r journal.Reader) {
	w.t.Helper()
	got := headers(w.t, r, true)
	if len(got) != len(w.acked) {
		w.t.Fatalf("%d records are there, %d were acknowledged", len(got), len(w.acked))
	}
	for i := range got {
		if got[i] != w.acked[i] {
			w.t.Fatalf("record %d is %+v, acknowledged was %+v", i, got[i], w.acked[i])
		}
	}
}
