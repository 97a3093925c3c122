package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/broker/placement"
)

// Leave tells the other brokers that this one is about to stop, and goes on serving until they have taken its queues. It
// returns when they have, when there is nobody to do so, or when ctx ends.
func (n *Node) Leave(ctx context.Context) {
	n.mu.Lock()
	n.leaving = true
	n.table.Leave()
	n.mu.Unlock()
	poke(n.beatNow)
	left, since := len(n.b.Held()), n.now()
	for {
		held := len(n.b.Held())
		if held < left {
			left, since = held, n.now()
		}
		n.mu.Lock()
		others := n.heirs()
		n.mu.Unlock()
		if held == 0 || !others || !n.Valid() || n.now()-since > 2*n.o.Expiry {
			return
		}
		t := time.NewTimer(n.o.Heartbeat / 20)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// heirs tells that there are others who can take this broker's queues. It is called with the lock.
func (n *Node) heirs() bool {
	for _, s := range n.table.Members() {
		if !s.Self && !s.Entry.Leaving && (s.State == placement.Live || s.State == placement.Suspect) {
			return true
		}
	}
	return false
}

// Close hands the queues over to the other brokers (see Leave), stops the broker in the node as broker.Broker.Close does, and
// takes its entry out of the store. When ctx ends first, the rest is left as after a crash. It is idempotent.
func (n *Node) Close(ctx context.Context) error {
	n.closed.Do(func() { n.closeErr = n.close(ctx) })
	return n.closeErr
}

func (n *Node) close(ctx context.Context) error {
	n.Leave(ctx)
	n.mu.Lock()
	n.closing = true
	n.updated()
	n.mu.Unlock()
	err := n.b.Close(ctx)
	n.end()
	n.work.Wait()
	n.mu.Lock()
	peers := n.peers
	n.peers = nil
	n.mu.Unlock()
	for _, p := range peers {
		p.Close()
	}
	gone, cancel := context.WithTimeout(ctx, n.o.Heartbeat)
	defer cancel()
	if e := n.coord.DeleteMember(gone, n.o.Address); e != nil {
		// The others find out by its expiry.
		n.log.Warn("this broker could not take itself out of the table of members", "error", e)
	}
	if err != nil {
		return fmt.Errorf("close cluster: %w", errors.Join(err))
	}
	return nil
}
