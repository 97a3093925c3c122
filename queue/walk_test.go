package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/message"
	"pgregory.net/rapid"
)

// walk takes a queue through random commands, crashes and full disks, with clients that behave as clients do, and checks after each step:
// events replayed give the live state, and so do a snapshot and the rest (G7); nothing leaves but by a counted way (G2); what was acknowledged
// is never lost, nor is a delete taken back (G1); a producer's messages are stored once, in order (G3, G6); nobody
// gets more than it asked for (G4); priorities and keys are kept (G6); counts never fall (design §7).
type walk struct {
	*rapid.T
	s *shell
	m *model

	ids       uint64
	senders   []*walkSender
	receivers []*walkReceiver
	accepted  map[uint64]bool // messages that a sender was told are stored
	deleted   map[uint64]bool // messages that a receiver was told are deleted
	attempts  map[uint64]int  // highest attempt that a receiver saw
	acks      map[Token]map[uint64]bool
	moves     []uint64

	snap    [][]byte
	snapSeq uint64
}

type walkSender struct {
	id       SenderID
	o        SenderOptions
	next     uint64 // producer seq of the next message
	upTo     uint64 // told to be stored
	bodies   map[uint64]message.Message
	anonym   int
	refusals int
}

type walkReceiver struct {
	id    ReceiverID
	o     ReceiverOptions
	asked uint64
	got   uint64
	bytes uint64
	held  map[uint64]LeaseSpan
	lost  bool
}

func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &walk{T: t, m: newModel(), accepted: map[uint64]bool{}, deleted: map[uint64]bool{}, attempts: map[uint64]int{}, acks: map[Token]map[uint64]bool{}}
		w.s = newShell(t, Options{ProducerTTL: window.UnlimitedTTL, Moves: 2}, 1e12)
		w.s.onEvent, w.s.onEffect = w.event, w.effect
		t.Repeat(map[string]func(*rapid.T){
			"":              func(t *rapid.T) { w.T = t; w.check() },
			"open sender":   w.do(w.openSender),
			"send":          w.do(w.send),
			"send more":     w.do(w.send),
			"close sender":  w.do(w.closeSender),
			"reconnect":     w.do(w.reconnect),
			"open receiver": w.do(w.openReceiver),
			"credit":        w.do(w.credit),
			"settle":        w.do(w.settle),
			"settle more":   w.do(w.settle),
			"lose receiver": w.do(w.loseReceiver),
			"flap":          w.do(w.flap),
			"resume":        w.do(w.resume),
			"tick":          w.do(w.tick),
			"configure":     w.do(w.configure),
			"admin":         w.do(w.admin),
			"move":          w.do(w.move),
			"snapshot":      w.do(w.snapshot),
			"crash":         w.do(w.crash),
			"disk full":     w.do(w.diskFull),
			"relocate":      w.do(w.relocate),
		})
	})
}

// do is an action: it ends by storing what was decided, or not yet.
func (w *walk) do(f func()) func(*rapid.T) {
	return func(t *rapid.T) {
		w.T = t
		w.s.t = t
		f()
		w.s.step(rapid.IntRange(0, 3).Draw(t, "store") > 0)
	}
}

func (w *walk) pick(n int, what string) int { return rapid.IntRange(0, n-1).Draw(w.T, what) }

// pause lets a little time pass.
func (w *walk) pause() { w.s.now += rapid.SampledFrom([]int64{0, 0, 1, 20}).Draw(w.T, "pause") }

func (w *walk) event(seq uint64, e *Event) {
	if bad := w.m.apply(seq, e); bad != "" {
		w.Fatalf("at seq %d: %s", seq, bad)
	}
	for body, n := range w.m.sent {
		if n > 1 && body[0] != 'a' {
			w.Fatalf("message %q is stored %d times", body, n)
		}
	}
}

