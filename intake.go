package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/queue"
)

const (
	// defaultRenewal is how long a lease is renewed, if the user says nothing.
	defaultRenewal = 12 * time.Hour
	// defaultPrefetchBytes is how many bytes of messages are held and unsettled, if the user says nothing.
	defaultPrefetchBytes = 32 << 20
	// maxPrefetch is how far the window of a consumer grows that sets none.
	maxPrefetch = 16384
)

// intake is the receiving side of a queue under Consume and Receiver: it keeps a stream open, gives credit, keeps account of what
// it holds, renews leases, and sees to it that what was settled is answered.
//
// One goroutine, the keeper (run), makes all calls to the link but the announcements of starts, which come from the workers
// that begin.
type intake struct {
	queue   string
	link    Link
	log     *slog.Logger
	config  ReceiverConfig
	renewal time.Duration // for how long leases are renewed; negative: not at all
	maxHeld int           // bytes

	mu   sync.Mutex
	cond *sync.Cond // something waits, the stream came or went, or it all ends; for workers

	stream     *intakeStream // nil while there is none
	uid        [16]byte
	epoch      uint64
	visibility time.Duration
	backoff    backoff
	retryAt    time.Time
	downSince  time.Time
	downTold   bool

	waiting portions          // handed over, not taken
	unbegun []queue.LeaseSpan // given back when the stream broke; the owner of the next epoch has to be told
	held    blocks            // with messages that are not done
	holds   int               // messages in held

	ops       []*settling // not answered
	openOps   []*settling // of them, those that take more messages
	answering int         // of them, those that were sent on this stream
	unsent    int         // messages in those that were not

	// window is how many messages a consumer holds at most; a Receiver, which asks for each message, has demand instead:
	// how many its callers wait for.
	window, minWindow, capWindow int
	shrunk                       time.Time
	pull                         bool
	demand                       int
	arrived                      chan struct{} // closed and replaced when messages arrived, if anybody waits for that
	watched                      bool

	workers []*worker
	onLost  func(Receipt) // of a Receiver
	// For workers without the lock: whether there is a stream, and whether no more messages are to be begun with.
	online, halting atomic.Bool
	failures        rateLimit // of the log of failed handlers
	failedCount     atomic.Uint64

	stopping bool  // takes nothing more
	closing  bool  // ends once everything is answered
	aborted  bool  // ends now
	dirty    bool  // handlers that do not return still run: their messages must not be handed out at once
	err      error // why it failed
	failed   chan struct{}
	ended    chan struct{} // closed when run has returned

	idle  atomic.Bool // the keeper waits for wake
	sated atomic.Bool // it waits for answers before it collects more
	wake  chan struct{}
	abort context.CancelFunc

	stats ReceiverStats
}

// ReceiverStats are counters of a receiver, for metrics.
type ReceiverStats struct {
	Held       int    // messages held: waiting, or being worked on
	Waiting    int    // of them, those waiting
	Received   uint64 // messages handed over
	Acked      uint64 // messages acknowledged, and answered
	Failed     uint64 // handlers that returned an error or panicked
	Lost       uint64 // leases lost
	LateAcks   uint64 // acknowledgements that came after the lease was lost
	Renewals   uint64 // leases renewed
	Reconnects uint64 // streams opened after the first one
}

func newIntake(name string, link Link, log *slog.Logger, cfg ReceiverConfig) *intake {
	c := &intake{
		queue: name, link: link, log: log.With("queue", name), config: cfg,
		renewal: defaultRenewal, maxHeld: defaultPrefetchBytes,
		arrived: make(chan struct{}), failed: make(chan struct{}), ended: make(chan struct{}),
		wake: make(chan struct{}, 1),
	}
	c.cond = sync.NewCond(&c.mu)
	return c
}

// start starts the keeper. Its life does not end with the context of whoever starts it: what is held must be settled.
func (c *intake) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.abort = cancel
	go c.run(ctx)
}

// kick sees to it that the keeper looks at what there is to do.
func (c *intake) kick() {
	if c.idle.Load() && c.idle.CompareAndSwap(true, false) {
		c.wake <- struct{}{}
	}
}

// run is the keeper.
func (c *intake) run(ctx context.Context) {
	defer close(c.ended)
	defer c.abort()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.collect()
		st := c.stream
		switch {
		case c.aborted:
			c.hangUp(false)
			return
		case c.closing && len(c.ops) == 0:
			c.hangUp(!c.dirty)
			return
		case st == nil && c.err == nil && time.Until(c.retryAt) <= 0:
			c.openStream(ctx)
			continue
		}
		wait := time.Duration(0)
		if st != nil {
			if c.settleNext(st) || c.giveCredit(st) {
				continue // the lock was given away meanwhile
			}
			var renewed bool
			if wait, renewed = c.renew(st); renewed {
				continue
			}
		} else if c.err == nil {
			wait = c.offline()
		}
		c.pause(timer, wait)
	}
}

// pause gives the lock away until there may be something to do; wait 0 means without a limit.
func (c *intake) pause(timer *time.Timer, wait time.Duration) {
	c.sated.Store(c.answering >= smallOps)
	c.idle.Store(true)
	if !c.sated.Load() && c.uncollected() && c.idle.CompareAndSwap(true, false) {
		return
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	if wait == 0 {
		<-c.wake
	} else {
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-c.wake:
		case <-timer.C:
			if !c.idle.CompareAndSwap(true, false) {
				<-c.wake // it is being kicked
			}
		}
	}
	runtime.Gosched() // what was woken with the one who woke the keeper then goes into the same batch
}

