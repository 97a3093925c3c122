package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/message"
	"pgregory.net/rapid"
)

// poisoning is a queue whose workers die of some messages, in the middle of others.
type poisoning struct {
	*rapid.T
	s         *shell
	limit     int
	announces bool
	workers   []*poisonWorker
	ids       uint64
	crashes   int
	ends      map[uint64]string // how each message has left
	dies      map[uint64]bool   // which are poisoned
	handed    map[uint64]int
}

// poisonWorker is a process with one receiver and several handlers.
type poisonWorker struct {
	id      ReceiverID
	waiting []Delivery
	running []Delivery
	asked   uint64
}

// TestPoison: of messages that kill the process which begins with them, exactly those end in the dead-letter queue, whatever else was in
// progress there (G2, §7 Delivery counts), for every limit of two deliveries or more, and not before the limit is reached.
func TestPoison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &poisoning{T: t, ends: map[uint64]string{}, dies: map[uint64]bool{}, handed: map[uint64]int{}}
		p.limit = rapid.IntRange(2, 5).Draw(t, "limit")
		p.announces = rapid.Bool().Draw(t, "announces")
		p.s = newShell(t, Options{ProducerTTL: window.UnlimitedTTL}, 1e12)
		p.s.onEvent, p.s.onEffect = p.event, p.effect
		p.s.core.Configure(p.s.now, 0, Config{
			MaxDeliveries: p.limit, DeadLetter: "dlq", RetryFirst: Unlimited,
			VisibilityTimeout: rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "visibility"),
		})
		p.send(rapid.IntRange(2, 30).Draw(t, "messages"), rapid.IntRange(0, 3).Draw(t, "poisoned"))
		for range rapid.IntRange(1, 2).Draw(t, "processes") {
			p.workers = append(p.workers, p.open())
		}
		for n := 0; len(p.ends) < len(p.handed); n++ {
			if n > 20_000 {
				t.Fatalf("after %d steps there are still %d messages", n, len(p.handed)-len(p.ends))
			}
			p.step(n)
		}
		for seq, end := range p.ends {
			if want := map[bool]string{true: "moving", false: "deleted"}[p.dies[seq]]; end != want {
				t.Fatalf("message %d, poisoned %v: %s after %d deliveries", seq, p.dies[seq], end, p.handed[seq])
			}
			if p.dies[seq] && p.handed[seq] < p.limit {
				t.Fatalf("message %d moved after %d deliveries, the limit is %d", seq, p.handed[seq], p.limit)
			}
		}
	})
}

func (p *poisoning) send(n, poisoned int) {
	if err := openAnonymous(p.s.core, p.s.now, 1); err != nil {
		p.Fatalf("%v", err)
	}
	for i := range n {
		m := message.Message{Body: []byte("good")}
		if i >= n-poisoned {
			m.Body = []byte("poison")
		}
		m.Priority = rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(p.T, "priority")
		frame, info := frameOf(m)
		seq := p.s.core.NextSeq()
		if err := p.s.core.Send(p.s.now, SendBatch{Sender: 1, ProducerSeq: uint64(i + 1), Frame: frame, Info: info}); err != nil {
			p.Fatalf("send: %v", err)
		}
		p.dies[seq], p.handed[seq] = strings.HasPrefix(string(m.Body), "p"), 0
	}
	p.s.step(true)
}

func openAnonymous(c *Core, now int64, id SenderID) error {
	_, err := c.OpenSender(now, id, SenderOptions{})
	return err
}

func (p *poisoning) open() *poisonWorker {
	p.ids++
	w := &poisonWorker{id: ReceiverID(p.ids)}
	if err := p.s.core.OpenReceiver(p.s.now, w.id, ReceiverOptions{Announces: p.announces}); err != nil {
		p.Fatalf("%v", err)
	}
	return w
}

func (p *poisoning) event(_ uint64, e *Event) {
	end := map[Kind]string{KindDeleted: "deleted", KindMoving: "moving", KindParked: "parked", KindExpired: "expired"}[e.Kind]
	for _, s := range e.Spans {
		for i := range s.Count {
			if e.Kind == KindLeased {
				p.handed[s.Seq+i]++
			}
			if end != "" {
				p.ends[s.Seq+i] = end
			}
		}
	}
}

func (p *poisoning) effect(e Effect, err error) {
	switch e := e.(type) {
	case Deliver:
		for _, w := range p.workers {
			if w.id != e.Receiver {
				continue
			}
			for _, r := range e.Runs {
				for i := range r.Count {
					w.waiting = append(w.waiting, Delivery{LeaseSpan: LeaseSpan{r.Lease + i, r.Seq + i, 1}, Attempt: r.Attempt})
				}
			}
		}
	case LeaseLost:
		p.Fatalf("a worker that renews its leases lost %v", e.Spans)
	}
	if err != nil {
		p.Fatalf("%v", err)
	}
}