func (w *walk) check() {
	c := w.s.core
	if bad := invariants(c); bad != "" {
		w.Fatalf("invariant: %s", bad)
	}
	want, got := dump(c, w.s.now), dump(w.s.replica, w.s.now)
	if want != got {
		w.Fatalf("replaying the events gives another state: %s", diff(want, got))
	}
	if n := c.live.Len(); n != uint64(len(w.m.msgs)) {
		w.Fatalf("%d messages, the model has %d", n, len(w.m.msgs))
	}
	w.m.now = c.now
	if at, ok := c.Deadline(); c.paused || ok && at <= c.now {
		return
	}
	for _, r := range w.receivers {
		x := c.receivers[r.id]
		if r.lost || x.isolated || c.reserved == x || r.asked == x.used || x.creditBytes < 1<<40 {
			continue
		}
		if m := w.m.pending(); m != nil {
			w.Fatalf("message %+v is ready, receiver %d asked for %d and got %d", *m, r.id, r.asked, x.used)
		}
	}
}

// effect is called as an effect is carried out.
func (w *walk) effect(e Effect, err error) {
	switch e := e.(type) {
	case Accepted:
		w.wasAccepted(e, err)
	case Refused:
		if s := w.sender(e.Sender); s != nil {
			s.next = e.Resume
			s.refusals++
		}
	case Deliver:
		w.delivered(e)
	case LeaseLost:
		if r := w.receiver(e.Receiver); r != nil {
			for _, s := range e.Spans {
				for i := range s.Count {
					delete(r.held, s.Seq+i)
				}
			}
		}
	case Reply:
		w.replied(e, err)
	case Move:
		if err == nil {
			w.moves = append(w.moves, e.Seq)
		}
	}
}

func (w *walk) wasAccepted(e Accepted, err error) {
	s := w.sender(e.Sender)
	if s == nil {
		return
	}
	if err != nil {
		s.next = min(s.next, e.UpTo+1-e.Count-e.Duplicates)
		return
	}
	if e.UpTo < s.upTo && e.Duplicates == 0 {
		w.Fatalf("sender %d: accepted up to %d, before up to %d", s.id, e.UpTo, s.upTo)
	}
	s.upTo = max(s.upTo, e.UpTo)
	for i := range e.Count {
		w.accepted[e.First+i] = true
	}
	for _, d := range e.Suppressed {
		x := w.m.added[d.Seq]
		if x == nil || x.dedup == "" || x.dedup != s.bodies[d.ProducerSeq].DedupID {
			w.Fatalf("message %d of sender %d was suppressed for message %d, which is %+v", d.ProducerSeq, s.id, d.Seq, x)
		}
	}
}

func (w *walk) delivered(e Deliver) {
	r := w.receiver(e.Receiver)
	for _, d := range e.Runs {
		for i := range d.Count {
			x := d.Seq + i
			if slices.ContainsFunc(w.s.refused, func(s Span) bool { return x >= s.Seq && x < s.Seq+s.Count }) {
				continue
			}
			if w.deleted[x] {
				w.Fatalf("message %d was acknowledged, and is handed out", x)
			}
			if d.Attempt < w.attempts[x] {
				w.Fatalf("message %d: delivery %d after %d", x, d.Attempt, w.attempts[x])
			}
			w.attempts[x] = d.Attempt
			if m := w.m.msgs[x]; m != nil && m.lease == d.Lease+i && m.state == StateInFlight && d.Attempt != m.count+1 {
				w.Fatalf("message %d: delivery %d after %d counted ones", x, d.Attempt, m.count)
			}
			if r != nil {
				r.got++
				r.held[x] = LeaseSpan{d.Lease + i, x, 1}
			}
		}
	}
	if r != nil && r.got > r.asked {
		w.Fatalf("receiver %d got %d of %d", r.id, r.got, r.asked)
	}
}

func (w *walk) replied(e Reply, err error) {
	acked := w.acks[e.Token]
	delete(w.acks, e.Token)
	if err != nil || acked == nil {
		return
	}
	for _, o := range e.Outcomes {
		if o.Result == AckLost {
			for i := range o.Count {
				delete(acked, o.Seq+i)
			}
		}
	}
	maps.Copy(w.deleted, acked)
}

