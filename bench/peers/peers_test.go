package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be a client process too.
func TestMain(m *testing.M) {
	extra = []*peer{fake("fake", nil), fake("broken", errors.New("no room")), {name: "away", connect: func(context.Context, string) (conn, error) { return nil, errors.New("nobody there") }}}
	if len(os.Args) == 3 && os.Args[1] == "client" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// fakeConn answers each send, and has messages without end.
type fakeConn struct {
	err error
}

func fake(name string, err error) *peer {
	return &peer{
		name: name, about: "a test", synced: true,
		start: func(_ context.Context, e *env, dir string) (*server, error) {
			return e.serve(dir, "here", "sleep", "600")
		},
		connect: func(context.Context, string) (conn, error) { return &fakeConn{err: err}, nil },
	}
}

func (f *fakeConn) create(context.Context, string) error                     { return nil }
func (f *fakeConn) sender(context.Context, string, int) (sender, error)      { return f, nil }
func (f *fakeConn) close()                                                   {}
func (f *fakeConn) flush(context.Context) error                              { return nil }
func (f *fakeConn) send(_ context.Context, _ []byte, done func(error)) error { done(f.err); return nil }

func (f *fakeConn) receive(ctx context.Context, _ string, handle func([]byte)) error {
	t := time.NewTicker(100 * time.Microsecond)
	defer t.Stop()
	body := make([]byte, 8)
	for {
		select {
		case now := <-t.C:
			for i, n := 0, now.UnixNano(); i < 8; i++ {
				body[i] = byte(n >> (8 * i))
			}
			handle(body)
		case <-ctx.Done():
			return nil
		}
	}
}

func short(kind string, rate float64) load {
	return load{name: "a load", kind: kind, payload: 100, window: 10, rate: rate, warmup: 20 * time.Millisecond, duration: 100 * time.Millisecond}
}

// A peer is measured by client processes on a server of its own, of which nothing is left.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	known, err := find("fake")
	if err != nil {
		t.Fatal(err)
	}
	var got []figure
	loads := []load{short("send", 0), short("pipeline", 0), short("latency", 1000)}
	err = measurePeer(t.Context(), &env{}, known[0], loads, dir, func(_ load, f figure) { got = append(got, f) })
	if err != nil || len(got) != 3 {
		t.Fatalf("%v %v", got, err)
	}
	for i, f := range got {
		if f.Rate <= 0 || (i > 0) != (f.P50 > 0) || f.P50 > f.P99 {
			t.Errorf("%s: %+v", loads[i].kind, f)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// What goes wrong in a client, at its beginning or later, is told.
func TestMeasureFails(t *testing.T) {
	known, err := find("broken")
	if err != nil {
		t.Fatal(err)
	}
	err = measurePeer(t.Context(), &env{}, known[0], []load{short("send", 0)}, t.TempDir(), func(load, figure) { t.Error("a figure") })
	if err == nil || !strings.Contains(err.Error(), "not stored: no room") {
		t.Error(err)
	}
	if _, err := startClient(t.Context(), spec{Peer: "away"}); err == nil || !strings.Contains(err.Error(), "nobody there") {
		t.Error(err)
	}
	if _, err := find("fake,nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"; there are kafka-flush`) {
		t.Error(err)
	}
}

// A server that ends before it answers is told with what it said.
func TestServerEnds(t *testing.T) {
	s, err := (&env{}).serve(t.TempDir(), "here", "sh", "-c", "echo out of order; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = s.await(t.Context(), func(context.Context) error { return errors.New("no answer") })
	if err == nil || !strings.Contains(err.Error(), "out of order") || !strings.Contains(err.Error(), "no answer") {
		t.Error(err)
	}
	if err := (&env{}).run(t.Context(), ".", "sh", "-c", "echo wrong; exit 1"); err == nil || !strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}
}

// A sender waits while it is too far ahead of the receiver.
func TestAhead(t *testing.T) {
	w := &work{spec: spec{Payload: 8, Window: 1, Ahead: 10, Duration: time.Hour}, began: time.Now(), more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fakeConn{}
	ended := make(chan error, 1)
	go func() { ended <- w.send(ctx, f) }()
	for _, n := range []int64{0, 25} {
		w.received.Store(n)
		w.more <- struct{}{}
		for w.done.Load() != n+10 {
			wait(ctx, time.Millisecond)
		}
	}
	gone := errors.New("gone")
	cancel(gone)
	if err := <-ended; !errors.Is(err, gone) {
		t.Error(err)
	}
}

// All messages are stored once, in batches of at most their lane's part of the window, and the window is kept.
func TestBatcher(t *testing.T) {
	var stored, answered, open, most atomic.Int64
	b := newBatcher(4, 100, func(_ context.Context, bodies [][]byte) error {
		stored.Add(int64(len(bodies)))
		if len(bodies) > 25 || open.Load() > 100 {
			most.Add(1)
		}
		return nil
	})
	for range 5000 {
		if err := b.send(t.Context(), nil, func(err error) { open.Add(-1); answered.Add(1) }); err != nil {
			t.Fatal(err)
		}
		open.Add(1)
	}
	if err := b.flush(t.Context()); err != nil || stored.Load() != 5000 || answered.Load() != 5000 || most.Load() > 0 {
		t.Errorf("%v: %d stored, %d answered, %d too large", err, stored.Load(), answered.Load(), most.Load())
	}
	if err := b.send(t.Context(), nil, nil); err == nil {
		t.Error("a closed sender sends")
	}
}

// Medians, spread and ratios are in the table, the chart and the JSON.
func TestTable(t *testing.T) {
	tab := &table{Facts: "2 cores"}
	rates, lat := load{name: "sends", kind: "send"}, load{name: "waits", kind: "latency"}
	for _, v := range []float64{3e6, 1e6, 2e6} {
		tab.add(rates, own, "", true, figure{Rate: v})
		tab.add(rates, "other", "", false, figure{Rate: v / 4})
		tab.add(lat, own, "", true, figure{P50: v / 1e3, P99: v / 1e2})
		tab.add(lat, "other", "", true, figure{P50: v / 500, P99: v / 1e2})
	}
	md := string(tab.markdown())
	for _, want := range []string{"| holdfast | yes | 2.00 M (1.00 M–3.00 M) |  |", "| other | no | 500 k (250 k–750 k) | 4.00 |", "| holdfast | yes | 2.00 ms (1.00 ms–3.00 ms) |", "| 0.50, 1.00 |"} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in\n%s", want, md)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := tab.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".json")
	var back table
	if err = errors.Join(err, json.Unmarshal(b, &back)); err != nil || len(back.Rows) != 4 || len(back.Rows[0].Figures) != 3 {
		t.Errorf("%v %+v", err, back)
	}
	svg, err := os.ReadFile(path + ".svg")
	if err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.Contains(svg, []byte("2.00 M")) || bytes.Contains(svg, []byte("waits")) {
		t.Errorf("%v\n%s", err, svg)
	}
	if count(1234) != "1.2 k" || count(999) != "999" || median(nil) != 0 || median([]float64{1, 2}) != 1.5 {
		t.Error("numbers are written wrong")
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-runs", "0"}, {"-duration", "0s"}, {"more"}, {"-peers", "x"}, {"client", "{"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	if got := turned([]*peer{{name: "a"}, {name: "b"}, {name: "c"}}, 4); got[0].name != "b" || got[2].name != "a" || turned(nil, 3) != nil {
		t.Error(got)
	}
}
