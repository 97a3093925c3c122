package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/persistent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sim is some nodes on one store, in virtual time. It is used inside of synctest.Test alone.
type sim struct {
	t     *testing.T
	store *memory.Store
	nodes map[string]*member
	ahead map[string]time.Duration // of wall clocks, by node

	mu       sync.Mutex
	acquired map[string][]string       // by stream: who acquired it, in order
	reach    map[string]*broker.Broker // those that live, by address
}

// history returns who has acquired a queue, in order.
func (s *sim) history(queue string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acquired[broker.StreamName(queue)])
}

// member is a node with its own way to the store.
type member struct {
	*Node
	j    *gate
	s    *sim
	name string
	dead bool
}

// gate is a journal that can be shut, wholly or for one stream.
type gate struct {
	journal.Journal
	journal.Coordinator
	s    *sim
	name string

	mu     sync.Mutex
	open   chan struct{} // closed while calls go through
	broken map[string]error
	blind  map[string][]byte // what Members returns instead, if not nil
	holds  map[string]*hold  // of Acquire, by stream
	opens  map[string]*hold  // of Open, likewise
	stored func()            // called once, when the next append is stored and before it is answered
}

// hold holds a call up.
type hold struct{ reached, release chan struct{} }

// hold holds the next Acquire of a queue up.
func (g *gate) hold(queue string) *hold {
	h := &hold{make(chan struct{}), make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = map[string]*hold{broker.StreamName(queue): h}
	return h
}

// holdOpen holds the next Open of a queue up, until its context ends or it is released.
func (g *gate) holdOpen(queue string) *hold {
	h := &hold{make(chan struct{}), make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opens = map[string]*hold{broker.StreamName(queue): h}
	return h
}

func (g *gate) heldUp(holds *map[string]*hold, stream string) *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := (*holds)[stream]
	delete(*holds, stream)
	return h
}

// pass waits while the gate is shut.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		select {
		case <-open:
			return ctx.Err()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err())
		}
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) fault(stream string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken[stream]
}

func (g *gate) Acquire(ctx context.Context, stream string) (journal.Stream, error) {
	if err := errors.Join(g.pass(ctx), g.fault(stream)); err != nil {
		return nil, err
	}
	if h := g.heldUp(&g.holds, stream); h != nil {
		close(h.reached)
		<-h.release
	}
	st, err := g.Journal.Acquire(ctx, stream)
	if err == nil {
		g.s.mu.Lock()
		g.s.acquired[stream] = append(g.s.acquired[stream], g.name)
		g.s.mu.Unlock()
		st = gatedStream{st, g}
	}
	return st, err
}

func (g *gate) Open(ctx context.Context, stream string) (journal.Reader, error) {
	if err := errors.Join(g.pass(ctx), g.fault(stream)); err != nil {
		return nil, err
	}
	if h := g.heldUp(&g.opens, stream); h != nil {
		close(h.reached)
		select {
		case <-h.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.Journal.Open(ctx, stream)
}

func (g *gate) PutMember(ctx context.Context, id string, data []byte) error {
	if err := g.pass(ctx); err != nil {
		return err
	}
	return g.Coordinator.PutMember(ctx, id, data)
}

func (g *gate) Members(ctx context.Context) (map[string][]byte, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	g.mu.Lock()
	blind := g.blind
	g.mu.Unlock()
	if blind != nil {
		return maps.Clone(blind), nil
	}
	return g.Coordinator.Members(ctx)
}

func (g *gate) Close() error { return g.Journal.Close() }

// gatedStream is a stream behind a gate.
type gatedStream struct {
	journal.Stream
	g *gate
}

func (s gatedStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	if err := s.g.pass(ctx); err != nil {
		return err
	}
	err := s.Stream.Append(ctx, after, rec)
	s.g.mu.Lock()
	f := s.g.stored
	s.g.stored = nil
	s.g.mu.Unlock()
	if f != nil {
		f()
	}
	return err
}

func (s gatedStream) Info(ctx context.Context) (journal.Info, error) {
	if err := s.g.pass(ctx); err != nil {
		return journal.Info{}, err
	}
	return s.Stream.Info(ctx)
}

func newSim(t *testing.T, names ...string) *sim {
	t.Helper()
	store, err := memory.NewStore(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{t: t, store: store, nodes: map[string]*member{}, ahead: map[string]time.Duration{}, acquired: map[string][]string{}, reach: map[string]*broker.Broker{}}
	for _, name := range names {
		s.join(name)
	}
	s.until(10*time.Second, "they know each other", func() bool {
		for _, m := range s.nodes {
			m.mu.Lock()
			members := m.table.Members()
			m.mu.Unlock()
			for _, e := range members {
				if len(members) != len(names) || e.State != placement.Live || e.Entry.New {
					return false
				}
			}
		}
		return true
	})
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			s.nodes[name].kill()
		}
	})
	return s
}

