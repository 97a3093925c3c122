package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// actor is the persistent actor under a queue, and turn its context in a call.
type (
	actor = persistent.Actor[command, *queue.Event]
	turn  = persistent.Context[*queue.Event]
)

// owner runs one queue: it is the behavior of a persistent actor around the queue's pure core. Its fields
// belong to the actor's goroutine, unless they say otherwise.
type owner struct {
	persistent.Base[command, *queue.Event]

	b    *Broker
	h    *handle
	name string
	log  *slog.Logger

	opened chan struct{} // closed when actor is set, or the opening failed
	actor  *actor        // nil if it did
	stream journal.Stream
	info   journal.Info

	core    *queue.Core
	live    bool         // recovered: the core applies events itself
	full    bool         // the store has no room for bodies
	refused []queue.Span // stored events hand these over although the store refused them; see Refuse

	lastID    uint64 // of senders, receivers and tokens
	senders   map[queue.SenderID]*sender
	producers map[queue.Producer]*sender
	receivers map[queue.ReceiverID]*receiver
	sessions  map[[16]byte]*receiver
	replies   map[queue.Token]func(queue.Reply, error)

	bodies *bodies
	pump   pump
	space  space
	mover  mover

	buffered atomic.Bool  // durability of the queue, for whoever opens a sender
	more     atomic.Int64 // bytes that its senders have beyond their first windows: see takeMore
	metrics  ownerMetrics
	doubted  atomic.Bool   // nothing more is handed out; see doubt
	done     chan struct{} // closed by Stopped
	err      error         // why it stopped; read after done

	damage  error       // what was found last of messages that cannot be read
	damaged atomic.Bool // any were found; see Broker.Damaged
}

// openOwner recovers a queue.
func openOwner(ctx context.Context, h *handle) (*owner, error) {
	b := h.b
	o := &owner{
		b: b, h: h, name: h.name, log: b.log.With("queue", h.name),
		senders:   make(map[queue.SenderID]*sender),
		producers: make(map[queue.Producer]*sender),
		receivers: make(map[queue.ReceiverID]*receiver),
		sessions:  make(map[[16]byte]*receiver),
		replies:   make(map[queue.Token]func(queue.Reply, error)),
		bodies:    b.cache.newBodies(),
		opened:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	o.pump.o, o.space.o, o.mover.o = o, o, o
	po := b.persistence()
	po.Logger = o.log
	po.OnProgress = h.setProgress
	po.OnAppend = o.appended
	j := b.j
	if h.mustExist {
		j = existing{j}
	}
	a, err := persistent.Open(ctx, j, StreamName(h.name), o, codec{}, po)
	o.actor = a
	close(o.opened)
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (h *handle) setProgress(seq, end uint64) {
	h.mu.Lock()
	h.progress = [2]uint64{seq, end}
	h.mu.Unlock()
}

// stop stores what is decided, writes a snapshot and releases the stream. Streams are ended first.
func (o *owner) stop(ctx context.Context) error {
	o.push(&cmdDisconnect{err: holdfast.ErrClosed})
	err := o.actor.Stop(ctx)
	if err != nil && !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("stop queue %q: %w", o.name, err)
	}
	return nil
}

// push hands over a command without waiting; what is pushed is bounded by the credit of its stream. Only what the
// recovery itself has started waits, for its end.
func (o *owner) push(c command) { o.give(c, (*actor).Push) }

// pushFirst is push for what receivers say, which goes before what senders have waiting: else a receiver would wait for all of that
// twice for each hand-over, for its lease and for its acknowledgement, and fall behind the faster the senders are.
func (o *owner) pushFirst(c command) {
	o.give(c, (*actor).PushFirst)
}

func (o *owner) give(c command, push func(*actor, command) error) {
	<-o.opened
	if o.actor == nil {
		c.fail(o, fmt.Errorf("queue %q: %w", o.name, holdfast.ErrUnavailable))
		return
	}
	if err := push(o.actor, c); err != nil {
		c.fail(o, o.unavailable(err))
	}
}

// tell hands over a command from a caller that can wait.
func (o *owner) tell(ctx context.Context, c command) error {
	select { // what the recovery itself has started waits for its end
	case <-o.opened:
	case <-ctx.Done():
		return fmt.Errorf("queue %q: %w", o.name, context.Cause(ctx))
	}
	if o.actor == nil {
		return fmt.Errorf("queue %q: %w", o.name, holdfast.ErrUnavailable)
	}
	if err := o.actor.Tell(ctx, c); err != nil {
		return o.unavailable(err)
	}
	return nil
}

// unavailable classes the reason why an actor does not take or store a command.
func (o *owner) unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrFenced):
		return fmt.Errorf("queue %q: %w", o.name, holdfast.ErrFenced)
	case errors.Is(err, journal.ErrFull):
		return fmt.Errorf("queue %q: %w", o.name, queue.ErrStorageFull)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("queue %q: %w", o.name, err)
	case errors.Is(err, persistent.ErrStopped):
		return fmt.Errorf("queue %q: %w: %w", o.name, holdfast.ErrUnavailable, err)
	}
	return fmt.Errorf("queue %q: %w", o.name, err)
}

