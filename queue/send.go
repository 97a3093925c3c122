package queue

import (
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/message"
)

// SendBatch is a checked frame from a sender. The core keeps Frame and Info until it is stored or refused.
type SendBatch struct {
	Sender SenderID
	// ProducerSeq is the producer seq of the first message, consecutive from there. A sender without a producer counts its own
	// messages from 1, or says 0 for the next.
	ProducerSeq uint64
	// Floor is the producer's lowest seq that is not settled, 0 if it is not known: it tells a producer that gave up on messages from
	// one that left a gap. Without it, a producer whose entry was evicted goes on where its sender's first batch begins, so that one
	// has to begin at the lowest seq that is not settled.
	Floor uint64
	Frame []byte
	// Info is what message.Check told of Frame. Delays and times to live count from the moment of storing.
	Info message.Info
}

// SenderOptions describe a sender as it is opened.
type SenderOptions struct {
	Producer Producer // zero: no dedup
	// NoWait makes a full queue refuse its sends with ErrFull instead of letting them wait, whatever the policy.
	NoWait bool
}

// sender is an open sender.
type sender struct {
	id     SenderID
	o      SenderOptions
	batch  []waitingBatch // not stored or refused yet, in order
	last   uint64         // of a sender without a producer: how many messages of it are settled
	begins uint64         // where a producer that is not known begins
	waits  bool           // it has been told that it waits
	inLine bool
}

// waitingBatch is a batch of which the first done messages are answered.
type waitingBatch struct {
	SendBatch
	done int
	// barrier is a seq: until it is stored, the batch cannot be answered.
	barrier uint64
}

// unstoredSend is an Added event that is not stored yet: its last seq, and from which producer seq on it is.
type unstoredSend struct {
	seq      uint64
	producer Producer
	first    uint64
}

// line is the senders that have batches to be stored, in turn.
type line struct {
	s       []*sender
	turn    int
	barred  int  // how many of them wait behind a barrier
	blocked bool // the first one found no room
}

// maxAdmit bounds the bytes of frames that one command stores of those that wait, but for the first of them.
const maxAdmit = 256 << 10

// OpenSender opens a sender under a new id, one that was never used before. resume is the producer seq that the queue expects next,
// 0 if it does not know the producer (or there is none). Only what is stored counts for it.
// ErrOpen, or a FieldError for a producer of which only one part is there or one is too long.
func (c *Core) OpenSender(now int64, id SenderID, o SenderOptions) (resume uint64, err error) {
	if c.senders[id] != nil {
		return 0, fmt.Errorf("open sender: %w", ErrOpen)
	}
	if !o.Producer.IsZero() && !o.Producer.valid() {
		return 0, fmt.Errorf("open sender: %w", &message.FieldError{Field: "producer",
			Fault: fmt.Sprintf("has an id of %d and an incarnation of %d bytes", len(o.Producer.ID), len(o.Producer.Incarnation)),
			Limit: fmt.Sprintf("1 to %d bytes each", maxIDBytes)})
	}
	c.begin(now)
	c.senders[id] = &sender{id: id, o: o}
	if !o.Producer.IsZero() {
		c.producers.Pin(o.Producer.key())
		if last, known := c.producers.Next(o.Producer.key()); known {
			resume = min(last+1, c.firstUnstored(o.Producer))
		}
	}
	c.finish()
	return resume, nil
}

// firstUnstored returns the first producer seq that was decided upon and is not stored yet.
func (c *Core) firstUnstored(p Producer) uint64 {
	for _, u := range c.unstored {
		if u.producer == p {
			return u.first
		}
	}
	return maxSeq
}

// CloseSender closes a sender; what of it still waits for room is dropped without an answer. forget says that the producer will not come
// back and has nothing unanswered, so that its dedup entry is freed. An unknown id is no error.
func (c *Core) CloseSender(now int64, id SenderID, forget bool) {
	s := c.senders[id]
	if s == nil {
		return
	}
	c.begin(now)
	delete(c.senders, id)
	c.outOfLine(s)
	if p := s.o.Producer; !p.IsZero() {
		c.producers.Unpin(p.key())
		if _, known := c.producers.Next(p.key()); known && forget {
			c.emit(Event{Kind: KindProducerClosed, Producer: p})
		}
	}
	c.finish()
}

