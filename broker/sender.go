package broker

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

const (
	// windowMessages is how many messages a sender may have unanswered.
	windowMessages = 1 << 16
	// firstWindow is the window that a sender begins with, in bytes of frames, and windowBytes how far it grows. For a frame that goes
	// beyond it, alone, the sender takes a loan from what the broker has for all.
	firstWindow = 32 << 10
	windowBytes = 8 << 20
	// maxSeq is the largest producer seq.
	maxSeq = 1<<53 - 1
)

// sender is the broker's end of a sender's stream.
type sender struct {
	o      *owner
	id     queue.SenderID
	ev     holdfast.SenderEvents
	closed atomic.Bool // by either side; no event after it
	limits message.Limits

	// What the sender has used of its credit. Send is called by one goroutine at a time.
	usedBytes uint64
	// What it was given, written by the actor.
	creditMessages, creditBytes atomic.Uint64
	// loan is what the one frame beyond the credit takes from the budget, and loanEnd the bytes used with it: once they are
	// answered, it is paid back.
	loan, loanEnd atomic.Uint64

	// Belongs to the actor.
	producer queue.Producer // zero for a sender without one
	window   uint64         // bytes
	answered uint64         // bytes of frames that are stored
	waiting  []sentFrame
	sentAll  uint64
	rewind   uint64 // producer seq at which a sender that was refused goes on; 0: none is expected
}

// sentFrame is an unanswered frame: its last producer seq, and how many bytes of frames were sent up to it.
type sentFrame struct{ last, bytes uint64 }

// OpenSender implements holdfast.Link.
func (b *Broker) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	var opened holdfast.SenderOpened
	if err := validProducer(c.Producer); err != nil {
		return nil, opened, fmt.Errorf("open sender to queue %q: %w", name, err)
	}
	o, err := b.owner(ctx, name, !b.o.NoAutoCreate)
	if err != nil {
		return nil, opened, fmt.Errorf("open sender: %w", err)
	}
	s := &sender{o: o, ev: ev, window: firstWindow, limits: b.o.Limits}
	if c.Internal {
		s.limits.Internal = true
		// The origin and the moves come on top of what the sender was allowed.
		s.limits.MaxFrameBytes += frameOverhead
	}
	if b.granted.Add(int64(s.window)) > b.o.SendBudget {
		b.granted.Add(-int64(s.window))
		return nil, opened, fmt.Errorf("open sender to queue %q: %w: the senders that are open hold all of the %d bytes that the broker has for unanswered messages, at least %d each: "+
			"close those that are not used any more, or raise the broker's send budget", name, holdfast.ErrUnavailable, b.o.SendBudget, firstWindow)
	}
	type result struct {
		resume uint64
		err    error
	}
	done := make(chan result, 1)
	cmd := &cmdFunc{
		do: func(o *owner, a *turn) {
			// A producer has one stream: what an earlier one still brings is not stored, since resume tells of what is.
			if old := o.producers[c.Producer]; old != nil {
				o.dropSender(a, old, fmt.Errorf("sender to queue %q: %w: its producer was opened again", o.name, holdfast.ErrClosed))
			}
			s.id = queue.SenderID(o.id())
			o.senders[s.id] = s
			if s.producer = c.Producer; s.producer.ID != "" {
				o.producers[s.producer] = s
			}
			resume, err := o.core.OpenSender(a.Now(), s.id, queue.SenderOptions{Producer: c.Producer, NoWait: c.NoWait})
			if err != nil {
				o.removeSender(s)
				done <- result{err: err}
				return
			}
			s.creditMessages.Store(maxSeq)
			if resume > 0 { // else the producer may begin anywhere, and its bytes bound it
				s.creditMessages.Store(resume - 1 + windowMessages)
			}
			s.creditBytes.Store(s.window)
			// Only what is stored may be told to be.
			a.After(func(err error) { done <- result{resume, err} })
		},
		lost: func(err error) { done <- result{err: err} },
	}
	if err := o.tell(ctx, cmd); err != nil {
		b.granted.Add(-int64(s.window))
		return nil, opened, fmt.Errorf("open sender: %w", err)
	}
	select {
	case r := <-done:
		if r.err != nil {
			s.close(false)
			return nil, opened, fmt.Errorf("open sender: %w", o.unavailable(r.err))
		}
		opened = holdfast.SenderOpened{
			StreamUID: o.info.UID, Epoch: o.info.Epoch, Resume: r.resume,
			Credit:  holdfast.SendCredit{Messages: s.creditMessages.Load(), Bytes: s.creditBytes.Load()},
			MaxBody: s.limits.MaxBody, MaxFrameBytes: s.limits.MaxFrameBytes, Buffered: o.buffered.Load(),
		}
		return s, opened, nil
	case <-ctx.Done():
		s.close(false)
		return nil, opened, fmt.Errorf("open sender to queue %q: %w", name, context.Cause(ctx))
	}
}

