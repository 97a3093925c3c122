package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/delivery/producer"
)

// transmitBatch is how many messages one turn of the pump transmits at most. It bounds the scratch space, and how
// long the lock is held.
const transmitBatch = 1024

// sender is the shell around producer.Core, for bodies of type B. Its lock guards everything down to the pump's own;
// one goroutine, the pump, does all that can take time: it calls the link, the hooks and the confirmations.
type sender[B any] struct {
	id, incarnation string
	link            Link[B]
	cut             cutter[B]
	opts            senderOptions
	log             *slog.Logger
	born            time.Time

	mu       sync.Mutex
	core     *producer.Core
	slots    slots[B]
	bytes    int // of unacknowledged bodies
	queue    waiters[B]
	buffered int // of queue: those of Offer,
	bufBytes int // and their bytes
	blocked  int // of queue: callers that wait
	spare    []*waiter[B]
	settled  []producer.Range
	calls    []call // confirmations for the pump to make
	awake    bool   // the pump runs, or is about to
	stopping bool   // no more sends
	cause    error  // why it stopped; nil while it runs
	idle     chan struct{}
	counts   ProducerStats
	store    *storer[B] // nil unless durable

	wake    chan struct{}
	stopped chan struct{} // closed once the pump has ended
	limits  struct{ resend, full, link, strangers throttle }
	// The pump's own.
	loggedFull uint64
	clean      bool // everything was confirmed when it was stopped; set before the pump sees the stop
}

// cutter fits bodies into frames.
type cutter[B any] struct {
	limit int // bytes of bodies an envelope has at most; 0: no limit
	size  func(B) int
	split func(B, int) []B
}

type senderOptions struct {
	window, windowBytes, buffer int
	onRetransmit                func(first, last uint64, attempt int)
}

// call is a confirmation function to be called with its outcome.
type call struct {
	fn  func(error)
	err error
}

// message is one message on its way: its body, and who is told of its end.
type message[B any] struct {
	body B
	size int // bytes of the encoded body; 0 if it is not encoded
	conf *Confirmation
	fn   func(error)
}

func (s *sender[B]) now() int64 { return int64(time.Since(s.born)) }

// start begins the pump.
func (s *sender[B]) start() {
	s.wake = make(chan struct{}, 1)
	s.stopped = make(chan struct{})
	s.awake = true
	s.wake <- struct{}{}
	go s.pump()
	if s.store != nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.store.cancel = cancel
		go s.store.run(ctx, s)
	}
}

// room reports whether a message may be numbered now.
func (s *sender[B]) room(m *message[B]) bool {
	return s.core.Room() > 0 && (s.core.Unsettled() == 0 || m.size <= s.opts.windowBytes-s.bytes)
}

// admit numbers a message; there is room. raw is its encoded body, for the journal of a durable producer.
func (s *sender[B]) admit(m message[B], raw []byte) {
	seq := s.core.Number(1)
	s.bytes += m.size
	s.slots.put(seq, s.core.Floor(), m)
	s.counts.Sent++
	if s.store != nil {
		s.store.add(seq, raw)
		return
	}
	s.rouse()
}

// rouse makes the pump run.
func (s *sender[B]) rouse() {
	if !s.awake {
		s.awake = true
		s.wake <- struct{}{} // of capacity 1, and empty while the pump sleeps
	}
}

// post accepts a message, waiting for room in the window until ctx ends.
func (s *sender[B]) post(ctx context.Context, m message[B], raw []byte) error {
	if err := ctx.Err(); err != nil {
		return &outcome{ErrNotSent, context.Cause(ctx)}
	}
	s.mu.Lock()
	if s.stopping {
		defer s.mu.Unlock()
		return s.refusal()
	}
	if s.queue.len == 0 && s.room(&m) {
		s.admit(m, raw)
		s.mu.Unlock()
		return nil
	}
	w := s.newWaiter()
	w.m, w.raw = m, raw
	s.queue.push(w)
	s.blocked++
	s.counts.WindowFull++
	s.mu.Unlock()

	select {
	case err := <-w.admitted:
		s.recycle(w)
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if w.queued {
		s.queue.remove(w)
		s.blocked--
		s.wakeDrain()
		s.mu.Unlock()
		s.recycle(w)
		return &outcome{ErrNotSent, context.Cause(ctx)}
	}
	s.mu.Unlock()
	err := <-w.admitted // it was numbered, or refused, in that very moment
	s.recycle(w)
	return err
}

// newWaiter returns the waiter of a caller that is going to block. They are used again within one sender: channels
// must not leave the bubble of a testing/synctest, so a pool for all would not do.
func (s *sender[B]) newWaiter() *waiter[B] {
	if n := len(s.spare); n > 0 {
		w := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return w
	}
	return &waiter[B]{admitted: make(chan error, 1)}
}

// maxSpareWaiters bounds the waiters that are kept for their next use.
const maxSpareWaiters = 64

// recycle keeps a waiter, whose channel is empty, for its next use.
func (s *sender[B]) recycle(w *waiter[B]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.m, w.raw = (message[B]{}), nil; len(s.spare) < maxSpareWaiters {
		s.spare = append(s.spare, w)
	}
}

// offer accepts a message if there is room in the window or the buffer.
func (s *sender[B]) offer(m message[B], raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return s.refusal()
	case s.queue.len == 0 && s.room(&m):
		s.admit(m, raw)
		return nil
	case s.buffered >= s.opts.buffer,
		s.buffered > 0 && m.size > s.opts.windowBytes-s.bufBytes:
		s.counts.WindowFull++
		return fmt.Errorf("%w: %w (%d messages, %d bytes)", ErrNotSent, ErrBufferFull, s.buffered, s.bufBytes)
	}
	s.queue.push(&waiter[B]{m: m, raw: raw})
	s.buffered++
	s.bufBytes += m.size
	s.counts.WindowFull++
	return nil
}

