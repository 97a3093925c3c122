package holdfast

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

const (
	// frameBytes is the size that frames are filled to, in bytes; only a larger single message makes a larger one.
	frameBytes = 256 << 10
	// frameCount is how many messages a frame takes, well below what any broker allows.
	frameCount = 8192
)

// admission is a caller who waits for room in the window.
type admission struct {
	size  int
	ready chan struct{} // gets one element when the wait is over
	done  bool          // it is over: there is room, or err
	err   error
	prev  *admission
	next  *admission
}

// admissions are served in order, so that large messages are not passed by for ever.
type admissions struct{ head, tail *admission }

func (q *admissions) push(a *admission) {
	a.prev, a.next = q.tail, nil
	if q.tail == nil {
		q.head = a
	} else {
		q.tail.next = a
	}
	q.tail = a
}

func (q *admissions) remove(a *admission) {
	if a.prev == nil {
		q.head = a.next
	} else {
		a.prev.next = a.next
	}
	if a.next == nil {
		q.tail = a.prev
	} else {
		a.next.prev = a.prev
	}
	a.prev, a.next = nil, nil
}

// end ends the wait at the head of the queue.
func (q *admissions) end(err error) {
	a := q.head
	q.remove(a)
	a.done, a.err = true, err
	a.ready <- struct{}{}
}

func (q *admissions) fail(err error) {
	for q.head != nil {
		q.end(err)
	}
}

// encodedSize is what a message counts towards the window, in bytes.
func encodedSize(m *Message) int {
	n := len(m.Body) + len(m.Key) + len(m.DedupID) + message.Overhead
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	return n
}

// validate checks a message against the broker's limits, as far as they are known.
func (s *Sender) validate(m *Message) error {
	l := s.limits.Load()
	if l != nil && len(m.Body) <= l.MaxBody && plain(m) {
		return nil
	}
	if l == nil {
		return m.Validate(message.Limits{MaxBody: max(len(m.Body), 1)})
	}
	return m.Validate(*l)
}

// plain tells whether a message says nothing besides its body.
func plain(m *Message) bool {
	return len(m.Headers) == 0 && m.Key == "" && m.DedupID == "" && m.Priority == 0 && m.Delay == 0 && m.TTL == 0 &&
		m.NotBefore.IsZero() && m.ExpiresAt.IsZero()
}

// admit takes a message into the window and encodes it into the open frame.
func (s *Sender) admit(ctx context.Context, m *Message, fn func(ID, error)) (place, error) {
	if err := s.validate(m); err != nil {
		return place{}, err
	}
	if ctx.Err() != nil {
		return place{}, context.Cause(ctx)
	}
	size := encodedSize(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return place{}, ErrClosed
	}
	if s.ended != nil {
		return place{}, s.ended
	}
	if s.limits.Load() == nil || s.waiting.head != nil || !s.room(size) {
		if err := s.wait(ctx, size); err != nil {
			return place{}, err
		}
		s.admitted--
		if err := s.validate(m); err != nil { // the limits may just have become known
			s.release(1, size)
			s.progress()
			return place{}, err
		}
	} else {
		s.inFlight++
		s.inBytes += size
	}
	c, i := s.openFrame(size).add(m, size)
	p := place{c: c, i: i}
	if fn == nil {
		p.done = c.waitOn()
		p.end = s.endOf(ctx)
	} else {
		if c.fns == nil {
			c.fns = make([]func(ID, error), cellSize)
		}
		c.fns[i] = fn
	}
	if fn == nil || !s.sendAlone() {
		s.kick()
	}
	return p, nil
}

func (s *Sender) room(size int) bool {
	return s.inFlight < s.o.MaxInFlight && (s.inBytes+size <= s.o.MaxInFlightBytes || s.inFlight == 0)
}