func validProducer(p queue.Producer) error {
	if (p.ID == "") != (p.Incarnation == "") {
		return &message.FieldError{Field: "producer", Fault: "has only one of id and incarnation"}
	}
	for _, f := range []struct{ field, v string }{{"producer id", p.ID}, {"incarnation", p.Incarnation}} {
		if len(f.v) > 256 {
			return &message.FieldError{Field: f.field, Fault: fmt.Sprintf("has %d bytes", len(f.v)), Limit: "256 bytes"}
		}
	}
	return nil
}

// Send implements holdfast.SenderLink.
func (s *sender) Send(first uint64, frame []byte) error {
	if s.closed.Load() {
		return fmt.Errorf("send to queue %q: %w", s.o.name, holdfast.ErrClosed)
	}
	info, err := message.Check(frame, s.limits)
	if err == nil {
		err = s.charge(first, info.Count, len(frame))
	}
	if err != nil {
		err = fmt.Errorf("send to queue %q: %w", s.o.name, err)
		s.abort(err)
		return err
	}
	if s.closed.Load() {
		s.payBack() // whoever closed it may not have seen the loan yet
	}
	s.o.push(&cmdSend{s: s, first: first, frame: frame, info: info})
	return nil
}

// charge takes a frame from the credit.
func (s *sender) charge(first uint64, count, size int) error {
	if first == 0 || first > maxSeq {
		return &message.FieldError{Field: "producer seq", Fault: fmt.Sprintf("is %d", first), Limit: "1 to 2^53-1"}
	}
	if last := first + uint64(count) - 1; last > s.creditMessages.Load() {
		return &message.FieldError{Field: "credit", Fault: fmt.Sprintf("is exceeded by producer seq %d", last),
			Limit: fmt.Sprintf("producer seq %d", s.creditMessages.Load())}
	}
	if used, credit := s.usedBytes+uint64(size), s.creditBytes.Load(); used > credit {
		if s.loan.Load() > 0 {
			return &message.FieldError{Field: "credit", Fault: fmt.Sprintf("in bytes is exceeded by %d", used-credit), Limit: fmt.Sprintf("%d bytes", credit)}
		}
		if !s.borrow(used-credit, used) {
			return fmt.Errorf("%w: senders hold all of the %d bytes that the broker has for large unanswered messages", holdfast.ErrUnavailable, s.o.b.forMore())
		}
	}
	s.usedBytes += uint64(size)
	return nil
}

// forMore is the part of the budget from which windows grow and loans are taken. The rest is for first windows, so that senders whose
// queue is full, whatever they have sent, do not keep others from theirs.
func (b *Broker) forMore() int64 { return b.o.SendBudget - b.o.SendBudget/4 }

// borrow takes a loan for a frame that goes beyond the credit by n bytes, and with which the sender has used so many in all. Of the senders
// for which the budget has nothing left one may have a loan all the same, so that a large message goes in the end however
// many idle senders there are.
func (s *sender) borrow(n, used uint64) bool {
	b := s.o.b
	if !s.o.takeMore(int64(n)) {
		if !b.overdraft.CompareAndSwap(nil, s) {
			return false
		}
		b.granted.Add(int64(n))
		s.o.more.Add(int64(n))
	}
	s.loanEnd.Store(used)
	s.loan.Store(n)
	return true
}

// takeMore takes bytes for windows or loans of the queue's senders. They never have more than is left after that for those of other queues, so
// that the senders of a queue which is full, however many, leave the others something to be fast with.
func (o *owner) takeMore(n int64) bool {
	left := o.b.forMore() - o.b.granted.Add(n)
	if o.more.Add(n) <= left {
		return true
	}
	o.giveMore(n)
	return false
}

