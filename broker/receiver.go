package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// receiver is the broker's end of a receiver's stream.
type receiver struct {
	o       *owner
	id      queue.ReceiverID
	ev      holdfast.ReceiverEvents
	session [16]byte
	closed  atomic.Bool  // by either side; no event after it
	cold    atomic.Int64 // hand-overs that wait for bodies; those behind them must wait too
}

// OpenReceiver implements holdfast.Link.
func (b *Broker) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	var opened holdfast.ReceiverOpened
	if err := validVisibility(c.Visibility); err != nil {
		return nil, opened, fmt.Errorf("open receiver from queue %q: %w", name, err)
	}
	o, err := b.owner(ctx, name, !b.o.NoAutoCreate)
	if err != nil {
		return nil, opened, fmt.Errorf("open receiver: %w", err)
	}
	r := &receiver{o: o, ev: ev, session: c.Session}
	done := make(chan error, 1)
	cmd := &cmdFunc{
		do: func(o *owner, a *turn) {
			var err error
			if opened, err = o.openReceiver(a, r, c); err != nil {
				done <- err
				return
			}
			a.After(func(err error) { done <- err })
		},
		lost: func(err error) { done <- err },
	}
	if err := o.tell(ctx, cmd); err != nil {
		return nil, opened, fmt.Errorf("open receiver: %w", err)
	}
	select {
	case err := <-done:
		if err != nil {
			r.close(false)
			return nil, holdfast.ReceiverOpened{}, fmt.Errorf("open receiver: %w", o.unavailable(err))
		}
		return r, opened, nil
	case <-ctx.Done():
		r.close(false)
		return nil, holdfast.ReceiverOpened{}, fmt.Errorf("open receiver from queue %q: %w", name, context.Cause(ctx))
	}
}

func validVisibility(d time.Duration) error {
	if d != 0 && (d < queue.MinVisibility || d > queue.MaxVisibility) {
		return &message.FieldError{Field: "visibility timeout", Fault: fmt.Sprintf("is %v", d),
			Limit: fmt.Sprintf("%v to %v", queue.MinVisibility, queue.MaxVisibility)}
	}
	return nil
}

// openReceiver runs on the actor.
func (o *owner) openReceiver(a *turn, r *receiver, c holdfast.ReceiverConfig) (holdfast.ReceiverOpened, error) {
	r.id = queue.ReceiverID(o.id())
	opts := queue.ReceiverOptions{Announces: c.Announces, Unbound: c.Unbound, Visibility: c.Visibility.Milliseconds(), Session: sessionNumber(c.Session)}
	opened := holdfast.ReceiverOpened{StreamUID: o.info.UID, Epoch: o.info.Epoch, Visibility: c.Visibility}
	if c.Visibility == 0 {
		opened.Visibility = o.core.Config().VisibilityTimeout
	}
	var old *receiver
	if c.Session != [16]byte{} {
		old = o.sessions[c.Session]
	}
	var err error
	switch {
	case old != nil:
		opened.Kept, err = o.core.ResumeReceiver(a.Now(), old.id, r.id, opts, c.Held)
		if o.receivers[old.id] == old { // its connection has not been missed yet
			delete(o.receivers, old.id)
			old.broken(fmt.Errorf("receiver of queue %q: %w: its session was opened again", o.name, holdfast.ErrClosed))
		}
	case len(c.Held) > 0: // leased by an owner before this one
		opened.Kept, err = o.core.ResumeReceiver(a.Now(), 0, r.id, opts, c.Held)
	default:
		err = o.core.OpenReceiver(a.Now(), r.id, opts)
	}
	if err != nil {
		return opened, err
	}
	o.receivers[r.id] = r
	if c.Session != [16]byte{} {
		o.sessions[c.Session] = r
	}
	return opened, nil
}

// sessionNumber is what of a session is stored with leases: enough to tell receivers apart.
func sessionNumber(s [16]byte) uint64 {
	return binary.LittleEndian.Uint64(s[:8]) ^ binary.LittleEndian.Uint64(s[8:])
}

// Credit implements holdfast.ReceiverLink.
func (r *receiver) Credit(messages, bytes uint64) {
	if !r.closed.Load() {
		r.o.pushFirst(&cmdCredit{r, messages, bytes})
	}
}

// Started implements holdfast.ReceiverLink.
func (r *receiver) Started(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(opStarted, spans, 0, reply)
}

// Ack implements holdfast.ReceiverLink.
func (r *receiver) Ack(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(opAck, spans, 0, reply)
}

// Nack implements holdfast.ReceiverLink.
func (r *receiver) Nack(spans []queue.LeaseSpan, delay time.Duration, reply holdfast.Outcomes) {
	r.settle(opNack, spans, delay, reply)
}

// Release implements holdfast.ReceiverLink.
func (r *receiver) Release(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.settle(opRelease, spans, 0, reply)
}

// Extend implements holdfast.ReceiverLink.
func (r *receiver) Extend(spans []queue.LeaseSpan, by time.Duration, reply holdfast.Outcomes) {
	r.settle(opExtend, spans, by, reply)
}

func (r *receiver) settle(op settleOp, spans []queue.LeaseSpan, d time.Duration, reply holdfast.Outcomes) {
	var fn func(queue.Reply, error)
	if reply != nil {
		fn = func(q queue.Reply, err error) {
			if err == nil {
				err = q.Err
			}
			reply(q.Outcomes, err)
		}
	}
	if err := validSpans(spans); err != nil {
		if fn != nil {
			fn(queue.Reply{}, err)
		}
		return
	}
	r.o.pushFirst(&cmdSettle{op: op, r: r, spans: spans, d: d, reply: fn})
}

// validSpans refuses runs that cannot have been leased.
func validSpans(spans []queue.LeaseSpan) error {
	for _, s := range spans {
		if s.Count == 0 || s.Lease == 0 || s.Seq == 0 || s.Lease+s.Count < s.Lease || s.Seq+s.Count < s.Seq || s.Count > 1<<32 {
			return &message.FieldError{Field: "receipt", Fault: fmt.Sprintf("lease %d, seq %d, count %d is not one", s.Lease, s.Seq, s.Count)}
		}
	}
	return nil
}

// Close implements holdfast.ReceiverLink.
func (r *receiver) Close(clean bool) { r.close(clean) }

func (r *receiver) close(clean bool) {
	if r.closed.Swap(true) {
		return
	}
	r.o.push(&cmdFunc{
		do: func(o *owner, a *turn) {
			if o.receivers[r.id] != r {
				return
			}
			delete(o.receivers, r.id)
			o.core.CloseReceiver(a.Now(), r.id, clean)
			if o.sessions[r.session] == r && clean {
				delete(o.sessions, r.session)
			}
		},
		lost: func(error) {},
	})
}

// broken ends the stream from the broker's side.
func (r *receiver) broken(err error) {
	if !r.closed.Swap(true) {
		r.ev.Broken(err)
	}
}
