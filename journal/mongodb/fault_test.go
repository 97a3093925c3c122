package mongodb

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
)

// startOwn starts a server of the test's own.
func startOwn(t *testing.T, env ...string) *testserver.Server {
	t.Helper()
	s, err := testserver.StartOwn("mongodb", env...)
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

// load appends records until it is stopped.
func load(t *testing.T, w *writer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.append(t.Context(), w.next(3, bytes.Repeat([]byte("body"), 100))); err != nil {
				t.Errorf("append: %v", err)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// G1: the server is killed, and paused, under load, and comes back: nothing that was acknowledged is missing, and appends go on
// by themselves. It is a server of the test's own, so FerretDB.
func TestServerAway(t *testing.T) {
	s := startOwn(t)
	url := newURL(t, s, "&timeoutMS=1500")
	j := mustOpen(t, url, quiet())
	w := acquire(t, j, "orders")
	for _, how := range []string{"kill", "pause", "kill"} {
		stop := load(t, w)
		w.wait(20)
		away, back := s.Kill, s.Restart
		if how == "pause" {
			away, back = s.Pause, func() error { return s.Resume() }
		}
		if err := away(); err != nil {
			t.Fatal(err)
		}
		if how == "pause" {
			pause(t.Context(), 2*time.Second) // longer than a request waits
		}
		if err := back(); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		w.wait(1)
		if d := time.Since(from); d > 5*time.Second {
			t.Errorf("%s: appends went on %v after the server was back", how, d)
		}
		stop()
	}
	t.Logf("%d appends, longest gap %v", len(w.acked), w.gap)
	wantHistory(t, j, "orders", w.acked)
}

// G5: an owner whose request is held up in a paused server is fenced by what its successor then stores, or was stored before it.
func TestPausedServer(t *testing.T) {
	s := startOwn(t)
	url := newURL(t, s, "&timeoutMS=1000")
	old := acquire(t, mustOpen(t, url, quiet()), "orders")
	if err := old.append(t.Context(), old.next(2, []byte("body"))); err != nil {
		t.Fatal(err)
	}
	late := old.next(1, []byte("late"))
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := old.s.Append(t.Context(), old.end, late); !errors.Is(err, journal.ErrUnknown) {
		t.Errorf("append to a paused server: %v, want ErrUnknown", err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, url, quiet())
	w := acquire(t, other, "orders")
	acked := old.acked
	stored := w.end == late.Last() && w.crc == late.CRC
	if stored {
		acked = append(acked, late.Header)
	}
	for range 10 {
		if err := w.append(t.Context(), w.next(1, []byte("of the successor"))); err != nil {
			t.Fatal(err)
		}
	}
	err := old.append(t.Context(), late)
	if stored && err != nil || !stored && !errors.Is(err, journal.ErrFenced) {
		t.Errorf("the late append, stored %v: %v", stored, err)
	}
	wantHistory(t, other, "orders", append(acked, w.acked...))
}

// §4: space comes back: what was discarded leaves the server, but for marks and what a late insertion could take the number of.
func TestSpaceComesBack(t *testing.T) {
	j := mustOpen(t, newURL(t, server, ""), quiet())
	w := acquire(t, j, "orders")
	for range 3 {
		for range 15 {
			if err := w.append(t.Context(), w.next(200, bytes.Repeat([]byte{1}, 1000))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.s.WritePart(t.Context(), "p", []byte("data")); err != nil {
			t.Fatal(err)
		}
		w = acquire(t, j, "orders")
	}
	if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 0, To: math.MaxUint64}}); err != nil {
		t.Fatal(err)
	}
	if err := w.s.DiscardMeta(t.Context(), math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	if err := w.s.DeleteParts(t.Context(), []string{"p"}); err != nil {
		t.Fatal(err)
	}
	count := func(filter bson.D) int64 {
		n, err := j.records.CountDocuments(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var left, bodies, parts int64
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); pause(t.Context(), 20*time.Millisecond) {
		left, bodies = count(bson.D{}), count(bson.D{{Key: "b", Value: bson.D{{Key: "$exists", Value: true}}}})
		var err error
		if parts, err = j.parts.CountDocuments(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		if left <= 7 && bodies == 0 && parts == 0 {
			return // four marks, and the last records of three owners
		}
	}
	t.Errorf("with everything discarded, %d documents, %d bodies and %d parts are left", left, bodies, parts)
}