// Send stores a batch, or has it wait for room, or refuses it: one or more effects Accepted and Refused follow, now or later. The
// batches of one sender are stored in order. How many wait is for the shell to bound, by credit. The error, ErrUnknownSender or a
// FieldError for a batch that is none, changes nothing.
func (c *Core) Send(now int64, b SendBatch) error {
	s := c.senders[b.Sender]
	if s == nil {
		return fmt.Errorf("send: %w", ErrUnknownSender)
	}
	if b.Info.Count < 1 || b.Info.Count > maxAdded || b.Info.Sizes != nil && len(b.Info.Sizes) != b.Info.Count {
		return fmt.Errorf("send: %w", &message.FieldError{Field: "frame", Fault: fmt.Sprintf("has %d messages", b.Info.Count), Limit: fmt.Sprintf("1 to %d", maxAdded)})
	}
	if b.ProducerSeq > window.MaxSeq-uint64(b.Info.Count) || b.Floor > window.MaxSeq || b.ProducerSeq == 0 && !s.o.Producer.IsZero() {
		return fmt.Errorf("send: %w", &message.FieldError{Field: "producer seq", Fault: fmt.Sprintf("is %d, of floor %d", b.ProducerSeq, b.Floor), Limit: "1 to 2^53-1"})
	}
	c.begin(now)
	s.batch = append(s.batch, waitingBatch{SendBatch: b})
	if !s.inLine {
		s.inLine = true
		c.line.s = append(c.line.s, s)
	}
	if c.refuses(s) {
		// It does not stand behind those that wait.
		for c.step(s) == stepDone {
			continue
		}
	}
	c.finish()
	if c.line.blocked && len(s.batch) > 0 && s.batch[0].barrier == 0 {
		c.waits(s, true)
	}
	return nil
}

// refuses tells whether a sender is refused where others wait.
func (c *Core) refuses(s *sender) bool { return s.o.NoWait || c.cfg.Overflow == OverflowReject }

// Refuses tells whether a sender is refused where others wait for room. An unknown one is.
func (c *Core) Refuses(id SenderID) bool {
	s := c.senders[id]
	return s == nil || c.refuses(s)
}

// waits tells a sender that it waits, or no longer does.
func (c *Core) waits(s *sender, waits bool) {
	if s.waits == waits {
		return
	}
	s.waits = waits
	reason := ""
	switch {
	case waits && c.full:
		reason = WaitsStorageFull
	case waits:
		reason = WaitsFull
	}
	c.effect(SenderWaits{Sender: s.id, Waits: waits, Reason: reason})
}

// outOfLine takes a sender out of the line.
func (c *Core) outOfLine(s *sender) {
	if i := slices.Index(c.line.s, s); i >= 0 {
		c.line.s = slices.Delete(c.line.s, i, i+1)
		if i < c.line.turn {
			c.line.turn--
		}
	}
	if len(s.batch) > 0 && s.batch[0].barrier > 0 {
		c.line.barred--
	}
	s.inLine, s.batch = false, nil
}

// StorageFull says that the store has no room for bodies (true), or has again. Meanwhile senders wait, or are refused with
// ErrStorageFull where they do not wish to wait or the policy is reject.
func (c *Core) StorageFull(now int64, full bool) {
	c.begin(now)
	c.full = full
	if full {
		c.space.giveUp()
	}
	c.finish()
}

// admit stores the batches of the senders in turn, as far as there is room (design §1, G4). Senders wait in order: one whose batch
// does not fit holds up the others, lest it starve.
func (c *Core) admit() {
	if c.replaying {
		return
	}
	before := c.admitted()
	c.line.blocked = false
	for barred := 0; barred < len(c.line.s); {
		c.line.turn %= len(c.line.s)
		s := c.line.s[c.line.turn]
		switch c.step(s) {
		case stepDone:
			barred = 0
		case stepBarred:
			barred++
		case stepFull:
			c.line.blocked = true
			c.waits(s, true)
			return
		}
		if len(s.batch) == 0 {
			c.outOfLine(s)
			c.waits(s, false)
		} else {
			c.line.turn++
		}
		if c.admitted()-before > maxAdmit && len(c.line.s) > 0 {
			c.again = true
			return
		}
	}
}

