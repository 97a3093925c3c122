package holdfast

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

const (
	// smallFrames is how many frames that are not worth a record of their own are in flight at most. What comes
	// meanwhile forms the next one: batches grow by themselves with the time that the broker takes to answer.
	smallFrames = 8
	// largeFrame is the size in bytes from which a frame is sent however many are in flight.
	largeFrame = 64 << 10
	// slowAnswer is from when on a frame that is in flight makes a frame of fewer than fewMessages wait for its answer: a broker that takes so long
	// has much to do, and a few messages together cost it little more than one.
	slowAnswer  = 4 * time.Millisecond
	fewMessages = 8
	// rarely is how long ago the last frame was sent by a sender of which it is not to be expected that more messages come at once.
	rarely = time.Millisecond
	// waitTold is how long the sender waits before it says so.
	waitTold = time.Second
)

// action is what the writer does next.
type action uint8

const (
	actWait action = iota
	actOpen
	actSend  // a frame that is in flight already
	actSeal  // the first pending frame
	actRenew // begin a new incarnation
	actClose // nothing left to do on this stream
	actExit
)

// kick sees to it that the writer looks at what there is to do.
func (s *Sender) kick() {
	switch {
	case !s.running:
		if s.pending.head == nil && s.waiting.head == nil && s.flight.head == nil && s.admitted == 0 && s.stream == nil {
			return
		}
		s.running = true
		ctx, cancel := context.WithCancel(context.Background())
		s.abort = cancel
		go s.run(ctx)
	case s.idle:
		s.idle = false
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run is the writer: it opens streams and hands frames to the link. It ends when there is nothing left to do.
func (s *Sender) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for _, link := range s.dead {
			s.hangUp(link, false)
		}
		s.dead = nil
		act, wait := s.plan()
		if s.report(&wait) {
			continue // the lock was given away meanwhile
		}
		switch act {
		case actWait:
			s.pause(timer, wait)
		case actOpen:
			s.openStream(ctx)
		case actSend:
			s.resendNext()
		case actSeal:
			s.sealNext()
		case actRenew:
			s.renewIncarnation()
		case actClose:
			s.closeStream(s.o.Incarnation == "")
		case actExit:
			s.closeStream(false)
			s.forgetEnd()
			s.abort()
			s.running = false
			s.progress()
			return
		}
	}
}

// pause gives the lock away until there may be something to do; wait 0 means without a limit.
func (s *Sender) pause(timer *time.Timer, wait time.Duration) {
	s.idle = true
	s.mu.Unlock()
	defer s.mu.Lock()
	if wait == 0 {
		<-s.wake
	} else {
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		}
	}
	// Let all those run first that were woken together with the one who woke the writer: their messages are
	// then in the same frame.
	runtime.Gosched()
}

// plan decides what the writer does next, and if that is to wait, for how long at most (0: without a limit).
func (s *Sender) plan() (action, time.Duration) {
	busy := s.flight.head != nil || s.pending.head != nil || s.waiting.head != nil || s.admitted > 0
	st := s.stream
	s.waits.why("")
	switch {
	case s.alone: // and then it looks again
		return actWait, 0
	case s.aborted:
		return actExit, 0
	case st == nil && !busy:
		return actExit, 0
	case st == nil:
		// Also for a moment in which the next try begins: what has gone on so far counts.
		s.waits.why(s.waits.lost)
		if wait := time.Until(s.retryAt); wait > 0 {
			return actWait, wait
		}
		return actOpen, 0
	case s.renew && s.flight.head == nil && s.ended == nil:
		return actRenew, 0
	case !busy && s.closing:
		return actClose, 0
	case !busy && s.o.idle > 0:
		if wait := time.Until(st.used.Add(s.o.idle)); wait > 0 {
			return actWait, wait
		}
		return actClose, 0
	case s.resend != nil:
		if st.fits(s.resend) > 0 {
			return actSend, 0
		}
		s.waits.why(st.reason())
	case s.pending.head != nil && !s.renew:
		if !st.credit() {
			if s.o.NoWait && st.waits {
				s.failPending(fmt.Errorf("%w: %s", ErrFull, st.why))
				s.progress()
				return s.plan()
			}
			s.waits.why(st.reason())
		} else if st.unanswered < smallFrames && !s.gathers() || s.pending.head.size() >= largeFrame || s.pending.head != s.open {
			return actSeal, 0
		}
	}
	if st.waits && s.flight.head != nil {
		s.waits.why(st.reason())
	}
	return actWait, 0
}