// openStream opens a stream, or sees to it that this is tried again later.
func (c *intake) openStream(ctx context.Context) {
	st := &intakeStream{c: c, gone: make(chan struct{})}
	cfg := c.config
	if !cfg.Unbound {
		cfg.Held = c.heldSpans()
	}
	timer := time.AfterFunc(waitTold, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stream == nil {
			c.down(nil)
		}
	})
	c.mu.Unlock()
	link, opened, err := c.link.OpenReceiver(ctx, c.queue, cfg, st)
	timer.Stop()
	c.mu.Lock()
	st.link = link
	if err == nil && st.err != nil {
		err = st.err
	}
	if err == nil && opened.StreamUID == c.uid && opened.Epoch < c.epoch {
		c.close(link, false)
		err = fmt.Errorf("queue %q answered under epoch %d after epoch %d: %w", c.queue, opened.Epoch, c.epoch, ErrFenced)
	}
	switch {
	case c.aborted:
		if err == nil {
			c.close(link, false)
		}
	case err != nil && permanent(err):
		c.fail(err)
	case err != nil:
		c.lose(err)
	default:
		unbegun := c.unbegun
		if c.unbegun = nil; opened.StreamUID != c.uid || opened.Epoch == c.epoch {
			unbegun = nil
		}
		c.opened(st, opened)
		if len(unbegun) > 0 {
			c.mu.Unlock()
			link.Release(unbegun, nil)
			c.mu.Lock()
		}
	}
}

// opened begins to use a stream: what it still holds goes on, all else is lost.
func (c *intake) opened(st *intakeStream, o ReceiverOpened) {
	if c.uid != [16]byte{} {
		c.stats.Reconnects++
	}
	if c.downTold {
		c.log.Info("receiver goes on", "after", time.Since(c.downSince).Round(time.Millisecond))
	}
	c.downSince, c.downTold = time.Time{}, false
	c.online.Store(true)
	c.stream, c.uid, c.epoch, c.visibility = st, o.StreamUID, o.Epoch, o.Visibility
	st.uid, st.epoch, st.since = o.StreamUID, o.Epoch, time.Now()
	if !c.config.Unbound {
		kept := slices.SortedFunc(slices.Values(o.Kept), func(a, b queue.LeaseSpan) int { return cmp.Compare(a.Lease, b.Lease) })
		for b := c.held.head; b != nil; {
			next := b.next
			c.keep(b, kept, time.Now())
			b = next
		}
	}
	for _, op := range c.ops { // unanswered ones are repeated
		op.retryAt = time.Time{}
	}
	c.cond.Broadcast()
}

// keep marks those messages of a block as lost that are not kept.
func (c *intake) keep(b *block, kept []queue.LeaseSpan, now time.Time) {
	from := 0
	for _, s := range kept {
		if f, t := b.within(s); f < t {
			c.loseSpan(b, from, f, "not kept")
			from = max(from, t)
		}
	}
	c.loseSpan(b, from, b.n, "not kept")
	b.renewed = now
}

// lose notes that there is no stream, and when to open the next one.
func (c *intake) lose(err error) {
	c.retryAt = time.Now().Add(c.backoff.next())
	c.down(err)
}

// down tells the log once that the broker cannot be reached.
func (c *intake) down(err error) {
	if c.downSince.IsZero() {
		c.downSince = time.Now()
	}
	if !c.downTold && (err == nil || time.Since(c.downSince) >= waitTold) {
		c.downTold = true
		c.log.Warn("receiver waits for the broker", "error", err)
	}
}

// fail ends the intake for a reason that time does not heal.
func (c *intake) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	close(c.failed)
	c.stop()
	for _, op := range c.ops {
		op.answer(err)
	}
	c.ops, c.openOps, c.unsent = nil, nil, 0
	c.arrivedNow()
}

// stop takes nothing more: what waits is given back.
func (c *intake) stop() {
	c.stopping = true
	c.halting.Store(true)
	for _, w := range c.workers {
		if p := w.cut(maxSlice); p.from < p.to {
			c.waiting.push(p)
		}
	}
	for p := c.waiting.first(); p != nil; p = c.waiting.first() {
		one := c.waiting.take(p.to - p.from)
		if c.err == nil && c.stream != nil {
			c.settle(one.b, one.from, one.to, settleRelease, 0)
		} else {
			c.loseSpan(one.b, one.from, one.to, lostGivenBack)
		}
	}
	c.cond.Broadcast()
	c.kick()
}

// hangUp ends the stream, if there is one.
func (c *intake) hangUp(clean bool) {
	if st := c.stream; st != nil {
		c.drop()
		c.close(st.link, clean)
	}
}

func (c *intake) close(link ReceiverLink, clean bool) {
	c.mu.Unlock()
	link.Close(clean)
	c.mu.Lock()
}

// finish ends the intake: it waits until everything is answered, and when ctx ends, not even for that.
func (c *intake) finish(ctx context.Context) error {
	c.mu.Lock()
	c.stop()
	c.closing = true
	c.kick()
	c.mu.Unlock()
	var err error
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.mu.Lock()
		n := 0
		for _, op := range c.ops {
			n += op.count()
			op.answer(fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx)))
		}
		c.ops, c.openOps, c.unsent = nil, nil, 0
		if n > 0 || c.holds > 0 {
			err = fmt.Errorf("receiver of queue %q: %d messages unanswered and %d held at its end: %w", c.queue, n, c.holds, context.Cause(ctx))
		}
		c.aborted = true
		c.abort()
		c.kick()
		c.mu.Unlock()
		<-c.ended // it waits for nothing but the cancelled opening of a stream
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropHeld()
	return err
}

// dropHeld forgets what is held after the end.
func (c *intake) dropHeld() {
	for b := c.held.head; b != nil; b = c.held.head {
		c.loseSpan(b, 0, b.n, "closed")
	}
}
