package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// Hop is one move of a message between queues: to a dead-letter queue, or back.
type Hop = message.Hop

// Delivery is a message in a receiver's hands, leased for a while. Its body is shared with the frame that it came in
// and must not be changed.
type Delivery struct {
	Message
	// ID identifies the message for good; it is kept through dead-lettering and redrive.
	ID ID
	// Attempt is the number of this delivery, from 1.
	Attempt int

	c    *intake
	b    *block
	i    int
	hops []Hop
}

// fill makes a delivery of an encoded message.
func (d *Delivery) fill(c *intake, b *block, i int, raw message.Raw) error {
	d.c, d.b, d.i, d.Attempt = c, b, i, b.attempt
	d.ID = ID{b.stream.uid, b.seq + uint64(i)}
	if len(raw.Attrs) == 0 {
		d.Body = raw.Body
		return nil
	}
	m, err := raw.Decode()
	if err != nil {
		return fmt.Errorf("message %v of queue %q: %w", d.ID, c.queue, err)
	}
	d.Message, d.hops = m.Message, m.Hops
	if m.HasOrigin {
		d.ID = ID{m.Origin.UID, m.Origin.Seq}
	}
	return nil
}

// Queue returns the name of the queue that the message was received from.
func (d *Delivery) Queue() string { return d.c.queue }

// Hops returns the moves that the message has made between queues, oldest first.
func (d *Delivery) Hops() []Hop { return d.hops }

// Receipt returns the right to settle this delivery, which can be passed on (Queue.Settle).
func (d *Delivery) Receipt() Receipt {
	return Receipt{Stream: d.b.stream.uid, Epoch: d.b.stream.epoch, Lease: d.b.lease + uint64(d.i), Seq: d.b.seq + uint64(d.i)}
}

// span is the delivery's lease.
func (d *Delivery) span() queue.LeaseSpan { return d.b.span(d.i, d.i+1) }

// Ack acknowledges the message: it returns once the message is deleted for good, or was so already. ErrLeaseLost says that it
// is not in this receiver's hands any more. If ctx ends first, the outcome is ErrUnknown, and the receiver goes on
// trying.
func (d *Delivery) Ack(ctx context.Context) error { return d.c.settleWait(ctx, settleAck, 0, d) }

// Nack gives the message back as failed, to be handed out again after delay; a negative delay means by the queue's
// retry policy. Errors are those of Ack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration) error {
	return d.c.settleWait(ctx, settleNack, max(delay, -1), d)
}

// Release gives the message back uncounted, to be handed out again at once. Errors are those of Ack.
func (d *Delivery) Release(ctx context.Context) error {
	return d.c.settleWait(ctx, settleRelease, 0, d)
}

// Extend lets the lease end this long from now; 0 means the visibility timeout. It is only needed where leases are not
// renewed by themselves. Errors are those of Ack.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	if by < 0 {
		return fmt.Errorf("extend lease on message of queue %q: %w", d.c.queue,
			&message.FieldError{Field: "time", Fault: fmt.Sprintf("is %v", by), Limit: "0 or more"})
	}
	return d.c.settleWait(ctx, settleExtend, by, d)
}

// settleWait settles deliveries of this intake and waits for the answers. The error joins those of the deliveries, each
// difference told once.
func (c *intake) settleWait(ctx context.Context, kind settleKind, delay time.Duration, ds ...*Delivery) error {
	ops := make([]*settling, len(ds))
	var waits []*settling
	c.mu.Lock()
	if c.aborted || c.err != nil || c.isEnded() {
		err := c.err
		c.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		return fmt.Errorf("%v message of queue %q: %w: %w", kind, c.queue, ErrUnknown, err)
	}
	for i, d := range ds {
		var op *settling
		switch {
		case kind != settleExtend:
			d.b.touched.Store(true)
			op = c.settle(d.b, d.i, d.i+1, kind, delay)
		case !d.b.done.has(d.i):
			op = c.openOp(kind, delay)
			op.add(d.span())
		}
		if op == nil {
			continue
		}
		if ops[i] = op; op.done == nil {
			op.done = make(chan struct{})
		}
		if len(waits) == 0 || waits[len(waits)-1] != op {
			waits = append(waits, op)
		}
	}
	dones := make([]<-chan struct{}, len(waits))
	for i, op := range waits {
		dones[i] = op.done
	}
	c.kick()
	c.mu.Unlock()
	for _, done := range dones {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%v message of queue %q: %w: %w", kind, c.queue, ErrUnknown, context.Cause(ctx))
		}
	}
	var first error
	for i, op := range ops {
		err := ErrLeaseLost
		if op != nil {
			err = op.result(ds[i].span())
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%v message %v of queue %q: %w", kind, ds[i].ID, c.queue, err)
		}
	}
	return first
}

// isEnded tells whether the keeper has returned.
func (c *intake) isEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}
