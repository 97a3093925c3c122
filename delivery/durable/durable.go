// Package durable keeps the unconfirmed messages of a producer in a journal, so that the crash of the sender costs
// neither a message nor a second handling.
//
//	j, err := durable.Open(ctx, journal, "payments-sender", durable.Options{ProducerID: "payments"})
//	p, err := delivery.NewProducerController(delivery.ProducerOptions[Payment]{Remote: link, Journal: j})
//
// One stream of the journal holds one producer, as a persistent actor. Opened again, it has the same producer id
// and incarnation and goes on with the next number; what was not confirmed is sent again under its numbers,
// which the consumer knows. Opening a stream that is open elsewhere fences the other: its producer ends with
// delivery.ErrFenced.
//
// Messages are stored in batches of what has come up while the batch before was being stored, one append each. A
// confirmation is stored with the next batch, or soon.
package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// Options configures a durable producer. The zero value means the defaults.
type Options struct {
	// ProducerID names the producer, when its stream is opened for the first time; afterwards it must be
	// the same or empty. At most delivery.MaxIDBytes bytes. Default: a random one.
	ProducerID string
	// Actor configures the actor that owns the stream.
	Actor persistent.Options
}

// Producer is the journal of one durable producer: a delivery.ProducerJournal.
type Producer struct {
	actor *persistent.Actor[command, event]
	state delivery.ProducerState
	limit int
}

var _ delivery.ProducerJournal = (*Producer)(nil)

const (
	// maxBody is the largest body that is taken, however large the journal's records can be.
	maxBody = 64 << 20

	// recordOverhead is what a record has beside one body, at most.
	recordOverhead = 1024
)

// Open acquires the stream, which fences whoever has it, and reads what is unconfirmed. The errors are those of
// persistent.Open, and delivery.ErrInvalidOption for a ProducerID that is too long or not the stream's.
func Open(ctx context.Context, j journal.Journal, stream string, o Options) (*Producer, error) {
	if len(o.ProducerID) > delivery.MaxIDBytes {
		return nil, fmt.Errorf("open durable producer %q: %w: ProducerID has %d bytes, the limit is %d",
			stream, delivery.ErrInvalidOption, len(o.ProducerID), delivery.MaxIDBytes)
	}
	id := o.ProducerID
	if id == "" {
		id = rand.Text()
	}
	limit := min(maxBody, j.Limits().MaxRecordBytes-recordOverhead)
	b := &behavior{newborn: event{kind: kindBorn, id: id, incarnation: rand.Text()}, group: limit}
	actor, err := persistent.Open(ctx, j, stream, b, codec{}, o.Actor)
	if err != nil {
		return nil, fmt.Errorf("open durable producer %q: %w", stream, err)
	}
	p := &Producer{actor: actor, state: b.resumed, limit: limit}
	if o.ProducerID != "" && o.ProducerID != p.state.ProducerID {
		actor.Kill()
		<-actor.Done()
		return nil, fmt.Errorf("open durable producer %q: %w: ProducerID is %q, the stream is that of %q",
			stream, delivery.ErrInvalidOption, o.ProducerID, p.state.ProducerID)
	}
	return p, nil
}

// State returns what was stored when the stream was opened.
func (p *Producer) State() delivery.ProducerState { return p.state }

// MaxBodyBytes returns how large a body can be: 64 MiB, or what fits into a record of the journal.
func (p *Producer) MaxBodyBytes() int { return p.limit }

// Append stores messages. It waits for storage until ctx ends, also while the store is full.
func (p *Producer) Append(ctx context.Context, first uint64, bodies [][]byte) error {
	bodies = append([][]byte(nil), bodies...)
	_, err := persistent.Ask(ctx, p.actor, func(reply persistent.Reply[struct{}]) command {
		return command{first: first, bodies: bodies, reply: reply}
	})
	if err != nil {
		return p.mapped(fmt.Errorf("store %d messages from %d: %w", len(bodies), first, err))
	}
	return nil
}

// Settled notes confirmations, to be stored with what comes next, or soon.
func (p *Producer) Settled(settled []delivery.SeqRange) error {
	if err := p.actor.Push(command{settled: append([]delivery.SeqRange(nil), settled...)}); err != nil {
		return p.mapped(fmt.Errorf("note confirmations: %w", err))
	}
	return nil
}

// Done is closed when the actor has ended.
func (p *Producer) Done() <-chan struct{} { return p.actor.Done() }

// Err returns why.
func (p *Producer) Err() error { return p.mapped(p.actor.Err()) }

// Close stores what was noted and gives up the stream.
func (p *Producer) Close(ctx context.Context) error {
	if err := p.actor.Stop(ctx); err != nil {
		return p.mapped(err)
	}
	return nil
}

// mapped makes an error match what package delivery says of it.
func (p *Producer) mapped(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, journal.ErrFenced):
		return &cause{delivery.ErrFenced, err}
	case errors.Is(err, persistent.ErrStopped):
		return &cause{delivery.ErrStopped, err}
	}
	return err
}

// cause is an error that matches another one too.
type cause struct{ as, err error }

func (c *cause) Error() string   { return c.err.Error() }
func (c *cause) Unwrap() []error { return []error{c.as, c.err} }
