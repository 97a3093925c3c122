package holdfast

import (
	"errors"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// senderStream is one stream of a sender; it takes the link's events, which mean nothing any more once the sender has
// another stream. Its fields are under the sender's lock.
type senderStream struct {
	s    *Sender
	link SenderLink
	err  error // why it broke

	credits    SendCredit
	bytes      uint64 // of frames sent
	unanswered int    // frames sent and not answered
	maxFrame   int
	since      time.Time // it was opened
	used       time.Time // something was last sent
	starved    bool      // the credit is too small for the next frame
	waits      bool      // the broker says that it grants nothing more
	why        string
}

// credit tells whether anything may be sent.
func (st *senderStream) credit() bool {
	return !st.starved && st.s.nextSeq <= st.credits.Messages && st.bytes < st.credits.Bytes
}

// fits returns how many of a numbered frame's messages the credit allows to be sent as one frame.
func (st *senderStream) fits(f *frame) int {
	n := int(min(st.credits.Messages-min(st.credits.Messages, f.first-1), uint64(f.count)))
	room := min(st.credits.Bytes-min(st.credits.Bytes, st.bytes), uint64(st.maxFrame))
	if uint64(len(f.buf)) > room {
		k := f.fitting(int(room))
		if k == 0 && st.unanswered == 0 && f.fitting(st.maxFrame) > 0 {
			k = 1 // larger than the credit by itself: it goes alone
		}
		n = min(n, k)
	}
	return n
}

func (st *senderStream) grant(c SendCredit) {
	if c.Messages > st.credits.Messages || c.Bytes > st.credits.Bytes {
		st.credits.Messages = max(st.credits.Messages, c.Messages)
		st.credits.Bytes = max(st.credits.Bytes, c.Bytes)
		st.starved = false
	}
}

func (st *senderStream) reason() string {
	if st.why != "" {
		return st.why
	}
	return "no credit"
}

// current takes the sender's lock and tells whether the stream is the one in use; if not, the lock is given back.
func (st *senderStream) current() bool {
	st.s.mu.Lock()
	if st.s.stream == st {
		return true
	}
	st.s.mu.Unlock()
	return false
}

// Accepted implements SenderEvents.
func (st *senderStream) Accepted(a Accepted) {
	if !st.current() {
		return
	}
	s := st.s
	defer s.mu.Unlock()
	st.grant(a.Credit)
	d := newIDs(s.uid, &a)
	for f := s.flight.head; f != nil && f.first <= a.UpTo; f = s.flight.head {
		s.flight.pop()
		var rest *frame
		if f.last() > a.UpTo {
			rest = f.split(int(a.UpTo - f.first + 1))
			s.flight.pushFront(rest)
		}
		switch {
		case f == s.resend: // it was stored by way of an earlier stream
			if s.resend = rest; rest == nil {
				s.resend = s.flight.head
			}
		case f.sentOn == st && rest == nil:
			st.unanswered--
		}
		s.stats.Stored += uint64(f.count)
		s.settleStored(f, &d)
		if s.lent && f.sentOn == st && f.sent == 1 && rest == nil {
			reuse(f)
		}
	}
	s.stats.Duplicates += a.Duplicates
	if a.Count > 0 || a.Duplicates > 0 {
		s.backoff.reset()
	}
	s.progress()
	s.kick()
}

// Refused implements SenderEvents.
func (st *senderStream) Refused(resume uint64, err error) {
	if !st.current() {
		return
	}
	s := st.s
	defer s.mu.Unlock()
	defer s.kick()
	var gap *queue.GapError
	if errors.As(err, &gap) {
		// Nothing on an ordered stream explains a gap: begin another one and see what the broker has.
		st.quit(err)
		return
	}
	f := s.flight.head
	for f != nil && f.last() < resume {
		f = f.next
	}
	if f == nil {
		return
	}
	if f.first < resume {
		// The answer for its first part is still to come; a new stream asks for it.
		st.quit(err)
		return
	}
	s.refuse(f, err)
}

// refuse ends the messages of a frame in flight, of which it is proved that none is stored, nor any behind it. Those behind
// it are sent later.
func (s *Sender) refuse(f *frame, err error) {
	s.takeBack(f)
	s.pending.pop()
	s.stats.Refused += uint64(f.count)
	s.settleFailed(f, s.notStored(err))
	if s.o.Strict {
		s.ended = refusedBefore(err)
		s.failPending(s.ended)
	}
	s.progress()
}

// Waits implements SenderEvents.
func (st *senderStream) Waits(waits bool, reason string) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	st.waits, st.why = waits, reason
	if s.stream == st {
		s.kick()
	}
}

