package linktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// Faulty is a link over another one that fails by seed: streams break, with what was on its way in either direction lost, or arriving
// when nobody expects it any more; openings fail before or after they took effect; everything takes its time. The other side
// hears of a break late, as a broker does of a connection that is half open.
type Faulty struct {
	holdfast.Link
	life time.Duration // of a stream, about; 0: they do not break
	lag  time.Duration // of a message, at most

	mu  sync.Mutex
	rng *rand.Rand
}

// NewFaulty returns a link over another one. Streams break after life on average (0: never); what goes over them is late
// by up to lag.
func NewFaulty(link holdfast.Link, seed uint64, life, lag time.Duration) *Faulty {
	return &Faulty{Link: link, life: life, lag: lag, rng: rand.New(rand.NewPCG(seed, 0))}
}

func (f *Faulty) random(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.Int64N(n)
}

// Heal ends the faults of streams that are opened from now on.
func (f *Faulty) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life, f.lag = 0, 0
}

func (f *Faulty) kind() (life, lag time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.life, f.lag
}

var errFault = errors.New("connection lost")

// pipe carries calls out in order, each a little later.
type pipe struct {
	f    *Faulty
	lag  time.Duration
	mu   sync.Mutex
	q    []func()
	busy bool
}

func (p *pipe) post(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.q = append(p.q, fn)
	if !p.busy {
		p.busy = true
		go p.run()
	}
}

func (p *pipe) run() {
	for {
		if p.lag > 0 {
			<-time.After(time.Duration(p.f.random(int64(p.lag))))
		}
		p.mu.Lock()
		if len(p.q) == 0 {
			p.busy = false
			p.mu.Unlock()
			return
		}
		fn := p.q[0]
		p.q = p.q[1:]
		p.mu.Unlock()
		fn()
	}
}

// wire is one stream of a faulty link.
type wire struct {
	f      *Faulty
	up, dn *pipe
	mu     sync.Mutex
	cut    bool // the client hears nothing more
	lost   bool // what the client says is lost; else it arrives late
	broken func(error)
	close  func(clean bool) // the inner stream
}

func (f *Faulty) wire(lag time.Duration) *wire {
	return &wire{f: f, up: &pipe{f: f, lag: lag}, dn: &pipe{f: f, lag: lag}}
}

// live has the stream break some time.
func (w *wire) live(life time.Duration) {
	if life > 0 {
		time.AfterFunc(time.Duration(w.f.random(int64(2*life))), w.snap)
	}
}

func (w *wire) snap() {
	w.mu.Lock()
	was := w.cut
	w.cut, w.lost = true, w.lost || w.f.random(2) == 0
	w.mu.Unlock()
	if !was {
		w.broken(errFault)
	}
	time.AfterFunc(time.Duration(w.f.random(int64(2*time.Second))), func() { w.close(false) })
}

// say carries a call of the client to the other side.
func (w *wire) say(fn func()) {
	w.up.post(func() {
		w.mu.Lock()
		lost := w.lost
		w.mu.Unlock()
		if !lost {
			fn()
		}
	})
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

// hear carries an event to the client.
func (w *wire) hear(fn func()) {
	if w.isCut() {
		return
	}
	w.dn.post(func() {
		if !w.isCut() {
			fn()
		}
	})
}

// hang ends the stream from the client's side.
func (w *wire) hang(clean bool) {
	w.mu.Lock()
	was := w.cut
	w.cut = true
	w.mu.Unlock()
	if !was {
		w.say(func() { w.close(clean) })
	}
}

func (f *Faulty) fails(life time.Duration) bool { return life > 0 && f.random(4) == 0 }

// faultySender is a stream of a sender.
type faultySender struct {
	*wire
	inner holdfast.SenderLink
	ev    holdfast.SenderEvents
}

// OpenSender implements holdfast.Link.
func (f *Faulty) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	life, lag := f.kind()
	if f.fails(life) {
		return nil, holdfast.SenderOpened{}, errFault
	}
	s := &faultySender{wire: f.wire(lag), ev: ev}
	inner, opened, err := f.Link.OpenSender(ctx, name, c, s)
	if err != nil {
		return nil, opened, err
	}
	s.inner, s.broken, s.close = inner, ev.Broken, inner.Close
	if f.fails(life) {
		s.hang(false)
		return nil, holdfast.SenderOpened{}, errFault
	}
	s.live(life)
	return s, opened, nil
}

func (s *faultySender) Send(first uint64, frame []byte) error {
	s.say(func() { _ = s.inner.Send(first, frame) })
	return nil
}
func (s *faultySender) Close(clean bool)             { s.hang(clean) }
func (s *faultySender) Accepted(a holdfast.Accepted) { s.hear(func() { s.ev.Accepted(a) }) }
func (s *faultySender) Refused(resume uint64, err error) {
	s.hear(func() { s.ev.Refused(resume, err) })
}
func (s *faultySender) Waits(waits bool, why string) { s.hear(func() { s.ev.Waits(waits, why) }) }
func (s *faultySender) Broken(err error)             { s.hear(func() { s.ev.Broken(err) }) }

// faultyReceiver is a stream of a receiver.
type faultyReceiver struct {
	*wire
	inner holdfast.ReceiverLink
	ev    holdfast.ReceiverEvents
}

// OpenReceiver implements holdfast.Link.
func (f *Faulty) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	life, lag := f.kind()
	if f.fails(life) {
		return nil, holdfast.ReceiverOpened{}, errFault
	}
	r := &faultyReceiver{wire: f.wire(lag), ev: ev}
	inner, opened, err := f.Link.OpenReceiver(ctx, name, c, r)
	if err != nil {
		return nil, opened, err
	}
	r.inner, r.broken, r.close = inner, ev.Broken, inner.Close
	if f.fails(life) {
		r.hang(false)
		return nil, holdfast.ReceiverOpened{}, errFault
	}
	r.live(life)
	return r, opened, nil
}

func (r *faultyReceiver) answer(reply holdfast.Outcomes) holdfast.Outcomes {
	if reply == nil {
		return nil
	}
	return func(o []queue.Outcome, err error) { r.hear(func() { reply(o, err) }) }
}

func (r *faultyReceiver) Credit(messages, bytes uint64) {
	r.say(func() { r.inner.Credit(messages, bytes) })
}
func (r *faultyReceiver) Started(s []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.say(func() { r.inner.Started(s, r.answer(reply)) })
}
func (r *faultyReceiver) Ack(s []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.say(func() { r.inner.Ack(s, r.answer(reply)) })
}
func (r *faultyReceiver) Nack(s []queue.LeaseSpan, d time.Duration, reply holdfast.Outcomes) {
	r.say(func() { r.inner.Nack(s, d, r.answer(reply)) })
}
func (r *faultyReceiver) Release(s []queue.LeaseSpan, reply holdfast.Outcomes) {
	r.say(func() { r.inner.Release(s, r.answer(reply)) })
}
func (r *faultyReceiver) Extend(s []queue.LeaseSpan, by time.Duration, reply holdfast.Outcomes) {
	r.say(func() { r.inner.Extend(s, by, r.answer(reply)) })
}
func (r *faultyReceiver) Close(clean bool)            { r.hang(clean) }
func (r *faultyReceiver) Deliver(runs []holdfast.Run) { r.hear(func() { r.ev.Deliver(runs) }) }
func (r *faultyReceiver) Lost(s []queue.LeaseSpan, why string) {
	r.hear(func() { r.ev.Lost(s, why) })
}
func (r *faultyReceiver) Broken(err error) { r.hear(func() { r.ev.Broken(err) }) }
