package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/goleak"
)

// TestMain lets the test binary be a client process too.
func TestMain(m *testing.M) {
	embedded, down, hanging := fake("embedded", nil), fake("down", nil), fake("hangs", nil)
	embedded.embedded = true
	down.start = func(context.Context, *env, string) (*server, error) { return nil, errors.New("no such server") }
	hanging.start = func(ctx context.Context, _ *env, _ string) (*server, error) {
		hangs()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	extra = []*peer{fake("fake", nil), fake("broken", errors.New("no room")), {name: "away", connect: func(context.Context, string) (conn, error) {
		return nil, errors.New("nobody there, GOGC=" + os.Getenv("GOGC"))
	}}, embedded, down, hanging}
	if how := os.Getenv("PEERS_TEST_SYNCS"); how != "" {
		if err := syncSeven(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		main()
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "client" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// hangs is called when a server starts that never answers.
var hangs func()

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

func (f *fakeConn) receive(ctx context.Context, _ string, got func([]byte), done func(int)) error {
	t := time.NewTicker(100 * time.Microsecond)
	defer t.Stop()
	body := make([]byte, 8)
	for {
		select {
		case now := <-t.C:
			for i, n := 0, now.UnixNano(); i < 8; i++ {
				body[i] = byte(n >> (8 * i))
			}
			got(body)
			done(1)
		case <-ctx.Done():
			return nil
		}
	}
}

func short(kind string, rate float64) load {
	return load{name: "a load: " + kind, kind: kind, payload: 100, window: 10, rate: rate, warmup: 20 * time.Millisecond, duration: 100 * time.Millisecond}
}

// A sender that gets its turn when its time is over sends all the same, or else its receiver would wait for ever.
func TestSendsOneAtLeast(t *testing.T) {
	for _, rate := range []float64{0, 1000} {
		w := &work{spec: spec{Send: true, Payload: 100, Window: 1, Rate: rate}, began: time.Now().Add(-time.Minute)}
		if err := w.send(t.Context(), &fakeConn{}); err != nil || w.sent.Load() == 0 {
			t.Errorf("rate %v: %d messages, %v", rate, w.sent.Load(), err)
		}
	}
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
	err = measureGroup(t.Context(), &env{}, known, loads, dir, func(_ *peer, _ load, f figure, err error) {
		if got = append(got, f); err != nil {
			t.Error(err)
		}
	}, nil)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v %v", got, err)
	}
	for i, f := range got {
		if f.Total <= 0 || i == 0 && f.P50 > 0 || f.P50 > f.P99 {
			t.Errorf("%s: %+v", loads[i].kind, f)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// onceConn has three messages that were sent five minutes ago, one with no time in it, and then no more.
type onceConn struct{ fakeConn }

func (*onceConn) receive(ctx context.Context, _ string, got func([]byte), done func(int)) error {
	for range 3 {
		got(binary.LittleEndian.AppendUint64(nil, uint64(time.Now().Add(-5*time.Minute).UnixNano())))
	}
	got(make([]byte, 8))
	done(4)
	<-ctx.Done()
	return nil
}

// Latencies are from the time in a message to its receipt; what has none is only counted.
func TestLatencies(t *testing.T) {
	w := &work{spec: spec{Receive: true}, stop: make(chan struct{}), hist: hdrhistogram.New(100, int64(10*time.Minute), 3)}
	w.measuring.Store(true)
	ended := make(chan error)
	go func() { ended <- w.receive(t.Context(), &onceConn{}) }()
	for w.done().Load() != 4 {
		wait(t.Context(), time.Millisecond)
	}
	w.halt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	minutes := func(us float64) int { return int(us/60e6 + 0.5) }
	if r := w.measure(t.Context()); r.Samples != 3 || minutes(r.P50) != 5 || minutes(r.P99) != 5 {
		t.Errorf("%+v", r)
	}
}

// What goes wrong in a client, at its beginning or later, is told.
func TestMeasureFails(t *testing.T) {
	known, err := find("broken")
	if err != nil {
		t.Fatal(err)
	}
	err = measureGroup(t.Context(), &env{}, known, []load{short("send", 0)}, t.TempDir(), func(*peer, load, figure, error) { t.Error("a figure") }, nil)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Error(err)
	}
	if _, err := startClient(t.Context(), &env{}, &peer{name: "away"}, spec{Peer: "away"}); err == nil || !strings.Contains(err.Error(), "nobody there") {
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
		w.wake()
		for w.sent.Load() != n+10 {
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
	b := newBatcher(4, 100, 25, func(_ context.Context, bodies [][]byte) error {
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

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-runs", "0"}, {"-duration", "0s"}, {"more"}, {"-peers", "x"}, {"-load", "x"}, {"client", "{"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	if got := turned([]*peer{{name: "a"}, {name: "b"}, {name: "c"}}, 4); got[0].name != "b" || got[2].name != "a" || turned[int](nil, 3) != nil {
		t.Error(got)
	}
}

// Clients of peers collect their garbage as rarely as those of Holdfast's own bench, unless the user says something else.
func TestClientsCollectAlike(t *testing.T) {
	for _, c := range []struct{ told, want string }{{"", "GOGC=1600"}, {"70", "GOGC=70"}} {
		t.Setenv("GOGC", c.told)
		if c.told == "" {
			if err := os.Unsetenv("GOGC"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := startClient(t.Context(), &env{}, &peer{name: "away"}, spec{Peer: "away"})
		if err == nil || !strings.Contains(err.Error(), c.want+"\n") && !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("told %q: %v", c.told, err)
		}
	}
}
