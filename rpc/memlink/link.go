package memlink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// Link is a broker in memory. It has one goroutine, from which all events come. The zero value is not ready: see New.
type Link struct {
	// Limits are those of messages. Window is how much a sender may have unanswered, in messages and in bytes.
	// Both are set before use.
	Limits message.Limits
	Window holdfast.SendCredit
	// Opening, if not nil, is called before a stream is opened, in the goroutine of the caller, and may wait or fail. It is
	// set before use.
	Opening func(ctx context.Context, queue string) error
	// AdminCalls answers Admin. It is set before use.
	AdminCalls holdfast.Admin

	jobs chan func()
	done chan struct{}
	wg   sync.WaitGroup

	// Of the goroutine alone.
	queues map[string]*memory
	mute   bool
	kept   []func()
	open   int
	before func()
}

var _ holdfast.Link = (*Link)(nil)

// New returns a link without queues. Close ends it.
func New() *Link {
	l := &Link{
		Window: holdfast.SendCredit{Messages: 10_000, Bytes: 8 << 20},
		jobs:   make(chan func(), 1024), done: make(chan struct{}), queues: make(map[string]*memory),
	}
	l.wg.Go(l.run)
	return l
}

func (l *Link) run() {
	for {
		select {
		case f := <-l.jobs:
			f()
		case <-l.done:
			return
		}
	}
}

// Close ends the link's goroutine. Streams hear nothing of it.
func (l *Link) Close() {
	close(l.done)
	l.wg.Wait()
}

// post runs f in the goroutine, later.
func (l *Link) post(f func()) {
	select {
	case l.jobs <- f:
	case <-l.done:
	}
}

// do runs f in the goroutine and returns when it has.
func (l *Link) do(f func()) {
	done := make(chan struct{})
	l.post(func() { f(); close(done) })
	select {
	case <-done:
	case <-l.done:
	}
}

// Mute withholds the answers to sends until it is called with false.
func (l *Link) Mute(mute bool) {
	l.do(func() {
		l.mute = mute
		for _, f := range l.kept {
			f()
		}
		l.kept = nil
	})
}

// Break ends all streams.
func (l *Link) Break(err error) {
	l.do(func() {
		for _, q := range l.queues {
			for s := range q.senders {
				s.end()
				s.ev.Broken(err)
			}
			for _, r := range q.receivers {
				r.end(true)
				r.ev.Broken(err)
			}
		}
	})
}

// Lose takes all leased messages of a queue from their receivers, and makes them ready again.
func (l *Link) Lose(name, reason string) {
	l.do(func() {
		q := l.queue(name)
		for _, m := range q.messages {
			if m.holder != nil {
				r := m.holder
				span := queue.LeaseSpan{Lease: m.lease, Seq: m.seq, Count: 1}
				m.holder = nil
				r.ev.Lost([]queue.LeaseSpan{span}, reason)
			}
		}
		q.hand()
	})
}

// SetBefore sets a function that is called before each opening, before Opening; nil for none.
func (l *Link) SetBefore(f func()) {
	l.do(func() { l.before = f })
}

// Streams returns how many streams are open.
func (l *Link) Streams() (n int) {
	l.do(func() { n = l.open })
	return n
}

// Messages returns the bodies of a queue's messages, in order.
func (l *Link) Messages(name string) (bodies []string) {
	l.do(func() {
		for _, m := range l.queue(name).messages {
			c := message.NewSpanCursor(m.data)
			raw, _ := c.Next()
			bodies = append(bodies, string(raw.Body))
		}
	})
	return bodies
}

// Credit returns what the receivers of a queue have given in all, and what of it they have got, in messages.
func (l *Link) Credit(name string) (given, delivered uint64) {
	l.do(func() {
		for _, r := range l.queue(name).receivers {
			given += r.messages
			delivered += r.got
		}
	})
	return given, delivered
}

// Admin implements holdfast.Link.
func (l *Link) Admin() holdfast.Admin { return l.AdminCalls }

// memory is a queue.
type memory struct {
	l         *Link
	uid       [16]byte
	next      uint64
	lease     uint64
	messages  []*stored
	producers map[queue.Producer]uint64 // next seq
	senders   map[*sender]struct{}
	receivers []*receiver
}