func (o *owner) id() uint64 { o.lastID++; return o.lastID }

// token remembers whom a reply is for; nil asks for none.
func (o *owner) token(fn func(queue.Reply, error)) queue.Token {
	if fn == nil {
		return 0
	}
	t := queue.Token(o.id())
	o.replies[t] = fn
	return t
}

// Command is called by the actor.
func (o *owner) Command(a *turn, c command) {
	c.run(o, a)
	o.settle(a)
}

// Wake is called by the actor when the core's deadline has come.
func (o *owner) Wake(a *turn) {
	o.tryRoom(a, func() { o.core.Tick(a.Now()) })
	o.settle(a)
}

// fullRetry is how often a full store is tried with what waits for it, in ms.
const fullRetry = 1000

// tryRoom does something which may store bodies. While the store is full, the actor lets some through now and then to
// see whether there is room again, and the core must then not refuse them.
func (o *owner) tryRoom(a *turn, do func()) {
	if !o.full || a.Full() {
		do()
		return
	}
	o.core.StorageFull(a.Now(), false)
	do()
	o.core.StorageFull(a.Now(), true)
}

// Full is called by the actor when the store has no room for bodies, and when it has again.
func (o *owner) Full(a *turn, full bool) {
	o.full = full
	o.core.StorageFull(a.Now(), full)
	if !full {
		o.refused = nil
	}
	o.settle(a)
}

// settle stores what the core has decided and arranges for its effects. It reports whether there was anything to store.
func (o *owner) settle(a *turn) (decided bool) {
	out := o.core.Take()
	decided = len(out.Events) > 0
	if len(out.Events) > 0 {
		events := make([]*queue.Event, len(out.Events))
		for i := range out.Events {
			events[i] = &out.Events[i]
			o.decided(events[i])
		}
		if err := a.PersistAsync(events...); err != nil {
			// The core has applied what cannot be stored: its state is not to be used any more.
			panic(fmt.Errorf("queue %q: store events: %w", o.name, err))
		}
	}
	if len(out.Effects) > 0 {
		a.After(func(err error) { o.effects(a, out.Effects, err) })
	}
	at, ok := o.core.Deadline()
	if !ok {
		at = 0
	}
	if retry := a.Now() + fullRetry; o.full && (at == 0 || at > retry) {
		at = retry
	}
	a.WakeAt(at)
	return decided
}

// decided keeps what goes beside the core in step with it.
func (o *owner) decided(e *queue.Event) {
	switch e.Kind {
	case queue.KindAdded:
		o.bodies.add(e.Spans[0], e.Frames[0])
	case queue.KindDeleted, queue.KindExpired, queue.KindDropped, queue.KindMoved:
		o.bodies.gone(e.Spans)
	case queue.KindPurged:
		o.bodies.gone([]queue.Span{{Seq: 0, Count: e.Spans[0].Seq + e.Spans[0].Count}})
	}
}