// gathers tells whether the first pending frame is better sent with more messages, once what is in flight is answered.
func (s *Sender) gathers() bool {
	f := s.flight.head
	return f != nil && s.pending.head.count < fewMessages && time.Since(f.sentAt) > slowAnswer
}

// sendAlone sends the open frame at once, by the caller's goroutine, and reports whether it did. That is done where the writer has nothing to do, and
// this frame would not better grow behind what is in flight, since nothing is or the sender sends rarely: waking the writer would cost more than
// all the rest. It gives the lock away.
//
// Not so for callers who wait for the answer, since there may be many of them that have just been woken by one: their messages are to be in one frame.
func (s *Sender) sendAlone() bool {
	st := s.stream
	if !s.idle || s.alone || st == nil || s.resend != nil || s.held != nil || s.pending.head != s.open || s.admitted > 0 || s.renew || s.closing ||
		st.waits || len(s.dead) > 0 || !st.credit() {
		return false
	}
	if (s.flight.head != nil || st.unanswered > 0) && (st.unanswered >= smallFrames || time.Since(st.used) < rarely || s.gathers()) {
		return false
	}
	s.alone = true
	s.sealNext()
	s.alone = false
	// The writer may have been woken meanwhile and have gone to sleep again, without a limit.
	if act, wait := s.plan(); act != actWait || wait > 0 || s.waits.now != "" {
		s.kick()
	}
	return true
}

// sealNext takes the first pending frame and hands it to the link, or what the credit allows of it.
func (s *Sender) sealNext() {
	f := s.pending.pop()
	if f == s.open {
		s.open = nil
	}
	s.held = f
	lent := s.lent
	s.mu.Unlock()
	f.seal(lent)
	s.mu.Lock()
	s.held = nil
	st := s.stream
	switch {
	case f.count == 0: // all withdrawn
		s.progress()
		return
	case s.aborted:
		s.stats.Refused += uint64(f.count)
		s.settleFailed(f, s.notStored(ErrClosed))
		s.progress()
		return
	case st == nil || s.renew: // it broke meanwhile
		s.pending.pushFront(f)
		return
	}
	hint := min(len(f.buf)+len(f.buf)/8, frameBytes)
	if s.lent { // room that is not needed costs nothing
		hint = max(hint, s.hint-s.hint/16)
	}
	s.hint = hint
	f.first = s.nextSeq
	n := st.fits(f)
	if n == 0 {
		f.first = 0
		s.pending.pushFront(f)
		st.starved = true
		return
	}
	if n < f.count {
		rest := f.split(n)
		rest.first = 0
		s.pending.pushFront(rest)
	}
	s.nextSeq += uint64(n)
	s.flight.push(f)
	s.transmit(f)
}

// resendNext hands the next frame to the link that it does not have on this stream, or what the credit allows of it.
func (s *Sender) resendNext() {
	f := s.resend
	if n := s.stream.fits(f); n < f.count {
		s.flight.insert(f, f.split(n))
	}
	s.resend = f.next
	s.stats.Resent++
	s.transmit(f)
}

// transmit hands a frame that is in flight to the link.
func (s *Sender) transmit(f *frame) {
	st := s.stream
	st.bytes += uint64(len(f.buf))
	st.unanswered++
	st.used = time.Now()
	f.sentOn, f.sentAt = st, st.used
	f.sent++
	s.stats.Frames++
	first, buf := f.first, f.buf
	s.mu.Unlock()
	err := st.link.Send(first, buf)
	s.mu.Lock()
	if err != nil {
		st.broke(err, f)
	}
}