func (s *sender[B]) refusal() error {
	why := s.cause
	if why == nil {
		why = ErrStopped
	}
	return &outcome{ErrNotSent, why}
}

// advance numbers what waits, as far as there is room.
func (s *sender[B]) advance() {
	for s.queue.len > 0 && s.room(&s.queue.head.m) {
		w := s.queue.head
		s.queue.remove(w)
		s.admit(w.m, w.raw)
		s.leave(w, nil)
	}
}

// leave takes a waiter that is out of the queue off the books, telling it what came of it. A buffered message that
// is refused is settled here; an admitted one, when it is acknowledged.
func (s *sender[B]) leave(w *waiter[B], err error) {
	if w.admitted != nil {
		s.blocked--
		w.admitted <- err
		return
	}
	s.buffered--
	s.bufBytes -= w.m.size
	if err != nil {
		s.confirm(&w.m, err)
	}
}

// confirm settles a message's confirmation: a handle at once, a function by the pump.
func (s *sender[B]) confirm(m *message[B], err error) {
	if m.conf != nil {
		m.conf.settle(err)
	}
	if m.fn != nil {
		s.calls = append(s.calls, call{m.fn, err})
	}
}

// Acknowledge takes acknowledgements. It is the sender's ReplyTo.
func (s *sender[B]) Acknowledge(acks []Acknowledgment) error {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return ErrStopped
	}
	strange := 0
	for i := range acks {
		if a := &acks[i]; a.Incarnation != s.incarnation || a.ProducerID != s.id {
			strange++
		} else {
			s.settle(a.First, a.Last)
		}
	}
	s.counts.StrangeAcks += uint64(strange)
	s.advance()
	s.wakeDrain()
	if len(s.calls) > 0 {
		s.rouse()
	}
	s.mu.Unlock()
	if n, ok := s.limits.strangers.add(strange); ok {
		s.log.Warn("acknowledgements of another producer or incarnation ignored", "producer_id", s.id, "count", n)
	}
	return nil
}

// settle takes the acknowledgement of a range.
func (s *sender[B]) settle(first, last uint64) {
	s.settled = s.core.Ack(s.settled[:0], first, last)
	for _, r := range s.settled {
		for seq := r.First; seq <= r.Last; seq++ {
			m := s.slots.at(seq)
			s.bytes -= m.size
			s.confirm(m, nil)
			*m = message[B]{}
		}
		s.counts.Confirmed += uint64(r.Len())
		if s.store != nil {
			s.store.note(SeqRange(r))
		}
	}
}

// wakeDrain tells those that wait for everything to be confirmed.
func (s *sender[B]) wakeDrain() {
	if s.idle != nil && s.core.Unsettled() == 0 && s.queue.len == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// stop ends the sender for the reason cause: nothing is transmitted any more, and all that is not confirmed is
// settled with it.
func (s *sender[B]) stop(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return
	}
	s.stopping, s.cause = true, cause
	s.clean = s.core.Unsettled() == 0 && s.queue.len == 0
	for seq := s.core.Floor(); seq < s.core.Next(); seq++ {
		if s.core.Settled(seq) {
			continue
		}
		what := ErrUnconfirmed
		if seq >= s.core.Reached() && s.store == nil {
			what = ErrNotSent
		}
		m := s.slots.at(seq)
		s.confirm(m, &outcome{what, cause})
		*m = message[B]{}
	}
	for s.queue.len > 0 {
		w := s.queue.head
		s.queue.remove(w)
		s.leave(w, &outcome{ErrNotSent, cause})
	}
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.rouse()
	if s.store != nil {
		s.store.end()
	}
}

// drain refuses new messages and waits until the accepted ones are confirmed, or ctx ends.
func (s *sender[B]) drain(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	if s.cause != nil || s.core.Unsettled() == 0 && s.queue.len == 0 {
		s.mu.Unlock()
		return nil //nolint:nilerr // the cause was told to those whom it concerns
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *sender[B]) stats() ProducerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.counts
	if s.cause == nil {
		st.Unconfirmed = s.core.Unsettled()
		st.UnconfirmedBytes = s.bytes
	}
	st.WindowSize = s.opts.window
	st.Buffered = s.buffered
	st.Blocked = s.blocked
	st.NextSeq = s.core.Next()
	st.Floor = s.core.Floor()
	return st
}
