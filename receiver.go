package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

func randomSession() (s [16]byte) {
	rand.Read(s[:])
	return s
}

// ReceiverOptions are what a Receiver is made with. The zero value means the defaults; negative numbers are errors, reported
// together.
type ReceiverOptions struct {
	// MaxBytes bounds what is asked for at once, in bytes of attributes and bodies. Default 32 MiB. A single
	// larger message comes alone.
	MaxBytes int
	// Visibility replaces the queue's visibility timeout for this receiver; 1 s to 12 h. Default: the queue's.
	Visibility time.Duration
	// MaxRenew is how long the lease of one message is renewed. Default 12 h.
	MaxRenew time.Duration
	// NoRenew leaves the leases to their visibility timeout.
	NoRenew bool
	// Unbound leases outlive the receiver and its connection, and end by their timeout alone; their messages are settled by
	// Delivery.Ack and its like, or by their receipts (Queue.Settle). It implies NoRenew.
	Unbound bool
	// OnLost, if not nil, is told when the receiver has lost the lease of a message before it was settled: another receiver
	// may have it by now. It must return at once and must not call the receiver.
	OnLost func(Receipt)
	// Logger gets the receiver's log. Default: that of the queue.
	Logger *slog.Logger
}

// Receiver receives messages on demand: it never holds more than was asked for. Leases are renewed until their messages are
// settled, unless NoRenew says otherwise. All methods may be called concurrently.
type Receiver struct{ c *intake }

// NewReceiver returns a receiver from the queue. The caller closes it.
func (q *Queue) NewReceiver(o ReceiverOptions) (*Receiver, error) {
	err := errors.Join(
		defaultTo("MaxBytes", &o.MaxBytes, defaultPrefetchBytes),
		defaultTo("Visibility", &o.Visibility, 0),
		defaultTo("MaxRenew", &o.MaxRenew, defaultRenewal))
	if err != nil {
		return nil, fmt.Errorf("receiver from queue %q: %w", q.name, err)
	}
	if o.Logger == nil {
		o.Logger = q.log
	}
	cfg := ReceiverConfig{Session: randomSession(), Announces: true, Visibility: o.Visibility}
	if o.Unbound {
		cfg = ReceiverConfig{Unbound: true, Visibility: o.Visibility}
	}
	c := newIntake(q.name, q.link, o.Logger, cfg)
	c.pull, c.renewal, c.maxHeld, c.onLost = true, o.MaxRenew, o.MaxBytes, o.OnLost
	if o.NoRenew || o.Unbound {
		c.renewal = -1
	}
	c.start()
	return &Receiver{c}, nil
}

