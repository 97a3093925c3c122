package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// The thin thread: send, store, crash, recover, hand over, acknowledge, gone (G1, G2, G7).
func TestThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		b := open(t, j, Options{})
		ids := send(t, b.Queue("orders"), "one", "two", "three")
		if ids[0].Seq == 0 || ids[1].Seq != ids[0].Seq+1 || ids[2].Seq != ids[1].Seq+1 {
			t.Fatalf("ids %v", ids)
		}
		b.crash()

		b = open(t, j, Options{})
		h, link, opened := receive(t, b, "orders", holdfast.ReceiverConfig{}, 2)
		if opened.StreamUID != ids[0].Stream {
			t.Error("stream uid changed over a restart")
		}
		h.until(t, "two messages", func() bool { return h.count() == 2 })
		if d := describe(t, b, "orders"); d.Stats.InFlight != 2 || d.Stats.Ready != 1 {
			t.Errorf("in flight %d, ready %d", d.Stats.InFlight, d.Stats.Ready)
		}
		if o := settled(t, func(r holdfast.Outcomes) { link.Ack(h.spans(), r) }); o != nil {
			t.Errorf("ack: %v", o)
		}
		link.Credit(3, 1<<40)
		h.until(t, "the third", func() bool { return h.count() == 3 })
		if o := settled(t, func(r holdfast.Outcomes) { link.Ack(h.spans(), r) }); len(o) == 0 || o[0].Result != queue.AckGone {
			t.Errorf("second ack of the same: %v", o)
		}
		shut(t, b)

		b = open(t, j, Options{})
		if d := describe(t, b, "orders"); d.Stats.Depth != 0 || d.Stats.Sent != 3 || d.Stats.Acked != 3 {
			t.Errorf("after all was acked: %+v", d.Stats)
		}
		shut(t, b)
	})
}

// A backlog that does not fit the cache is read from the journal, in order (G6, G8).
func TestColdBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{CacheBytes: 1})
		q := b.Queue("cold")
		var batch []holdfast.Message
		for i := range 1000 {
			batch = append(batch, holdfast.Message{Body: fmt.Appendf(nil, "%04d", i)})
		}
		for i := 0; i < len(batch); i += 50 {
			if _, err := q.SendBatch(t.Context(), batch[i:i+50]); err != nil {
				t.Fatal(err)
			}
		}
		h, link, _ := receive(t, b, "cold", holdfast.ReceiverConfig{}, 0)
		for credit := uint64(7); credit < 1010; credit += 7 {
			link.Credit(credit, 1<<40)
			h.until(t, "cold messages", func() bool { return h.count() == min(credit, 1000) })
		}
		i := 0
		for _, r := range h.runs {
			c := message.NewCursor(message.FrameFromSpans(nil, int(r.Count), r.Data))
			for raw, ok := c.Next(); ok; raw, ok = c.Next() {
				if string(raw.Body) != fmt.Sprintf("%04d", i) {
					t.Fatalf("message %d is %q", i, raw.Body)
				}
				i++
			}
		}
		shut(t, b)
	})
}

// A full queue makes its sender wait, and nothing else on the broker (G4).
func TestFullQueueBlocksItsSenderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		full, other := b.Queue("full"), b.Queue("other")
		if err := full.Create(t.Context(), queue.Config{MaxMessages: 10}); err != nil {
			t.Fatal(err)
		}
		send(t, full, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		var stored atomic.Bool
		done := make(chan error, 1)
		go func() {
			_, err := full.Send(context.Background(), holdfast.Message{Body: []byte("x")})
			stored.Store(true)
			done <- err
		}()
		send(t, other, "a", "b")
		time.Sleep(time.Minute) // virtual
		if stored.Load() {
			t.Fatal("a send to a full queue came back")
		}
		if d := describe(t, b, "full"); d.Stats.Depth != 10 || d.Stats.WaitingSenders != 1 {
			t.Errorf("depth %d, waiting %d", d.Stats.Depth, d.Stats.WaitingSenders)
		}
		h, link, _ := receive(t, b, "full", holdfast.ReceiverConfig{}, 1)
		h.until(t, "a message", func() bool { return h.count() == 1 })
		settled(t, func(r holdfast.Outcomes) { link.Ack(h.spans(), r) })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		shut(t, b)
	})
}

