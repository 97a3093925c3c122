package durable

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

// command is what the actor is told: to store messages, or to note confirmations.
type command struct {
	first  uint64
	bodies [][]byte
	reply  persistent.Reply[struct{}] // of messages

	settled []delivery.SeqRange
}

// behavior is the actor's state: who the producer is, its next number, and its unconfirmed messages.
//
// Bodies are in the events' metas. They are few (a window's) and short-lived, and so a recovery reads them on the way
// instead of looking for each.
type behavior struct {
	persistent.Base[command, event]
	newborn event // who it is, if the stream is new
	group   int   // bytes of bodies in one event, unless it has only one
	resumed delivery.ProducerState

	id, incarnation string
	next            uint64
	pending         map[uint64][]byte
}

// Command stores or notes.
func (b *behavior) Command(a *persistent.Context[event], cmd command) {
	if cmd.reply == nil {
		if err := a.PersistAsync(event{kind: kindSettled, settled: cmd.settled}); err != nil {
			panic(err) // numbers always encode, and fit
		}
		return
	}
	if err := b.store(a, cmd); err != nil {
		cmd.reply(struct{}{}, err)
		return
	}
	a.After(func(err error) { cmd.reply(struct{}{}, err) })
}

// store persists messages, those that are not yet, in events that fit into records.
func (b *behavior) store(a *persistent.Context[event], cmd command) error {
	if cmd.first > b.next {
		return fmt.Errorf("message %d after %d", cmd.first, b.next-1)
	}
	for skip := b.next - cmd.first; skip < uint64(len(cmd.bodies)); skip = b.next - cmd.first {
		n, size := 0, 0
		rest := cmd.bodies[skip:]
		for n < len(rest) && (n == 0 || size+len(rest[n])+maxVarint <= b.group) {
			size += len(rest[n]) + maxVarint
			n++
		}
		if err := a.PersistAsync(event{kind: kindSent, first: b.next, bodies: rest[:n]}); err != nil {
			return err
		}
	}
	return nil
}

// Apply changes the state.
func (b *behavior) Apply(_ uint64, _ int64, e event) {
	switch e.kind {
	case kindBorn:
		b.id, b.incarnation, b.next = e.id, e.incarnation, 1
	case kindSent:
		for i, body := range e.bodies {
			b.pending[e.first+uint64(i)] = body
		}
		b.next = e.first + uint64(len(e.bodies))
	case kindSettled:
		for _, r := range e.settled {
			if r.Last-r.First >= uint64(len(b.pending)) {
				maps.DeleteFunc(b.pending, func(seq uint64, _ []byte) bool { return r.First <= seq && seq <= r.Last })
				continue
			}
			for seq := r.First; seq <= r.Last; seq++ {
				delete(b.pending, seq)
			}
		}
	}
}

// Recovered gives a new stream its producer, and notes what is resumed.
func (b *behavior) Recovered(a *persistent.Context[event]) {
	if b.id == "" {
		if err := a.PersistAsync(b.newborn); err != nil {
			panic(err)
		}
	}
	b.resumed = delivery.ProducerState{ProducerID: b.id, Incarnation: b.incarnation, Next: b.next}
	for _, seq := range slices.Sorted(maps.Keys(b.pending)) {
		b.resumed.Unconfirmed = append(b.resumed.Unconfirmed, delivery.StoredMessage{Seq: seq, Body: b.pending[seq]})
	}
}

// Capture returns the state in chunks. Bodies never change, so they need not be copied.
func (b *behavior) Capture() iter.Seq[[]byte] {
	head := snapshot{id: b.id, incarnation: b.incarnation, next: b.next}
	for _, seq := range slices.Sorted(maps.Keys(b.pending)) {
		head.pending = append(head.pending, delivery.StoredMessage{Seq: seq, Body: b.pending[seq]})
	}
	return head.chunks
}

// Restore replaces the state.
func (b *behavior) Restore(_ journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	b.id, b.incarnation, b.next, b.pending = "", "", 1, make(map[uint64][]byte)
	if chunks == nil {
		return nil
	}
	var buf bytes.Buffer
	for c, err := range chunks {
		if err != nil {
			return err
		}
		buf.Write(c)
	}
	s, err := parseSnapshot(buf.Bytes())
	if err != nil {
		return fmt.Errorf("snapshot of a durable producer: %w", err)
	}
	b.id, b.incarnation, b.next = s.id, s.incarnation, s.next
	for _, m := range s.pending {
		b.pending[m.Seq] = m.Body
	}
	return nil
}