func (w *walk) sender(id SenderID) *walkSender {
	for _, s := range w.senders {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (w *walk) receiver(id ReceiverID) *walkReceiver {
	for _, r := range w.receivers {
		if r.id == id && !r.lost {
			return r
		}
	}
	return nil
}

func (w *walk) id() uint64 { w.ids++; return w.ids }

func (w *walk) openSender() {
	if len(w.senders) >= 3 {
		w.Skip()
	}
	w.pause()
	s := &walkSender{id: SenderID(w.id()), next: 1, bodies: map[uint64]message.Message{}}
	if w.pick(3, "producer") > 0 {
		s.o.Producer = Producer{fmt.Sprint("p", s.id), "i"}
	}
	s.o.NoWait = w.pick(4, "no wait") == 0
	w.senders = append(w.senders, s)
	w.open(s)
}

func (w *walk) open(s *walkSender) {
	resume, err := w.s.core.OpenSender(w.s.now, s.id, s.o)
	if err != nil {
		w.Fatalf("%v", err)
	}
	if s.o.Producer.IsZero() {
		s.next, s.upTo = 1, 0
		return
	}
	if resume > 0 && resume <= s.upTo {
		w.Fatalf("sender %d was told that %d are stored, and is to go on at %d", s.id, s.upTo, resume)
	}
	// A client that does not trust what it was told sends again what it has no answer for.
	if s.next = s.upTo + 1; resume > 0 && w.pick(2, "trust") == 0 {
		s.next = resume
	}
}

// reconnect is a sender that lost its connection, and what it was not answered yet.
func (w *walk) reconnect() {
	if len(w.senders) == 0 {
		w.Skip()
	}
	s := w.senders[w.pick(len(w.senders), "sender")]
	w.s.core.CloseSender(w.s.now, s.id, false)
	s.id = SenderID(w.id())
	w.open(s)
}

func (w *walk) send() {
	if len(w.senders) == 0 {
		w.Skip()
	}
	w.pause()
	s := w.senders[w.pick(len(w.senders), "sender")]
	n := rapid.SampledFrom([]int{1, 1, 2, 5, 12}).Draw(w.T, "n")
	var ms []message.Message
	for i := range n {
		ms = append(ms, w.message(s, s.next+uint64(i)))
	}
	frame, info := frameOf(ms...)
	floor := uint64(0)
	if !s.o.Producer.IsZero() && w.pick(2, "floor") == 0 {
		floor = s.upTo + 1
	}
	if err := w.s.core.Send(w.s.now, SendBatch{Sender: s.id, ProducerSeq: s.next, Floor: floor, Frame: frame, Info: info}); err != nil {
		w.Fatalf("send: %v", err)
	}
	s.next += uint64(n)
}

// message returns the message of a producer seq: the same one each time.
func (w *walk) message(s *walkSender, seq uint64) message.Message {
	if m, ok := s.bodies[seq]; ok && !s.o.Producer.IsZero() {
		return m
	}
	body := fmt.Sprintf("%d:%d", s.id, seq)
	if s.o.Producer.IsZero() {
		s.anonym++
		body = fmt.Sprintf("a%d:%d", s.id, s.anonym)
	}
	m := message.Message{Body: append([]byte(body), make([]byte, 10*w.pick(3, "size"))...)}
	if w.pick(3, "special") == 0 {
		m.Priority = rapid.SampledFrom([]int{0, 0, 3, 9}).Draw(w.T, "priority")
		m.Key = rapid.SampledFrom([]string{"", "k", "l", "k"}).Draw(w.T, "key")
		m.Delay = rapid.SampledFrom([]time.Duration{0, 0, 50 * time.Millisecond, time.Minute}).Draw(w.T, "delay")
		if m.TTL = rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond, time.Hour}).Draw(w.T, "ttl"); m.TTL > 0 {
			m.TTL += m.Delay
		}
		m.DedupID = rapid.SampledFrom([]string{"", "", "", "d", "e"}).Draw(w.T, "dedup")
	}
	s.bodies[seq] = m
	return m
}

func (w *walk) closeSender() {
	if len(w.senders) == 0 {
		w.Skip()
	}
	i := w.pick(len(w.senders), "sender")
	s := w.senders[i]
	w.s.core.CloseSender(w.s.now, s.id, s.upTo+1 == s.next && w.pick(2, "forget") == 0)
	w.senders = slices.Delete(w.senders, i, i+1)
}

