package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/delivery/consumer"
	"github.com/holdfastmq/holdfast/delivery/window"
)

// staleAssembly is how long the parts of an unfinished message are kept without a new one: longer than the
// producers' ResendCap.
const staleAssembly = 3 * DefaultResendCap

// ConsumerController calls a handler once for each message of any number of producers, and acknowledges it when the
// handler returns nil. It is a Link for producers in the same process; see Remote for others. Its methods may be
// called concurrently.
type ConsumerController[T any] struct {
	opts    ConsumerOptions[T]
	handler func(context.Context, T) error
	log     *slog.Logger
	born    time.Time
	spawn   func(*worker[T]) // starts a worker; its handlers' contexts end with cancel
	cancel  context.CancelFunc

	mu       sync.Mutex
	core     *consumer.Core[payload[T]]
	parts    *consumer.Assembler
	scratch  []payload[T]
	workers  map[*worker[T]]struct{}
	idle     []*worker[T] // that have ended and can be used again
	draining bool
	closed   bool
	drained  chan struct{} // closed when nothing is unsettled, once draining
	counts   ConsumerStats

	contended atomic.Bool   // a producer waits for its turn
	kick      chan struct{} // of capacity 1: handlers have returned whose outcome is not noted
	kicked    atomic.Bool
	done      chan struct{} // closed by Close
	ended     sync.WaitGroup
	stopped   chan struct{}
	limits    struct{ dead, failed, evicted, noRoom, acks throttle }
}

// payload is a message as it waits: as it is, or as the bytes that it came in.
type payload[T any] struct {
	value T
	raw   []byte // nil if value is set
}

// NewConsumerController returns a consumer that is ready for deliveries. handler gets the message body; MetadataOf
// tells its producer and number from ctx, which ends when the controller is closed. A handler that returns nil
// has the message acknowledged, also if it swallowed an error; after an error or a panic the message comes again.
//
// The error joins all faults of the options; each matches ErrInvalidOption.
func NewConsumerController[T any](opts ConsumerOptions[T], handler func(ctx context.Context, body T) error) (*ConsumerController[T], error) {
	o, warn, err := opts.withDefaults(handler)
	if err != nil {
		return nil, fmt.Errorf("new consumer controller: %w", err)
	}
	if warn != "" {
		o.Logger.Warn(warn, "producer_idle_ttl", o.ProducerIdleTTL)
	}
	base, cancel := context.WithCancel(context.Background())
	c := &ConsumerController[T]{
		opts: o, handler: handler, log: o.Logger, born: time.Now(), cancel: cancel,
		core: consumer.New(consumer.Options[payload[T]]{
			MaxProducers: o.MaxProducers, IdleTTL: int64(o.ProducerIdleTTL),
			MaxConcurrent: o.MaxConcurrent, PerProducer: o.MaxConcurrentPerProducer, InOrder: o.InOrder,
			MaxWaiting: o.MaxWaiting, MaxWaitingPerProducer: o.MaxWaitingPerProducer, MaxWaitingBytes: o.MaxWaitingBytes,
			Size: func(p payload[T]) int { return len(p.raw) },
		}),
		parts:   consumer.NewAssembler(o.MaxAssemblyBytes, int64(staleAssembly)),
		workers: make(map[*worker[T]]struct{}),
		kick:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	c.spawn = func(w *worker[T]) {
		c.ended.Add(1)
		go c.work(base, w)
	}
	c.ended.Add(1)
	go c.loop()
	return c, nil
}

func (c *ConsumerController[T]) now() int64 { return int64(time.Since(c.born)) }

func (c *ConsumerController[T]) idleTTL() time.Duration { return c.opts.ProducerIdleTTL }

func (c *ConsumerController[T]) maxWaiting() int {
	return min(c.opts.MaxWaiting, c.opts.MaxWaitingPerProducer)
}

// TrackedProducers returns the number of producer ids that have dedup state.
func (c *ConsumerController[T]) TrackedProducers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Producers()
}

// Deliver takes messages as they are. It never blocks on a handler. The error, which matches ErrStopped, says that
// the consumer is closed; a malformed envelope is a dead letter, not an error.
func (c *ConsumerController[T]) Deliver(d Delivery[T]) error {
	if d.Parts != 0 {
		c.deadLetter(header(&d), nil, &window.Fault{Field: "parts", Problem: "are for messages that are bytes"})
		return nil
	}
	return c.deliver(header(&d), d.ReplyTo, func(dst []payload[T], _ int64) ([]payload[T], *window.Fault) {
		for _, v := range d.Bodies {
			dst = append(dst, payload[T]{value: v})
		}
		return dst, nil
	})
}

