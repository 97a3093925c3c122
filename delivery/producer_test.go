package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
)

// §6: "Numbers messages from 1; holds each until it is acknowledged; retransmits the same seq and incarnation after
// ResendTimeout (default 500 ms, then capped exponential backoff with jitter, cap 10 s)".
func TestRetransmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, start := &wire[string]{}, time.Now()
		var hooks []int
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, OnRetransmit: func(first, last uint64, attempt int) {
			hooks = append(hooks, attempt)
		}})
		c, err := p.Post(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first := w.take()
		if len(first) != 1 || first[0].Seq != 1 || first[0].Floor != 1 || first[0].ProducerID != p.ID() || first[0].Incarnation != p.Incarnation() {
			t.Fatalf("first transmission: %+v", first)
		}
		time.Sleep(500*time.Millisecond - 1)
		synctest.Wait()
		if d := w.take(); len(d) != 0 {
			t.Fatalf("sent again before 500 ms: %+v", d)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		again := w.take()
		// 0.5, 1, 2, 4, 8, 10, 10… less up to a quarter each: in the minute after the first.
		if len(again) < 8 || len(again) > 12 {
			t.Fatalf("%d repetitions in a minute", len(again))
		}
		for i, d := range again {
			if d.Seq != 1 || d.Incarnation != first[0].Incarnation || d.Bodies[0] != "one" || hooks[i] != i+1 {
				t.Errorf("repetition %d: %+v, hook %d", i, d, hooks[i])
			}
		}
		if err := first[0].ReplyTo.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 1, Last: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if d := w.take(); len(d) != 0 {
			t.Fatalf("sent again after the acknowledgement, %v after the start: %+v", time.Since(start), d)
		}
	})
}

// §6: "An acknowledgement that does not echo producer id and incarnation is ignored, so that a forged one, or a straggler
// of an earlier incarnation, cannot cancel a retransmission."
func TestForgedAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := &wire[string]{}, &logs{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, ProducerID: "p", Logger: l.logger()})
		c, _ := p.Post(t.Context(), "one")
		synctest.Wait()
		reply := w.take()[0].ReplyTo
		for _, a := range []delivery.Acknowledgment{
			{ProducerID: "p", Incarnation: "guessed", First: 1, Last: 1},
			{ProducerID: "q", Incarnation: p.Incarnation(), First: 1, Last: 1},
			{ProducerID: "", Incarnation: "", First: 1, Last: 1},
			{ProducerID: "p", Incarnation: p.Incarnation(), First: 2, Last: 1 << 60}, // never transmitted
		} {
			if err := reply.Acknowledge([]delivery.Acknowledgment{a}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if d := w.take(); len(d) != 1 || !errors.Is(c.Err(), delivery.ErrUnconfirmed) {
			t.Fatalf("a forged acknowledgement cancelled the retransmission: %v", c.Err())
		}
		if st := p.Stats(); st.StrangeAcks != 3 || st.Confirmed != 0 {
			t.Errorf("%+v", st)
		}
		if n := len(l.lines("acknowledgements of another producer")); n != 1 {
			t.Errorf("%d log lines, want one a minute", n)
		}
	})
}

// §6: "Each construction mints an unguessable incarnation (64 random bits or more)"; "ProducerID defaults to a random one".
func TestIncarnationAndIDAreRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: &wire[string]{}})
		if len(p.Incarnation()) < 13 || seen[p.Incarnation()] || seen[p.ID()] { // 5 bits a character
			t.Fatalf("id %q incarnation %q", p.ID(), p.Incarnation())
		}
		seen[p.Incarnation()], seen[p.ID()] = true, true
	}
}

// §6: "When the window is full a send blocks its caller (context-bound)"; "A send given up by its context before its
// first transmission uses no seq."
func TestFullWindowBlocksTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire[string]{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, WindowSize: 2})
		for _, v := range []string{"a", "b"} {
			if _, err := p.Post(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.Post(ctx, "given up")
		if !errors.Is(err, delivery.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("Post into a full window: %v after %v", err, time.Since(start))
		}
		ended, stop := context.WithCancel(t.Context())
		stop()
		if err := p.Send(ended, "never"); !errors.Is(err, delivery.ErrNotSent) {
			t.Fatalf("Send with an ended context: %v", err)
		}
		posted := make(chan error, 1)
		go func() {
			_, err := p.Post(t.Context(), "c")
			posted <- err
		}()
		synctest.Wait()
		if st := p.Stats(); st.Blocked != 1 || st.Unconfirmed != 2 || st.NextSeq != 3 {
			t.Fatalf("%+v", st)
		}
		reply := w.take()[0].ReplyTo
		_ = reply.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 2, Last: 2}})
		if err := <-posted; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d := w.take()
		if last := d[len(d)-1]; last.Seq != 3 || last.Bodies[0] != "c" || last.Floor != 1 {
			t.Errorf("the waiting message got %+v", last)
		}
	})
}