// Receive waits until there is at least one message, and returns what has come, at most limit. A message that was asked for and came too
// late for this call is returned by the next one. If ctx ends first, the error is its cause.
func (r *Receiver) Receive(ctx context.Context, limit int) ([]*Delivery, error) {
	c := r.c
	if limit < 1 {
		return nil, c.receiveError(&message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", limit), Limit: "1 or more"})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	demand := limit // what of it has not come
	c.demand += demand
	defer func() { c.demand -= demand }()
	for {
		for c.waiting.n == 0 || c.stream == nil {
			switch {
			case c.err != nil:
				return nil, c.receiveError(c.err)
			case c.stopping:
				return nil, c.receiveError(ErrClosed)
			case ctx.Err() != nil:
				return nil, c.receiveError(context.Cause(ctx))
			}
			c.kick()
			c.watched = true
			arrived := c.arrived
			c.mu.Unlock()
			select {
			case <-arrived:
			case <-ctx.Done():
			}
			c.mu.Lock()
		}
		var out []*Delivery
		for len(out) < limit && c.waiting.n > 0 {
			p := c.waiting.take(min(limit-len(out), c.waiting.n))
			// Before the lock is given away: what has come is not to be asked for once more.
			got := min(p.to-p.from, demand)
			c.demand, demand = c.demand-got, demand-got
			out = c.begin(ctx, out, p)
		}
		if len(out) > 0 {
			return out, nil
		}
		c.demand, demand = c.demand+limit-demand, limit
	}
}

func (c *intake) receiveError(err error) error {
	return fmt.Errorf("receive from queue %q: %w", c.queue, err)
}

// begin makes deliveries of messages for a caller of Receive. It gives the lock away to announce them.
func (c *intake) begin(ctx context.Context, out []*Delivery, p portion) []*Delivery {
	if !c.config.Unbound {
		c.announce(ctx, p)
	}
	ds := make([]Delivery, p.to-p.from)
	for k := range ds {
		raw, _ := p.cur.Next()
		i := p.from + k
		if c.stream != nil && c.stream == p.b.stream {
			c.stream.freed += uint64(raw.Size())
		}
		if p.b.done.has(i) {
			continue
		}
		if err := ds[k].fill(c, p.b, i, raw); err != nil {
			c.log.Error("message cannot be read", "error", err)
			c.settle(p.b, i, i+1, settleNack, -1)
			continue
		}
		out = append(out, &ds[k])
	}
	return out
}

// announce says that a caller begins with messages, and waits for the confirmation where one is needed. What
// is not confirmed is given up. It gives the lock away.
func (c *intake) announce(ctx context.Context, p portion) {
	st := c.stream
	spans := c.open(p.b, p.from, p.to)
	if st == nil || len(spans) == 0 {
		c.loseSpan(p.b, p.from, p.to, lostGivenBack)
		return
	}
	c.mu.Unlock()
	outcomes, err := st.started(ctx, spans, p.b.confirm)
	c.mu.Lock()
	switch {
	case err == nil:
		c.extended(outcomes)
	case st == c.stream:
		c.settle(p.b, p.from, p.to, settleRelease, 0)
		c.kick()
	default:
		c.loseSpan(p.b, p.from, p.to, lostGivenBack)
	}
}

// errGone says that a stream ended before it answered.
var errGone = errors.New("the stream ended")

// started announces starts, and if confirm is set waits for the confirmation.
func (st *intakeStream) started(ctx context.Context, spans []queue.LeaseSpan, confirm bool) ([]queue.Outcome, error) {
	if !confirm {
		st.link.Started(spans, nil)
		return nil, nil
	}
	type answer struct {
		outcomes []queue.Outcome
		err      error
	}
	answered := make(chan answer, 1)
	st.link.Started(spans, func(outcomes []queue.Outcome, err error) { answered <- answer{outcomes, err} })
	select {
	case a := <-answered:
		if a.err != nil && st.isGone() {
			return nil, errGone
		}
		return a.outcomes, a.err
	case <-st.gone:
		return nil, errGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Ack acknowledges deliveries of this receiver, as Delivery.Ack does for one. The error is that of the first delivery that has one.
func (r *Receiver) Ack(ctx context.Context, ds ...*Delivery) error {
	return r.c.settleWait(ctx, settleAck, 0, ds...)
}

// Nack gives deliveries back as failed, as Delivery.Nack does for one.
func (r *Receiver) Nack(ctx context.Context, delay time.Duration, ds ...*Delivery) error {
	return r.c.settleWait(ctx, settleNack, max(delay, -1), ds...)
}

// Release gives deliveries back uncounted, as Delivery.Release does for one.
func (r *Receiver) Release(ctx context.Context, ds ...*Delivery) error {
	return r.c.settleWait(ctx, settleRelease, 0, ds...)
}

// Stats returns the receiver's counters.
func (r *Receiver) Stats() ReceiverStats { return r.c.counters() }

// Close gives back what was not settled, unless it is unbound, waits until everything else is answered, and ends the stream. When ctx ends
// first, it returns an error, and what is unanswered may have been carried out or not. It is idempotent.
func (r *Receiver) Close(ctx context.Context) error {
	if err := r.c.finish(ctx); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// counters returns the counters as they are.
func (c *intake) counters() ReceiverStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Held, st.Waiting, st.Failed = c.holds, c.waiting.n, c.failedCount.Load()
	return st
}
