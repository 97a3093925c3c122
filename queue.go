package holdfast

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfastmq/holdfast/queue"
)

// sharedIdle is how long the sender behind Queue.Send lets its stream stand unused.
const sharedIdle = time.Minute

// Options are what a Queue is made with. The zero value means the defaults.
type Options struct {
	// Sender are the options of the sender behind Queue.Send and Queue.SendBatch.
	Sender SenderOptions
	// Logger gets the log of the queue's senders and receivers, where their own options name none.
	// Default slog.Default().
	Logger *slog.Logger
}

// Queue is a view of one queue of a broker. It costs nothing until it is used, and need not be closed: what it opens
// to send closes by itself after a minute without a send. All methods may be called concurrently.
type Queue struct {
	name string
	link Link
	o    Options
	log  *slog.Logger

	sender *Sender
	err    error // Options.Sender are wrong; there is no sender then
}

// NewQueue returns a view of the queue called name on a broker. Users get theirs from broker.Broker.Queue or
// client.Client.Queue. Wrong options and names are reported by the first call that meets them.
func NewQueue(name string, link Link, o Options) *Queue {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Sender.Logger == nil {
		o.Sender.Logger = o.Logger
	}
	q := &Queue{name: name, link: link, o: o, log: o.Logger}
	so := o.Sender
	if err := so.setDefaults(); err != nil {
		q.err = fmt.Errorf("send to queue %q: %w", name, err)
		return q
	}
	so.idle = sharedIdle
	q.sender = newSender(name, link, so)
	return q
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Send sends a message and returns its id once it is stored. Concurrent calls share one Sender, and so batches; see
// there for the three outcomes of a send and for a zero id.
func (q *Queue) Send(ctx context.Context, m Message) (ID, error) {
	if q.err != nil {
		return ID{}, q.err
	}
	return q.sender.Send(ctx, m)
}

// SendBatch sends messages in order and returns their ids once all have an outcome. See Sender.SendBatch.
func (q *Queue) SendBatch(ctx context.Context, batch []Message) ([]ID, error) {
	if q.err != nil {
		return nil, q.err
	}
	return q.sender.SendBatch(ctx, batch)
}

// NewSender returns a sender of its own to the queue, for sends without waiting (SendAsync), for an order of its own, and for
// limits and hooks of its own. It opens its stream with its first message. The caller closes it.
func (q *Queue) NewSender(o SenderOptions) (*Sender, error) {
	if o.Logger == nil {
		o.Logger = q.log
	}
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("sender to queue %q: %w", q.name, err)
	}
	return newSender(q.name, q.link, o), nil
}

// SenderStats returns the counters of the sender behind Send and SendBatch.
func (q *Queue) SenderStats() SenderStats {
	if q.err != nil {
		return SenderStats{}
	}
	return q.sender.Stats()
}

// Close closes the sender behind Send and SendBatch as Sender.Close does; afterwards they return ErrClosed. Consumers and other
// senders are not touched.
func (q *Queue) Close(ctx context.Context) error {
	if q.sender == nil {
		return nil
	}
	return q.sender.Close(ctx)
}

// Describe returns the queue's configuration, state and counters.
func (q *Queue) Describe(ctx context.Context) (QueueInfo, error) {
	return q.link.Admin().Describe(ctx, q.name)
}

// Create makes the queue with a configuration. It is an error (ErrQueueExists) if there is one with another.
func (q *Queue) Create(ctx context.Context, cfg queue.Config) error {
	return q.link.Admin().Create(ctx, q.name, cfg)
}

// Configure replaces the queue's configuration.
func (q *Queue) Configure(ctx context.Context, cfg queue.Config) error {
	return q.link.Admin().Configure(ctx, q.name, cfg)
}

// Pause stops the queue from handing messages out; sends go on.
func (q *Queue) Pause(ctx context.Context) error { return q.link.Admin().Pause(ctx, q.name, true) }

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error { return q.link.Admin().Pause(ctx, q.name, false) }

// Purge deletes every message that was stored before the call, those in receivers' hands too, and returns how many.
func (q *Queue) Purge(ctx context.Context) (uint64, error) {
	return q.link.Admin().Purge(ctx, q.name)
}

// Peek returns messages without leasing them: no count, no order, no deadline is touched.
func (q *Queue) Peek(ctx context.Context, o PeekOptions) ([]PeekedMessage, error) {
	return q.link.Admin().Peek(ctx, q.name, o)
}

// Redrive moves dead letters back to the queues that they came from, or to target if it is not empty, and makes parked messages
// ready. limit 0 means all of them. It returns how many were set on their way.
func (q *Queue) Redrive(ctx context.Context, target string, limit int) (uint64, error) {
	return q.link.Admin().Redrive(ctx, q.name, target, limit)
}

// Delete deletes the queue with all its messages. Senders and receivers that are open then end with ErrDeleted; so do calls of Send and
// SendBatch that wait. Whoever uses the name later makes a new queue of it, with the default configuration, if the broker creates queues on
// use.
func (q *Queue) Delete(ctx context.Context) error { return q.link.Admin().Delete(ctx, q.name) }

// Settle acknowledges, gives back or extends by receipt, for messages that were received unbound to a stream. d is the
// delay of a SettleNack (negative: by the queue's policy) and the time of a SettleExtend (0: the visibility timeout).
func (q *Queue) Settle(ctx context.Context, op SettleOp, receipts []Receipt, d time.Duration) ([]queue.Outcome, error) {
	return q.link.Admin().Settle(ctx, q.name, op, receipts, d)
}
