package jetstream

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// soak is the factor of the counts of tests under load.
func soak() int {
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		return 20
	}
	return 1
}

// writer appends records to a stream, and keeps what was acknowledged.
type writer struct {
	tb    testing.TB
	s     journal.Stream
	end   uint64
	crc   uint32
	acked []journal.Header
	count atomic.Int64  // of acked, for others
	last  time.Time     // when the last one was acknowledged
	gap   time.Duration // the longest time between two
}

func acquire(tb testing.TB, j *Journal, name string) *writer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		s, err := j.Acquire(ctx, name)
		if err == nil {
			at := s.Acquired()
			return &writer{tb: tb, s: s, end: at.End, crc: at.EndCRC}
		}
		if !errors.Is(err, journal.ErrUnknown) || !pause(ctx, 50*time.Millisecond) {
			tb.Fatalf("acquire: %v", err)
		}
	}
}

// next makes the next record, of count messages whose bodies are body.
func (w *writer) next(count int, body []byte) *journal.Record {
	w.tb.Helper()
	at := w.s.Acquired()
	rec := &journal.Record{
		Header: journal.Header{UID: at.UID, Epoch: at.Epoch, First: w.end + 1, Count: uint64(count), Kind: journal.KindEvents, Time: 1},
		Meta:   bytes.Repeat([]byte{byte(w.end)}, 20), Body: [][]byte{body},
	}
	if err := rec.Seal(w.crc); err != nil {
		w.tb.Fatal(err)
	}
	return rec
}

// append stores rec, repeating it until its outcome is known.
func (w *writer) append(ctx context.Context, rec *journal.Record) error {
	for {
		err := w.s.Append(ctx, w.end, rec)
		switch {
		case err == nil:
			w.end, w.crc = rec.Last(), rec.CRC
			w.acked = append(w.acked, rec.Header)
			w.count.Add(1)
			if !w.last.IsZero() {
				w.gap = max(w.gap, time.Since(w.last))
			}
			w.last = time.Now()
			return nil
		case !errors.Is(err, journal.ErrUnknown) || ctx.Err() != nil:
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// wait returns when n more records have been acknowledged.
func (w *writer) wait(n int64) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), time.Minute)
	defer cancel()
	for until := w.count.Load() + n; w.count.Load() < until; {
		if !pause(ctx, time.Millisecond) {
			w.tb.Fatal("nothing is acknowledged any more")
		}
	}
}

// wantHistory requires that exactly these records stand in the stream, with their bodies.
func wantHistory(tb testing.TB, j *Journal, name string, want []journal.Header) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	r, err := j.Open(ctx, name)
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	var first []uint64
	for rec, err := range r.ReadMeta(ctx, 0, math.MaxUint64) {
		if err != nil {
			tb.Fatal(err)
		}
		if n >= len(want) || rec.Header != want[n] {
			tb.Fatalf("record %d is that of seqs %d…%d, epoch %d: not what was acknowledged", n, rec.First, rec.Last(), rec.Epoch)
		}
		if rec.BodyLen > 0 {
			first = append(first, rec.First)
		}
		n++
	}
	if n != len(want) {
		tb.Fatalf("%d records, %d were acknowledged", n, len(want))
	}
	bodies := 0
	for _, err := range r.ReadBodies(ctx, first) {
		if err != nil {
			tb.Fatal(err)
		}
		bodies++
	}
	if bodies != len(first) {
		tb.Fatalf("%d bodies of %d", bodies, len(first))
	}
}
