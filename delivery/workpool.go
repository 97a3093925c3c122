package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// WorkPoolOptions configures a WorkPool. Zero values are the defaults, negative ones are errors.
type WorkPoolOptions struct {
	// BufferSize is how many messages wait in the pool for a worker's demand. Default: DefaultBufferSize (256).
	BufferSize int
	// Logger is as in ProducerOptions. Default: slog.Default().
	Logger *slog.Logger
}

// WorkPool hands each message to one of many workers of the same process, by demand: a worker that is done takes
// the next. It is work pulling without storage; with storage, or between processes, that is what a queue is.
//
// Workers join and leave while messages flow. What a worker had and did not confirm when it left goes to another one,
// so a message can be handled twice if a worker leaves between handling it and the acknowledgement. There is no
// order among workers. Methods may be called concurrently.
type WorkPool[T any] struct {
	log   *slog.Logger
	slots chan struct{} // a token for each message in pending that came by Post or Offer

	mu      sync.Mutex
	pending []task[T] // in order; what came back from a worker is in front
	workers []*poolWorker[T]
	flying  int // with workers
	closed  bool
	done    chan struct{}
	idle    chan struct{} // closed when there is nothing left, if somebody waits for that
}

// task is a message in the pool.
type task[T any] struct {
	body    T
	confirm func(error)
	slotted bool // it holds a token of slots
}

type poolWorker[T any] struct {
	pool  *WorkPool[T]
	to    Link[T]
	p     *ProducerController[T]
	free  int // how many more it can take
	gone  bool
	empty chan struct{} // closed once it has left and all it had is confirmed or with the pool again
	has   int
}

