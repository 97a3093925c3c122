package hbase

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// startOwn starts a server that a test may hurt.
func startOwn(t testing.TB, env ...string) *testserver.Server {
	t.Helper()
	s, err := testserver.StartOwn("hbase", env...)
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

// load appends to a stream until it is stopped, whatever happens to the store, and says what was acknowledged.
type load struct {
	j      *Journal
	name   string
	stop   context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	moved  chan struct{} // closed at the next acknowledgement
	acked  []journal.Header
	longer time.Duration // the longest time between two
	err    error
}

func startLoad(t testing.TB, j *Journal, name string) *load {
	t.Helper()
	w := acquire(t, j, name)
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{j: j, name: name, stop: cancel, done: make(chan struct{}), moved: make(chan struct{})}
	go func() {
		defer close(l.done)
		last := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			r := w.next(fmt.Appendf(nil, "body %d", n))
			if err := settle(ctx, func() error { return w.s.Append(ctx, w.at.End, r) }); err != nil {
				if ctx.Err() == nil {
					l.err = err
				}
				return
			}
			w.stored(r)
			l.mu.Lock()
			l.acked = append(l.acked, r.Header)
			l.longer = max(l.longer, time.Since(last))
			close(l.moved)
			l.moved = make(chan struct{})
			l.mu.Unlock()
			last = time.Now()
		}
	}()
	t.Cleanup(func() { cancel(); <-l.done })
	return l
}

