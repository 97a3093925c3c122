package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/journal"
)

// Node is a broker that shares the queues of a journal with others. It is a holdfast.Link to all of these queues: streams to one
// that another broker has go by way of that broker. All methods may be called concurrently.
type Node struct {
	o     Options
	b     *broker.Broker
	coord journal.Coordinator
	log   *slog.Logger
	began time.Time

	life  context.Context //holdfast:allow context: the life of background work that no caller waits for
	end   context.CancelFunc
	work  sync.WaitGroup
	valid atomic.Int64 // until when since began, see Valid

	beatNow, lookNow, takeNow chan struct{}

	mu      sync.Mutex
	table   *placement.Table
	changed chan struct{} // closed and replaced when what Route waits for may be known
	stored  []string      // names of the queues in the journal
	named   time.Duration // when they were read; 0: never, or they are to be read again
	moved   time.Duration // when members last changed
	lapsed  bool          // it was told that this broker is not valid
	failed  map[string]error
	checked map[string]time.Duration // when queues were last looked after, by name
	peers   map[string]*peer         // by address
	leaving bool
	closing bool
	stats   Metrics

	closed   sync.Once
	closeErr error
}

var (
	_ holdfast.Link  = (*Node)(nil)
	_ broker.Cluster = (*Node)(nil)
)

// Metrics are the numbers of a node.
type Metrics struct {
	// Members are the brokers that this one sees, by state: live, suspect, unknown, expired. It counts itself as live.
	Members map[string]int
	// Valid tells that this broker serves: it could renew its entry in time, or is alone.
	Valid        bool
	Beats        uint64 // renewals of its entry
	BeatFailures uint64 // that failed
	LookFailures uint64 // reads of the others' entries that failed
	Taken        uint64 // queues opened: each is an acquisition in the store
	Fenced       uint64 // queues that another broker took
	Lapses       uint64 // times that this broker stopped serving because it could not renew its entry
	Refused      int    // queues that it has published as such that it cannot open
	Forwarded    uint64 // calls and streams passed on to another broker
	Redirected   uint64 // streams of clients that were sent on to another broker
}

// Open starts a broker and makes it a member of those that share the journal. It returns at once; queues are opened once
// it is known which are this broker's. The journal stays the caller's to close, after Close.
func Open(ctx context.Context, j journal.Journal, c journal.Coordinator, o Options) (*Node, error) {
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	if o.Broker.Logger == nil {
		o.Broker.Logger = slog.Default()
	}
	n := &Node{
		o: o, coord: c, log: o.Broker.Logger, began: time.Now(),
		beatNow: make(chan struct{}, 1), lookNow: make(chan struct{}, 1), takeNow: make(chan struct{}, 1),
		changed: make(chan struct{}), failed: make(map[string]error), checked: make(map[string]time.Duration), peers: make(map[string]*peer),
	}
	var id [16]byte
	rand.Read(id[:])
	n.table = placement.New(placement.Options{ID: o.Address, Heartbeat: o.Heartbeat, Expiry: o.Expiry},
		placement.Entry{Incarnation: hex.EncodeToString(id[:]), Address: o.Address, Secret: o.Secret, Pin: o.pin()})
	bo := o.Broker
	bo.Cluster = n
	var err error
	if n.b, err = broker.Open(ctx, confirming{j, n}, bo); err != nil {
		return nil, err
	}
	n.life, n.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, loop := range []func(context.Context){n.beats, n.looks, n.takes, n.tends} {
		n.work.Go(func() { loop(n.life) })
	}
	return n, nil
}

func (o *Options) pin() string {
	if o.Pin == nil {
		return ""
	}
	return o.Pin()
}

// Broker returns the broker in the node. It knows its own queues alone, and passes nothing on: this is what other brokers are
// given as the link to this one.
func (n *Node) Broker() *broker.Broker { return n.b }

// Queue returns a view of a queue, wherever it is. It does not touch the queue yet.
func (n *Node) Queue(name string) *holdfast.Queue {
	return holdfast.NewQueue(name, n, holdfast.Options{Logger: n.log})
}

// Metrics returns the node's numbers.
func (n *Node) Metrics() Metrics {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.stats
	m.Members = map[string]int{}
	for _, s := range n.table.Members() {
		m.Members[s.State.String()]++
		if s.Self {
			m.Refused = len(s.Entry.Refused)
		}
	}
	m.Valid = n.Valid()
	return m
}

// Ready tells how many queues of this broker's are recovered, are still to be recovered, and could not be. Before the broker knows which
// are its own, one is still to be.
func (n *Node) Ready() (ready, opening, failed int) {
	held := map[string]bool{}
	for _, h := range n.b.Held() {
		held[h.Name] = true
		if h.Ready {
			ready++
		} else {
			opening++
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if n.named == 0 || !n.table.Valid(now) {
		return ready, opening + 1, failed
	}
	for _, name := range n.stored {
		p := n.table.Place(name)
		switch {
		case held[name] || !p.Self && p.Sure:
		case n.failed[name] != nil:
			failed++
		default:
			opening++
		}
	}
	return ready, opening, failed
}

// now is the time on this broker's own clock.
func (n *Node) now() time.Duration { return time.Since(n.began) }

// Valid implements broker.Cluster.
func (n *Node) Valid() bool { return n.now() < time.Duration(n.valid.Load()) }

// updated updates what is derived from the table. It is called with the lock, whenever the table has changed.
func (n *Node) updated() {
	until, bounded := n.table.ValidUntil()
	if !bounded {
		until = math.MaxInt64
	}
	if !n.table.Valid(n.now()) {
		until = 0
	}
	n.valid.Store(int64(until))
	close(n.changed)
	n.changed = make(chan struct{})
}

// poke wakes the loop that listens to a channel.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// confirming is the journal of the broker in a node: it acquires no stream that is not this broker's to have at that moment, however
// long ago the opening of its queue began.
type confirming struct {
	journal.Journal
	n *Node
}

func (c confirming) Acquire(ctx context.Context, stream string) (journal.Stream, error) {
	if queue, ok := strings.CutPrefix(stream, broker.StreamName("")); ok {
		if err := c.n.Check(queue); err != nil {
			return nil, err
		}
	}
	return c.Journal.Acquire(ctx, stream)
}
