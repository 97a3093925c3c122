package holdfast_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// naive is a broker in its most obvious form, with one queue, in memory: the other end of the link for the tests of what is on this
// side, and the judge of whether it keeps the rules. Commands are carried out one after the other by one goroutine, which
// "stores" what has come in together for latency and only then lets the answers out, as a real one does.
type naive struct {
	t interface{ Errorf(string, ...any) }
	naiveOptions

	mu      sync.Mutex
	mailbox []func()
	work    chan struct{}
	stop    chan struct{}
	stopped chan struct{}

	// The rest belongs to the goroutine.
	out       []func()
	uid       [16]byte
	epoch     uint64
	msgs      []naiveMsg // index seq-1
	live      int
	held      int      // leased
	fresh     int      // messages below were handed out before
	retry     []uint64 // seqs, ascending
	last      map[queue.Producer]uint64
	dedup     map[string]uint64
	senders   []*naiveSender
	receivers []*naiveReceiver
	leases    []uint64 // index lease-1: seq
	ticking   bool
	full      error // refuse all sends with it
	stores    int
	flaw      func(*naiveSender, naiveFrame) bool // breaks a rule, for the test of the judge; false loses the frame
}

type naiveOptions struct {
	latency    time.Duration
	limit      int // messages; 0 is without
	visibility time.Duration
	retryDelay time.Duration
	tight      bool // withholds credit when full, instead of letting frames wait
	window     int  // credit in messages; default 65,536
	bytes      int  // credit in bytes; default 8 MiB
	maxBody    int
	openErr    atomic.Pointer[error]
	sync       func() // what storing is, instead of latency
}

type naiveMsg struct {
	frame    []byte
	from, to int
	gone     bool
	lease    uint64 // 0: not leased
	r        *naiveReceiver
	started  bool
	attempt  int // deliveries that count
	deadline time.Time
}

func newNaive(t testing.TB, o *naiveOptions) *naive {
	n := startNaive(t, o)
	t.Cleanup(n.close)
	return n
}

func startNaive(t interface{ Errorf(string, ...any) }, o *naiveOptions) *naive {
	n := &naive{
		t: t, work: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
		uid: [16]byte{1}, epoch: 1, last: map[queue.Producer]uint64{}, dedup: map[string]uint64{},
	}
	if o != nil {
		n.latency, n.limit, n.visibility, n.retryDelay = o.latency, o.limit, o.visibility, o.retryDelay
		n.tight, n.window, n.bytes, n.maxBody, n.sync = o.tight, o.window, o.bytes, o.maxBody, o.sync
	}
	if n.visibility == 0 {
		n.visibility = 30 * time.Second
	}
	if n.window == 0 {
		n.window = 1 << 16
	}
	if n.bytes == 0 {
		n.bytes = 8 << 20
	}
	if n.maxBody == 0 {
		n.maxBody = message.DefaultMaxBody
	}
	go n.run()
	return n
}

// refuse has streams be refused with err; nil ends that.
func (n *naive) refuse(err error) {
	if err == nil {
		n.openErr.Store(nil)
	} else {
		n.openErr.Store(&err)
	}
}

func (n *naive) close() {
	n.mu.Lock()
	select {
	case <-n.stop:
	default:
		close(n.stop)
	}
	n.mu.Unlock()
	<-n.stopped
}

func (n *naive) post(f func()) {
	n.mu.Lock()
	n.mailbox = append(n.mailbox, f)
	n.mu.Unlock()
	select {
	case n.work <- struct{}{}:
	default:
	}
}

// ask carries out f in the goroutine and waits for it, not for its output.
func (n *naive) ask(f func()) {
	done := make(chan struct{})
	n.post(func() { f(); close(done) })
	select {
	case <-done:
	case <-n.stopped:
	}
}

func (n *naive) run() {
	defer close(n.stopped)
	var batch []func()
	for {
		select {
		case <-n.stop:
			return
		case <-n.work:
		}
		n.mu.Lock()
		batch, n.mailbox = n.mailbox, batch[:0]
		n.mu.Unlock()
		for _, f := range batch {
			f()
		}
		clear(batch)
		n.hand()
		n.stores++
		if n.sync != nil && len(n.out) > 0 {
			n.sync()
		}
		if n.latency > 0 {
			select {
			case <-n.stop:
				return
			case <-time.After(n.latency):
			}
		}
		out := n.out
		n.out = n.out[:0]
		for i, f := range out {
			f()
			out[i] = nil
		}
		n.tick()
	}
}

// after lets f happen once what was decided so far is stored.
func (n *naive) after(f func()) { n.out = append(n.out, f) }

// tick has leases end.
func (n *naive) tick() {
	if !n.ticking && n.held > 0 {
		n.ticking = true
		time.AfterFunc(n.visibility/8, func() { n.post(n.expire) })
	}
}