// Apply is called by the actor; live, the core has applied the event when it decided it.
func (o *owner) Apply(seq uint64, _ int64, e *queue.Event) {
	if o.live {
		return
	}
	if err := o.core.Apply(seq, e); err != nil {
		panic(fmt.Errorf("queue %q: event at seq %d: %w", o.name, seq, err))
	}
}

// Stored is called by the actor for each record.
func (o *owner) Stored(a *turn, h *journal.Header) {
	if h.Kind != journal.KindEvents {
		o.core.SkipTo(h.Last() + 1)
	}
	o.core.Stored(h.First, h.Last(), int(h.BodyLen))
	if o.live {
		o.settle(a)
	}
}

// Recovered is called by the actor before the first command.
func (o *owner) Recovered(a *turn) {
	o.live = true
	o.stream, o.info = a.Journal(), a.Journal().Acquired()
	o.core.Recovered(a.Now())
	o.configured(a)
	o.settle(a)
	if o.core.Stats(a.Now()).Parked > 0 {
		o.b.background(o.checkParked)
	}
}

// configured follows the configuration in what is outside the core.
func (o *owner) configured(a *turn) {
	buffered := o.core.Config().Durability == queue.DurabilityBuffered
	o.buffered.Store(buffered)
	a.SetBuffered(buffered)
}

// Refuse is called by the actor for a decided send that the store has no room for.
func (o *owner) Refuse(seq uint64, _ int64, e *queue.Event) (*queue.Event, bool) {
	undo := o.core.Undo(seq, e)
	if undo == nil {
		return nil, false
	}
	if e.Kind == queue.KindAdded {
		o.refused = append(o.refused, e.Spans...)
		o.bodies.gone(e.Spans)
	}
	return undo, true
}

// Capture and Restore are the snapshots.
func (o *owner) Capture() iter.Seq[[]byte] { return o.core.Capture().Chunks() }

// Restore is called by the actor before it replays.
func (o *owner) Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	opts := queue.Options{}
	var err error
	if chunks == nil {
		o.core, err = queue.New(opts, id.Seq+1)
	} else {
		o.core, err = queue.Restore(opts, chunks)
	}
	return err
}

// Undelivered is called by the actor for a command that it did not begin.
func (o *owner) Undelivered(c command, err error) { c.fail(o, o.unavailable(err)) }

var _ persistent.Behavior[command, *queue.Event] = (*owner)(nil)

// Stopped is the actor's last call.
func (o *owner) Stopped(err error) {
	o.err = err
	deleted := false
	if errors.Is(err, journal.ErrFenced) {
		o.log.Warn("fenced: another broker owns the queue now; nothing more goes in or out here", "epoch", o.info.Epoch)
		deleted = o.dropped()
	}
	// Until the cluster knows, the queue is not opened anew here: that would fence its new owner in turn.
	if c := o.b.o.Cluster; c != nil {
		why := err
		if errors.Unwrap(err) == nil {
			why = nil // it was asked to stop
		}
		c.Stopped(o.name, why)
	}
	o.h.gone()
	cause := o.moved(o.unavailable(err))
	if deleted { // else whoever uses it would go on, and make it anew
		cause = fmt.Errorf("queue %q: %w", o.name, holdfast.ErrDeleted)
	}
	o.disconnect(cause)
	for t, reply := range o.replies {
		delete(o.replies, t)
		reply(queue.Reply{}, cause)
	}
	o.bodies.clear()
	close(o.done)
}

// disconnect ends all streams.
func (o *owner) disconnect(err error) {
	for _, s := range o.senders {
		o.removeSender(s)
		s.broken(err)
	}
	for id, r := range o.receivers {
		delete(o.receivers, id)
		r.broken(err)
	}
}