// A second owner fences the first: nothing more in, nothing more out, and it says so (G5).
func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memory.New()
		a := open(t, j, Options{Name: "a"})
		send(t, a.Queue("q"), "one")
		h, _, _ := receive(t, a, "q", holdfast.ReceiverConfig{}, 0)
		b := open(t, j, Options{Name: "b"})
		describe(t, b, "q")
		// The first broker learns of it by its next append.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, _, err := a.OpenSender(ctx, "q", holdfast.SenderConfig{}, &moveEvents{done: make(chan error, 1)})
		if err == nil {
			var bld message.Builder
			bld.Add(&message.Message{Body: []byte("late")})
			_ = s.Send(1, bld.Finish())
		}
		h.until(t, "the end of the receiver", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.broken != nil })
		if !errors.Is(h.broken, holdfast.ErrFenced) {
			t.Errorf("receiver ended with %v", h.broken)
		}
		shut(t, b)
		shut(t, a)
	})
}

// The store hangs for 30 s: state and leases stay, every send ends stored once (G1, G3, G10).
func TestStorePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		b := open(t, j, Options{})
		q := b.Queue("q")
		send(t, q, "held")
		h, link, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 1)
		h.until(t, "a message", func() bool { return h.count() == 1 })
		j.Pause()
		results := make(chan error, 20)
		for i := range 20 {
			go func() {
				_, err := q.Send(context.Background(), holdfast.Message{Body: fmt.Appendf(nil, "%d", i)})
				results <- err
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		// It may have left or not: the sender says which.
		want := uint64(20)
		switch _, err := q.Send(ctx, holdfast.Message{Body: []byte("given up")}); {
		case errors.Is(err, holdfast.ErrUnknown):
			want++
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("a send whose context ended: %v", err)
		}
		time.Sleep(20 * time.Second) // virtual
		j.Resume()
		for range 20 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if o := settled(t, func(r holdfast.Outcomes) { link.Ack(h.spans(), r) }); o != nil {
			t.Errorf("the lease did not outlive the pause: %v", o)
		}
		if d := describe(t, b, "q"); d.Stats.Depth != want {
			t.Errorf("depth %d, want %d", d.Stats.Depth, want)
		}
		shut(t, b)
	})
}

// No room: sends are refused as not stored, receives and acks go on, and all is well again when there is room.
func TestStorageFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := fault.New(memory.New(), fault.Options{})
		b := open(t, j, Options{})
		q := b.Queue("q")
		send(t, q, "one", "two")
		j.SetPlan(func(c fault.Call) fault.Action {
			if c.Op == fault.Append && c.Record.BodyLen > 0 {
				return fault.Full()
			}
			return fault.Action{}
		})
		s, err := q.NewSender(holdfast.SenderOptions{NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Send(t.Context(), holdfast.Message{Body: []byte("three")}); !errors.Is(err, queue.ErrStorageFull) {
			t.Errorf("send to a full store: %v", err)
		}
		h, link, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 10)
		h.until(t, "both messages", func() bool { return h.count() == 2 })
		settled(t, func(r holdfast.Outcomes) { link.Ack(h.spans(), r) })
		j.SetPlan(nil)
		time.Sleep(5 * time.Second) // virtual
		if _, err := s.Send(t.Context(), holdfast.Message{Body: []byte("four")}); err != nil {
			t.Errorf("send when there is room again: %v", err)
		}
		h.until(t, "the fourth", func() bool { return h.count() == 3 })
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		shut(t, b)
	})
}

// A send that is on its way when the store turns out to be full waits, as one does that comes later; both are stored once, in order, when there is
// room again. A sender that does not wish to wait, or that a queue of policy reject does not let wait, is refused in both cases.
func TestStorageFullWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    queue.Config
		noWait bool
	}{{"waits", queue.Config{}, false}, {"no wait", queue.Config{}, true}, {"reject", queue.Config{Overflow: queue.OverflowReject, MaxMessages: 100}, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := fault.New(memory.New(), fault.Options{})
				b := open(t, j, Options{})
				q := b.Queue("q")
				if err := q.Create(t.Context(), c.cfg); err != nil {
					t.Fatal(err)
				}
				j.SetPlan(func(c fault.Call) fault.Action {
					if c.Op == fault.Append && c.Record.BodyLen > 0 {
						return fault.Full()
					}
					return fault.Action{}
				})
				ends := make(chan error, 2)
				s, err := q.NewSender(holdfast.SenderOptions{NoWait: c.noWait})
				if err != nil {
					t.Fatal(err)
				}
				for _, body := range []string{"on its way", "later"} {
					go func() { _, err := s.Send(context.Background(), holdfast.Message{Body: []byte(body)}); ends <- err }()
					time.Sleep(10 * time.Second) // virtual
				}
				if c.noWait || c.cfg.Overflow != "" {
					for range 2 {
						if err := <-ends; !errors.Is(err, queue.ErrStorageFull) || errors.Is(err, holdfast.ErrUnknown) {
							t.Errorf("send: %v", err)
						}
					}
				} else if st := s.Stats(); len(ends) > 0 || !st.Waits || st.InFlight != 2 {
					t.Errorf("%d sends came back; %+v", len(ends), st)
				}
				j.SetPlan(nil)
				if !c.noWait && c.cfg.Overflow == "" {
					for range 2 {
						if err := <-ends; err != nil {
							t.Error(err)
						}
					}
					h, link, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 10)
					h.until(t, "both messages", func() bool { return h.count() == 2 })
					if got := h.bodies(t); !slices.Equal(got, []string{"on its way", "later"}) {
						t.Errorf("received %q", got)
					}
					link.Close(true)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				shut(t, b)
			})
		})
	}
}

