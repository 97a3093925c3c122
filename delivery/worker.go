package delivery

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/delivery/consumer"
)

const (
	// workBatch is how many messages of one producer a worker takes at a time.
	workBatch = 256

	// workSlice is how long a worker stays with one producer while others wait for their turn.
	workSlice = time.Millisecond

	// ackDelay is how long the outcome of a handler may be kept back, while the next message of the same batch
	// is being handled, to be acknowledged together with others. A handler that leaves nothing waiting is
	// acknowledged at once.
	ackDelay = 100 * time.Microsecond

	// maxSweep is the longest time between two sweeps.
	maxSweep = 24 * time.Hour
)

// worker runs handlers: one job, that is a batch of messages of one producer, after the other. The outcomes of a
// job are noted either by the worker at its end or, so that a slow handler does not keep back the
// acknowledgement of the one before it, by the controller's loop.
type worker[T any] struct {
	job      consumer.Job[payload[T]]
	buf      []consumer.Item[payload[T]]
	outcomes [workBatch]bool
	handled  atomic.Int32 // outcomes up to here are valid
	noted    int          // outcomes up to here were given to the core; guarded by the controller's lock
	contexts []messageContext
	acks     []consumer.Ack
	replies  []Acknowledgment
}

// employ starts workers for what can run. The lock is held.
func (c *ConsumerController[T]) employ() {
	for !c.closed && c.core.Runnable() {
		w := c.hire()
		var ok bool
		if w.job, ok = c.core.Begin(w.buf); !ok {
			c.dismiss(w)
			break
		}
		c.spawn(w)
	}
	c.contended.Store(c.core.Ready())
}

// maxIdleWorkers bounds the workers that are kept for their next use.
const maxIdleWorkers = 16

func (c *ConsumerController[T]) hire() *worker[T] {
	var w *worker[T]
	if n := len(c.idle); n > 0 {
		w, c.idle = c.idle[n-1], c.idle[:n-1]
	} else {
		w = &worker[T]{buf: make([]consumer.Item[payload[T]], 0, workBatch)}
	}
	c.workers[w] = struct{}{}
	return w
}

func (c *ConsumerController[T]) dismiss(w *worker[T]) {
	delete(c.workers, w)
	if len(c.idle) < maxIdleWorkers {
		c.idle = append(c.idle, w)
	}
}

// work runs jobs until there are none. w has its first.
func (c *ConsumerController[T]) work(ctx context.Context, w *worker[T]) {
	defer c.ended.Done()
	finished := false
	defer func() {
		if finished {
			return
		}
		n := w.handled.Load() // the handler of this one ended the goroutine
		w.outcomes[n] = false
		w.handled.Store(n + 1)
		if c.finishJob(w, int(n)+1) {
			c.spawn(w)
		}
	}()
	for c.finishJob(w, c.runJob(ctx, w)) {
	}
	finished = true
}

// runJob handles the messages of a job and returns how many: all, unless one failed that the others must wait
// for, or the turn is over.
func (c *ConsumerController[T]) runJob(ctx context.Context, w *worker[T]) int {
	var began time.Time
	for i := range w.job.Items {
		if ctx.Err() != nil {
			return i
		}
		ok := c.handle(ctx, w, i)
		w.outcomes[i] = ok
		w.handled.Store(int32(i + 1))
		if !ok && c.opts.InOrder {
			return i + 1
		}
		if i+1 == len(w.job.Items) {
			break
		}
		if !c.kicked.Load() && c.kicked.CompareAndSwap(false, true) {
			c.kick <- struct{}{}
		}
		if c.contended.Load() {
			if began.IsZero() {
				began = time.Now()
			} else if time.Since(began) >= workSlice {
				return i + 1
			}
		}
	}
	return len(w.job.Items)
}

// handle decodes a message and calls the handler. It reports whether the message is settled.
func (c *ConsumerController[T]) handle(base context.Context, w *worker[T], i int) bool {
	it := &w.job.Items[i]
	key := it.Key()
	body := it.Body.value
	if it.Body.raw != nil {
		err := protect(func() (err error) {
			body, err = c.opts.Codec.Decode(it.Body.raw)
			return err
		})
		if err != nil {
			c.deadLetter(envelope{key: *key, first: it.Seq, count: 1}, it.Body.raw, err)
			return false
		}
	}
	if len(w.contexts) == 0 {
		w.contexts = make([]messageContext, 64)
	}
	ctx := &w.contexts[0]
	w.contexts = w.contexts[1:]
	ctx.Context = base
	ctx.key, ctx.seq = key, it.Seq
	err := c.call(ctx, body)
	if err == nil {
		return true
	}
	c.handlerFailed(ctx.metadata(), err)
	return false
}

