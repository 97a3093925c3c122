package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/broker"
)

const (
	// namesEvery is after how many heartbeats the names of stored queues are read again, if nothing else gives a reason.
	namesEvery = 10
	// checksAtOnce bounds the checks that are under way.
	checksAtOnce = 8
	// shifting is for how many expiries after a change of members queues that are to go elsewhere are looked after more often.
	shifting = 5
)

// takes opens the queues that are to be here.
func (n *Node) takes(ctx context.Context) {
	for pause(ctx, n.o.Heartbeat, n.takeNow) {
		n.take(ctx)
	}
}

func (n *Node) take(ctx context.Context) {
	n.mu.Lock()
	now := n.now()
	valid, fresh := n.table.Valid(now), n.named > 0 && now-n.named < namesEvery*n.o.Heartbeat
	n.mu.Unlock()
	if !valid {
		return
	}
	if !fresh {
		limited, cancel := context.WithTimeout(ctx, 5*n.o.Heartbeat)
		names, err := n.b.Names(limited)
		cancel()
		if err != nil {
			n.log.Debug("the names of stored queues cannot be read", "error", err)
			return
		}
		n.mu.Lock()
		n.stored, n.named = names, now
		n.mu.Unlock()
	}
	held := map[string]bool{}
	for _, h := range n.b.Held() {
		held[h.Name] = true
	}
	var want []string
	n.mu.Lock()
	for _, name := range n.stored {
		if !held[name] && n.table.MayTake(now, name) {
			want = append(want, name)
		}
	}
	n.mu.Unlock()
	for _, name := range want {
		n.b.Take(name)
	}
}

// Opened implements broker.Cluster.
func (n *Node) Opened(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Taken++
	delete(n.failed, queue)
	if n.table.Opened(n.now(), queue) {
		poke(n.beatNow)
	}
	n.updated()
}

// tends looks after the queues that are here: each is checked once a heartbeat to be still this broker's, unless something was stored
// meanwhile, and given up when the broker is not valid.
func (n *Node) tends(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, checksAtOnce)
	busy := &busy{names: map[string]bool{}}
	for pause(ctx, n.o.Heartbeat/10, nil) {
		held := n.b.Held()
		n.mu.Lock()
		valid := n.Valid()
		due := n.due(held, valid)
		lapsed := !valid && !n.lapsed && n.stats.Beats > 0
		if n.lapsed = !valid; lapsed {
			n.stats.Lapses++
		}
		n.mu.Unlock()
		if lapsed {
			n.log.Error("this broker stops serving: it could not tell the others in time that it lives, and they may have replaced it", "queues", len(held))
		}
		for _, name := range due {
			if !busy.begin(name) {
				continue
			}
			work.Go(func() {
				defer busy.end(name)
				if !valid {
					n.yield(ctx, name)
					return
				}
				slots <- struct{}{}
				defer func() { <-slots }()
				limited, cancel := context.WithTimeout(ctx, n.o.Heartbeat)
				defer cancel()
				// A queue that was taken says so itself; any other failure is met again.
				_ = n.b.CheckOwner(limited, name)
			})
		}
	}
}

// due returns the queues to be looked after now. It is called with the lock.
func (n *Node) due(held []broker.Held, valid bool) (due []string) {
	now := n.now()
	seen := make(map[string]time.Duration, len(held))
	shift := n.leaving || now-n.moved < shifting*n.o.Expiry
	for _, h := range held {
		if !h.Ready {
			continue
		}
		every := n.o.Heartbeat
		if shift && !n.table.Place(h.Name).Self {
			every = n.o.Heartbeat / 10
		}
		last, ok := n.checked[h.Name]
		if !ok {
			last = now
		}
		if !valid || min(now-last, h.Idle) >= every-n.o.Heartbeat/20 {
			due, last = append(due, h.Name), now
		}
		seen[h.Name] = last
	}
	n.checked = seen
	return due
}

// yield gives up a queue that may have been taken. If the store can be asked, what it says is the better reason: a broker that stood still says
// within a heartbeat that it was fenced, also where the store takes a moment for that. Nothing goes in or out meanwhile.
func (n *Node) yield(ctx context.Context, name string) {
	limited, cancel := context.WithTimeout(ctx, n.o.Heartbeat*3/4)
	defer cancel()
	_ = n.b.CheckOwner(limited, name) // if it was fenced, it stops for that reason, and what follows has no effect
	n.b.Yield(name, broker.ErrLapsed)
}

// busy is a set of names.
type busy struct {
	mu    sync.Mutex
	names map[string]bool
}

func (b *busy) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[name] {
		return false
	}
	b.names[name] = true
	return true
}

func (b *busy) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.names, name)
}
