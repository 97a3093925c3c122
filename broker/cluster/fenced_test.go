package cluster

import (
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
