package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// ownServer starts a server that the test may harm.
func ownServer(t testing.TB, env ...string) *testserver.Server {
	t.Helper()
	s, err := testserver.StartOwn("postgres", env...)
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

// settle repeats an append until its outcome is known.
func (w *writer) settle(ctx context.Context, r *journal.Record) error {
	for {
		err := w.try(ctx, r)
		if err == nil || errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrConflict) || errors.Is(err, journal.ErrClosed) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// G1 and §4: a crash of the server loses nothing that was acknowledged.
func TestCrashes(t *testing.T) {
	s := ownServer(t)
	cfg := journaltest.Config{
		NewStore: func(t testing.TB) journaltest.Store {
			store := newStore(t, s, Options{})
			store.Crash = func(t testing.TB) {
				t.Helper()
				if err := errors.Join(s.Kill(), s.Restart()); err != nil {
					t.Fatal(err)
				}
			}
			return store
		},
		Shared: true, Persistent: true, Crashes: true,
	}
	without := cfg
	without.Crashes = false
	for _, rule := range journaltest.Rules() {
		if len(rule.Missing(cfg)) == 0 && len(rule.Missing(without)) > 0 {
			t.Run(rule.Name, func(t *testing.T) { rule.Check(t, cfg) })
		}
	}
}

// G3 and G10: the server is killed and started again while several owners append: what was acknowledged is there, once and
// in order, and appends go on by themselves.
func TestServerKilledInMidAppend(t *testing.T) {
	s := ownServer(t)
	j := openTest(t, newSchema(t, s), Options{Timeout: 5 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const owners = 4
	var stop atomic.Bool
	var appended [owners]atomic.Int64
	var wg sync.WaitGroup
	writers := make([]*writer, owners)
	sent := make([][]journal.Header, owners)
	for i := range owners {
		writers[i] = newWriter(t, j, string(rune('a'+i)))
		wg.Go(func() {
			for !stop.Load() {
				r := writers[i].next(50, 500)
				if err := writers[i].settle(ctx, r); err != nil {
					t.Errorf("append at seq %d: %v", r.First, err)
					return
				}
				sent[i] = append(sent[i], r.Header)
				appended[i].Add(1)
			}
		})
	}
	progress := func() {
		t.Helper()
		for i := range owners {
			n := appended[i].Load()
			until(t, "an append", func() bool { return appended[i].Load() > n+5 || t.Failed() })
		}
	}
	for range 3 * soak {
		progress()
		if err := errors.Join(s.Kill(), s.Restart()); err != nil {
			t.Fatal(err)
		}
	}
	progress()
	stop.Store(true)
	wg.Wait()
	for i, w := range writers {
		w.wantHeaders(sent[i])
	}
}

// wantHeaders requires that the stream holds exactly these records, with their bodies.
func (w *writer) wantHeaders(want []journal.Header) {
	w.t.Helper()
	i := 0
	for rec, err := range w.s.ReadMeta(w.t.Context(), 1, 1<<60) {
		if err != nil {
			w.t.Fatal(err)
		}
		if i == len(want) || rec.Header != want[i] {
			w.t.Fatalf("record %d of %d: %+v", i, len(want), rec.Header)
		}
		i++
	}
	if i != len(want) {
		w.t.Fatalf("%d records are there, %d were acknowledged", i, len(want))
	}
	firsts := make([]uint64, len(want))
	for i := range want {
		firsts[i] = want[i].First
	}
	i = 0
	for rec, err := range w.s.ReadBodies(w.t.Context(), firsts) {
		if err != nil {
			w.t.Fatal(err)
		}
		if rec.Header != want[i] {
			w.t.Fatalf("body %d of %d: %+v", i, len(want), rec.Header)
		}
		i++
	}
	if i != len(want) {
		w.t.Fatalf("%d bodies are there, %d were acknowledged", i, len(want))
	}
}

// G9 and G10: while the server stands still, calls end by their contexts and by the timeout, as unknown; when it goes on, so do
// they, and nothing is stored twice.
func TestServerPaused(t *testing.T) {
	pause := 3 * time.Second
	if soak > 1 {
		pause = 30 * time.Second
	}
	s := ownServer(t)
	j := openTest(t, newSchema(t, s), Options{Timeout: time.Second})
	w := newWriter(t, j, "orders")
	w.put(10, 10)
	first := w.last
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan error, 1)
	timer := time.AfterFunc(pause, func() { resumed <- s.Resume() })
	defer func() {
		if timer.Stop() { // the test has failed before: what cleans up behind it needs the server
			_ = s.Resume()
		}
	}()

	r := w.next(10, 100)
	for what, patience := range map[string]time.Duration{"its context": 300 * time.Millisecond, "the timeout": time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		start := time.Now()
		err := w.try(ctx, r)
		cancel()
		if !errors.Is(err, journal.ErrUnknown) {
			t.Fatalf("an append while the server stands still: %v, want ErrUnknown", err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Fatalf("it has returned after %v, not by %s", took, what)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), pause+30*time.Second)
	defer cancel()
	if err := w.settle(ctx, r); err != nil {
		t.Fatal(err)
	}
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	w.put(10, 10)
	w.wantHeaders([]journal.Header{first, r.Header, w.last})
}

// cutter is a proxy before the server that can lose requests and answers.
type cutter struct {
	listener net.Listener
	target   string
	mode     atomic.Int32
	cuts     atomic.Int32
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// The modes of a cutter: it cuts the next connection that sends something, before or after the server gets it.
const (
	passAll = iota
	cutBefore
	cutAfter
)

func newCutter(t *testing.T, serverURL string) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{target: u.Host, conns: map[net.Conn]bool{}}
	if c.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = c.listener.Addr().String()
	c.wg.Go(func() {
		for {
			conn, err := c.listener.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = c.listener.Close()
		c.mu.Lock()
		for conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return c, u.String()
}

func (c *cutter) serve(client net.Conn) {
	up, err := net.Dial("tcp", c.target)
	if err != nil {
		_ = client.Close()
		return
	}
	c.mu.Lock()
	c.conns[client], c.conns[up] = true, true
	c.mu.Unlock()
	var deaf atomic.Bool // the answer is not passed on
	end := func() { _, _ = client.Close(), up.Close() }
	c.wg.Go(func() {
		defer end()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if n > 0 && c.mode.CompareAndSwap(cutBefore, passAll) {
				c.cuts.Add(1)
				return
			}
			if n > 0 && c.mode.CompareAndSwap(cutAfter, passAll) {
				deaf.Store(true)
			}
			if n > 0 {
				if _, err := up.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer end()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if n > 0 && deaf.Load() {
			c.cuts.Add(1)
			return
		}
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return
		}
	}
}

// G3 and G10: connections that break before and after the commit: each record is stored once, whatever was lost.
func TestConnectionsCut(t *testing.T) {
	proxy, through := newCutter(t, server.URL())
	direct := newSchema(t, server)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	j := openTest(t, withOption(through, "schema", u.Query().Get("schema")), Options{Timeout: 5 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := newWriter(t, j, "orders")
	var want []journal.Header
	unsure := 0
	for range 20 * soak {
		for _, mode := range []int32{cutBefore, cutAfter} {
			r := w.next(20, 200)
			proxy.mode.Store(mode)
			err := w.try(ctx, r)
			if err != nil && !errors.Is(err, journal.ErrUnknown) {
				t.Fatalf("an append whose connection broke: %v", err)
			}
			if err != nil {
				unsure++
			}
			proxy.mode.Store(passAll)
			if err := w.settle(ctx, r); err != nil {
				t.Fatal(err)
			}
			want = append(want, r.Header)
		}
	}
	t.Logf("%d connections cut, %d appends unknown at first", proxy.cuts.Load(), unsure)
	if int(proxy.cuts.Load()) < len(want)/2 || unsure < len(want)/2 {
		t.Fatalf("%d connections were cut and %d appends unknown, of %d: the proxy does not do what it is for", proxy.cuts.Load(), unsure, len(want))
	}
	w.wantHeaders(want)
	// By another way in: nothing is there twice.
	other := openTest(t, direct, Options{})
	var rows int
	if err := other.pool.QueryRow(ctx, "SELECT count(*) FROM record_1").Scan(&rows); err != nil || rows != len(want) {
		t.Fatalf("%d rows, want %d (%v)", rows, len(want), err)
	}
}