// next waits for an acknowledgement that is still to come.
func (l *load) next(ctx context.Context) error {
	l.mu.Lock()
	moved := l.moved
	l.mu.Unlock()
	select {
	case <-moved:
		return nil
	case <-l.done:
		return fmt.Errorf("the load has ended: %w", errors.Join(l.err, errors.New("stopped")))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// more waits for n acknowledgements.
func (l *load) more(ctx context.Context, n int) error {
	for range n {
		if err := l.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// G1, §12: the gateway killed and paused, HBase paused and killed under load: nothing that was acknowledged is missing, no record
// is there twice, and appends go on by themselves soon after the store answers again. The gateway is a framed one.
func TestServerFaults(t *testing.T) {
	s := startOwn(t, "HBASE_FRAMED=1")
	t.Run("framed", func(t *testing.T) { framedConformance(t, s) })
	t.Run("synced means synced", func(t *testing.T) { syncedMeansSynced(t, s) })
	o := testOptions(t, s)
	o.BucketRecords, o.Timeout = 50, 0
	loads := []*load{startLoad(t, mustOpen(t, o), "a"), startLoad(t, mustOpen(t, o), "b")}
	probe := o
	probe.Timeout = 2 * time.Second
	prober := mustOpen(t, probe)

	for _, f := range []struct {
		name string
		hurt func(ctx context.Context) error
		heal func() error
	}{
		{"gateway killed", func(context.Context) error { return s.Kill("gateway") }, s.Restart},
		{"gateway paused", func(ctx context.Context) error { return paused(ctx, s, "gateway", 3*time.Second) }, func() error { return s.Resume("gateway") }},
		{"HBase paused", func(ctx context.Context) error { return paused(ctx, s, "hbase", 6*time.Second) }, func() error { return s.Resume("hbase") }},
		{"HBase killed", func(context.Context) error { return s.Kill("hbase") }, s.Restart},
	} {
		for _, l := range loads {
			within(t, "a hundred appends before \""+f.name+"\"", time.Minute, func(ctx context.Context) error { return l.more(ctx, 100) })
		}
		hurt := time.Now()
		if err := f.hurt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.heal(); err != nil {
			t.Fatal(err)
		}
		// The store answers when a stranger gets an answer.
		within(t, "an answer after \""+f.name+"\"", 2*time.Minute, func(ctx context.Context) error {
			return settle(ctx, func() error { _, err := prober.newChain("a").last(ctx); return err })
		})
		answered := time.Since(hurt)
		var longest time.Duration
		for _, l := range loads {
			longest = max(longest, within(t, "an append after \""+f.name+"\"", time.Minute, l.next))
		}
		t.Logf("%s: answers again after %.1f s, appends %.1f s later", f.name, answered.Seconds(), longest.Seconds())
		if want := resumeWithin(); longest > want {
			t.Errorf("%s: appends went on %v after the store answered again, want %v", f.name, longest, want)
		}
	}
	for _, l := range loads {
		l.stop()
		<-l.done
		if l.err != nil {
			t.Fatal(l.err)
		}
		r, err := l.j.Open(t.Context(), l.name)
		if err != nil {
			t.Fatal(err)
		}
		wantHistory(t, r, l.acked)
		t.Logf("stream %s: %d records acknowledged, the longest gap %.1f s", l.name, len(l.acked), l.longer.Seconds())
	}
}

// resumeWithin is how soon appends go on by themselves once the store answers: the timeout of the call that hangs, at most. It is judged
// at full counts, when nothing else runs on the machine.
func resumeWithin() time.Duration {
	if soak > 1 {
		return 5 * time.Second
	}
	return 10 * time.Second
}

// paused lets a node stand still for d.
func paused(ctx context.Context, s *testserver.Server, node string, d time.Duration) error {
	if err := s.Pause(node); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// framedConformance runs the rules that a framed gateway could break: by its limits, and by how it ends connections.
func framedConformance(t *testing.T, s *testserver.Server) {
	o := testOptions(t, s)
	o.BucketRecords = 4
	runRules(t, o, []string{"append/stores", "append/shapes", "limits/record", "limits/part", "context/cut", "close/under-way"}, true)
	// And the wrong transport is told from a gateway that is away.
	plain := o
	plain.Framed, plain.Timeout = false, 2*time.Second
	wantOpenError(t, plain, "set framed=true if")
}

// runRules runs some rules of the conformance suite.
func runRules(t *testing.T, o Options, names []string, hooks bool) {
	t.Helper()
	cfg := journaltest.Config{
		NewStore: func(testing.TB) journaltest.Store {
			o := o
			o.prefix = fmt.Sprintf("%s%d/", o.prefix, stores.Add(1))
			return journaltest.Store{
				Open:    func(ctx context.Context) (journal.Journal, error) { return openAtLast(ctx, o) },
				SetHook: func(h journaltest.Hook) { o.hook = h },
			}
		},
		Shared: true, Persistent: true, Hooks: hooks, Coordinates: true,
		Records: 40, Takeovers: 20, Span: 5, MaxBytes: 4 << 20, Timeout: 3 * time.Minute,
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	for _, r := range journaltest.Rules() {
		if want[r.Name] {
			delete(want, r.Name)
			t.Run(r.Name, func(t *testing.T) { r.Check(t, cfg) })
		}
	}
	for n := range want {
		t.Errorf("there is no rule %s", n)
	}
}

// openAtLast opens a journal, again and again where connections are lost.
func openAtLast(ctx context.Context, o Options) (j *Journal, err error) {
	for range 10 {
		if j, err = Open(ctx, o); err == nil || ctx.Err() != nil {
			break
		}
	}
	return j, err
}

var stores atomic.Int64

// §4: unknown outcomes, by a proxy that loses requests and answers between driver and gateway.
func TestCutConnections(t *testing.T) {
	o := testOptions(t, server)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := newCutter(t, o.Gateways[0], 100, seed)
	o.Gateways = []string{c.Addr().String()}
	o.BucketRecords = 4
	runRules(t, o, []string{"race/two-owners", "race/three-owners-discarding", "race/streams", "late/append", "read/bulk"}, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("lost: %v of %v", c.cuts, c.seen)
	if c.cuts["request"] == 0 || c.cuts["answer"] == 0 {
		t.Errorf("only %v of %v were lost", c.cuts, c.seen)
	}
}

// G9: what hangs ends with its context or timeout, and a lost gateway is replaced by the next in the URL.
func TestSecondGateway(t *testing.T) {
	o := testOptions(t, server)
	o.Gateways = append([]string{"127.0.0.1:1"}, o.Gateways...)
	j := mustOpen(t, o)
	acquire(t, j, "orders").add([]byte("x"))
}

// wantOpenError requires that opening fails with a sentence.
func wantOpenError(t testing.TB, o Options, want string, is ...error) {
	t.Helper()
	j, err := Open(t.Context(), o)
	if err == nil {
		_ = j.Close()
		t.Errorf("opened, want an error with %q", want)
		return
	}
	checkError(t, err, want, is...)
}