func (w *walk) openReceiver() {
	if len(w.receivers) >= 3 {
		w.Skip()
	}
	w.pause()
	r := &walkReceiver{id: ReceiverID(w.id()), held: map[uint64]LeaseSpan{}}
	r.o.Announces = rapid.Bool().Draw(w.T, "announces")
	r.o.Unbound = w.pick(5, "unbound") == 0
	r.o.Visibility = rapid.SampledFrom([]int64{0, 0, 1000}).Draw(w.T, "visibility")
	if w.pick(3, "session") > 0 {
		r.o.Session = uint64(r.id)
	}
	if err := w.s.core.OpenReceiver(w.s.now, r.id, r.o); err != nil {
		w.Fatalf("%v", err)
	}
	w.receivers = append(w.receivers, r)
}

// any returns one of the open receivers.
func (w *walk) any() *walkReceiver {
	var open []*walkReceiver
	for _, r := range w.receivers {
		if !r.lost {
			open = append(open, r)
		}
	}
	if len(open) == 0 {
		w.Skip()
	}
	return open[w.pick(len(open), "receiver")]
}

func (w *walk) credit() {
	r := w.any()
	w.pause()
	r.asked += rapid.SampledFrom([]uint64{1, 3, 10, 30}).Draw(w.T, "messages")
	r.bytes += rapid.SampledFrom([]uint64{1 << 40, 1 << 40, 1, 50}).Draw(w.T, "bytes")
	if err := w.s.core.Credit(w.s.now, r.id, r.asked, r.bytes); err != nil {
		w.Fatalf("%v", err)
	}
}

// some returns some of the messages that a receiver holds, and perhaps receipts that are none.
func (w *walk) some(r *walkReceiver) []LeaseSpan {
	var out []LeaseSpan
	for _, x := range slices.Sorted(maps.Keys(r.held)) {
		if w.pick(2, "take") == 0 {
			continue
		}
		l := r.held[x]
		if n := len(out); n > 0 && out[n-1].Seq+out[n-1].Count == x && out[n-1].Lease+out[n-1].Count == l.Lease {
			out[n-1].Count++
		} else {
			out = append(out, l)
		}
	}
	if w.pick(6, "wrong") == 0 {
		out = append(out, LeaseSpan{rapid.Uint64Range(1, 50).Draw(w.T, "lease"), rapid.Uint64Range(1, 200).Draw(w.T, "seq"), 3})
	}
	if len(out) > 1 && w.pick(4, "order") == 0 {
		slices.Reverse(out)
		out = append(out, out[0])
	}
	return out
}

func (w *walk) settle() {
	r := w.any()
	w.pause()
	spans := w.some(r)
	if len(spans) == 0 {
		w.Skip()
	}
	c, t := w.s.core, Token(w.id())
	switch op := rapid.SampledFrom([]string{"ack", "ack", "nack", "release", "extend", "started"}).Draw(w.T, "op"); op {
	case "ack":
		c.Ack(w.s.now, t, spans)
		w.acks[t] = map[uint64]bool{}
		w.forEach(spans, func(x uint64) { w.acks[t][x] = true })
	case "nack":
		c.Nack(w.s.now, t, spans, rapid.SampledFrom([]int64{-1, -1, 0, 100}).Draw(w.T, "delay"))
	case "release":
		c.Release(w.s.now, t, spans)
	case "extend":
		c.Extend(w.s.now, t, spans, rapid.SampledFrom([]int64{0, 1, 5000}).Draw(w.T, "by"))
		return
	case "started":
		c.Started(w.s.now, t, r.id, spans)
		return
	}
	w.forEach(spans, func(x uint64) { delete(r.held, x) })
}

func (w *walk) forEach(spans []LeaseSpan, f func(x uint64)) {
	for _, s := range spans {
		for i := range s.Count {
			f(s.Seq + i)
		}
	}
}

func (w *walk) loseReceiver() {
	r := w.any()
	clean := w.pick(3, "clean") == 0
	w.s.core.CloseReceiver(w.s.now, r.id, clean)
	r.lost = true
	if clean {
		w.drop(r)
	}
}

