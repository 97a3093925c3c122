package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/queue"
)

// nodeOf returns the node that has a queue, and one that does not.
func (s *sim) nodeOf(queue string) (owner, other *member) {
	for name := range s.owners(queue) {
		owner = s.nodes[name]
	}
	for _, m := range s.nodes {
		if m != owner && !m.dead {
			other = m
		}
	}
	if owner == nil || other == nil {
		s.t.Fatalf("%s is at %v", queue, s.owners(queue))
	}
	return owner, other
}

// §8, §7: after the owner's death the receiver goes on: what it had not begun with comes again soon, and not only after the
// visibility timeout; what it is at work on is still its own.
func TestReceiverGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		const q, n = "work", 60
		for i := range n {
			send(t, s.nodes["a"].Queue(q), fmt.Sprint(i))
		}
		s.settled(10*time.Second, q)
		dies, other := s.nodeOf(q)
		var mu sync.Mutex
		seen, attempts := map[string]int{}, map[string]int{}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- other.Queue(q).Consume(ctx, func(_ context.Context, d *holdfast.Delivery) error {
				time.Sleep(500 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				seen[string(d.Body)]++
				attempts[string(d.Body)] = d.Attempt
				if len(seen) == n {
					stop()
				}
				return nil
			}, holdfast.ConsumeOptions{Workers: 2, Prefetch: 30})
		}()
		time.Sleep(3 * time.Second)
		dies.kill()
		began := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// 60 messages by two workers take 15 s; 3 of them are over.
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("the rest took %v", d)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range n {
			body := fmt.Sprint(i)
			if seen[body] != 1 || attempts[body] != 1 {
				t.Errorf("%s was handled %d times, in the end at attempt %d", body, seen[body], attempts[body])
			}
		}
		s.until(time.Minute, "it is empty", func() bool {
			info, err := other.Admin().Describe(t.Context(), q)
			return err == nil && info.Stats.Depth == 0
		})
	})
}

// deafLink is a link whose receivers get nothing while it is deaf, as if it had been on its way in a broker that stands still.
type deafLink struct {
	holdfast.Link
	deaf atomic.Bool
}

func (l *deafLink) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	return l.Link.OpenReceiver(ctx, queue, c, deafEvents{ev, l})
}

type deafEvents struct {
	holdfast.ReceiverEvents
	l *deafLink
}

func (e deafEvents) Deliver(runs []holdfast.Run) {
	if !e.l.deaf.Load() {
		e.ReceiverEvents.Deliver(runs)
	}
}

// §8, §7: messages whose leases the owner had stored, and not handed over any more when it died, come from its successor within the pause of
// a fail-over, and not after the visibility timeout: until then nothing else of their keys would.
func TestLeasedAtDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		const q, keys = "work", 5
		put := func(round int) {
			for i := range keys {
				if _, err := s.nodes["a"].Queue(q).Send(t.Context(), holdfast.Message{Body: fmt.Appendf(nil, "%d-%d", round, i), Key: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		put(0)
		s.settled(10*time.Second, q)
		dies, other := s.nodeOf(q)
		link := &deafLink{Link: other}
		var mu sync.Mutex
		var seen []string
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- holdfast.NewQueue(q, link, holdfast.Options{}).Consume(ctx, func(_ context.Context, d *holdfast.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, string(d.Body))
				return nil
			}, holdfast.ConsumeOptions{Workers: 2, Prefetch: 30})
		}()
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(seen)
		}
		s.until(time.Minute, "the first ones", func() bool { return count() == keys })
		link.deaf.Store(true)
		put(1) // leased to the consumer, which never hears of it
		put(2) // behind those in their keys
		s.until(time.Second, "leases", func() bool {
			info, err := other.Admin().Describe(t.Context(), q)
			return err == nil && info.Stats.InFlight == keys
		})
		dies.kill()
		link.deaf.Store(false)
		took := s.until(time.Minute, "all", func() bool { return count() == 3*keys })
		if took > 5*time.Second {
			t.Errorf("what was leased when the owner died was handed over after %v", took)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range keys {
			at := func(round int) int { return slices.Index(seen, fmt.Sprintf("%d-%d", round, i)) }
			if at(1) > at(2) {
				t.Errorf("key %d was handed over out of order: %v", i, seen)
			}
		}
	})
}