// NewWorkPool returns a pool without workers.
func NewWorkPool[T any](o WorkPoolOptions) (*WorkPool[T], error) {
	var errs []error
	orDefault(&errs, "BufferSize", &o.BufferSize, DefaultBufferSize, 1<<30)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("new work pool: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &WorkPool[T]{log: o.Logger, slots: make(chan struct{}, o.BufferSize), done: make(chan struct{})}, nil
}

// Join adds a worker, to which at most demand unconfirmed messages are given at a time (0 means DefaultWindowSize). It
// leaves when leave is called, or when its consumer says that it is stopped. leave returns when everything that
// the worker had is confirmed or with the pool again, which does not wait for handlers; calling it again does nothing.
func (p *WorkPool[T]) Join(worker Link[T], demand int) (leave func(), err error) {
	if demand == 0 {
		demand = DefaultWindowSize
	}
	w := &poolWorker[T]{pool: p, to: worker, free: demand, empty: make(chan struct{})}
	o := ProducerOptions[T]{WindowSize: demand, BufferSize: demand, Logger: p.log}
	if worker != nil {
		o.Consumer = w
	}
	if w.p, err = NewProducerController(o); err != nil {
		return nil, fmt.Errorf("join work pool: %w", err)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		w.p.Close()
		return nil, fmt.Errorf("join work pool: %w", ErrStopped)
	}
	p.workers = append(p.workers, w)
	p.dispatch()
	p.mu.Unlock()
	return func() {
		w.leave()
		<-w.empty
	}, nil
}

// Deliver passes messages on to the worker's consumer and notices if that has stopped.
func (w *poolWorker[T]) Deliver(d Delivery[T]) error {
	err := w.to.Deliver(d)
	if errors.Is(err, ErrStopped) {
		w.leave()
	}
	return err
}

// Farewell passes the last word on.
func (w *poolWorker[T]) Farewell(f Farewell) error { return w.to.Farewell(f) }

func (w *poolWorker[T]) leave() {
	w.pool.mu.Lock()
	if w.gone {
		w.pool.mu.Unlock()
		return
	}
	w.gone = true
	w.pool.workers = slices.DeleteFunc(w.pool.workers, func(x *poolWorker[T]) bool { return x == w })
	w.checkEmpty()
	w.pool.mu.Unlock()
	w.p.Close()
}

func (w *poolWorker[T]) checkEmpty() {
	if w.gone && w.has == 0 {
		close(w.empty)
	}
}

// Post puts v into the pool, waiting for room until ctx ends. An error matches ErrNotSent.
func (p *WorkPool[T]) Post(ctx context.Context, v T) (*Confirmation, error) {
	c := &Confirmation{}
	if err := p.PostFunc(ctx, v, c.settle); err != nil {
		return nil, err
	}
	return c, nil
}

// PostFunc is Post with a function that is called once with the outcome, as that of ProducerController.PostFunc.
func (p *WorkPool[T]) PostFunc(ctx context.Context, v T, confirm func(error)) error {
	if err := ctx.Err(); err != nil {
		return &outcome{ErrNotSent, context.Cause(ctx)}
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.done:
		return &outcome{ErrNotSent, ErrStopped}
	case <-ctx.Done():
		return &outcome{ErrNotSent, context.Cause(ctx)}
	}
	return p.put(task[T]{v, confirm, true})
}

// Send puts v into the pool and waits until a worker has handled it.
func (p *WorkPool[T]) Send(ctx context.Context, v T) error {
	c, err := p.Post(ctx, v)
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

// Offer puts v into the pool if there is room, else the error matches ErrBufferFull.
func (p *WorkPool[T]) Offer(v T, confirm func(error)) error {
	select {
	case p.slots <- struct{}{}:
		return p.put(task[T]{v, confirm, true})
	default:
		return fmt.Errorf("%w: %w (%d messages)", ErrNotSent, ErrBufferFull, cap(p.slots))
	}
}

func (p *WorkPool[T]) put(t task[T]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.slots
		return &outcome{ErrNotSent, ErrStopped}
	}
	p.pending = append(p.pending, t)
	p.dispatch()
	return nil
}

// dispatch gives pending messages to the workers that want them, the one with the largest demand first. The lock is held.
func (p *WorkPool[T]) dispatch() {
	for len(p.pending) > 0 {
		var w *poolWorker[T]
		for _, x := range p.workers {
			if x.free > 0 && (w == nil || x.free > w.free) {
				w = x
			}
		}
		if w == nil {
			return
		}
		t := p.pending[0]
		err := w.p.Offer(t.body, func(err error) { p.ended(w, t, err) })
		if err != nil { // it is stopping, and will be told so
			w.free = 0
			continue
		}
		p.pending[0] = task[T]{}
		p.pending = p.pending[1:]
		if t.slotted {
			<-p.slots
		}
		w.free--
		w.has++
		p.flying++
	}
}

// ended is called once for each message that a worker was given.
func (p *WorkPool[T]) ended(w *poolWorker[T], t task[T], err error) {
	p.mu.Lock()
	w.has--
	p.flying--
	w.checkEmpty()
	again := err != nil && !p.closed
	if again {
		t.slotted = false
		p.pending = slices.Insert(p.pending, 0, t)
	} else {
		w.free++
	}
	p.dispatch()
	p.checkIdle()
	p.mu.Unlock()
	if !again && t.confirm != nil {
		t.confirm(err)
	}
}

func (p *WorkPool[T]) checkIdle() {
	if p.idle != nil && len(p.pending) == 0 && p.flying == 0 {
		close(p.idle)
		p.idle = nil
	}
}

// Workers returns how many workers there are.
func (p *WorkPool[T]) Workers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers)
}

// Unconfirmed returns how many messages wait in the pool, and how many are with workers.
func (p *WorkPool[T]) Unconfirmed() (pending, withWorkers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending), p.flying
}

// Shutdown waits until everything that was posted is confirmed, then closes. If ctx ends first it closes all the same and
// returns an error that matches the context's. Messages may still be posted meanwhile.
func (p *WorkPool[T]) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.checkIdle()
	p.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-p.done:
	case <-ctx.Done():
		err = fmt.Errorf("shut down work pool: %w", context.Cause(ctx))
	}
	p.Close()
	return err
}

// Close stops the pool and returns at once. What is not confirmed is settled with ErrStopped, each once. The workers'
// consumers are left as they are.
func (p *WorkPool[T]) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	close(p.done)
	pending, workers := p.pending, slices.Clone(p.workers)
	p.pending = nil
	p.mu.Unlock()
	for _, w := range workers {
		w.leave()
	}
	for _, t := range pending {
		if t.confirm != nil {
			guard(p.log, "confirmation", func() { t.confirm(&outcome{ErrNotSent, ErrStopped}) })
		}
	}
}