func (n *naive) expire() {
	n.ticking = false
	now := time.Now()
	for i := range n.msgs {
		m := &n.msgs[i]
		if m.lease == 0 || now.Before(m.deadline) {
			continue
		}
		if r := m.r; r != nil && !r.closed {
			span := queue.LeaseSpan{Lease: m.lease, Seq: uint64(i + 1), Count: 1}
			n.after(func() { r.ev.Lost([]queue.LeaseSpan{span}, queue.LostExpired) })
		}
		n.giveBack(uint64(i+1), m.started || (m.r != nil && !m.r.announces), 0)
	}
}

func (n *naive) giveBack(seq uint64, counted bool, delay time.Duration) {
	m := &n.msgs[seq-1]
	if m.r != nil {
		m.r.holds--
	}
	if counted {
		m.attempt++
	}
	m.lease, m.r, m.started = 0, nil, false
	n.held--
	ready := func() {
		if k, found := slices.BinarySearch(n.retry, seq); !found && !n.msgs[seq-1].gone {
			n.retry = slices.Insert(n.retry, k, seq)
		}
	}
	if delay == 0 {
		ready()
	} else {
		time.AfterFunc(delay, func() { n.post(ready) })
	}
}

// naiveAdmin describes the queue, and nothing else.
type naiveAdmin struct {
	holdfast.Admin
	n *naive
}

// Admin implements holdfast.Link.
func (n *naive) Admin() holdfast.Admin { return naiveAdmin{n: n} }

func (a naiveAdmin) Describe(_ context.Context, name string) (info holdfast.QueueInfo, _ error) {
	info.Name = name
	a.n.ask(func() { info.Stats.Depth = uint64(a.n.live) })
	return info, nil
}

type naiveSender struct {
	n      *naive
	cfg    holdfast.SenderConfig
	ev     holdfast.SenderEvents
	closed bool
	ended  atomic.Bool

	mu    sync.Mutex // of the credit, which both sides use
	spent uint64
	given holdfast.SendCredit

	answered uint64
	wait     []naiveFrame
	waits    bool
	lies     bool // says that it refuses what it stores
}

type naiveFrame struct {
	first uint64
	frame []byte
}

// OpenSender implements holdfast.Link.
func (n *naive) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	if e := n.openErr.Load(); e != nil {
		return nil, holdfast.SenderOpened{}, *e
	}
	s := &naiveSender{n: n, cfg: c, ev: ev}
	done := make(chan holdfast.SenderOpened, 1)
	n.post(func() {
		for _, old := range n.senders {
			if old.cfg.Producer == c.Producer && !old.closed {
				old.end(fmt.Errorf("opened again: %w", holdfast.ErrClosed))
			}
		}
		n.senders = append(n.senders, s)
		o := holdfast.SenderOpened{StreamUID: n.uid, Epoch: n.epoch, MaxBody: n.maxBody, MaxFrameBytes: n.maxBody + 64<<10}
		if last, ok := n.last[c.Producer]; ok {
			o.Resume = last + 1
		}
		o.Credit = s.grant(max(o.Resume, 1) - 1)
		n.after(func() { done <- o })
	})
	select {
	case o := <-done:
		return s, o, nil
	case <-ctx.Done():
		s.Close(false)
		return nil, holdfast.SenderOpened{}, context.Cause(ctx)
	case <-n.stopped:
		return nil, holdfast.SenderOpened{}, holdfast.ErrClosed
	}
}

