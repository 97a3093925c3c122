package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/window"
)

// envelope is a Delivery of strings.
func envelope(id, incarnation string, seq, floor uint64, to delivery.ReplyTo, bodies ...string) delivery.Delivery[string] {
	return delivery.Delivery[string]{ProducerID: id, Incarnation: incarnation, Seq: seq, Floor: floor, ReplyTo: to, Bodies: bodies}
}

// The failure that public implementations of this protocol are known for: a handler slower than the resend timer.
// §6: "a retransmission of it neither starts nor queues a second handler, and is not acknowledged".
func TestSlowHandlerRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, func(context.Context, string) error {
			calls++
			time.Sleep(time.Minute)
			return nil
		})
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: c})
		start := time.Now()
		if err := p.Send(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		if calls != 1 || time.Since(start) != time.Minute {
			t.Errorf("%d calls, confirmed after %v", calls, time.Since(start))
		}
		if st := c.Stats(); st.InProgress < 5 || st.Known != 0 {
			t.Errorf("the retransmissions were %+v", st)
		}
	})
}

// A slow handler does not keep back the acknowledgement of the message handled before it, though both came in one
// envelope and acknowledgements are batched.
func TestAcknowledgementIsNotHeldByTheNextHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, func(_ context.Context, body string) error {
			if body == "slow" {
				time.Sleep(time.Hour)
			}
			return nil
		})
		to := &collector{}
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "quick", "slow", "quick"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if a := to.take(); len(a) != 1 || a[0].First != 1 || a[0].Last != 1 {
			t.Errorf("acknowledged %v a millisecond later", a)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if a := to.take(); len(a) != 1 || a[0].First != 2 || a[0].Last != 3 {
			t.Errorf("acknowledged %v at the end", a)
		}
	})
}

// §6: "on an error or a panic does not acknowledge …, and tells a hook, a metric and a rate-limited log with producer
// id and seq"; "producer id, incarnation and seq are read from ctx by one documented function".
func TestHandlerErrorAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logs{}
		var failures []string
		boom := errors.New("boom")
		attempts := map[string]int{}
		c := newConsumer(t, delivery.ConsumerOptions[string]{Logger: l.logger(), OnHandlerError: func(m delivery.Metadata, err error) {
			var p *delivery.PanicError
			failures = append(failures, fmt.Sprint(m.ProducerID, m.Incarnation, m.Seq, errors.Is(err, boom), errors.As(err, &p) && len(p.Stack) > 0))
			panic("a hook may not bring the consumer down")
		}}, func(ctx context.Context, body string) error {
			m, ok := delivery.MetadataOf(ctx)
			if !ok || m != (delivery.Metadata{ProducerID: "p", Incarnation: "i", Seq: m.Seq}) {
				t.Errorf("metadata %+v %v", m, ok)
			}
			if attempts[body]++; attempts[body] > 1 {
				return nil
			}
			switch body {
			case "error":
				return boom
			case "panic":
				panic(boom)
			case "goexit":
				runtime.Goexit()
			}
			return nil
		})
		to := &collector{}
		send := func() {
			_ = c.Deliver(envelope("p", "i", 1, 1, to, "fine", "error", "panic", "goexit", "fine2"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		send()
		var acked []uint64
		for _, a := range to.take() {
			for s := a.First; s <= a.Last; s++ {
				acked = append(acked, s)
			}
		}
		slices.Sort(acked)
		if fmt.Sprint(acked) != "[1 5]" {
			t.Errorf("acknowledged %v", acked)
		}
		if got := fmt.Sprint(failures); got != "[pi2 true false pi3 true true pi4 false true]" {
			t.Errorf("hook: %s", got)
		}
		if st := c.Stats(); st.Failed != 3 || st.Panics != 2 || st.Handled != 2 || st.Unsettled != 0 || st.Running != 0 {
			t.Errorf("%+v", st)
		}
		lines := l.lines("handler failed")
		if len(lines) != 1 || !strings.Contains(lines[0], "producer_id=p") || !strings.Contains(lines[0], "seq=2") {
			t.Errorf("log: %q", lines)
		}
		send() // the retransmission of those that failed succeeds; the others are acknowledged again, unhandled
		if st := c.Stats(); st.Handled != 5 || st.Known != 2 || attempts["fine"] != 1 {
			t.Errorf("%+v", st)
		}
		if _, ok := delivery.MetadataOf(t.Context()); ok {
			t.Error("metadata of any context")
		}
	})
}