// effects carries out what was decided, once it is stored; or tells those who wait that it is not.
func (o *owner) effects(a *turn, effects []queue.Effect, err error) {
	for _, e := range effects {
		if err != nil {
			o.undone(e, err)
			continue
		}
		switch e := e.(type) {
		case queue.Accepted:
			if s := o.senders[e.Sender]; s != nil {
				s.accepted(e)
			}
		case queue.Refused:
			if s := o.senders[e.Sender]; s != nil {
				s.refused(e)
			}
		case queue.SenderWaits:
			if s := o.senders[e.Sender]; s != nil {
				s.ev.Waits(e.Waits, e.Reason)
			}
		case queue.Deliver:
			o.deliver(e)
		case queue.LeaseLost:
			if r := o.receivers[e.Receiver]; r != nil {
				r.ev.Lost(e.Spans, e.Reason)
			}
		case queue.Reply:
			o.reply(e, nil)
		case queue.Dead:
			o.space.discard(e.Ranges)
		case queue.Move:
			o.mover.add(e, o.locate([]queue.Span{{Seq: e.Seq, Count: 1}}))
		case queue.Relocate:
			o.space.relocate(e.Spans, o.locate(e.Spans))
		case queue.Warning:
			o.log.Warn(e.Text)
		default:
			panic(fmt.Sprintf("unknown effect %T", e))
		}
	}
}

func (o *owner) reply(r queue.Reply, err error) {
	if fn := o.replies[r.Token]; fn != nil {
		delete(o.replies, r.Token)
		fn(r, err)
	}
}

// undone tells those who wait for an effect that it does not take place.
func (o *owner) undone(e queue.Effect, err error) {
	cause := o.unavailable(err)
	switch e := e.(type) {
	case queue.Accepted:
		s := o.senders[e.Sender]
		if s == nil || !errors.Is(err, persistent.ErrNotStored) || !errors.Is(err, journal.ErrFull) {
			return
		}
		if s.producer.ID == "" || o.core.Refuses(e.Sender) {
			s.refused(queue.Refused{Sender: e.Sender, Resume: e.UpTo + 1 - e.Count - e.Duplicates, Err: cause})
			return
		}
		// It is to wait, like one that comes once the store is known to be full: it comes again, with the same messages.
		s.broken(cause)
		o.push(&cmdFunc{do: func(o *owner, a *turn) {
			if o.senders[s.id] == s {
				o.removeSender(s)
				o.core.CloseSender(a.Now(), s.id, false)
			}
		}, lost: func(error) {}})
	case queue.Refused:
		if s := o.senders[e.Sender]; s != nil {
			s.refused(e)
		}
	case queue.Reply:
		o.reply(e, cause)
	}
}

// codec adapts the queue's events to the actor.
type codec struct{}

func (codec) AppendMeta(dst []byte, e *queue.Event) ([]byte, error) {
	return queue.AppendEvent(dst, e), nil
}

func (codec) DecodeMeta(b []byte) (*queue.Event, error) {
	e, err := queue.DecodeEvent(b)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

func (codec) Seqs(e *queue.Event) uint64 { return queue.Seqs(e) }

func (codec) AppendBody(dst [][]byte, e *queue.Event) [][]byte {
	return append(dst, queue.Body(e)...)
}

// ownerMetrics are counters beside those of the core. They may be read from any goroutine.
type ownerMetrics struct {
	appendedRecords, appendedBytes atomic.Uint64
	appendTime                     atomic.Int64 // in all
	lastStored                     atomic.Int64 // since the broker began
}

func (o *owner) appended(h *journal.Header, _ int, took time.Duration) {
	m := &o.metrics
	m.lastStored.Store(int64(time.Since(o.b.began)))
	m.appendedBytes.Add(uint64(h.Size()))
	m.appendedRecords.Add(1)
	m.appendTime.Add(int64(took))
	o.b.latency.observe(took.Seconds(), latencyUnit)
	o.b.batch.observe(float64(h.Count), batchUnit)
}