// flap opens a receiver and loses it before it has begun with anything.
func (w *walk) flap() {
	id := ReceiverID(w.id())
	if err := w.s.core.OpenReceiver(w.s.now, id, ReceiverOptions{Announces: true}); err != nil {
		w.Fatalf("%v", err)
	}
	n := rapid.SampledFrom([]uint64{1, 3, 20}).Draw(w.T, "messages")
	if err := w.s.core.Credit(w.s.now, id, n, 1<<40); err != nil {
		w.Fatalf("%v", err)
	}
	w.s.step(rapid.Bool().Draw(w.T, "store first"))
	w.s.core.CloseReceiver(w.s.now, id, false)
}

func (w *walk) drop(r *walkReceiver) {
	w.receivers = slices.DeleteFunc(w.receivers, func(x *walkReceiver) bool { return x == r })
}

func (w *walk) resume() {
	if len(w.receivers) == 0 {
		w.Skip()
	}
	old := w.receivers[w.pick(len(w.receivers), "old")]
	r := &walkReceiver{id: ReceiverID(w.id()), o: old.o, held: map[uint64]LeaseSpan{}}
	held := w.some(old)
	kept, err := w.s.core.ResumeReceiver(w.s.now, old.id, r.id, r.o, held)
	if err != nil {
		w.Fatalf("%v", err)
	}
	for _, s := range kept {
		for i := range s.Count {
			l, ok := old.held[s.Seq+i]
			if ok && l.Lease != s.Lease+i {
				w.Fatalf("receiver %d keeps %+v, which it held under %d", r.id, s, l.Lease)
			}
			r.held[s.Seq+i] = LeaseSpan{s.Lease + i, s.Seq + i, 1}
		}
	}
	w.drop(old)
	w.receivers = append(w.receivers, r)
}

func (w *walk) tick() {
	if at, ok := w.s.core.Deadline(); ok && w.pick(2, "deadline") == 0 {
		w.s.now = max(w.s.now, min(at, w.s.now+100_000))
	} else {
		w.s.now += rapid.SampledFrom([]int64{1, 10, 300, 6_000, 40_000}).Draw(w.T, "later")
	}
	// What is put off is done within few calls: the core never asks to be called for ever.
	for n := 0; ; n++ {
		w.s.core.Tick(w.s.now)
		w.s.step(true)
		if at, ok := w.s.core.Deadline(); !ok || at > w.s.now {
			return
		}
		if n > 20 {
			w.Fatalf("the core wants to be called again and again")
		}
	}
}

func (w *walk) configure() {
	cfg := Config{
		VisibilityTimeout: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(w.T, "visibility"),
		MaxDeliveries:     rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(w.T, "max deliveries"),
		DeadLetter:        rapid.SampledFrom([]string{"", "dlq"}).Draw(w.T, "dead letter"),
		RetryFirst:        rapid.SampledFrom([]time.Duration{0, Unlimited, 10 * time.Millisecond}).Draw(w.T, "retry"),
		Retention:         rapid.SampledFrom([]time.Duration{0, 0, 0, time.Minute}).Draw(w.T, "retention"),
		MaxMessages:       rapid.SampledFrom([]int64{0, 0, 5, 20}).Draw(w.T, "max messages"),
		MaxBytes:          rapid.SampledFrom([]int64{0, 0, 0, 100}).Draw(w.T, "max bytes"),
		Overflow:          rapid.SampledFrom([]Overflow{"", OverflowReject, OverflowDropOldest}).Draw(w.T, "overflow"),
		DefaultDelay:      rapid.SampledFrom([]time.Duration{0, 0, 0, 200 * time.Millisecond}).Draw(w.T, "delay"),
	}
	w.s.core.Configure(w.s.now, 0, cfg)
}