// A context that is derived from the handler's has the metadata too, ends with Close, and may be kept.
func TestHandlerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []context.Context
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, func(ctx context.Context, _ string) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			kept = append(kept, ctx)
			_ = cancel
			return nil
		})
		_ = c.Deliver(envelope("p", "i", 1, 1, &collector{}, make([]string, 100)...))
		synctest.Wait()
		for i, ctx := range kept {
			if m, ok := delivery.MetadataOf(ctx); !ok || m.Seq != uint64(i+1) || ctx.Err() != nil {
				t.Fatalf("context %d: %+v %v", i, m, ctx.Err())
			}
		}
		c.Close()
		for _, ctx := range kept {
			if ctx.Err() == nil {
				t.Fatal("a context did not end with Close")
			}
		}
	})
}

// §6: "Malformed envelopes become dead letters (a hook, a metric, a rate-limited log), without calling the handler and
// without an acknowledgement … A refused envelope never disturbs the state of healthy producers, and a failing
// acknowledgement is only a lost acknowledgement."
func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, to, bad := &logs{}, &collector{}, &collector{}
		var letters []delivery.DeadLetter
		handled := 0
		c := newConsumer(t, delivery.ConsumerOptions[string]{Logger: l.logger(), OnDeadLetter: func(d delivery.DeadLetter) {
			letters = append(letters, d)
		}}, func(context.Context, string) error { handled++; return nil })
		long := strings.Repeat("x", 257)
		malformed := []struct {
			field string
			d     delivery.Delivery[string]
		}{
			{"reply-to", envelope("p", "i", 1, 1, nil, "x")},
			{"seq", envelope("p", "i", 0, 1, bad, "x")},
			{"seq", envelope("p", "i", 1<<53, 1<<53-1, bad, "x")},
			{"floor", envelope("p", "i", 1, 0, bad, "x")},
			{"seq", envelope("p", "i", 1+65_536, 1, bad, "x")},
			{"producer id", envelope("", "i", 1, 1, bad, "x")},
			{"producer id", envelope(long, "i", 1, 1, bad, "x")},
			{"incarnation", envelope("p", "", 1, 1, bad, "x")},
			{"incarnation", envelope("p", long, 1, 1, bad, "x")},
			{"seq", envelope("p", "i", 1, 1, bad)}, // of no message
			{"parts", delivery.Delivery[string]{ProducerID: "p", Incarnation: "i", Seq: 1, Floor: 1, ReplyTo: bad, Bodies: []string{"x"}, Parts: 2}},
		}
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "healthy"))
		synctest.Wait()
		for i, m := range malformed {
			if err := c.Deliver(m.d); err != nil {
				t.Error(err)
			}
			var fault *window.Fault
			if len(letters) != i+1 || !errors.As(letters[i].Cause, &fault) || fault.Field != m.field || len(letters[i].ProducerID) > 256 {
				t.Errorf("malformed %d: %+v, want a fault of %s", i, letters[len(letters)-1], m.field)
			}
		}
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "healthy"))
		_ = c.Deliver(envelope("p", "i", 2, 1, to, "healthy"))
		synctest.Wait()
		if st := c.Stats(); handled != 2 || st.DeadLetters != uint64(len(malformed)) || st.Known != 1 || st.Producers != 1 || len(bad.take()) != 0 {
			t.Errorf("%d handled, %+v", handled, st)
		}
		if n := len(l.lines("dead letters")); n != 1 {
			t.Errorf("%d log lines", n)
		}
	})
}

// A body that does not decode is a dead letter with the cause: not handled, not acknowledged, and the next is handled.
func TestUndecodableBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var letters []delivery.DeadLetter
		var handled []int
		c := newConsumer(t, delivery.ConsumerOptions[int]{OnDeadLetter: func(d delivery.DeadLetter) { letters = append(letters, d) }},
			func(_ context.Context, n int) error { handled = append(handled, n); return nil })
		to := &collector{}
		_ = c.Remote().Deliver(delivery.Delivery[[]byte]{ProducerID: "p", Incarnation: "i", Seq: 1, Floor: 1, ReplyTo: to,
			Bodies: [][]byte{[]byte("1"), []byte("{nonsense"), nil, []byte("4")}})
		time.Sleep(time.Second)
		synctest.Wait()
		if fmt.Sprint(handled) != "[1 4]" || len(letters) != 2 || letters[0].Seq != 2 || string(letters[0].Body) != "{nonsense" || letters[0].Cause == nil {
			t.Errorf("handled %v, dead letters %+v", handled, letters)
		}
		acks := to.take()
		if len(acks) != 2 || acks[0].Last != 1 || acks[1].First != 4 {
			t.Errorf("acknowledged %v", acks)
		}
	})
}