// Farewell frees the entry of a producer that has ended.
func (c *ConsumerController[T]) Farewell(f Farewell) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.core.Farewell(window.Key{Producer: f.ProducerID, Incarnation: f.Incarnation}, f.Floor) {
		c.counts.Farewells++
	}
	return nil
}

// Remote returns the consumer as a link that carries bytes, which it decodes with its Codec before the handler.
func (c *ConsumerController[T]) Remote() Link[[]byte] { return remote[T]{c} }

type remote[T any] struct{ c *ConsumerController[T] }

func (r remote[T]) Farewell(f Farewell) error { return r.c.Farewell(f) }

func (r remote[T]) Deliver(d Delivery[[]byte]) error {
	h := header(&d)
	return r.c.deliver(h, d.ReplyTo, func(dst []payload[T], now int64) ([]payload[T], *window.Fault) {
		if d.Parts != 0 {
			return r.c.assemble(dst, h, &d, now)
		}
		for _, b := range d.Bodies {
			dst = append(dst, payload[T]{raw: present(b)})
		}
		return dst, nil
	})
}

// present makes an empty body of no body.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// envelope is what a Delivery has beside its bodies.
type envelope struct {
	key   window.Key
	floor uint64
	first uint64
	count int
}

func header[B any](d *Delivery[B]) envelope {
	return envelope{window.Key{Producer: d.ProducerID, Incarnation: d.Incarnation}, d.Floor, d.Seq, len(d.Bodies)}
}

// deliver gives an envelope to the core and acts on what it says. bodies appends the messages; it is called with the lock
// held, and may append none, without a fault, if there is nothing to be delivered yet.
func (c *ConsumerController[T]) deliver(h envelope, to ReplyTo, bodies func(dst []payload[T], now int64) ([]payload[T], *window.Fault)) error {
	e := consumer.Envelope[payload[T]]{Key: h.key, Floor: h.floor, First: h.first}
	if to != nil {
		e.Reply = to
	}
	now := c.now()
	c.mu.Lock()
	if c.closed || c.draining {
		c.mu.Unlock()
		return ErrStopped
	}
	var n consumer.Counts
	var fault *window.Fault
	c.scratch, fault = bodies(c.scratch[:0], now)
	if e.Bodies = c.scratch; fault == nil && len(e.Bodies) >= min(h.count, 1) {
		n, fault = c.core.Deliver(e, now)
	}
	clear(c.scratch)
	c.counts.Known += uint64(n.Known)
	c.counts.InProgress += uint64(n.InProgress)
	c.counts.NoRoom += uint64(n.NoRoom)
	c.counts.Evicted += uint64(n.Evicted)
	var acks []consumer.Ack
	if n.Known > 0 {
		acks = c.core.AppendAcks(nil)
	}
	c.employ() // also what a raised floor lets run
	c.mu.Unlock()

	if fault != nil {
		c.deadLetter(h, nil, fault)
	}
	if len(acks) > 0 {
		c.acknowledge(acks, nil)
	}
	if n.Evicted > 0 {
		c.tellEvicted(n.Evicted)
	}
	if n.NoRoom > 0 {
		if total, ok := c.limits.noRoom.add(n.NoRoom); ok {
			c.log.Warn("messages ignored, too much waits for its handler; they come again", "count", total, "producer_id", h.key.Producer)
		}
	}
	return nil
}

// assemble takes a part and appends the whole body, if it is the last one missing. The lock is held until the core has
// decided, so that what is said here of the message still holds there.
func (c *ConsumerController[T]) assemble(dst []payload[T], h envelope, d *Delivery[[]byte], now int64) ([]payload[T], *window.Fault) {
	if fault := window.CheckEnvelope(h.key, h.floor, h.first, h.first); fault != nil {
		return dst, fault
	}
	if h.count != 1 {
		return dst, &window.Fault{Field: "parts", Problem: fmt.Sprintf("of %d messages in one envelope", h.count)}
	}
	if c.core.Outcome(h.key, h.floor, h.first) != window.Fresh {
		return append(dst, payload[T]{raw: []byte{}}), nil // the core acknowledges or ignores it, whatever its body
	}
	body, fault := c.parts.Add(consumer.Part{
		Key: h.key, Seq: h.first, Index: d.Part, Count: d.Parts, Total: d.Total, Body: d.Bodies[0],
	}, now)
	if fault != nil || body == nil {
		return dst, fault
	}
	return append(dst, payload[T]{raw: body}), nil
}

