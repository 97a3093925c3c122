package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/queue"
)

// streamPrefix marks the streams of a journal that are queues.
const streamPrefix = "queue/"

// StreamName returns the name of the journal stream that holds a queue.
func StreamName(queue string) string { return streamPrefix + queue }

// registry knows the queues of a broker by name.
type registry struct {
	mu      sync.Mutex
	closed  bool
	handles map[string]*handle
	limit   chan struct{} // queues being recovered
}

func (r *registry) init(limit int) {
	r.handles = make(map[string]*handle)
	r.limit = make(chan struct{}, limit)
}

// close refuses new handles and returns those that there are.
func (r *registry) close() []*handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return slices.Collect(maps.Values(r.handles))
}

// handle is a queue that is being opened, open, or could not be opened. It leaves the registry when its
// owner stops, so that the next use tries anew.
type handle struct {
	b    *Broker
	name string

	ready chan struct{} // closed when owner or err is set
	owner *owner
	err   error

	mu       sync.Mutex
	progress [2]uint64 // seq reached and end, during recovery
	failedAt time.Time

	mustExist bool // it is not to be created
	passing   bool // the queue is being deleted: once that is done, look again
}

// retryFailed is how soon a queue that could not be opened is tried again on use.
const retryFailed = time.Second

// get returns the handle of a queue, which is opened in the background if it is not yet, and created if it does not exist and create allows
// that.
func (b *Broker) get(name string, create bool) (*handle, error) {
	if err := queue.ValidName(name); err != nil {
		return nil, err
	}
	r := &b.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("broker: %w", holdfast.ErrClosed)
	}
	h := r.handles[name]
	if h != nil && !h.expired() {
		return h, nil
	}
	if b.o.Cluster != nil {
		if err := b.o.Cluster.Check(name); err != nil {
			return nil, fmt.Errorf("queue %q: %w", name, err)
		}
	}
	h = &handle{b: b, name: name, ready: make(chan struct{}), mustExist: !create}
	r.handles[name] = h
	b.work.Go(func() { h.open(b.life) })
	return h, nil
}

// expired tells that opening failed long enough ago to try again.
func (h *handle) expired() bool {
	select {
	case <-h.ready:
		h.mu.Lock()
		defer h.mu.Unlock()
		// A cluster says itself when a queue may be tried again.
		return h.err != nil && (h.b.o.Cluster != nil || time.Since(h.failedAt) > retryFailed)
	default:
		return false
	}
}

// owner returns a queue's owner, opening the queue, and creating it if the broker does that and create allows it.
func (b *Broker) owner(ctx context.Context, name string, create bool) (*owner, error) {
	if err := queue.ValidName(name); err != nil {
		return nil, err
	}
	if !create {
		ok, err := b.exists(ctx, name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("queue %q: %w", name, holdfast.ErrNoQueue)
		}
	}
	if err := b.route(ctx, name); err != nil {
		return nil, err
	}
	h, err := b.get(name, create)
	if err != nil {
		return nil, err
	}
	select {
	case <-h.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("open queue %q: %w", name, context.Cause(ctx))
	}
	if h.passing || create && h.mustExist && errors.Is(h.err, holdfast.ErrNoQueue) {
		return b.owner(ctx, name, create)
	}
	if h.err != nil {
		return nil, h.err
	}
	return h.owner, nil
}

// exists tells whether a queue is open or stored.
func (b *Broker) exists(ctx context.Context, name string) (bool, error) {
	b.reg.mu.Lock()
	h := b.reg.handles[name]
	b.reg.mu.Unlock()
	switch {
	case h == nil:
		return b.stored(ctx, name)
	case !h.passing:
		return true, nil
	}
	select {
	case <-h.ready:
		return b.exists(ctx, name)
	case <-ctx.Done():
		return false, fmt.Errorf("look for queue %q: %w", name, context.Cause(ctx))
	}
}

// stored tells whether a queue is stored.
func (b *Broker) stored(ctx context.Context, name string) (bool, error) {
	r, err := b.j.Open(ctx, StreamName(name))
	if err != nil {
		return false, fmt.Errorf("look for queue %q: %w", name, err)
	}
	info, err := r.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("look for queue %q: %w", name, err)
	}
	return info.Epoch > 0 && !info.Dropped, nil
}