// step lets one worker do something.
func (p *poisoning) step(n int) {
	i := rapid.IntRange(0, len(p.workers)-1).Draw(p.T, "worker")
	w, c := p.workers[i], p.s.core
	switch rapid.SampledFrom([]string{"credit", "start", "start", "start", "finish", "finish", "time", "crash"}).Draw(p.T, "step") {
	case "credit":
		w.asked = max(w.asked, uint64(n+rapid.IntRange(1, 40).Draw(p.T, "credit")))
		if err := c.Credit(p.s.now, w.id, w.asked, 1<<40); err != nil {
			p.Fatalf("%v", err)
		}
	case "start":
		if len(w.waiting) > 0 && len(w.running) < 10 {
			p.start(i, w)
		}
	case "finish":
		if len(w.running) > 0 {
			p.finish(w)
		}
	case "time":
		p.later(rapid.SampledFrom([]int64{10, 600, 6_000}).Draw(p.T, "later"))
	case "crash":
		if p.crashes < 5 && rapid.IntRange(0, 20).Draw(p.T, "really") == 0 {
			p.crashes++
			p.crash()
		}
	}
	p.s.step(true)
}

// start begins with a message, of which the worker dies if it is poisoned. That it began may not have been heard, the first time.
func (p *poisoning) start(i int, w *poisonWorker) {
	d := w.waiting[0]
	w.waiting = w.waiting[1:]
	if p.announces && (d.Attempt > 1 || rapid.IntRange(0, 5).Draw(p.T, "heard") > 0) {
		p.s.core.Started(p.s.now, 0, w.id, []LeaseSpan{d.LeaseSpan})
	}
	if w.running = append(w.running, d); p.dies[d.Seq] {
		p.s.step(true)
		p.s.core.CloseReceiver(p.s.now, w.id, false)
		p.workers[i] = p.open()
	}
}

// finish ends a handler: it has done its work, or failed, but not as often as to be given up.
func (p *poisoning) finish(w *poisonWorker) {
	i := rapid.IntRange(0, len(w.running)-1).Draw(p.T, "which")
	d := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	if d.Attempt < p.limit && rapid.IntRange(0, 5).Draw(p.T, "fails") == 0 {
		p.s.core.Nack(p.s.now, 0, []LeaseSpan{d.LeaseSpan}, 0)
		return
	}
	p.s.core.Ack(p.s.now, 0, []LeaseSpan{d.LeaseSpan})
}

// later lets time pass. Workers that live renew their leases meanwhile.
func (p *poisoning) later(by int64) {
	for end := p.s.now + by; p.s.now < end; {
		p.s.now = min(end, p.s.now+300)
		for _, w := range p.workers {
			if held := w.held(); len(held) > 0 {
				p.s.core.Extend(p.s.now, 0, held, 0)
			}
		}
		p.s.core.Tick(p.s.now)
		p.s.step(true)
	}
}

func (w *poisonWorker) held() (out []LeaseSpan) {
	for _, d := range append(slices.Clone(w.running), w.waiting...) {
		out = append(out, d.LeaseSpan)
	}
	return out
}

// crash lets the broker crash; some of the workers die with it, the others come back. One that has a message alone does not: that would be the
// message's fault, as far as anybody can tell.
func (p *poisoning) crash() {
	on := p.s.onEvent
	p.s.onEvent = nil
	p.s.crash(true, nil, 0, 0)
	p.s.onEvent = on
	for i, w := range p.workers {
		if len(w.held()) != 1 && rapid.Bool().Draw(p.T, "dies too") {
			p.workers[i] = p.open()
			continue
		}
		p.ids++
		id := ReceiverID(p.ids)
		kept, err := p.s.core.ResumeReceiver(p.s.now, 0, id, ReceiverOptions{Announces: p.announces}, w.held())
		if err != nil {
			p.Fatalf("%v", err)
		}
		n := uint64(0)
		for _, s := range kept {
			n += s.Count
		}
		if n != uint64(len(w.held())) {
			p.Fatalf("worker %d kept %v of %v", w.id, kept, w.held())
		}
		w.id, w.asked = id, 0
	}
}

// After a limit of one delivery there is none alone: it says at most once.
func TestPoisonAtMostOnce(t *testing.T) {
	e := leaseEnding{counted: true, lost: true}
	for limit, want := range []string{"false false", "true false", "false true", "false false"} {
		if got := fmt.Sprint(e.over(&flight{tries: 1}, limit), e.alone(1, limit)); got != want {
			t.Errorf("limit %d: over, alone: %s, want %s", limit, got, want)
		}
	}
}
