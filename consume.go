package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

const (
	// defaultDrain is how long running handlers may go on after the end, if the user says nothing.
	defaultDrain = 30 * time.Second
	// settleTime is how long a consumer waits at its end for handlers that were told to stop.
	settleTime = 5 * time.Second
	// answerTime is how long it then waits for answers: long enough to notice that a connection is silent (10 s) and to ask over another.
	answerTime = 20 * time.Second
)

// ConsumeOptions are how a queue is consumed. The zero value means the defaults; negative numbers are errors, reported
// together.
type ConsumeOptions struct {
	// Workers is how many handlers run at the same time. Default GOMAXPROCS. With one, messages are worked on in the order of
	// their hand-over.
	Workers int
	// Prefetch bounds the messages that the consumer holds, waiting and being worked on. Default: it finds its own measure
	// between two for each worker and 16,384, so that fast handlers do not wait and slow ones do not hoard.
	Prefetch int
	// PrefetchBytes bounds the same in bytes of attributes and bodies. Default 32 MiB. A single larger message
	// comes alone.
	PrefetchBytes int
	// Visibility replaces the queue's visibility timeout for this consumer; 1 s to 12 h. Default: the queue's.
	Visibility time.Duration
	// MaxRenew is how long the lease of one message is renewed. A handler that takes longer loses it. Default 12 h.
	MaxRenew time.Duration
	// DrainTimeout is how long running handlers may go on after the end of Consume's context. Default 30 s.
	DrainTimeout time.Duration
	// Logger gets the consumer's log. Default: that of the queue.
	Logger *slog.Logger
}

func (o *ConsumeOptions) setDefaults(log *slog.Logger) error {
	err := errors.Join(
		defaultTo("Workers", &o.Workers, runtime.GOMAXPROCS(0)),
		defaultTo("Prefetch", &o.Prefetch, 0),
		defaultTo("PrefetchBytes", &o.PrefetchBytes, defaultPrefetchBytes),
		defaultTo("Visibility", &o.Visibility, 0),
		defaultTo("MaxRenew", &o.MaxRenew, defaultRenewal),
		defaultTo("DrainTimeout", &o.DrainTimeout, defaultDrain))
	if o.Logger == nil {
		o.Logger = log
	}
	return err
}

// givenBack is an error that says what to do with the message.
type givenBack struct {
	err   error
	kind  settleKind
	delay time.Duration
}

func (e *givenBack) Error() string { return e.err.Error() }
func (e *givenBack) Unwrap() error { return e.err }

// RetryAfter wraps the error of a handler whose message is to be handed out again after delay, instead of after the pause that the
// queue's retry policy says. It counts as a failed delivery.
func RetryAfter(delay time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("to be tried again after %v", delay)
	}
	return &givenBack{err, settleNack, max(delay, 0)}
}

// GiveBack wraps the error of a handler whose message is to be handed out again at once, uncounted: it is not the
// message's fault.
func GiveBack(err error) error {
	if err == nil {
		err = errors.New("given back")
	}
	return &givenBack{err, settleRelease, 0}
}

// Consume calls handler for each message of the queue until ctx ends, and then drains: it takes nothing more, gives back what no
// handler has begun with, lets running handlers finish for DrainTimeout (then their contexts end), and waits until
// everything is answered, for 20 s at most. It returns nil if that went well.
//
// A message is acknowledged when handler returns nil. When it returns an error or panics, the message is given back as failed, and
// comes again by the queue's retry policy until the limit of deliveries, if there is one; RetryAfter and GiveBack
// change that. The leases of messages are renewed while they wait and while their handlers run, up to MaxRenew. If a lease is lost all the
// same, the handler's context ends with the cause ErrLeaseLost, and what the handler returns is ignored.
//
// When the connection breaks, handlers go on, and the consumer comes back under the same session; those whose messages the
// broker could not keep are cancelled as above. Handlers must be prepared to see a message again, since a crash can come
// between their work and the acknowledgement.
//
// A delivery counts from the announcement of its start on. Each message is announced before its handler runs; handlers that take less
// than a millisecond are announced up to 256 at once, all of which count if the process crashes.
//
// Other errors than those of the drain are permanent: the queue does not exist, permission is denied, or the client or
// broker was closed.
func (q *Queue) Consume(ctx context.Context, handler func(ctx context.Context, d *Delivery) error, o ConsumeOptions) error {
	err := o.setDefaults(q.log)
	if handler == nil {
		err = errors.Join(err, &message.FieldError{Field: "handler", Fault: "is nil"})
	}
	if err != nil {
		return fmt.Errorf("consume queue %q: %w", q.name, err)
	}
	c := newIntake(q.name, q.link, o.Logger, ReceiverConfig{Session: randomSession(), Announces: true, Visibility: o.Visibility})
	c.renewal, c.maxHeld = o.MaxRenew, o.PrefetchBytes
	c.window, c.capWindow = o.Prefetch, o.Prefetch
	if o.Prefetch == 0 {
		c.window, c.capWindow = 2*o.Workers, max(maxPrefetch, 2*o.Workers)
	}
	c.minWindow = c.window

	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var running sync.WaitGroup
	for range o.Workers {
		w := &worker{c: c, handler: handler, base: base, slice: 1}
		c.workers = append(c.workers, w)
	}
	running.Add(len(c.workers))
	for _, w := range c.workers {
		go w.run(running.Done)
	}
	c.start()
	select {
	case <-ctx.Done():
	case <-c.failed:
		cut(c.err)
	}
	if err = c.drain(&running, cut, o.DrainTimeout); err == nil {
		err = c.err
	}
	if err != nil {
		return fmt.Errorf("consume queue %q: %w", q.name, err)
	}
	return nil
}

// drain ends a consumer.
func (c *intake) drain(running *sync.WaitGroup, cut context.CancelCauseFunc, timeout time.Duration) error {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var err error
	select {
	case <-done:
	case <-c.failed:
	case <-timer.C:
		err = fmt.Errorf("handlers still ran %v after the end: %w", timeout, context.DeadlineExceeded)
	}
	cut(err)
	timer.Reset(settleTime)
	select {
	case <-done:
	case <-timer.C:
		// They do not heed their contexts. Their messages stay leased, so that they do not run twice.
		err = errors.Join(err, errors.New("handlers do not return"))
		c.mu.Lock()
		c.dirty = true
		c.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return errors.Join(err, c.finish(ctx))
}
