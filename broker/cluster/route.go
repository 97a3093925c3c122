package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// routeFor bounds how long Route waits to know where a queue is.
const routeFor = time.Minute

// where returns nil if a queue is to be opened here, errUnsure if that is not known yet, else why not. It is called with the lock.
func (n *Node) where(queue string) error {
	if n.closing {
		return fmt.Errorf("%w: the broker is stopping", holdfast.ErrUnavailable)
	}
	now := n.now()
	if n.table.MayTake(now, queue) {
		return nil
	}
	p := n.table.Place(queue)
	switch err := n.failed[queue]; {
	case p.ID != "" && !p.Self && p.Sure:
		return &holdfast.MovedError{Address: p.Address}
	case p.Self && err != nil:
		return fmt.Errorf("%w: it could not be opened, and is tried again: %w", holdfast.ErrUnavailable, err)
	}
	return errUnsure
}

// errUnsure says that it is not known yet where a queue is.
var errUnsure = fmt.Errorf("%w: the brokers do not know yet who is to have it", holdfast.ErrUnavailable)

// Check implements broker.Cluster.
func (n *Node) Check(queue string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.where(queue); err != nil {
		return fmt.Errorf("%w: %w", broker.ErrElsewhere, err)
	}
	return nil
}

// Route implements broker.Cluster.
func (n *Node) Route(ctx context.Context, queue string) error {
	limit := time.NewTimer(routeFor)
	defer limit.Stop()
	for {
		n.mu.Lock()
		err := n.where(queue)
		changed := n.changed
		until := time.Duration(0)
		if at, ok := n.table.Waits(n.now(), queue); ok {
			until = at - n.now()
		}
		n.mu.Unlock()
		if !errors.Is(err, errUnsure) {
			return err
		}
		timer := time.NewTimer(max(until, time.Millisecond))
		if until == 0 {
			timer.Stop()
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-limit.C:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}

// Stopped implements broker.Cluster.
func (n *Node) Stopped(queue string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.updated()
	now := n.now()
	var panicked *persistent.PanicError
	switch {
	case err == nil, n.closing, errors.Is(err, broker.ErrElsewhere), errors.Is(err, broker.ErrLapsed), errors.Is(err, context.Canceled):
	case errors.Is(err, holdfast.ErrNoQueue):
		n.table.Gone(queue)
		delete(n.failed, queue)
		n.named = 0
	case errors.Is(err, journal.ErrFenced):
		n.stats.Fenced++
		if wait := n.table.Fenced(now, queue); wait > 0 && !n.leaving {
			n.log.Warn("another broker has taken a queue that is to be here, as this broker sees it", "queue", queue, "waits", wait)
		}
		poke(n.lookNow)
	default:
		n.failed[queue] = err
		hard := errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerFormat) || errors.As(err, &panicked)
		if n.table.Failed(now, queue, hard) {
			n.log.Warn("this broker cannot open a queue; another one is to try", "queue", queue, "error", err)
			poke(n.beatNow)
		}
	}
}