// wait gives the lock away until there is room for a message, which is then reserved.
func (s *Sender) wait(ctx context.Context, size int) error {
	a := s.spare
	if a == nil {
		a = &admission{ready: make(chan struct{}, 1)}
	}
	s.spare = a.next
	defer func() { a.next, s.spare = s.spare, a }()
	a.size, a.done, a.err = size, false, nil
	s.waiting.push(a)
	s.kick()
	s.mu.Unlock()
	select {
	case <-a.ready:
		s.mu.Lock()
		return a.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if !a.done {
		s.waiting.remove(a)
		s.grant() // the one behind may need less
		s.kick()
		return context.Cause(ctx)
	}
	<-a.ready
	if a.err == nil {
		s.admitted--
		s.release(1, size)
		s.progress()
	}
	return context.Cause(ctx)
}

// release gives room in the window back.
func (s *Sender) release(n, bytes int) {
	s.inFlight -= n
	s.inBytes -= bytes
	s.grant()
}

// grant lets those in for whom there is room.
func (s *Sender) grant() {
	for s.limits.Load() != nil && s.waiting.head != nil && s.room(s.waiting.head.size) {
		s.inFlight++
		s.inBytes += s.waiting.head.size
		s.admitted++
		s.waiting.end(nil)
	}
}

// openFrame returns the frame that takes the next message, of size bytes.
func (s *Sender) openFrame(size int) *frame {
	if f := s.open; f != nil && f.count < frameCount && f.b.Size()+size <= frameBytes {
		return f
	}
	s.frameNo++
	f := &frame{no: s.frameNo}
	f.b.Reset(s.buffer(message.FrameHeaderSize + size + 8))
	s.open = f
	s.pending.push(f)
	return f
}

// buffers are those of frames that were answered, by their size: 4, 8 … 512 KiB. A sender that goes on for long would else make garbage of each
// byte that it sends.
var buffers [8]sync.Pool

const leastReused = 4 << 10

// buffer returns room for the next frame, of at least size bytes.
func (s *Sender) buffer(size int) []byte {
	size = max(size, s.hint)
	if !s.lent || size < leastReused {
		return make([]byte, 0, size)
	}
	class := bits.Len(uint((size - 1) / leastReused))
	if class >= len(buffers) {
		return make([]byte, 0, size)
	}
	if b, _ := buffers[class].Get().(*[]byte); b != nil {
		return (*b)[:0]
	}
	return make([]byte, 0, leastReused<<class)
}

// reuse takes the buffer of a frame that nobody else has any more.
func reuse(f *frame) {
	b := f.buf // the frame itself is not to be kept
	if class := bits.Len(uint(cap(b)/leastReused)) - 1; class >= 0 && class < len(buffers) {
		buffers[class].Put(&b)
	}
}

// callback is outcomes of a cell that done functions wait for.
type callback struct {
	c    *cell
	mask uint64
}

// ids tells the ids of the messages that an acceptance covers, in order of producer seq.
type ids struct {
	uid        [16]byte
	fresh      uint64 // those before this producer seq were stored earlier
	next       uint64 // seq of the next one that was stored now
	suppressed []queue.Suppressed
}

func newIDs(uid [16]byte, a *Accepted) ids {
	// What was stored now is the last Count messages that were not suppressed.
	fresh := a.UpTo - a.Count + 1
	for k := len(a.Suppressed) - 1; k >= 0 && a.Suppressed[k].ProducerSeq >= fresh; k-- {
		fresh--
	}
	return ids{uid, fresh, a.First, a.Suppressed}
}

// of returns the id of a message; its Seq is 0 if it is not known.
func (d *ids) of(seq uint64) ID {
	id := ID{Stream: d.uid}
	for len(d.suppressed) > 0 && d.suppressed[0].ProducerSeq <= seq {
		if d.suppressed[0].ProducerSeq == seq {
			id.Seq = d.suppressed[0].Seq
			return id
		}
		d.suppressed = d.suppressed[1:]
	}
	if seq >= d.fresh && d.next != 0 {
		id.Seq = d.next
		d.next++
	}
	return id
}

// settleStored records that the messages of f are stored.
func (s *Sender) settleStored(f *frame, d *ids) {
	var mask uint64
	var c *cell
	for i := range f.count {
		next, k := f.slot(i)
		if next != c {
			s.wakeCell(c, mask)
			c, mask = next, 0
		}
		c.note(k, d.of(f.first+uint64(i)), nil)
		mask |= 1 << k
	}
	s.wakeCell(c, mask)
}

// settleFailed records an error as the outcome of all messages of f.
func (s *Sender) settleFailed(f *frame, err error) {
	var mask uint64
	var c *cell
	for i := range f.count {
		next, k := f.slot(i)
		if next != c {
			s.wakeCell(c, mask)
			c, mask = next, 0
		}
		if c.has(k) || f.withdrawn(i) {
			continue
		}
		c.note(k, ID{}, err)
		mask |= 1 << k
	}
	s.wakeCell(c, mask)
}

// wakeCell settles slots of a cell whose outcomes are noted.
func (s *Sender) wakeCell(c *cell, mask uint64) {
	if mask == 0 {
		return
	}
	c.settled.Store(c.settled.Load() | mask)
	c.wake()
	var called uint64
	n, bytes := 0, 0
	for m := mask; m != 0; m &= m - 1 {
		k := bits.TrailingZeros64(m)
		if c.fns != nil && c.fns[k] != nil {
			called |= 1 << k
			continue
		}
		n++
		bytes += int(c.sizes[k])
	}
	s.release(n, bytes)
	if called == 0 {
		return
	}
	s.calls = append(s.calls, callback{c, called})
	s.queued++
	if !s.calling {
		s.calling = true
		go s.call()
	}
}

// call runs done functions until there are none. It makes room in the window for what it is about to call, so that
// uncalled outcomes are bounded by the window.
func (s *Sender) call() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []callback
	for len(s.calls) > 0 {
		batch, s.calls = s.calls, batch[:0]
		for i, cb := range batch {
			batch[i] = callback{}
			n, bytes := 0, 0
			for m := cb.mask; m != 0; m &= m - 1 {
				n++
				bytes += int(cb.c.sizes[bits.TrailingZeros64(m)])
			}
			s.release(n, bytes)
			s.mu.Unlock()
			for m := cb.mask; m != 0; m &= m - 1 {
				k := bits.TrailingZeros64(m)
				cb.c.fns[k](s.result(cb.c, k))
			}
			s.mu.Lock()
			s.called++
			s.progress()
		}
	}
	s.calling = false
}

// failPending ends all that the link never had: it is not stored.
func (s *Sender) failPending(err error) {
	s.waiting.fail(err)
	s.open = nil
	if s.o.Strict && s.ended == nil {
		s.ended = refusedBefore(err)
	}
	err = s.notStored(err)
	for f := s.pending.pop(); f != nil; f = s.pending.pop() {
		s.stats.Refused += uint64(f.count - len(f.gone))
		s.settleFailed(f, err)
	}
}

// failAll ends all that waits: what the link had may be stored.
func (s *Sender) failAll(err error) {
	unknown := s.unknown(err)
	for f := s.flight.pop(); f != nil; f = s.flight.pop() {
		s.stats.Unknown += uint64(f.count)
		s.settleFailed(f, unknown)
		s.renew = true
	}
	s.resend = nil
	s.failPending(err)
	s.progress()
}

// refusedBefore is why a strict sender does not store what is behind a refused message.
func refusedBefore(err error) error {
	return fmt.Errorf("a message before it was refused: %w", err)
}
