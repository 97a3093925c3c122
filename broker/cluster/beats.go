package cluster

import (
	"context"
	"time"

	"github.com/holdfastmq/holdfast/broker/placement"
)

// warnEvery bounds how often the log says that the table of members cannot be reached.
const warnEvery = 10 * time.Second

// rarely says something at most once in warnEvery, and that it is over.
type rarely struct {
	last time.Duration
	told bool
}

func (r *rarely) say(now time.Duration, failed bool, bad, good func()) {
	switch {
	case !failed && r.told:
		r.told = false
		good()
	case failed && (!r.told || now-r.last >= warnEvery):
		r.told, r.last = true, now
		bad()
	}
}

// pause waits for d, for a poke, or for the end.
func pause(ctx context.Context, d time.Duration, now chan struct{}) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-now:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// beats renews the broker's entry in the store.
func (n *Node) beats(ctx context.Context) {
	var log rarely
	for {
		began := n.now()
		err := n.beat(ctx, began)
		if ctx.Err() != nil {
			return
		}
		log.say(n.now(), err != nil,
			func() { n.log.Warn("this broker cannot tell the others that it lives", "error", err) },
			func() { n.log.Info("this broker tells the others again that it lives") })
		wait := n.o.Heartbeat/4 - (n.now() - began)
		if err == nil {
			wait = n.o.Heartbeat - (n.now() - began)
		}
		// A little at least, whatever pokes: a broker that changes its entry all the time does not flood the store.
		if !pause(ctx, n.o.Heartbeat/20, nil) || !pause(ctx, wait-n.o.Heartbeat/20, n.beatNow) {
			return
		}
	}
}

func (n *Node) beat(ctx context.Context, began time.Duration) error {
	pin := n.o.pin()
	n.mu.Lock()
	n.table.SetPin(pin)
	e := n.table.Beat(began)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, n.o.Heartbeat)
	defer cancel()
	err := n.coord.PutMember(ctx, n.o.Address, e.Encode())
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.stats.BeatFailures++
		return err
	}
	n.stats.Beats++
	n.table.Renewed(began, n.now(), e)
	n.updated()
	poke(n.takeNow)
	return nil
}

// looks reads the entries of all brokers.
func (n *Node) looks(ctx context.Context) {
	var log rarely
	for {
		began := n.now()
		err := n.look(ctx, began)
		if ctx.Err() != nil {
			return
		}
		log.say(n.now(), err != nil,
			func() { n.log.Warn("this broker cannot see which others there are", "error", err) },
			func() { n.log.Info("this broker sees again which others there are") })
		if !pause(ctx, n.o.Heartbeat/20, nil) || !pause(ctx, n.o.Heartbeat/2-n.o.Heartbeat/20-(n.now()-began), n.lookNow) {
			return
		}
	}
}

func (n *Node) look(ctx context.Context, began time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, n.o.Heartbeat)
	defer cancel()
	all, err := n.coord.Members(limited)
	if err != nil {
		n.mu.Lock()
		n.stats.LookFailures++
		n.mu.Unlock()
		return err
	}
	entries := make(map[string]placement.Entry, len(all))
	for id, b := range all {
		e, err := placement.Decode(b)
		if err != nil {
			n.log.Debug("entry of a broker passed over", "broker", id, "error", err)
			continue
		}
		entries[id] = e
	}
	n.mu.Lock()
	changes := n.table.Observe(began, n.now(), entries)
	if len(changes) > 0 {
		n.moved, n.named = n.now(), 0
	}
	forget := n.table.Forgotten(n.now())
	gone := n.strangers()
	if n.table.Overdue(n.now()) {
		poke(n.beatNow)
	}
	n.updated()
	n.mu.Unlock()
	poke(n.takeNow)
	for _, p := range gone {
		p.Close()
	}
	n.tell(changes)
	for _, id := range forget {
		// If it lives after all, it puts its entry back with its next beat.
		if err := n.coord.DeleteMember(limited, id); err == nil {
			n.log.Info("the entry of a broker that is long dead was deleted", "broker", id)
		}
	}
	return nil
}

// tell says in the log what has changed among the brokers.
func (n *Node) tell(changes []placement.Change) {
	for _, c := range changes {
		switch c.What {
		case "joined":
			n.log.Info("broker joined", "broker", c.Address)
		case "left":
			n.log.Info("broker left", "broker", c.Address)
		case "leaves":
			n.log.Info("broker gives up its queues to leave", "broker", c.Address)
		case "returned":
			n.log.Info("broker is back", "broker", c.Address)
		case "expired":
			n.log.Warn("broker is taken for dead: it did not renew its entry", "broker", c.Address, "expiry", n.o.Expiry)
		case "double":
			n.log.Error("another broker uses the address of this one; neither can serve like that: each needs an --advertise of its own", "address", c.Address)
		}
	}
}