// §8: what a successor has to read while its queue waits is bounded well below what an owner alone would leave: there are snapshots.
func TestLittleToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b")
		const q = "work"
		sender, err := s.nodes["a"].Queue(q).NewSender(holdfast.SenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.store.Open().Open(t.Context(), broker.StreamName(q))
		if err != nil {
			t.Fatal(err)
		}
		const n = 25_000
		for i := range n {
			if _, err := sender.Send(t.Context(), holdfast.Message{Body: []byte("x"), Key: "k", DedupID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := sender.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		parts, err := r.Parts(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) == 0 {
			t.Errorf("%d messages without a snapshot", n)
		}
	})
}

// §7: dead letters move to a queue of another broker, once, also if that broker dies meanwhile, and back from there.
func TestDeadLettersMoveAcross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		// Names such that both queues are at different brokers.
		var from, dead string
		for i := 0; from == "" || dead == ""; i++ {
			name := fmt.Sprint("q", i)
			m := s.nodes["a"]
			m.mu.Lock()
			p := m.table.Place(name)
			m.mu.Unlock()
			switch p.ID {
			case "a":
				from = name
			case "b":
				dead = name
			}
		}
		admin := s.nodes["c"].Admin()
		if err := admin.Create(t.Context(), dead, queue.Config{}); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), from, queue.Config{MaxDeliveries: 1, DeadLetter: dead, RetryFirst: queue.Unlimited}); err != nil {
			t.Fatal(err)
		}
		const n = 20
		ids := map[string]holdfast.ID{}
		for i := range n {
			id, err := s.nodes["b"].Queue(from).Send(t.Context(), holdfast.Message{Body: fmt.Append(nil, i)})
			if err != nil {
				t.Fatal(err)
			}
			ids[fmt.Sprint(i)] = id
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.nodes["c"].Queue(from).Consume(ctx, func(context.Context, *holdfast.Delivery) error {
				return fmt.Errorf("no")
			}, holdfast.ConsumeOptions{Workers: 1})
		}()
		depth := func(name string) uint64 {
			info, err := s.nodes["c"].Admin().Describe(t.Context(), name)
			if err != nil {
				return 0
			}
			return info.Stats.Depth
		}
		s.until(time.Minute, "some have moved", func() bool { return depth(dead) >= 3 })
		s.nodes["b"].kill()
		s.until(time.Minute, "all have moved", func() bool { return depth(dead) == n && depth(from) == 0 })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		got, err := admin.Peek(t.Context(), dead, holdfast.PeekOptions{Limit: 100, Bodies: true})
		if err != nil || len(got) != n {
			t.Fatalf("%d dead letters, %v", len(got), err)
		}
		for _, m := range got {
			if m.ID != ids[string(m.Message.Body)] || len(m.Hops) != 1 || m.Hops[0].Queue != from {
				t.Errorf("dead letter %q: id %v, was %v, hops %+v", m.Message.Body, m.ID, ids[string(m.Message.Body)], m.Hops)
			}
		}
		if _, err := admin.Redrive(t.Context(), dead, "", 0); err != nil {
			t.Fatal(err)
		}
		s.until(time.Minute, "all have moved back", func() bool { return depth(from) == n && depth(dead) == 0 })
	})
}

// The dead-letter queues of brokers may not lead round in a circle, wherever they are.
func TestCycleAcross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		admin := s.nodes["c"].Admin()
		for i := range 6 {
			if err := admin.Create(t.Context(), fmt.Sprint("q", i), queue.Config{DeadLetter: fmt.Sprint("q", i+1)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Create(t.Context(), "q6", queue.Config{DeadLetter: "q0"}); err == nil {
			t.Error("a circle was made")
		}
	})
}
