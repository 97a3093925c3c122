package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
)

// §8: a fenced owner waits one expiry before it competes, also for whoever uses the queue while the owner still asks the store, which is slow, whether
// the queue was deleted.
func TestFencedOwnerWaitsWhoeverAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		a := s.nodes["a"]
		send(t, a.Queue("q"), "1")
		if _, err := s.store.Open().Acquire(t.Context(), broker.StreamName("q")); err != nil { // another broker, as whose view "a" is not there
			t.Fatal(err)
		}
		h := a.j.holdOpen("q")
		a.b.Yield("q", fmt.Errorf("told so: %w", journal.ErrFenced))
		<-h.reached // it asks whether the queue was deleted, and has no answer
		sent := make(chan error, 1)
		go func() {
			_, err := a.Queue("q").Send(t.Context(), holdfast.Message{Body: []byte("2")})
			sent <- err
		}()
		time.Sleep(DefaultExpiry - 100*time.Millisecond)
		if got := s.history("q"); len(got) != 1 {
			t.Errorf("within the expiry it was acquired again: %v", got)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if got := s.history("q"); len(got) != 2 {
			t.Errorf("it was acquired by %v", got)
		}
	})
}

// G5: a broker that has to suppose that it was replaced, and was, learns it from a store that takes half a heartbeat to answer, and says so.
func TestReplacedSaysFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		a := s.nodes["a"]
		send(t, a.Queue("q"), "1")
		if _, err := s.store.Open().Acquire(t.Context(), broker.StreamName("q")); err != nil { // another broker
			t.Fatal(err)
		}
		a.j.shut()
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.yield(t.Context(), "q")
		}()
		time.Sleep(DefaultHeartbeat / 2)
		a.j.reopen()
		<-done
		s.until(DefaultHeartbeat, "it is fenced", func() bool { return len(a.b.Held()) == 0 })
		if n := a.Metrics().Fenced; n != 1 {
			t.Errorf("it says %d times that it was fenced", n)
		}
	})
}

// G5: a broker that stood still between the storing of a lease and its hand-over, and was replaced meanwhile, hands nothing out and says that it was fenced.
func TestReplacedBeforeHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		a := s.nodes["a"]
		q := a.Queue("q")
		send(t, q, "1")
		r, err := q.NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a.j.mu.Lock()
		a.j.stored = func() {
			if _, err := s.store.Open().Acquire(t.Context(), broker.StreamName("q")); err != nil { // another broker
				t.Error(err)
			}
			a.valid.Store(0)
		}
		a.j.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), DefaultHeartbeat/2)
		defer cancel()
		if ds, err := r.Receive(ctx, 1); err == nil {
			t.Errorf("%d messages were handed out", len(ds))
		}
		s.until(DefaultHeartbeat, "it is fenced", func() bool { return a.Metrics().Fenced == 1 })
		cancel()
		_ = r.Close(ctx) // its queue is elsewhere
	})
}
