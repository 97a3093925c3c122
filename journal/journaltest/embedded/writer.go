package embedded

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

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
func (w *writer) next(meta, body []byte) *journal.Record {
	w.Helper()
	r := &journal.Record{
		Header: journal.Header{
			UID: w.at.UID, Epoch: w.at.Epoch, First: w.at.End + 1, Count: 1, Kind: journal.KindEvents, Time: w.at.EndTime + 1,
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

// append appends a record, and repeats the call as it was while its outcome is unknown.
func (w *writer) append(r *journal.Record) error {
	for {
		err := w.s.Append(w.Context(), w.at.End, r)
		if err == nil {
			w.at.End, w.at.EndCRC, w.at.EndTime = r.Last(), r.CRC, r.Time
		}
		if !errors.Is(err, journal.ErrUnknown) || w.Context().Err() != nil {
			return err
		}
		// The call before told that the store is being read again; the next one waits for it in the store's own queue.
		ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
		<-ctx.Done()
		cancel()
	}
}

// add appends a record without a body, or with that one.
func (w *writer) add(body []byte) {
	w.Helper()
	meta := random(100)
	if err := w.append(w.next(meta, body)); err != nil {
		w.Fatal(err)
	}
}
