package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast"
)

// Delete drops the queue with everything in it. Its streams end with ErrDeleted. From their end until it is gone, whoever uses the queue waits: it
// is not opened, nor created anew, in between.
func (ad admin) Delete(ctx context.Context, name string) error {
	if c := ad.b.o.Cluster; c != nil {
		// Also where the queue is here: what is about to be another broker's cannot be acquired here to be dropped.
		if err := c.Route(ctx, name); err != nil {
			return fmt.Errorf("delete queue %q: %w", name, err)
		}
	}
	var o *owner
	var place *handle
	for place == nil { // else it has stopped, or another deletion has come first
		var err error
		if o, err = ad.b.owner(ctx, name, false); err != nil {
			return err
		}
		place = ad.b.reg.hold(o.h)
		if place == nil && o.gone(ctx) != nil {
			return fmt.Errorf("delete queue %q: %w", name, context.Cause(ctx))
		}
	}
	defer ad.b.reg.free(place)
	o.push(&cmdDisconnect{err: fmt.Errorf("queue %q: %w", name, holdfast.ErrDeleted)})
	if err := o.actor.Stop(ctx); err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	// The actor has released its hold; a new one is taken for the drop, which fences nobody but a third.
	s, err := ad.b.j.Acquire(ctx, StreamName(name))
	if err != nil {
		return fmt.Errorf("delete queue %q: %w", name, err)
	}
	if err := s.Drop(ctx); err != nil {
		return errors.Join(fmt.Errorf("delete queue %q: %w", name, err), s.Release())
	}
	return nil
}

// gone waits until the owner has stopped.
func (o *owner) gone(ctx context.Context) error {
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hold puts a handle into the place of one that is open, on which whoever uses the queue waits. It returns nil if the other has lost its
// place.
func (r *registry) hold(h *handle) *handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles[h.name] != h || r.closed {
		return nil
	}
	p := &handle{b: h.b, name: h.name, ready: make(chan struct{}), passing: true, err: holdfast.ErrDeleted}
	r.handles[h.name] = p
	return p
}

// free gives the place back: those who wait look again.
func (r *registry) free(p *handle) {
	r.mu.Lock()
	if r.handles[p.name] == p {
		delete(r.handles, p.name)
	}
	r.mu.Unlock()
	close(p.ready)
}