// admitted returns the bytes of frames that were stored since Take.
func (c *Core) admitted() (n int) {
	for i := range c.out.Events {
		if e := &c.out.Events[i]; e.Kind == KindAdded {
			n += len(e.Frames[0])
		}
	}
	return n
}

// step is what became of the first batch of a sender.
type step uint8

const (
	stepNone   step = iota // there is none
	stepDone               // it is answered, or a part of it is
	stepBarred             // it must wait until something is stored
	stepFull               // it must wait for room
)

// step looks at the first batch of a sender.
func (c *Core) step(s *sender) step {
	if len(s.batch) == 0 {
		return stepNone
	}
	b := &s.batch[0]
	if b.barrier > 0 {
		if b.barrier > c.stored {
			return stepBarred
		}
		b.barrier = 0
		c.line.barred--
	}
	skip, resume, err := c.check(s, b)
	switch {
	case err != nil:
		c.refuse(s, resume, err)
		return stepDone
	case skip == b.Info.Count:
		if last := b.ProducerSeq + uint64(b.Info.Count) - 1; last >= c.firstUnstored(s.o.Producer) {
			// Stored before, but not for sure: it may be undone yet.
			return c.bar(b)
		}
		c.answer(s, b, skip, Accepted{UpTo: resume - 1, Duplicates: uint64(skip - b.done)})
		return stepDone
	}
	return c.store(s, b, skip)
}

// bar has a batch wait until everything that is decided is stored.
func (c *Core) bar(b *waitingBatch) step {
	b.barrier = c.next - 1
	c.line.barred++
	return stepBarred
}

// check finds which messages of a batch are new: those behind the first skip. resume is the seq that is expected next.
func (c *Core) check(s *sender, b *waitingBatch) (skip int, resume uint64, err error) {
	if s.o.Producer.IsZero() {
		next := s.last + 1
		switch {
		case b.ProducerSeq == 0:
			b.ProducerSeq = next
		case b.ProducerSeq > next:
			return 0, next, &GapError{Want: next, Got: b.ProducerSeq}
		}
		return int(min(next-b.ProducerSeq, uint64(b.Info.Count))), next, nil
	}
	floor := b.Floor
	if _, known := c.producers.Next(s.o.Producer.key()); !known {
		// It goes on where this sender began: what overtakes a batch that was refused leaves a gap.
		if s.begins == 0 {
			s.begins = b.ProducerSeq
		}
		floor = max(floor, s.begins)
	}
	verdict, skip, resume := c.producers.Check(s.o.Producer.key(), floor, b.ProducerSeq, b.Info.Count)
	switch verdict {
	case window.VerdictStore, window.VerdictDuplicate:
		return skip, resume, nil
	case window.VerdictGap:
		return 0, resume, &GapError{Want: resume, Got: b.ProducerSeq}
	default:
		return 0, resume, &message.FieldError{Field: "producer seq", Fault: fmt.Sprintf("is %d", b.ProducerSeq), Limit: "1 to 2^53-1"}
	}
}

// answer tells a sender that its first batch is settled up to message done, and drops it if that is all of it.
func (c *Core) answer(s *sender, b *waitingBatch, done int, a Accepted) {
	a.Sender = s.id
	c.counts.duplicates += a.Duplicates
	c.effect(a)
	if b.done = done; done == b.Info.Count {
		c.dropBatch(s)
	}
}

func (c *Core) refuse(s *sender, resume uint64, err error) {
	c.effect(Refused{Sender: s.id, Resume: resume, Err: err})
	c.dropBatch(s)
}

func (c *Core) dropBatch(s *sender) {
	// Most of the time it is the only one, and its place is used again.
	last := len(s.batch) - 1
	copy(s.batch, s.batch[1:])
	s.batch[last] = waitingBatch{}
	s.batch = s.batch[:last]
}
