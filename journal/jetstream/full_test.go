package jetstream

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// G2: a stream that reaches its limit refuses records with bodies; discards and records without still work, and space comes back.
func TestFull(t *testing.T) {
	url := streamURL(server, newStream(t, server), "sync=always&replicas=1")
	j := mustOpen(t, url, quiet())
	cfg := wanted(&config{stream: j.c.stream}, 1)
	cfg.MaxBytes = 3 << 20
	if _, err := j.c.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	w := acquire(t, j, "orders")
	body := bytes.Repeat([]byte{1}, 100_000)
	for round := range 5 {
		var err error
		for err == nil {
			err = w.append(t.Context(), w.next(1, body))
		}
		if !errors.Is(err, journal.ErrFull) {
			t.Fatalf("round %d, append to a full stream: %v, want ErrFull", round, err)
		}
		for range 20 {
			if err := w.append(t.Context(), w.next(1, nil)); err != nil {
				t.Fatalf("round %d, append without a body to a full stream: %v", round, err)
			}
		}
		if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 1, To: w.end}}); err != nil {
			t.Fatalf("round %d, discard in a full stream: %v", round, err)
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			if err = w.append(t.Context(), w.next(1, body)); err == nil {
				break
			}
			if time.Now().After(deadline) || !errors.Is(err, journal.ErrFull) {
				t.Fatalf("round %d: no space came back: %v", round, err)
			}
			pause(t.Context(), time.Millisecond)
		}
	}
	n := 0
	for _, err := range w.s.ReadMeta(t.Context(), 1, math.MaxUint64) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(w.acked) {
		t.Errorf("%d records, %d were acknowledged", n, len(w.acked))
	}
}

// §4: space comes back: what was discarded leaves the server.
func TestSpaceComesBack(t *testing.T) {
	for _, replicas := range []string{"1", "3"} {
		j := mustOpen(t, streamURL(server, newStream(t, server), "sync=always&replicas="+replicas), quiet())
		w := acquire(t, j, "orders")
		for range 2 { // what the first owner left, the second deletes
			for range 40 {
				if err := w.append(t.Context(), w.next(200, bytes.Repeat([]byte{1}, 1000))); err != nil {
					t.Fatal(err)
				}
			}
			w = acquire(t, j, "orders")
		}
		if err := w.s.DiscardBodies(t.Context(), []journal.Range{{From: 0, To: math.MaxUint64}}); err != nil {
			t.Fatal(err)
		}
		if err := w.s.DiscardMeta(t.Context(), math.MaxUint64); err != nil {
			t.Fatal(err)
		}
		var left map[string]uint64
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); pause(t.Context(), 10*time.Millisecond) {
			var err error
			if left, err = j.c.subjects(t.Context(), j.names.prefix+".>"); err != nil {
				t.Fatal(err)
			}
			if left[j.names.records("orders")] == 1 && len(left) <= 4 {
				break
			}
		}
		if left[j.names.records("orders")] != 1 || len(left) > 4 {
			t.Errorf("%s replicas: with everything discarded, these subjects have messages: %v", replicas, left)
		}
	}
}

// §4: names and bodies find their way into subjects and back.
func TestNames(t *testing.T) {
	var all []byte
	for c := byte(' '); c <= '~'; c++ {
		all = append(all, c)
	}
	for _, name := range []string{"orders", string(all), "a.b", "*", ">", "=", "=2E", " "} {
		tok := token(name)
		if got, err := parseToken(tok); err != nil || got != name || bytes.ContainsAny([]byte(tok), " .*>") {
			t.Errorf("%q became %q, and that %q (%v)", name, tok, got, err)
		}
	}
	for _, bad := range []string{"=", "=2", "=zz", "a.b", "a b"} {
		if got, err := parseToken(bad); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
	n := names{"S"}
	h := &journal.Header{First: 1<<40 + 7, Count: 300, CRC: 0xab}
	b, ok := parseBody(n.body("a.b", h))
	if !ok || b.first != h.First || b.last != h.Last() {
		t.Errorf("%q was read as %+v, %v", n.body("a.b", h), b, ok)
	}
	for _, bad := range []string{"", "S.b.x.1.2", "S.b.x.1.z.1-0", "S.b.x.1.2.0-0"} {
		if b, ok := parseBody(bad); ok {
			t.Errorf("%q was read as %+v", bad, b)
		}
	}
}