// Broken implements SenderEvents.
func (st *senderStream) Broken(err error) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	// A hand-over may have noticed the end before.
	if errors.Is(err, ErrNoQueue) && (s.stream == st || s.stream == nil) {
		st.err = err
		s.deleted()
	} else {
		st.broke(err, nil)
	}
	s.kick()
}

// deleted ends what waits when the queue was deleted under the stream, and the sender too, lest it makes a new queue of that name. The one behind
// Queue.Send goes on with what comes later.
func (s *Sender) deleted() {
	s.stream, s.resend = nil, nil
	for f := s.flight.pop(); f != nil; f = s.flight.pop() {
		s.stats.Refused += uint64(f.count)
		s.settleFailed(f, s.notStored(ErrDeleted))
		s.renew = true
	}
	if s.o.idle == 0 && s.ended == nil {
		s.ended = ErrDeleted
	}
	s.failPending(ErrDeleted)
	s.progress()
	s.log.Warn("the queue was deleted")
}

// broke ends a stream under the sender's lock. sending is the frame whose hand-over failed, if that is how it was noticed.
func (st *senderStream) broke(err error, sending *frame) {
	s := st.s
	if st.err == nil {
		st.err = err
	}
	if s.stream != st {
		return
	}
	if time.Since(st.since) > retryCap {
		s.backoff.reset()
	}
	s.lose(err)
	s.log.Debug("sender's stream broke", "error", err, "unanswered", st.unanswered)
	var field *message.FieldError
	if sending != nil && errors.As(err, &field) && s.streams == 1 {
		// The link took offence at this very frame and has never had it before.
		s.refuse(sending, err)
	}
}

// quit gives a stream up that the link has not ended.
func (st *senderStream) quit(err error) {
	st.s.dead = append(st.s.dead, st.link)
	st.broke(err, nil)
}

// waitReport tells the user that a sender waits, once that has gone on for some time.
type waitReport struct {
	now    string // why it waits, empty if it does not
	since  time.Time
	told   bool
	reason string // that was told
	lost   string // why there is no stream
}

func (w *waitReport) why(reason string) { w.now = reason }

// report tells about the beginning and the end of waits, and shortens a pause so that it does so in time. It
// reports whether it gave the lock away.
func (s *Sender) report(pause *time.Duration) bool {
	w := &s.waits
	switch {
	case w.now == "":
		w.since = time.Time{}
		if !w.told {
			return false
		}
		w.told = false
		s.log.Info("sender goes on", "waited for", w.reason)
		return s.tell(false, w.reason)
	case w.told:
		return false
	case w.since.IsZero():
		w.since = time.Now()
	}
	left := waitTold - time.Since(w.since)
	if left <= 0 {
		w.told, w.reason = true, w.now
		s.log.Warn("sender waits", "reason", w.now, "messages", s.inFlight, "bytes", s.inBytes)
		return s.tell(true, w.now)
	}
	if *pause == 0 || left < *pause {
		*pause = left
	}
	return false
}

func (s *Sender) tell(waits bool, reason string) bool {
	if s.o.OnWait == nil {
		return false
	}
	s.mu.Unlock()
	s.o.OnWait(waits, reason)
	s.mu.Lock()
	return true
}