// join starts a node.
func (s *sim) join(name string) *member {
	s.t.Helper()
	j := s.store.Open()
	open := make(chan struct{})
	close(open)
	m := &member{s: s, name: name, j: &gate{Journal: j, Coordinator: j, s: s, name: name, open: open, broken: map[string]error{}}}
	n, err := Open(s.t.Context(), m.j, m.j, Options{
		Address: name, Secret: name + "'s", Dial: s.dial,
		Broker: broker.Options{
			Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)).With("broker", name),
			Persistent: persistent.Options{Clock: func() time.Time { return time.Now().Add(s.ahead[name]) }},
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m.Node = n
	s.nodes[name] = m
	s.mu.Lock()
	s.reach[name] = n.b
	s.mu.Unlock()
	return m
}

// dial is how nodes reach each other.
func (s *sim) dial(_ context.Context, p Peer) (PeerLink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.reach[p.Address]
	if b == nil || p.Secret != p.Address+"'s" {
		return nil, fmt.Errorf("no broker at %s, or not with secret %q", p.Address, p.Secret)
	}
	return peerLink{b, s, p.Address}, nil
}

// peerLink is a node as other nodes reach it: at an address, whichever life of it is there.
type peerLink struct {
	holdfast.Link // of the life that was there at first
	s             *sim
	address       string
}

func (l peerLink) Close() {}

func (l peerLink) now() holdfast.Link {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if b := l.s.reach[l.address]; b != nil {
		return b
	}
	return l.Link
}

func (l peerLink) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	return l.now().OpenSender(ctx, queue, c, ev)
}

func (l peerLink) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	return l.now().OpenReceiver(ctx, queue, c, ev)
}

func (l peerLink) Admin() holdfast.Admin { return l.now().Admin() }

// gone notes that a node does not live any more.
func (m *member) gone() {
	m.dead = true
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	delete(m.s.reach, m.name)
}

// kill ends a node as the death of its process would: it says nothing to the others, and its streams break.
func (m *member) kill() {
	if m.dead {
		return
	}
	m.gone()
	for _, h := range m.b.Held() {
		m.b.Yield(h.Name, fmt.Errorf("%w: killed", holdfast.ErrUnavailable))
	}
	m.mu.Lock()
	m.closing = true
	m.mu.Unlock()
	m.end()
	m.work.Wait()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.b.Close(ended)
}

// owners returns the epochs at which nodes have a queue ready, by name.
func (s *sim) owners(queue string) map[string]bool {
	out := map[string]bool{}
	for name, m := range s.nodes {
		if m.dead {
			continue
		}
		for _, h := range m.b.Held() {
			if h.Name == queue && h.Ready {
				out[name] = true
			}
		}
	}
	return out
}

// until waits for something to be so, for at most limit.
func (s *sim) until(limit time.Duration, what string, ok func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > limit {
			s.t.Fatalf("after %v still not: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond) //holdfast:allow sleep: virtual time
	}
	return time.Since(began)
}

// settled waits until each queue has one owner, the one that the rule names.
func (s *sim) settled(limit time.Duration, queues ...string) {
	s.t.Helper()
	for _, q := range queues {
		s.until(limit, "one owner of "+q, func() bool {
			at := s.owners(q)
			if len(at) != 1 {
				return false
			}
			for _, m := range s.nodes {
				if m.dead {
					continue
				}
				m.mu.Lock()
				p := m.table.Place(q)
				m.mu.Unlock()
				if !p.Sure || !at[p.ID] {
					return false
				}
			}
			return true
		})
	}
}