// §6: "or, in the asynchronous form, waits in a bounded buffer whose fullness the caller sees".
func TestOfferBuffersAndSaysWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire[string]{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, WindowSize: 1, BufferSize: 2})
		for i := range 3 {
			if err := p.Offer(fmt.Sprint(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		err := p.Offer("3", nil)
		if !errors.Is(err, delivery.ErrBufferFull) || !errors.Is(err, delivery.ErrNotSent) || p.Buffered() != 2 {
			t.Fatalf("fourth offer: %v, %d buffered", err, p.Buffered())
		}
		// A blocked sender waits behind what is buffered: order is that of the calls.
		go func() {
			if _, err := p.Post(t.Context(), "3"); err != nil {
				t.Error(err)
			}
		}()
		var got []string
		for seq := range uint64(4) {
			synctest.Wait()
			for _, d := range w.take() {
				got = append(got, d.Bodies...)
				_ = d.ReplyTo.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: seq + 1, Last: seq + 1}})
			}
		}
		if fmt.Sprint(got) != "[0 1 2 3]" || p.Buffered() != 0 {
			t.Errorf("transmitted %v, %d buffered", got, p.Buffered())
		}
	})
}

// G4: in bytes too, for the window and for the buffer.
func TestWindowBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire[[]byte]{}
		p := newProducer(t, delivery.ProducerOptions[[]byte]{Remote: w, Codec: delivery.Raw(), WindowBytes: 100})
		big := make([]byte, 1000)
		if _, err := p.Post(t.Context(), big); err != nil { // one is always let through
			t.Fatal(err)
		}
		if err := p.Offer(make([]byte, 10), nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Offer(make([]byte, 91), nil); !errors.Is(err, delivery.ErrBufferFull) {
			t.Fatalf("101 bytes in a buffer of 100: %v", err)
		}
		synctest.Wait()
		if st := p.Stats(); st.Unconfirmed != 1 || st.Buffered != 1 || st.UnconfirmedBytes != 1000 {
			t.Fatalf("%+v", st)
		}
		reply := w.take()[0].ReplyTo
		_ = reply.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 1, Last: 1}})
		if st := p.Stats(); st.Unconfirmed != 1 || st.Buffered != 0 || st.UnconfirmedBytes != 10 {
			t.Fatalf("%+v", st)
		}
	})
}

// §6: "Confirmation is exactly once per message: nil after the acknowledgement, an error if the producer stops first."
// Stop in every state that a message can be in: acknowledged, transmitted, in the buffer, of a blocked caller.
func TestStopSettlesEveryConfirmationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire[string]{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, WindowSize: 3, BufferSize: 2})
		var mu sync.Mutex
		outcomes := map[string][]error{}
		settle := func(name string) func(error) {
			return func(err error) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[name] = append(outcomes[name], err)
			}
		}
		_ = p.PostFunc(t.Context(), "acked", settle("acked"))
		_ = p.PostFunc(t.Context(), "sent", settle("sent"))
		handle, _ := p.Post(t.Context(), "handle")
		_ = p.Offer("buffered", settle("buffered"))
		blocked := make(chan error, 2)
		go func() { blocked <- p.Send(t.Context(), "blocked") }()
		synctest.Wait()
		reply := w.take()[0].ReplyTo
		ack := []delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 1, Last: 1}}
		_ = reply.Acknowledge(ack) // lets "buffered" into the window
		_ = reply.Acknowledge(ack)
		synctest.Wait()
		_ = p.Offer("still buffered", settle("still buffered"))

		p.Close()
		p.Close()
		<-p.Stopped()
		if err := reply.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 1, Last: 5}}); !errors.Is(err, delivery.ErrStopped) {
			t.Errorf("acknowledgement after the stop: %v", err)
		}
		synctest.Wait()

		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]error{
			"acked": nil, "sent": delivery.ErrUnconfirmed, "buffered": delivery.ErrUnconfirmed, "still buffered": delivery.ErrNotSent,
		} {
			got := outcomes[name]
			if len(got) != 1 || !errors.Is(got[0], want) || want != nil && !errors.Is(got[0], delivery.ErrStopped) {
				t.Errorf("%s: %v, want %v once", name, got, want)
			}
		}
		if err := handle.Err(); !errors.Is(err, delivery.ErrUnconfirmed) || !errors.Is(err, delivery.ErrStopped) {
			t.Errorf("handle: %v", err)
		}
		if err := <-blocked; !errors.Is(err, delivery.ErrNotSent) || !errors.Is(err, delivery.ErrStopped) {
			t.Errorf("blocked: %v", err)
		}
		if err := p.Offer("late", nil); !errors.Is(err, delivery.ErrStopped) || !errors.Is(err, delivery.ErrNotSent) {
			t.Errorf("offer after Close: %v", err)
		}
		if len(w.lastWords()) != 0 {
			t.Error("a farewell although something was unconfirmed")
		}
	})
}