// openStream opens a stream, or sees to it that this is tried again later.
func (s *Sender) openStream(ctx context.Context) {
	st := &senderStream{s: s}
	cfg := SenderConfig{Producer: s.producer, NoWait: s.o.NoWait}
	var opened SenderOpened
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.link, opened, err = s.link.OpenSender(ctx, s.queue, cfg, st)
	}()
	for wait := time.Duration(0); ; wait = 0 {
		s.waits.why("no connection yet")
		s.report(&wait)
		s.mu.Unlock()
		if wait == 0 { // it has been told
			<-done
		} else {
			select {
			case <-done:
			case <-time.After(wait):
				s.mu.Lock()
				continue
			}
		}
		s.mu.Lock()
		break
	}
	switch {
	case err == nil && st.err != nil:
		err = st.err
	case err == nil && opened.StreamUID == s.uid && opened.Epoch < s.epoch:
		s.hangUp(st.link, false)
		err = fmt.Errorf("queue %q answered under epoch %d after epoch %d: %w", s.queue, opened.Epoch, s.epoch, ErrFenced)
	}
	switch {
	case s.aborted:
		if err == nil {
			s.hangUp(st.link, false)
		}
	case err != nil && permanent(err):
		s.failAll(err)
	case err != nil:
		s.lose(err)
	default:
		s.opened(st, opened)
	}
}

// opened begins to use a stream.
func (s *Sender) opened(st *senderStream, o SenderOpened) {
	s.waits.lost = ""
	s.stats.Streams++
	s.stats.Buffered = o.Buffered
	s.stream, s.uid, s.epoch, s.lent = st, o.StreamUID, o.Epoch, o.Lent
	s.streams++
	l := message.Limits{MaxBody: o.MaxBody, MaxFrameBytes: o.MaxFrameBytes}.WithDefaults()
	st.maxFrame, st.since = l.MaxFrameBytes, time.Now()
	st.used = st.since
	st.grant(o.Credit)
	s.limits.Store(&l)
	s.grant()

	first := s.flight.head
	s.resend = first
	switch {
	case o.Resume == 0: // it does not know the producer: it begins with what comes first
	case first == nil && s.o.Incarnation != "" && s.nextSeq == 1:
		s.nextSeq = o.Resume
	case first == nil && o.Resume != s.nextSeq && s.o.Strict:
		s.failPending(fmt.Errorf("%w: the queue expects message %d of the producer, not %d", ErrConflict, o.Resume, s.nextSeq))
	case first == nil:
		s.renew = s.renew || o.Resume != s.nextSeq
	case o.Resume < first.first:
		// What it had acknowledged is lost to it (a buffered queue after a crash of its machine). Nothing that
		// is in flight is stored, and it has a new place to begin with.
		s.takeBack(first)
		if s.o.Strict {
			s.failPending(fmt.Errorf("%w: the queue has lost messages from %d on that it had acknowledged", ErrConflict, o.Resume))
		}
	default:
		// What is before Resume was stored, or is about to be: only an acceptance says which. Hence the frame
		// before Resume is sent again, and its answer covers those before it.
		for f := first; f != nil && f.first < o.Resume; f = f.next {
			s.resend = f
		}
	}
}

// takeBack makes frames, from one in flight to the last, pending again: it is proved that they are not stored. Their
// numbers are used up.
func (s *Sender) takeBack(from *frame) {
	var kept, back frames
	for f := s.flight.pop(); f != nil; f = s.flight.pop() {
		if f == from || back.head != nil {
			f.first = 0
			if f == s.resend {
				s.resend = nil
			}
			back.push(f)
		} else {
			kept.push(f)
		}
	}
	for f := s.pending.pop(); f != nil; f = s.pending.pop() {
		back.push(f)
	}
	s.flight, s.pending, s.renew = kept, back, true
}

// renewIncarnation begins again at 1, in a new stream under a new incarnation.
func (s *Sender) renewIncarnation() {
	// The broker may forget the old one if no other stream can still bring frames of it.
	s.closeStream(s.streams == 1)
	s.newIncarnation()
}

func (s *Sender) newIncarnation() {
	s.producer.Incarnation, s.nextSeq, s.streams, s.renew = randomID(), 1, 0, false
}

// closeStream ends the stream. After a clean end the broker may have forgotten the incarnation.
func (s *Sender) closeStream(clean bool) {
	if s.stream == nil {
		return
	}
	link := s.stream.link
	s.stream = nil
	if clean {
		s.newIncarnation()
	}
	s.hangUp(link, clean)
}

// hangUp closes a stream without the lock.
func (s *Sender) hangUp(link SenderLink, clean bool) {
	s.mu.Unlock()
	link.Close(clean)
	s.mu.Lock()
}

// lose notes that there is no stream, and when to open the next one.
func (s *Sender) lose(err error) {
	s.stream, s.resend = nil, nil
	s.retryAt = time.Now().Add(s.backoff.next())
	s.waits.lost = "not connected: " + err.Error()
}