func (o *owner) giveMore(n int64) {
	o.more.Add(-n)
	o.b.granted.Add(-n)
}

func (s *sender) payBack() {
	if n := s.loan.Swap(0); n > 0 {
		s.o.giveMore(int64(n))
		s.o.b.overdraft.CompareAndSwap(s, nil)
	}
}

// settleLoan pays a loan back whose frame is answered, before the sender is told and may take another. Called by the actor.
func (s *sender) settleLoan() {
	if s.answered >= s.loanEnd.Load() {
		s.payBack()
	}
}

// sent notes a frame as unanswered. It returns false for one that was on its way when the sender was refused: the sender
// sends it again when it has learnt of that. Called by the actor.
func (s *sender) sent(c *cmdSend) bool {
	s.sentAll += uint64(len(c.frame))
	if s.rewind != 0 && c.first != s.rewind {
		s.answered += uint64(len(c.frame))
		s.settleLoan()
		return false
	}
	s.rewind = 0
	s.waiting = append(s.waiting, sentFrame{c.first + uint64(c.info.Count) - 1, s.sentAll})
	return true
}

// accepted tells the sender what is stored, with new credit. Called by the actor.
func (s *sender) accepted(e queue.Accepted) {
	if s.closed.Load() {
		return
	}
	s.settleUpTo(e.UpTo)
	s.ev.Accepted(holdfast.Accepted{UpTo: e.UpTo, First: e.First, Count: e.Count, Duplicates: e.Duplicates, Suppressed: e.Suppressed, Credit: s.grant(e.UpTo)})
}

// refused tells the sender from where on nothing is stored. Called by the actor.
func (s *sender) refused(e queue.Refused) {
	if s.closed.Load() || (s.rewind != 0 && e.Resume >= s.rewind) {
		return // it knows
	}
	s.rewind = e.Resume
	// Everything that is under way behind the refused message is refused with it.
	s.waiting = s.waiting[:0]
	s.answered = s.sentAll
	s.grant(e.Resume - min(e.Resume, 1))
	s.ev.Refused(e.Resume, e.Err)
}

func (s *sender) settleUpTo(seq uint64) {
	inUse := s.sentAll - s.answered // before: frames so large that one of them fills the window leave nothing behind
	n := 0
	for n < len(s.waiting) && s.waiting[n].last <= seq {
		s.answered = s.waiting[n].bytes
		n++
	}
	// A sender that uses most of its window gets a larger one, as long as there is something to give.
	if n > 0 && inUse*2 > s.window && s.window < windowBytes {
		more := min(s.window, windowBytes-s.window)
		if s.o.takeMore(int64(more)) {
			s.window += more
		}
	}
	s.waiting = s.waiting[:copy(s.waiting, s.waiting[n:])]
}

func (s *sender) grant(seq uint64) holdfast.SendCredit {
	c := holdfast.SendCredit{
		Messages: max(s.creditMessages.Load(), seq+windowMessages),
		Bytes:    max(s.creditBytes.Load(), s.answered+s.window),
	}
	s.creditMessages.Store(c.Messages)
	s.creditBytes.Store(c.Bytes)
	s.settleLoan()
	return c
}

// Close implements holdfast.SenderLink.
func (s *sender) Close(clean bool) { s.close(clean) }

func (s *sender) close(clean bool) {
	if s.closed.Swap(true) {
		return
	}
	s.o.push(&cmdFunc{
		do: func(o *owner, a *turn) {
			s.giveBack()
			if o.senders[s.id] == s {
				o.removeSender(s)
				o.core.CloseSender(a.Now(), s.id, clean)
			}
		},
		lost: func(error) { s.giveBack() },
	})
}

// abort ends the stream of a sender that broke the rules.
func (s *sender) abort(err error) {
	if s.closed.Load() {
		return
	}
	s.close(false)
	s.ev.Broken(err)
}

// broken ends the stream from the broker's side.
func (s *sender) broken(err error) {
	if !s.closed.Swap(true) {
		s.giveBack()
		s.ev.Broken(err)
	}
}

func (s *sender) giveBack() {
	s.payBack()
	s.o.giveMore(int64(s.window - firstWindow))
	s.o.b.granted.Add(-firstWindow)
}