func (w *walk) admin() {
	c := w.s.core
	switch rapid.SampledFrom([]string{"pause", "resume", "resume", "purge", "redrive", "redrive to", "storage"}).Draw(w.T, "admin") {
	case "pause":
		c.Pause(w.s.now, 0, true)
	case "resume":
		c.Pause(w.s.now, 0, false)
	case "purge":
		if w.pick(4, "really") == 0 {
			c.Purge(w.s.now, 0)
		}
	case "redrive":
		c.Redrive(w.s.now, 0, "", w.pick(3, "limit"))
	case "redrive to":
		if w.pick(4, "really") == 0 {
			c.Redrive(w.s.now, 0, "other", 1+w.pick(3, "limit"))
		}
	case "storage":
		c.StorageFull(w.s.now, rapid.Bool().Draw(w.T, "full"))
	}
}

func (w *walk) move() {
	if len(w.moves) == 0 {
		w.Skip()
	}
	if len(w.moves) > 2 {
		w.Fatalf("%d moves at once", len(w.moves))
	}
	seq := w.moves[0]
	w.moves = w.moves[1:]
	var err error
	if rapid.Bool().Draw(w.T, "fails") {
		err = errors.New("target full")
	}
	w.s.core.MoveDone(w.s.now, seq, err)
}

func (w *walk) snapshot() { w.snap, w.snapSeq = w.s.snapshot() }

func (w *walk) crash() {
	snap, seq := w.snap, w.snapSeq
	if seq > w.s.log0() || w.pick(3, "snapshot") == 0 {
		snap, seq = nil, 0
	}
	w.s.take()
	w.s.onEvent = nil
	w.s.crash(rapid.Bool().Draw(w.T, "written"), snap, seq, rapid.SampledFrom([]int64{0, 5, 7_000, 2 * clockStep}).Draw(w.T, "down"))
	w.s.onEvent = w.event
	w.m = newModel()
	w.m.strict = false
	for _, l := range w.s.log {
		if bad := w.m.apply(l.seq, l.e); bad != "" {
			w.Fatalf("log at seq %d: %s", l.seq, bad)
		}
	}
	// Recovered may have decided something already.
	for _, o := range w.s.pending {
		at := o.first
		for _, e := range o.events {
			w.m.apply(at, e)
			at += Seqs(e)
		}
	}
	w.m.strict = true
	for x := range w.accepted {
		if w.m.added[x] == nil {
			w.Fatalf("message %d was acknowledged, and is not stored", x)
		}
	}
	for x := range w.deleted {
		if w.m.msgs[x] != nil {
			w.Fatalf("message %d was deleted, and is there", x)
		}
	}
	w.moves, w.acks = nil, map[Token]map[uint64]bool{}
	senders, receivers := w.senders, w.receivers
	w.senders, w.receivers = nil, nil
	for _, s := range senders {
		s.id = SenderID(w.id())
		w.senders = append(w.senders, s)
		w.open(s)
	}
	for _, old := range receivers {
		r := &walkReceiver{id: ReceiverID(w.id()), o: old.o, held: map[uint64]LeaseSpan{}}
		kept, err := w.s.core.ResumeReceiver(w.s.now, 0, r.id, r.o, slices.Collect(maps.Values(old.held)))
		if err != nil {
			w.Fatalf("%v", err)
		}
		// What its session was leased and never got, or has given up, keeps nobody waiting.
		w.s.core.flights.Each(0, maxSeq, func(lo, _ uint64, f flight) bool {
			if f.session != 0 && f.session == r.o.session() && f.receiver != r.id {
				w.Fatalf("message %d is leased to session %d, whose receiver %d does not hold it", lo, f.session, r.id)
			}
			return true
		})
		for _, s := range kept {
			for i := range s.Count {
				r.held[s.Seq+i] = LeaseSpan{s.Lease + i, s.Seq + i, 1}
			}
		}
		w.receivers = append(w.receivers, r)
	}
}

func (w *walk) diskFull() {
	w.s.refuse()
	w.s.core.StorageFull(w.s.now, false)
}

// relocate asks for survivors as if too much were dead.
func (w *walk) relocate() {
	c := w.s.core
	w.s.store()
	if c.space.asked || c.space.pending != nil || c.full {
		w.Skip()
	}
	spans, _ := c.survivors()
	if len(spans) == 0 {
		w.Skip()
	}
	c.space.asked = true
	w.s.relocate(spans)
}