// A dead-letter move survives a crash at every step, and the message is there once (G2, G3; design §7).
func TestDeadLetterMoveCrashes(t *testing.T) {
	for step := 1; step <= 12; step++ {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { deadLetterCrash(t, step) })
		})
	}
}

func deadLetterCrash(t *testing.T, step int) {
	inner := memory.New()
	b := open(t, inner, Options{})
	if err := b.Queue("work").Create(t.Context(), queue.Config{MaxDeliveries: 1, DeadLetter: "dead"}); err != nil {
		t.Fatal(err)
	}
	id := send(t, b.Queue("work"), "poison")[0]
	h, _, _ := receive(t, b, "work", holdfast.ReceiverConfig{}, 1)
	h.until(t, "the message", func() bool { return h.count() == 1 })
	shut(t, b)

	// The journal dies at its step-th append, before or after it took effect.
	j := fault.New(inner, fault.Options{})
	died := make(chan struct{})
	n := 0
	j.SetPlan(func(c fault.Call) fault.Action {
		if c.Op != fault.Append {
			return fault.Action{}
		}
		if n++; n < (step+1)/2 {
			return fault.Action{}
		}
		if n == (step+1)/2 {
			close(died)
			if step%2 == 0 {
				return fault.Action{After: fault.Fault{Err: journal.ErrUnknown}}
			}
		}
		return fault.Fail()
	})
	b = open(t, j, Options{})
	_, link, _ := receive(t, b, "work", holdfast.ReceiverConfig{Held: h.spans()}, 1)
	link.Nack(h.spans(), -1, nil)
	select {
	case <-died:
	case <-time.After(time.Hour): // fewer steps than that
	}
	synctest.Wait()
	b.crash()

	b = open(t, inner, Options{})
	dead, _, _ := receive(t, b, "dead", holdfast.ReceiverConfig{}, 1)
	// The lease that the crash left may still have to end.
	pass(5 * time.Minute)
	if d := describe(t, b, "work"); d.Stats.Depth > 0 {
		// The nack was lost: it is handed out once more.
		h, link, _ = receive(t, b, "work", holdfast.ReceiverConfig{}, 1)
		pass(time.Minute)
		if h.count() > 0 {
			link.Nack(h.spans(), -1, nil)
		}
		pass(5 * time.Minute)
	}
	if dead.count() != 1 {
		t.Fatalf("step %d: %d messages in the dead-letter queue", step, dead.count())
	}
	if d := describe(t, b, "dead"); d.Stats.Sent != 1 {
		t.Errorf("step %d: dead-letter queue got %d messages", step, d.Stats.Sent)
	}
	c := message.NewCursor(message.FrameFromSpans(nil, 1, dead.runs[0].Data))
	raw, _ := c.Next()
	d, err := raw.Decode()
	if err != nil || d.Origin != (message.Origin{UID: id.Stream, Seq: id.Seq}) || len(d.Hops) != 1 || d.Hops[0].Queue != "work" ||
		d.Hops[0].Reason != queue.ReasonMaxDeliveries || d.Hops[0].Deliveries < 1 {
		t.Errorf("step %d: %+v, %v", step, d, err)
	}
	if w := describe(t, b, "work"); w.Stats.Depth != 0 || w.Stats.DeadLettered != 1 {
		t.Errorf("step %d: depth %d, dead-lettered %d", step, w.Stats.Depth, w.Stats.DeadLettered)
	}
	shut(t, b)
}

// Redrive brings dead letters back under their ids.
func TestRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		work, dead := b.Queue("work"), b.Queue("dead")
		if err := work.Create(t.Context(), queue.Config{MaxDeliveries: 1, DeadLetter: "dead"}); err != nil {
			t.Fatal(err)
		}
		id := send(t, work, "poison")[0]
		h, link, _ := receive(t, b, "work", holdfast.ReceiverConfig{}, 1)
		h.until(t, "the message", func() bool { return h.count() == 1 })
		link.Nack(h.spans(), -1, nil)
		time.Sleep(time.Second) // virtual
		peeked, err := dead.Peek(t.Context(), holdfast.PeekOptions{Bodies: true})
		if err != nil || len(peeked) != 1 || peeked[0].ID != id || string(peeked[0].Message.Body) != "poison" {
			t.Fatalf("dead letters: %+v, %v", peeked, err)
		}
		if n, err := dead.Redrive(t.Context(), "", 0); err != nil || n != 1 {
			t.Fatalf("redrive: %d, %v", n, err)
		}
		link.Credit(2, 1<<40)
		h.until(t, "the redriven message", func() bool { return h.count() == 2 })
		if r := h.runs[1]; r.Attempt != 1 {
			t.Errorf("attempt %d after redrive, want a new budget", r.Attempt)
		}
		peeked, err = work.Peek(t.Context(), holdfast.PeekOptions{Bodies: true})
		if err != nil || len(peeked) != 1 || peeked[0].ID != id || len(peeked[0].Hops) != 2 {
			t.Errorf("after redrive: %+v, %v", peeked, err)
		}
		shut(t, b)
	})
}

