package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// Cluster is what a broker asks where several of them share a journal. Package cluster implements it; a broker that has its
// journal to itself needs none. All methods may be called concurrently. None but Route waits.
type Cluster interface {
	// Route returns nil if the broker is to open a queue that it does not have, waiting until that is known. Else the error says why
	// not: a *holdfast.MovedError if another broker is to.
	Route(ctx context.Context, queue string) error
	// Check is Route without the waiting.
	Check(queue string) error
	// Elsewhere leads to the queues of other brokers.
	Elsewhere() holdfast.Link
	// Valid reports whether the broker may hand out messages: not once others may have taken its queues.
	Valid() bool
	// Opened and Stopped tell what became of a queue here: it is in use; it could not be opened, or is not in use any more,
	// because of err, nil if it was asked to stop.
	Opened(queue string)
	Stopped(queue string, err error)
}

// Held is a queue that a broker has, or is opening.
type Held struct {
	Name  string
	Ready bool
	// Idle is how long nothing was stored, which would have proved that the queue is this broker's.
	Idle time.Duration
}

// Held returns the queues that the broker has or is opening, by name.
func (b *Broker) Held() []Held {
	var out []Held
	for _, h := range b.reg.list() {
		e := Held{Name: h.name}
		select {
		case <-h.ready:
			if h.owner == nil {
				continue
			}
			e.Ready = true
			e.Idle = time.Since(b.began) - time.Duration(h.owner.metrics.lastStored.Load())
		default:
		}
		out = append(out, e)
	}
	return out
}

// Names returns the queues that are stored in the journal or open, by name.
func (b *Broker) Names(ctx context.Context) ([]string, error) { return b.names(ctx) }

// Take begins to open a queue that is stored in the journal, in the background. It does nothing if the broker has it, and
// creates none.
func (b *Broker) Take(name string) {
	// What keeps it from being opened is told by Cluster.Stopped; what keeps it from being tried needs not be told.
	_, _ = b.get(name, false)
}

// CheckOwner asks the journal whether a queue that the broker has is still its own. If not, the queue has stopped when it
// returns, or is about to, and the error matches holdfast.ErrFenced.
func (b *Broker) CheckOwner(ctx context.Context, name string) error {
	if o := b.open(name); o != nil {
		return o.unavailable(o.actor.CheckOwner(ctx))
	}
	return nil
}

// Yield stops a queue at once, as a crash would, because of cause: its streams are told.
func (b *Broker) Yield(name string, cause error) {
	if o := b.open(name); o != nil {
		o.actor.Fail(cause)
	}
}

// open returns the owner of a queue that is in use, nil if it is not.
func (b *Broker) open(name string) *owner {
	b.reg.mu.Lock()
	h := b.reg.handles[name]
	b.reg.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.ready:
		return h.owner
	default:
		return nil
	}
}

// has reports whether the broker has a queue, or is opening it.
func (b *Broker) has(name string) bool {
	b.reg.mu.Lock()
	defer b.reg.mu.Unlock()
	h := b.reg.handles[name]
	return h != nil && !h.failed()
}

// failed tells that the queue could not be opened.
func (h *handle) failed() bool {
	select {
	case <-h.ready:
		return h.err != nil
	default:
		return false
	}
}

// route waits until it is known that a queue is this broker's to open.
func (b *Broker) route(ctx context.Context, name string) error {
	if b.o.Cluster == nil || b.has(name) {
		return nil
	}
	if err := b.o.Cluster.Route(ctx, name); err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	return nil
}

// moved adds to an error of being fenced where the queue is now, if that is known.
func (o *owner) moved(err error) error {
	c := o.b.o.Cluster
	if c == nil || !errors.Is(err, holdfast.ErrFenced) {
		return err
	}
	var moved *holdfast.MovedError
	if to := c.Check(o.name); errors.As(to, &moved) {
		return fmt.Errorf("queue %q: %w", o.name, moved)
	}
	return err
}

// ErrElsewhere is what a Cluster's Check and Route wrap when a queue is not to be opened by this broker at present.
var ErrElsewhere = errors.New("not a queue of this broker at present")

// elsewhere tells that a queue was not opened for that reason: nothing is wrong with it.
func elsewhere(err error) bool {
	return errors.Is(err, ErrElsewhere) || errors.Is(err, holdfast.ErrNoQueue)
}

// ErrLapsed ends a queue that others may have taken, since its broker could not tell them in time that it lives.
var ErrLapsed = fmt.Errorf("%w: this broker could not tell the others in time that it lives", holdfast.ErrUnavailable)

// hand hands messages to a receiver, unless the broker may have been replaced without knowing it yet: then nothing more
// goes out (G5).
func (r *receiver) hand(out []holdfast.Run) {
	if c := r.o.b.o.Cluster; c != nil && (r.o.doubted.Load() || !c.Valid()) {
		r.o.doubt()
		return
	}
	r.ev.Deliver(out)
}

// doubtFor is how long a queue that others may have taken asks the journal whether they have.
const doubtFor = 750 * time.Millisecond

// doubt ends a queue that has something to hand out while others may have taken it. If they have, and the journal says so in time, it ends as fenced,
// and says so; else with ErrLapsed. What was to be handed out meanwhile comes to its receivers again by way of whoever has the queue then.
func (o *owner) doubt() {
	if o.doubted.Swap(true) {
		return
	}
	asked := o.b.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, doubtFor)
		defer cancel()
		_ = o.actor.CheckOwner(ctx) // if it was fenced, it stops for that reason, and what follows has no effect
		o.actor.Fail(ErrLapsed)
	})
	if !asked {
		o.actor.Fail(ErrLapsed)
	}
}

// configOf returns the configuration of a queue, wherever it is.
func (b *Broker) configOf(ctx context.Context, name string) (queue.Config, error) {
	o, err := b.owner(ctx, name, false)
	var moved *holdfast.MovedError
	if errors.As(err, &moved) {
		info, err := b.o.Cluster.Elsewhere().Admin().Describe(ctx, name)
		return info.Config, err
	}
	if err != nil {
		return queue.Config{}, err
	}
	return read(ctx, o, "look at", func(*turn) queue.Config { return o.core.Config() })
}

// openMove opens a sender of the mover's, to whichever broker has the queue.
func (b *Broker) openMove(ctx context.Context, name string, p queue.Producer, ev holdfast.SenderEvents) (holdfast.SenderLink, error) {
	cfg := holdfast.SenderConfig{Producer: p, NoWait: true, Internal: true}
	link, _, err := b.OpenSender(ctx, name, cfg, ev)
	var moved *holdfast.MovedError
	if errors.As(err, &moved) {
		link, _, err = b.o.Cluster.Elsewhere().OpenSender(ctx, name, cfg, ev)
	}
	return link, err
}

// queueOf returns the queue that a stream of a journal holds.
func queueOf(stream string) (string, bool) { return strings.CutPrefix(stream, streamPrefix) }