// call calls the handler and turns a panic into an error.
func (c *ConsumerController[T]) call(ctx *messageContext, body T) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		err = &PanicError{Value: v, Stack: debug.Stack()}
		if v == nil { // runtime.Goexit cannot be stopped: nobody gets err
			c.handlerFailed(ctx.metadata(), err)
		}
	}()
	err = c.handler(ctx, body)
	returned = true
	return err
}

func (c *ConsumerController[T]) handlerFailed(m Metadata, err error) {
	var p *PanicError
	panicked := errors.As(err, &p)
	c.mu.Lock()
	c.counts.Failed++
	if panicked {
		c.counts.Panics++
	}
	c.mu.Unlock()
	if c.opts.OnHandlerError != nil {
		guard(c.log, "OnHandlerError", func() { c.opts.OnHandlerError(m, err) })
	}
	if total, ok := c.limits.failed.add(1); ok {
		c.log.Warn("handler failed, the message is not acknowledged and comes again", "count", total,
			"producer_id", m.ProducerID, "seq", m.Seq, "err", err)
	}
}

// note gives the outcomes of w that are not noted to the core. The lock is held.
func (c *ConsumerController[T]) note(w *worker[T], now int64) {
	for n := int(w.handled.Load()); w.noted < n; w.noted++ {
		ok := w.outcomes[w.noted]
		c.core.Settle(&w.job, w.noted, ok, now)
		if ok {
			c.counts.Handled++
		}
	}
}

// finishJob ends the job of w, of which the messages from rest on were not run, and begins its next. It reports
// whether there is one; if not, the worker has been dismissed.
func (c *ConsumerController[T]) finishJob(w *worker[T], rest int) bool {
	now := c.now()
	c.mu.Lock()
	c.note(w, now)
	c.core.End(&w.job, rest)
	w.noted = 0
	w.handled.Store(0)
	w.acks = c.core.AppendAcks(w.acks[:0])
	more := false
	if !c.closed {
		if w.job, more = c.core.Begin(w.buf); more {
			c.employ()
		}
	}
	mute := c.closed
	acks := w.acks
	if !more {
		w.job = consumer.Job[payload[T]]{}
	}
	c.mu.Unlock()
	if !mute && len(acks) > 0 {
		w.replies = c.acknowledge(acks, w.replies)
	}
	clear(acks) // they hold windows
	if more {
		return true
	}
	c.mu.Lock()
	c.dismiss(w)
	c.employ() // something may have come while this worker held its place
	c.checkDrained()
	c.mu.Unlock()
	return false
}

// loop is the controller's goroutine: it notes outcomes that workers keep back, and sweeps.
func (c *ConsumerController[T]) loop() {
	defer c.ended.Done()
	sweep := time.NewTicker(min(c.opts.ProducerIdleTTL, maxSweep))
	defer sweep.Stop()
	assemblies := time.NewTicker(staleAssembly)
	defer assemblies.Stop()
	delay := time.NewTimer(time.Hour)
	delay.Stop()
	var acks []consumer.Ack
	var replies []Acknowledgment
	for {
		select {
		case <-c.done:
			return
		case <-c.kick:
			delay.Reset(ackDelay)
		case <-delay.C:
			c.kicked.Store(false)
			c.mu.Lock()
			now := c.now()
			for w := range c.workers {
				c.note(w, now)
			}
			acks = c.core.AppendAcks(acks[:0])
			if c.closed {
				acks = acks[:0]
			}
			c.mu.Unlock()
			replies = c.acknowledge(acks, replies)
			clear(acks)
		case <-sweep.C:
			c.sweep()
		case <-assemblies.C:
			c.mu.Lock()
			c.counts.AssemblyLost += uint64(c.parts.Sweep(c.now()))
			c.mu.Unlock()
		}
	}
}

// sweep lets idle entries go.
func (c *ConsumerController[T]) sweep() {
	c.mu.Lock()
	n := c.core.Sweep(c.now())
	c.counts.Expired += uint64(n)
	c.mu.Unlock()
	if n > 0 {
		c.log.Debug("idle producers forgotten", "count", n, "producer_idle_ttl", c.opts.ProducerIdleTTL)
	}
}
