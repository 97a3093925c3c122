package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/queue"
)

// better returns a name of a queue that the first broker is to have rather than the second.
func better(first, second string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("q", i); placement.Score(first, name) > placement.Score(second, name) {
			return name
		}
	}
}

// exists tells whether a queue is in the store.
func (s *sim) exists(queue string) bool {
	s.t.Helper()
	j := s.store.Open()
	defer j.Close() //nolint:errcheck // it was only read
	r, err := j.Open(s.t.Context(), broker.StreamName(queue))
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := r.Info(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Epoch > 0 && !info.Dropped
}

// alone is a broker that uses the store without being a member, as one does whose view of the others is behind: a member that sees that another one
// is to have a queue leaves it alone.
func (s *sim) alone() *broker.Broker {
	s.t.Helper()
	b, err := broker.Open(s.t.Context(), s.store.Open(), broker.Options{Lazy: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// A queue is deleted by way of any broker, and can be made anew at once.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		for i, name := range queues(9) {
			first, second := s.nodes[string("abc"[i%3])], s.nodes[string("abc"[i/3])]
			send(t, first.Queue(name), "1")
			if err := second.Admin().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if s.exists(name) {
				t.Errorf("%s exists", name)
			}
			if _, err := first.Admin().Describe(t.Context(), name); !errors.Is(err, holdfast.ErrNoQueue) {
				t.Errorf("describe: %v", err)
			}
			send(t, s.nodes["c"].Queue(name), "2")
			if info, err := second.Admin().Describe(t.Context(), name); err != nil || info.Stats.Depth != 1 {
				t.Errorf("the new queue: %+v, %v", info, err)
			}
		}
	})
}

// A queue that is deleted at the moment at which another broker takes it over stays deleted; and can be made anew (G2).
func TestDeletedWhileTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		name := better("b", "a")
		send(t, s.nodes["a"].Queue(name), "1")
		b := s.join("b")
		h := b.j.hold(name)
		<-h.reached // it has seen that the queue is stored, and read it
		alone := s.alone()
		if err := alone.Admin().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		close(h.release)
		if err := alone.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(30 * time.Second)
		if s.exists(name) {
			t.Error("the deleted queue is back")
		}
		if all, err := b.Admin().List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("there are %+v, %v", all, err)
		}
		if _, err := b.Admin().Describe(t.Context(), name); !errors.Is(err, holdfast.ErrNoQueue) {
			t.Errorf("describe: %v", err)
		}
		send(t, s.nodes["a"].Queue(name), "2")
		if info, err := b.Admin().Describe(t.Context(), name); err != nil || info.Stats.Depth != 1 || info.Owner != "b" {
			t.Errorf("the new queue: %+v, %v", info, err)
		}
	})
}

// A queue that is deleted and made anew at the moment at which another broker takes it over has what was sent to the new one (G1).
func TestMadeAnewWhileTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		name := better("b", "a")
		send(t, s.nodes["a"].Queue(name), "1")
		b := s.join("b")
		h := b.j.hold(name)
		<-h.reached
		alone := s.alone()
		if err := alone.Admin().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := alone.Admin().Create(t.Context(), name, queue.Config{}); err != nil {
			t.Fatal(err)
		}
		send(t, alone.Queue(name), "2")
		send(t, alone.Queue(name), "3")
		close(h.release)
		s.until(10*time.Second, "b has it", func() bool { return s.owners(name)["b"] })
		if info, err := b.Admin().Describe(t.Context(), name); err != nil || info.Stats.Depth != 2 {
			t.Errorf("the new queue: %+v, %v", info, err)
		}
		if err := alone.Close(t.Context()); err != nil && !errors.Is(err, journal.ErrFenced) {
			t.Error(err)
		}
	})
}

// Who uses a queue at a broker that was fenced by the one that deletes it, is told so, and does not make it anew.
func TestDeletedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a")
		q := s.nodes["a"].Queue("q")
		send(t, q, "1")
		r, err := q.NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Receive(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := r.Receive(t.Context(), 1)
			done <- err
		}()
		synctest.Wait()
		st, err := s.store.Open().Acquire(t.Context(), broker.StreamName("q"))
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if !errors.Is(err, holdfast.ErrDeleted) {
				t.Errorf("the receiver ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the receiver goes on")
		}
		_ = r.Close(t.Context()) // there is nothing left to close
		if s.exists("q") {
			t.Error("the deleted queue is back")
		}
	})
}