// A cycle of dead-letter queues is refused, and changes nothing (G11).
func TestDeadLetterCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		ad := b.Admin()
		for name, dead := range map[string]string{"a": "b", "b": "c"} {
			if err := ad.Create(t.Context(), name, queue.Config{MaxDeliveries: 1, DeadLetter: dead}); err != nil {
				t.Fatal(err)
			}
		}
		var fe *message.FieldError
		if err := ad.Configure(t.Context(), "c", queue.Config{MaxDeliveries: 1, DeadLetter: "a"}); !errors.As(err, &fe) || fe.Field != "dead-letter queue" {
			t.Errorf("cycle: %v", err)
		}
		if err := ad.Configure(t.Context(), "a", queue.Config{MaxDeliveries: 1, DeadLetter: "a"}); !errors.As(err, &fe) {
			t.Errorf("self: %v", err)
		}
		shut(t, b)
	})
}

// A receiver whose connection broke comes back under its session and goes on with what it had started.
func TestSessionResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		send(t, b.Queue("q"), "a", "b", "c")
		cfg := holdfast.ReceiverConfig{Session: [16]byte{1}, Announces: true}
		h, link, _ := receive(t, b, "q", cfg, 3)
		h.until(t, "three", func() bool { return h.count() == 3 })
		first := h.spans()[0]
		first.Count = 1
		settled(t, func(r holdfast.Outcomes) { link.Started([]queue.LeaseSpan{first}, r) })
		link.Close(false)
		time.Sleep(2 * time.Second) // virtual, within the hold
		if d := describe(t, b, "q"); d.Stats.InFlight != 1 || d.Stats.Ready != 2 {
			t.Errorf("in flight %d, ready %d", d.Stats.InFlight, d.Stats.Ready)
		}
		cfg.Held = []queue.LeaseSpan{first}
		_, link, opened := receive(t, b, "q", cfg, 0)
		if len(opened.Kept) != 1 || opened.Kept[0] != first {
			t.Fatalf("kept %v", opened.Kept)
		}
		time.Sleep(10 * time.Second) // virtual: the hold is over, the lease is not
		if o := settled(t, func(r holdfast.Outcomes) { link.Ack(opened.Kept, r) }); o != nil {
			t.Errorf("ack after resumption: %v", o)
		}
		shut(t, b)
	})
}

// Bad input is refused with the field and the limit, and costs nobody else anything (G11).
func TestBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, memory.New(), Options{})
		good, _, _ := receive(t, b, "q", holdfast.ReceiverConfig{}, 10)
		for _, name := range []string{"", "a/b", "ä", string(make([]byte, 81))} {
			var fe *message.FieldError
			if _, err := b.Queue(name).Send(t.Context(), holdfast.Message{}); !errors.As(err, &fe) {
				t.Errorf("queue name %q: %v", name, err)
			}
		}
		ev := &moveEvents{done: make(chan error, 1)}
		s, _, err := b.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(1, []byte("garbage that is no frame")); err == nil {
			t.Error("garbage accepted")
		}
		var fe *message.FieldError
		if err := <-ev.done; !errors.As(err, &fe) {
			t.Errorf("stream ended with %v", err)
		}
		if o := settled(t, func(r holdfast.Outcomes) {
			(&receiverProbe{b, t}).ack([]queue.LeaseSpan{{Lease: 99, Seq: 99, Count: 1}}, r)
		}); len(o) != 1 || o[0].Result == queue.AckDone {
			t.Errorf("ack of a receipt that never was: %v", o)
		}
		send(t, b.Queue("q"), "fine")
		good.until(t, "the good message", func() bool { return good.count() == 1 })
		shut(t, b)
	})
}

type receiverProbe struct {
	b *Broker
	t *testing.T
}

func (p *receiverProbe) ack(spans []queue.LeaseSpan, r holdfast.Outcomes) {
	_, link, _ := receive(p.t, p.b, "q", holdfast.ReceiverConfig{}, 0)
	link.Ack(spans, r)
}
