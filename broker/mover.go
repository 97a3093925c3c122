package broker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// mover carries messages to other queues: dead letters, and dead letters on their way back.
//
// A move is journaled by the source before it begins (moving) and after it is done (moved). In between the message is
// sent to the target by a producer of its own, whose incarnation names the message and the move, under producer seq
// 1: so a move that is repeated after a crash of either side is stored once (G3). When the source knows that the
// message is there, the target is told to forget that producer.
type mover struct {
	o *owner

	mu      sync.Mutex
	jobs    []move
	running bool
}

type move struct {
	queue.Move
	records []located
}

const moveProducer = "holdfast.move"

// add takes a move. The core bounds how many there are at once. Called by the actor.
func (m *mover) add(e queue.Move, records []located) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs = append(m.jobs, move{e, records})
	if !m.running {
		m.running = m.o.b.background(m.run)
	}
}

func (m *mover) run(ctx context.Context) {
	for {
		m.mu.Lock()
		if len(m.jobs) == 0 || ctx.Err() != nil {
			m.jobs, m.running = nil, false
			m.mu.Unlock()
			return
		}
		j := m.jobs[0]
		m.jobs = m.jobs[1:]
		m.mu.Unlock()
		m.do(ctx, j)
	}
}

// do carries one message, and tells the core how it went.
func (m *mover) do(ctx context.Context, j move) {
	o := m.o
	var link holdfast.SenderLink
	frame, incarnation, to, err := m.frame(ctx, j)
	producer := queue.Producer{ID: moveProducer, Incarnation: incarnation}
	if err == nil {
		link, err = m.send(ctx, to, producer, frame)
	}
	done := func(clean bool) {
		if link != nil {
			link.Close(clean)
		}
	}
	switch {
	case ctx.Err() != nil:
		done(false)
		return
	case corruptAt(err) != nil:
		if _, err := o.setAside(ctx, corruptAt(err), nil, nil); err != nil {
			return // the queue is stopped, and the move with it
		}
		// It does not move any more, unless it lies elsewhere by now: then it is tried again.
	case errors.Is(err, journal.ErrCorrupt):
		o.log.Error("message cannot be moved, tried again later", "seq", j.Seq, "error", err)
	case err != nil:
		o.log.Debug("move of a message failed, tried again later", "seq", j.Seq, "target", to, "error", err)
	}
	o.push(&cmdFunc{
		do: func(o *owner, a *turn) {
			o.core.MoveDone(a.Now(), j.Seq, err)
			if err != nil {
				done(false)
				return
			}
			o.settle(a)
			// Now nobody will send it again, and the target may forget the producer.
			a.After(func(err error) { done(err == nil) })
		},
		lost: func(error) { done(false) },
	})
}

// frame makes the message as it goes to the target.
func (m *mover) frame(ctx context.Context, j move) (frame []byte, incarnation, target string, err error) {
	o := m.o
	raw, _, ok, err := o.readOne(ctx, j.Seq, j.records, nil)
	if err == nil && !ok {
		err = fmt.Errorf("message at seq %d: it is gone", j.Seq)
	}
	if err != nil {
		return nil, "", "", err
	}
	if target = j.Target; target == "" {
		d, err := raw.Decode()
		if err != nil || len(d.Hops) == 0 {
			return nil, "", "", fmt.Errorf("redrive message at seq %d: it did not come from another queue", j.Seq)
		}
		target = d.Hops[len(d.Hops)-1].Queue
	}
	attrs, err := message.Moved(raw, message.Origin{UID: o.info.UID, Seq: j.Seq}, message.Hop{
		Queue: o.name, Reason: j.Reason, Deliveries: j.Deliveries, TimeMs: j.At})
	if err != nil {
		return nil, "", "", &journal.CorruptError{Stream: StreamName(o.name), Seq: j.Seq, What: "attributes", Err: err}
	}
	var b message.Builder
	b.AddRaw(message.Raw{Attrs: attrs, Body: raw.Body})
	// Where the message lies now, not its id, names the move: a message that comes back here and leaves again
	// does so from another seq.
	return b.Finish(), fmt.Sprintf("%s-%d", hex.EncodeToString(o.info.UID[:]), j.Seq), target, nil
}

// send stores a frame of one message in another queue, and returns the stream that brought it there.
func (m *mover) send(ctx context.Context, name string, p queue.Producer, frame []byte) (holdfast.SenderLink, error) {
	ev := &moveEvents{done: make(chan error, 1)}
	link, err := m.o.b.openMove(ctx, name, p, ev)
	if err != nil {
		return nil, err
	}
	if err = link.Send(1, frame); err == nil {
		select {
		case err = <-ev.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		link.Close(false)
		return nil, err
	}
	return link, nil
}

// moveEvents waits for the one answer.
type moveEvents struct{ done chan error }

func (e *moveEvents) Accepted(holdfast.Accepted)      { e.tell(nil) }
func (e *moveEvents) Refused(_ uint64, err error)     { e.tell(err) }
func (e *moveEvents) Waits(waits bool, reason string) {}
func (e *moveEvents) Broken(err error)                { e.tell(err) }
func (e *moveEvents) tell(err error) {
	select {
	case e.done <- err:
	default:
	}
}