// names lists the queues that are stored or open, ascending.
func (b *Broker) names(ctx context.Context) ([]string, error) {
	set := map[string]bool{}
	for info, err := range b.j.Streams(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list queues: %w", err)
		}
		if name, ok := queueOf(info.Name); ok && !info.Dropped {
			set[name] = true
		}
	}
	b.reg.mu.Lock()
	for name := range b.reg.handles {
		set[name] = true
	}
	b.reg.mu.Unlock()
	return slices.Sorted(maps.Keys(set)), nil
}

// openAll opens every stored queue.
func (b *Broker) openAll(ctx context.Context) {
	names, err := b.names(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Error("cannot list the queues of the journal; they are opened when they are used", "error", err)
		}
		b.pending.Store(0)
		return
	}
	b.pending.Store(int64(len(names)))
	for _, name := range names {
		h, err := b.get(name, false)
		if err != nil {
			return // closing
		}
		b.pending.Add(-1)
		select {
		case <-h.ready:
		case <-ctx.Done():
			return
		case b.reg.limit <- struct{}{}: // another one may begin
			<-b.reg.limit
		}
	}
}

// Ready tells how many queues are recovered, are still to be recovered, and could not be. Once opening is 0, everything that is
// stored can be used, but for what failed.
func (b *Broker) Ready() (ready, opening, failed int) {
	opening = int(b.pending.Load())
	b.reg.mu.Lock()
	defer b.reg.mu.Unlock()
	for _, h := range b.reg.handles {
		select {
		case <-h.ready:
			if h.err != nil {
				failed++
			} else {
				ready++
			}
		default:
			opening++
		}
	}
	return ready, opening, failed
}

// open recovers the queue.
func (h *handle) open(ctx context.Context) {
	b := h.b
	select {
	case b.reg.limit <- struct{}{}:
		defer func() { <-b.reg.limit }()
	case <-ctx.Done():
		h.fail(fmt.Errorf("open queue %q: %w", h.name, holdfast.ErrClosed))
		return
	}
	var o *owner
	err := h.check(ctx)
	if err == nil {
		o, err = openOwner(ctx, h)
	}
	if h.mustExist && errors.Is(err, holdfast.ErrNoQueue) {
		h.gone() // whoever comes next may create it
		h.fail(fmt.Errorf("queue %q: %w", h.name, holdfast.ErrNoQueue))
		return
	}
	if err != nil {
		if ctx.Err() == nil && !elsewhere(err) {
			b.log.Error("queue cannot be opened", "queue", h.name, "error", err)
		}
		kind := holdfast.ErrUnavailable
		if errors.Is(err, journal.ErrFenced) {
			kind = holdfast.ErrFenced
		}
		h.fail(fmt.Errorf("open queue %q: %w: %w", h.name, kind, err))
		return
	}
	h.owner = o
	close(h.ready)
	if b.o.Cluster != nil {
		b.o.Cluster.Opened(h.name)
	}
}

// check refuses to create a queue that is only to be opened.
func (h *handle) check(ctx context.Context) error {
	if !h.mustExist {
		return nil
	}
	ok, err := h.b.stored(ctx, h.name)
	if err == nil && !ok {
		err = holdfast.ErrNoQueue
	}
	return err
}

func (h *handle) fail(err error) {
	h.mu.Lock()
	h.err, h.failedAt = err, time.Now()
	h.mu.Unlock()
	close(h.ready)
	if c := h.b.o.Cluster; c != nil {
		c.Stopped(h.name, err)
	}
}

// gone takes the handle out of the registry, when its owner has stopped.
func (h *handle) gone() {
	r := &h.b.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles[h.name] == h {
		delete(r.handles, h.name)
	}
}

// kill ends an owner that was still being opened when the time to stop it was over. The opening has ended by now.
func (h *handle) kill() {
	select {
	case <-h.ready:
		if h.owner != nil {
			h.owner.actor.Kill()
		}
	default:
	}
}

// stop stops the owner, if the queue was ever open.
func (h *handle) stop(ctx context.Context) error {
	select {
	case <-h.ready:
	case <-ctx.Done():
		return fmt.Errorf("stop queue %q: %w", h.name, context.Cause(ctx))
	}
	if h.owner == nil {
		return nil
	}
	return h.owner.stop(ctx)
}