// stored is a message.
type stored struct {
	seq, lease uint64
	attempts   int
	data       []byte
	size       int
	holder     *receiver
	session    [16]byte // of a holder that was lost
}

func (l *Link) queue(name string) *memory {
	q := l.queues[name]
	if q == nil {
		q = &memory{l: l, next: 1, lease: 1, producers: make(map[queue.Producer]uint64), senders: make(map[*sender]struct{})}
		copy(q.uid[:], name)
		l.queues[name] = q
	}
	return q
}

func (l *Link) opening(ctx context.Context, name string) error {
	if err := queue.ValidName(name); err != nil {
		return err
	}
	var before func()
	l.do(func() { before = l.before })
	if before != nil {
		before()
	}
	if l.Opening != nil {
		return l.Opening(ctx, name)
	}
	return nil
}

// sender implements holdfast.SenderLink.
type sender struct {
	q        *memory
	producer queue.Producer
	ev       holdfast.SenderEvents
	over     bool
	bytes    uint64
}

// OpenSender implements holdfast.Link.
func (l *Link) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	if err := l.opening(ctx, name); err != nil {
		return nil, holdfast.SenderOpened{}, err
	}
	s := &sender{producer: c.Producer, ev: ev}
	var o holdfast.SenderOpened
	l.do(func() {
		s.q = l.queue(name)
		s.q.senders[s] = struct{}{}
		l.open++
		lim := l.Limits.WithDefaults()
		resume := s.q.producers[c.Producer]
		if c.Producer == (queue.Producer{}) {
			resume = 0
		}
		o = holdfast.SenderOpened{
			StreamUID: s.q.uid, Epoch: 1, Resume: resume, MaxBody: lim.MaxBody, MaxFrameBytes: lim.MaxFrameBytes,
			Credit: holdfast.SendCredit{Messages: max(resume, 1) - 1 + l.Window.Messages, Bytes: l.Window.Bytes},
		}
	})
	return s, o, nil
}

func (s *sender) end() {
	if !s.over {
		s.over = true
		s.q.l.open--
		delete(s.q.senders, s)
	}
}

// Send implements holdfast.SenderLink.
func (s *sender) Send(first uint64, frame []byte) error {
	info, err := message.Check(frame, s.q.l.Limits)
	s.q.l.post(func() {
		switch {
		case s.over:
		case err != nil:
			s.end()
			s.ev.Broken(fmt.Errorf("send: %w", err))
		default:
			s.store(first, info, frame)
		}
	})
	return err
}

func (s *sender) store(first uint64, info message.Info, frame []byte) {
	q, l := s.q, s.q.l
	want := q.producers[s.producer]
	if want == 0 || s.producer == (queue.Producer{}) {
		want = first
	}
	s.bytes += uint64(len(frame))
	if first > want {
		s.ev.Refused(want, &queue.GapError{Want: want, Got: first})
		return
	}
	a := holdfast.Accepted{First: q.next}
	cur := message.NewCursor(frame)
	for i := range uint64(info.Count) {
		data, _ := cur.Span(1)
		if first+i < want {
			a.Duplicates++
			continue
		}
		size := message.NewSpanCursor(data)
		raw, _ := size.Next()
		q.messages = append(q.messages, &stored{seq: q.next, data: data, size: raw.Size()})
		q.next++
		a.Count++
	}
	if a.Count == 0 {
		a.First = 0
	}
	want = max(want, first+uint64(info.Count))
	q.producers[s.producer] = want
	a.UpTo = want - 1
	a.Credit = holdfast.SendCredit{Messages: a.UpTo + l.Window.Messages, Bytes: s.bytes + l.Window.Bytes}
	tell := func() {
		if !s.over {
			s.ev.Accepted(a)
		}
	}
	if l.mute {
		l.kept = append(l.kept, tell)
	} else {
		tell()
	}
	q.hand()
}

// Close implements holdfast.SenderLink.
func (s *sender) Close(clean bool) {
	s.q.l.post(func() {
		s.end()
		if clean {
			delete(s.q.producers, s.producer)
		}
	})
}

const visibility = 30 * time.Second