// grant gives credit from the producer seq that was settled last.
func (s *naiveSender) grant(last uint64) holdfast.SendCredit {
	room := s.n.window
	if s.n.tight && s.n.limit > 0 {
		room = min(room, max(0, s.n.limit-s.n.live))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given.Messages = max(s.given.Messages, last+uint64(room))
	s.given.Bytes = max(s.given.Bytes, s.answered+uint64(s.n.bytes))
	return s.given
}

func (s *naiveSender) end(err error) {
	s.closed = true
	if !s.ended.Swap(true) {
		s.n.after(func() { s.ev.Broken(err) })
	}
}

// Send implements holdfast.SenderLink.
func (s *naiveSender) Send(first uint64, frame []byte) error {
	if s.ended.Load() {
		return holdfast.ErrClosed
	}
	info, err := message.Check(frame, message.Limits{MaxBody: s.n.maxBody})
	if err != nil {
		s.n.t.Errorf("frame: %v", err)
		return err
	}
	s.mu.Lock()
	s.spent += uint64(len(frame))
	if s.spent > s.given.Bytes || first+uint64(info.Count)-1 > s.given.Messages {
		s.n.t.Errorf("G4: frame of %d messages from %d and %d bytes in all is beyond the credit %+v", info.Count, first, s.spent, s.given)
	}
	s.mu.Unlock()
	s.n.post(func() { s.arrived(naiveFrame{first, frame}) })
	return nil
}

func (s *naiveSender) arrived(f naiveFrame) {
	if s.closed {
		return
	}
	if len(s.wait) > 0 {
		s.wait = append(s.wait, f)
		return
	}
	s.store(f)
}

// store stores a frame, as far as there is room; the rest waits or is refused.
func (s *naiveSender) store(f naiveFrame) {
	n := s.n
	if n.flaw != nil && !n.flaw(s, f) {
		info, _ := message.Check(f.frame, message.Limits{})
		upTo := f.first + uint64(info.Count) - 1
		n.last[s.cfg.Producer] = upTo
		n.after(func() {
			s.tell(func() { s.ev.Accepted(holdfast.Accepted{UpTo: upTo, Credit: s.grant(upTo)}) })
		})
		return
	}
	last, known := n.last[s.cfg.Producer]
	if !known {
		last = f.first - 1
	}
	if f.first > last+1 {
		n.after(func() { s.tell(func() { s.ev.Refused(last+1, &queue.GapError{Want: last + 1, Got: f.first}) }) })
		return
	}
	if n.full != nil {
		err := n.full
		n.after(func() { s.tell(func() { s.ev.Refused(last+1, err) }) })
		return
	}
	a := holdfast.Accepted{UpTo: max(last, f.first-1)}
	off := message.FrameHeaderSize
	seq := f.first
	blocked := false
	for off < len(f.frame) {
		from := off
		for range 2 {
			k, c := binary.Uvarint(f.frame[off:])
			off += c + int(k)
		}
		if seq <= last {
			a.Duplicates++
			seq++
			continue
		}
		if n.limit > 0 && n.live >= n.limit {
			blocked = true
			break
		}
		if id := dedupID(f.frame[from:off]); id != "" {
			if was, ok := n.dedup[id]; ok {
				a.UpTo, seq = seq, seq+1
				a.Duplicates++
				a.Suppressed = append(a.Suppressed, queue.Suppressed{ProducerSeq: a.UpTo, Seq: was})
				continue
			}
			n.dedup[id] = uint64(len(n.msgs) + 1)
		}
		n.msgs = append(n.msgs, naiveMsg{frame: f.frame, from: from, to: off})
		n.live++
		if a.Count++; a.First == 0 {
			a.First = uint64(len(n.msgs))
		}
		a.UpTo, seq = seq, seq+1
	}
	a.UpTo = max(a.UpTo, min(last, seq-1))
	n.last[s.cfg.Producer] = max(last, a.UpTo)
	if !blocked {
		s.answered += uint64(len(f.frame))
	}
	if a.Count+a.Duplicates > 0 {
		a.Credit = s.grant(max(last, a.UpTo))
		lie := s.lies
		n.after(func() {
			s.tell(func() {
				if lie {
					s.ev.Refused(f.first, holdfast.ErrStorageFull)
				} else {
					s.ev.Accepted(a)
				}
			})
		})
	}
	switch {
	case blocked && s.cfg.NoWait:
		n.after(func() { s.tell(func() { s.ev.Refused(seq, holdfast.ErrFull) }) })
	case blocked:
		s.wait = append([]naiveFrame{f}, s.wait...)
		if !s.waits {
			s.waits = true
			n.after(func() { s.tell(func() { s.ev.Waits(true, "full") }) })
		}
	}
}

func dedupID(span []byte) string {
	c := message.NewSpanCursor(span)
	raw, _ := c.Next()
	if len(raw.Attrs) == 0 {
		return ""
	}
	m, err := raw.Decode()
	if err != nil {
		panic(err)
	}
	return m.DedupID
}

func (s *naiveSender) tell(f func()) {
	if !s.ended.Load() {
		f()
	}
}

// Close implements holdfast.SenderLink.
func (s *naiveSender) Close(clean bool) {
	s.ended.Store(true)
	s.n.post(func() {
		if !s.closed && clean {
			delete(s.n.last, s.cfg.Producer)
		}
		s.closed = true
	})
}

// roomy lets waiting senders go on.
func (n *naive) roomy() {
	for _, s := range n.senders {
		if s.closed {
			continue
		}
		if n.tight {
			c := s.grant(n.last[s.cfg.Producer])
			upTo := n.last[s.cfg.Producer]
			n.after(func() { s.tell(func() { s.ev.Accepted(holdfast.Accepted{UpTo: upTo, Credit: c}) }) })
		}
		for len(s.wait) > 0 && (n.limit == 0 || n.live < n.limit) {
			f := s.wait[0]
			s.wait = s.wait[1:]
			s.store(f)
		}
		if s.waits && len(s.wait) == 0 {
			s.waits = false
			n.after(func() { s.tell(func() { s.ev.Waits(false, "") }) })
		}
	}
}