// acknowledge sends acknowledgements, those of one producer together. buf is scratch space. It returns it.
func (c *ConsumerController[T]) acknowledge(acks []consumer.Ack, buf []Acknowledgment) []Acknowledgment {
	for len(acks) > 0 {
		buf = buf[:0]
		n := 0
		for n < len(acks) && acks[n].Key == acks[0].Key {
			a := &acks[n]
			buf = append(buf, Acknowledgment{ProducerID: a.Key.Producer, Incarnation: a.Key.Incarnation, First: a.First, Last: a.Last})
			n++
		}
		to := acks[n-1].Reply.(ReplyTo) // the latest: an earlier connection may be gone
		if err := protect(func() error { return to.Acknowledge(buf) }); err != nil {
			c.ackFailed(n, &acks[0], err)
		}
		acks = acks[n:]
	}
	return buf
}

func (c *ConsumerController[T]) ackFailed(n int, a *consumer.Ack, err error) {
	c.mu.Lock()
	c.counts.AckErrors += uint64(n)
	c.mu.Unlock()
	if total, ok := c.limits.acks.add(n); ok {
		c.log.Warn("acknowledgements lost, their producers send again", "count", total,
			"producer_id", a.Key.Producer, "seq", a.First, "err", err)
	}
}

func (c *ConsumerController[T]) deadLetter(h envelope, body []byte, cause error) {
	c.mu.Lock()
	c.counts.DeadLetters += uint64(max(h.count, 1))
	c.mu.Unlock()
	cut := func(s string) string { return s[:min(len(s), MaxIDBytes)] }
	d := DeadLetter{
		ProducerID: cut(h.key.Producer), Incarnation: cut(h.key.Incarnation), Seq: h.first, Floor: h.floor,
		Messages: h.count, Body: body, Cause: cause,
	}
	if c.opts.OnDeadLetter != nil {
		guard(c.log, "OnDeadLetter", func() { c.opts.OnDeadLetter(d) })
	}
	if total, ok := c.limits.dead.add(1); ok {
		c.log.Warn("dead letters", "count", total, "producer_id", d.ProducerID, "seq", d.Seq, "err", cause)
	}
}

func (c *ConsumerController[T]) tellEvicted(n int) {
	if c.opts.OnEvict != nil {
		guard(c.log, "OnEvict", func() { c.opts.OnEvict(n) })
	}
	if total, ok := c.limits.evicted.add(n); ok {
		c.log.Warn("producers forgotten, there are more than MaxProducers; repeated messages of theirs may be handled again",
			"count", total, "max_producers", c.opts.MaxProducers)
	}
}

// Stats returns figures about the consumer.
func (c *ConsumerController[T]) Stats() ConsumerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.counts
	st.Producers = c.core.Producers()
	st.Unsettled, st.UnsettledBytes = c.core.Unsettled()
	st.Running = c.core.Running()
	st.Assembling = c.parts.Len()
	return st
}

// Shutdown takes no more deliveries, lets what was accepted be handled and acknowledged, and closes. If ctx ends
// first it closes all the same and returns an error that matches the context's.
func (c *ConsumerController[T]) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.draining = true
	if c.drained == nil {
		c.drained = make(chan struct{})
	}
	drained := c.drained
	c.checkDrained()
	c.mu.Unlock()
	var err error
	select {
	case <-drained:
	case <-c.done:
	case <-ctx.Done():
		err = fmt.Errorf("shut down consumer: %w", context.Cause(ctx))
	}
	c.Close()
	return err
}

// checkDrained tells a Shutdown that nothing is left to be handled. What is held back for its order does not count:
// what it waits for is no longer accepted.
func (c *ConsumerController[T]) checkDrained() {
	if c.drained == nil || c.core.Ready() || len(c.workers) > 0 {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}

// Close stops the consumer and returns at once: the contexts of running handlers end, and nothing more is
// accepted or acknowledged. Their producers keep what was not acknowledged. Closing again does nothing.
func (c *ConsumerController[T]) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	close(c.done)
	go func() {
		c.ended.Wait()
		close(c.stopped)
	}()
}

// Stopped is closed once all handlers and the controller's goroutines have ended after Close.
func (c *ConsumerController[T]) Stopped() <-chan struct{} { return c.stopped }