// §6: "a failing acknowledgement is only a lost acknowledgement".
func TestFailingAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logs{}
		c := newConsumer(t, delivery.ConsumerOptions[string]{Logger: l.logger()}, func(context.Context, string) error { return nil })
		to := &collector{err: errors.New("connection closed")}
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "x"))
		synctest.Wait()
		to.boom = true
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "x"))
		_ = c.Deliver(envelope("p", "i", 2, 1, to, "y"))
		synctest.Wait()
		if st := c.Stats(); st.AckErrors != 3 || st.Handled != 2 {
			t.Errorf("%+v", st)
		}
		fine := &collector{} // the producer has reconnected
		_ = c.Deliver(envelope("p", "i", 1, 1, fine, "x", "y"))
		synctest.Wait()
		if a := fine.take(); len(a) != 1 || a[0].Last != 2 {
			t.Errorf("acknowledged %v", a)
		}
		if n := len(l.lines("acknowledgements lost")); n != 1 {
			t.Errorf("%d log lines", n)
		}
	})
}

// §6: handlers run "with a bound on the whole consumer (MaxConcurrent …)", and one at a time for each producer; others
// get their turn although one producer has a long backlog.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		var mu sync.Mutex
		order := map[string][]uint64{}
		var firstOfLast time.Duration
		start := time.Now()
		c := newConsumer(t, delivery.ConsumerOptions[string]{MaxConcurrent: 3}, func(ctx context.Context, _ string) error {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			m, _ := delivery.MetadataOf(ctx)
			mu.Lock()
			order[m.ProducerID] = append(order[m.ProducerID], m.Seq)
			if m.ProducerID == "p9" && m.Seq == 1 {
				firstOfLast = time.Since(start)
			}
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		to := &collector{}
		for i := range 10 {
			_ = c.Deliver(envelope(fmt.Sprint("p", i), "i", 1, 1, to, make([]string, 100)...))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most.Load() != 3 || c.Stats().Handled != 1000 {
			t.Errorf("at most %d at once, %+v", most.Load(), c.Stats())
		}
		for id, seqs := range order {
			if !slices.IsSorted(seqs) || len(seqs) != 100 {
				t.Errorf("%s: %v", id, seqs)
			}
		}
		if firstOfLast > time.Second {
			t.Errorf("the tenth producer waited %v for its first turn", firstOfLast)
		}
	})
}

// MaxConcurrentPerProducer gives up the order for parallelism.
func TestConcurrencyPerProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, delivery.ConsumerOptions[string]{MaxConcurrent: 8, MaxConcurrentPerProducer: 4}, func(context.Context, string) error {
			time.Sleep(time.Second)
			return nil
		})
		p := newProducer(t, delivery.ProducerOptions[string]{Consumer: c, WindowSize: 100, ResendTimeout: time.Hour})
		start := time.Now()
		for range 40 {
			if _, err := p.Post(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 10*time.Second || d > 14*time.Second {
			t.Errorf("40 handlers of a second, 4 at a time, took %v", d)
		}
	})
}

// G9: Shutdown lets what was accepted be handled and acknowledged, takes nothing more, and ends with its context.
func TestConsumerShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &collector{}
		slow := func(ctx context.Context, _ string) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, slow)
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "a", "b"))
		go func() {
			time.Sleep(time.Millisecond)
			if err := c.Deliver(envelope("p", "i", 3, 1, to, "late")); !errors.Is(err, delivery.ErrStopped) {
				t.Errorf("delivery during Shutdown: %v", err)
			}
		}()
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-c.Stopped()
		if a := to.take(); len(a) == 0 || a[len(a)-1].Last != 2 || c.Stats().Handled != 2 {
			t.Errorf("acknowledged %v", a)
		}

		c = newConsumer(t, delivery.ConsumerOptions[string]{}, slow)
		_ = c.Deliver(envelope("p", "i", 1, 1, to, "a", "b", "c"))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-c.Stopped()
		if a := to.take(); len(a) != 1 || a[0].Last != 1 {
			t.Errorf("acknowledged %v by a consumer that was closed at its second message", a)
		}

		c = newConsumer(t, delivery.ConsumerOptions[string]{}, slow)
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error("Shutdown of an idle consumer:", err)
		}
	})
}

// §6: "ProducerIdleTTL (default 5 min …) is swept at its own cadence, so an idle entry goes after one to two of it."
func TestIdleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsumer(t, delivery.ConsumerOptions[string]{}, func(context.Context, string) error { return nil })
		start := time.Now()
		for i := range 100 {
			_ = c.Deliver(envelope(fmt.Sprint("p", i), "i", 1, 1, &collector{}, "x"))
			used := time.Now()
			if i%10 == 0 {
				for c.TrackedProducers() > 0 {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if idle := time.Since(used); idle < 5*time.Minute || idle > 10*time.Minute+time.Second {
					t.Errorf("entry used at %v went after %v", used.Sub(start), idle)
				}
			}
			time.Sleep(7 * time.Second)
		}
	})
}