// The same under real concurrency: senders of all kinds, acknowledgements and Close race; each confirmation comes
// exactly once.
func TestStopRace(t *testing.T) {
	for range 50 {
		c := newConsumer(t, delivery.ConsumerOptions[int]{}, func(context.Context, int) error { return nil })
		p := newProducer(t, delivery.ProducerOptions[int]{Consumer: c, WindowSize: 4, BufferSize: 4})
		var accepted, settled atomic.Int64
		var senders sync.WaitGroup
		for s := range 4 {
			senders.Go(func() {
				for i := range 200 {
					var err error
					count := func(error) { settled.Add(1) }
					switch s {
					case 0:
						err = p.Offer(i, count)
					case 1:
						err = p.PostFunc(context.Background(), i, count)
					case 2:
						var conf *delivery.Confirmation
						if conf, err = p.Post(context.Background(), i); err == nil {
							<-conf.Done()
							settled.Add(1)
						}
					default:
						err = p.Send(context.Background(), i)
						if err == nil || errors.Is(err, delivery.ErrUnconfirmed) {
							settled.Add(1)
							accepted.Add(1)
						}
						continue
					}
					if err == nil {
						accepted.Add(1)
					} else if !errors.Is(err, delivery.ErrNotSent) {
						t.Errorf("sender %d: %v", s, err)
					}
					if i == 100 && s == 1 {
						p.Close()
					}
				}
			})
		}
		senders.Wait()
		<-p.Stopped()
		if accepted.Load() != settled.Load() {
			t.Fatalf("%d accepted, %d settled", accepted.Load(), settled.Load())
		}
	}
}

// §6: "Closing with nothing unconfirmed tells the consumer, which frees the entry (best effort)."
func TestFarewell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, func(context.Context, string) error { return nil })
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: c})
		if err := p.Send(t.Context(), "x"); err != nil || c.TrackedProducers() != 1 {
			t.Fatal(err, c.TrackedProducers())
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-p.Stopped()
		if c.TrackedProducers() != 0 || c.Stats().Farewells != 1 {
			t.Errorf("%d producers tracked after a clean close", c.TrackedProducers())
		}
	})
}

// G9: Shutdown waits for what was accepted, in the window and in the buffer, and no longer than its context.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled []int
		c := newConsumer(t, delivery.ConsumerOptions[int]{}, func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			handled = append(handled, i)
			return nil
		})
		p := newProducer(t, delivery.ProducerOptions[int]{Consumer: c, WindowSize: 1})
		for i := range 5 {
			if err := p.Offer(i, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Shutdown(t.Context()); err != nil || fmt.Sprint(handled) != "[0 1 2 3 4]" {
			t.Errorf("Shutdown: %v, handled %v", err, handled)
		}

		w := &wire[int]{}
		p = newProducer(t, delivery.ProducerOptions[int]{Consumer: w})
		conf, _ := p.Post(t.Context(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown with a dead consumer: %v", err)
		}
		if err := conf.Wait(t.Context()); !errors.Is(err, delivery.ErrStopped) {
			t.Error(err)
		}
	})
}

// G10: what a Send whose context ends tells, before and after its first transmission.
func TestSendOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire[string]{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, WindowSize: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Send(ctx, "unknown")
		if !errors.Is(err, delivery.ErrUnconfirmed) || errors.Is(err, delivery.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("transmitted, not acknowledged: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Send(ctx, "not sent"); !errors.Is(err, delivery.ErrNotSent) {
			t.Errorf("window full: %v", err)
		}
		// The unknown one goes on being sent, and its window place comes free when it is acknowledged.
		d := w.take()
		_ = d[0].ReplyTo.Acknowledge([]delivery.Acknowledgment{{ProducerID: p.ID(), Incarnation: p.Incarnation(), First: 1, Last: 1}})
		if st := p.Stats(); st.Unconfirmed != 0 || st.Confirmed != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A link that refuses, or panics, is a link that loses: counted, logged once a minute, and sent again.
func TestBrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := &wire[string]{err: errors.New("no route")}, &logs{}
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: w, Logger: l.logger()})
		if _, err := p.Post(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := len(w.take()); p.Stats().LinkErrors != uint64(n) || n < 5 {
			t.Errorf("%d transmissions, %+v", n, p.Stats())
		}
		if n := len(l.lines("link refused")); n != 1 {
			t.Errorf("%d log lines in the first minute", n)
		}
	})
}

// A message that cannot be encoded is refused at once, with the cause.
func TestEncodeError(t *testing.T) {
	p := newProducer(t, delivery.ProducerOptions[func()]{Remote: &wire[[]byte]{}})
	if err := p.Send(t.Context(), func() {}); !errors.Is(err, delivery.ErrNotSent) || !strings.Contains(err.Error(), "JSON") {
		t.Errorf("Send of a function as JSON: %v", err)
	}
	if p.Stats().NextSeq != 1 {
		t.Error("it used a number")
	}
}
