package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

func queues(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("q%d", i))
	}
	return out
}

func send(t *testing.T, q *holdfast.Queue, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := q.Send(ctx, holdfast.Message{Body: []byte(body)}); err != nil {
		t.Fatalf("send %q: %v", body, err)
	}
}

// §8: three brokers share the queues; each queue has one owner, and any broker takes what is sent to any queue.
func TestQueuesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		names := queues(30)
		for i, name := range names {
			send(t, s.nodes[string("abc"[i%3])].Queue(name), "x")
		}
		s.settled(10*time.Second, names...)
		count := map[string]int{}
		for _, q := range names {
			for name := range s.owners(q) {
				count[name]++
			}
		}
		for name := range s.nodes {
			if count[name] == 0 {
				t.Errorf("%s has none of %d queues: %v", name, len(names), count)
			}
		}
		for _, m := range s.nodes {
			all, err := m.Admin().List(t.Context())
			if err != nil || len(all) != len(names) {
				t.Fatalf("%d queues, %v", len(all), err)
			}
			for _, q := range all {
				if !s.owners(q.Name)[q.Owner] || q.Epoch == 0 || !q.Ready || q.Stats.Depth != 1 {
					t.Errorf("%s says of %s: %+v", m.name, q.Name, q)
				}
			}
		}
	})
}

// §8, G1: the queues of a broker that dies are at others within a few seconds, with all that was acknowledged.
func TestOwnerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		names := queues(9)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		dies := s.nodes["b"]
		lost := 0
		for _, name := range names {
			if s.owners(name)["b"] {
				lost++
			}
		}
		if lost == 0 {
			t.Fatal("b has nothing to lose")
		}
		dies.kill()
		began := time.Now()
		for _, name := range names {
			send(t, s.nodes["c"].Queue(name), "2")
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("the pause was %v", d)
		}
		s.settled(time.Second, names...)
		for _, name := range names {
			info, err := s.nodes["a"].Admin().Describe(t.Context(), name)
			if err != nil || info.Stats.Depth != 2 || info.Owner == "b" {
				t.Errorf("%s: %+v %v", name, info, err)
			}
			if got := s.history(name); len(got) > 2 {
				t.Errorf("%s was acquired by %v", name, got)
			}
		}
	})
}

// §8: a broker that leaves hands over within a moment, and one that joins takes over likewise: no send waits for long.
func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b")
		names := queues(12)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		ctx, stop := context.WithCancel(t.Context())
		worst := make(chan time.Duration, len(names))
		for _, name := range names {
			q := s.nodes["a"].Queue(name)
			go func() {
				var longest time.Duration
				for ctx.Err() == nil {
					began := time.Now()
					if _, err := q.Send(t.Context(), holdfast.Message{Body: []byte("x")}); err != nil {
						t.Error(err)
					}
					longest = max(longest, time.Since(began))
					time.Sleep(10 * time.Millisecond)
				}
				worst <- longest
			}()
		}
		s.join("c")
		time.Sleep(10 * time.Second)
		s.settled(time.Second, names...)
		if err := s.nodes["b"].Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.nodes["b"].gone()
		s.settled(5*time.Second, names...)
		if err := s.nodes["c"].Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.nodes["c"].gone()
		time.Sleep(5 * time.Second)
		stop()
		for range names {
			if d := <-worst; d > time.Second {
				t.Errorf("a send waited for %v", d)
			}
		}
		s.settled(time.Second, names...)
		for _, name := range names {
			if got := s.history(name); len(got) > 4 { // at first, and by the join and both leaves at most
				t.Errorf("%s was acquired by %v", name, got)
			}
		}
	})
}

// G5: a broker that cannot reach the store stops serving by itself before others take its queues, and gets nothing in or out
// when it comes back; its queues move once, and come back once.
func TestPartitionFromTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		names := queues(9)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		var mine []string
		for _, name := range names {
			if s.owners(name)["b"] {
				mine = append(mine, name)
			}
		}
		b := s.nodes["b"]
		b.j.shut()
		s.until(5*time.Second, "b stops", func() bool { return len(b.b.Held()) == 0 })
		if b.Valid() {
			t.Error("b takes itself for valid")
		}
		began := time.Now()
		for _, name := range mine {
			send(t, s.nodes["c"].Queue(name), "2")
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the others took %v more", d)
		}
		time.Sleep(20 * time.Second)
		b.j.reopen()
		for _, name := range mine {
			s.until(10*time.Second, "b has its queues again", func() bool { return s.owners(name)["b"] })
			if got := s.history(name); len(got) != 3 {
				t.Errorf("%s was acquired by %v", name, got)
			}
		}
		s.settled(time.Second, names...)
	})
}

// The store is away for 30 s, for all: nothing is lost, and service goes on within 5 s of its answering again.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		names := queues(9)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		for _, m := range s.nodes {
			m.j.shut()
		}
		sent := make(chan error, len(names))
		for _, name := range names {
			go func() {
				_, err := s.nodes["a"].Queue(name).Send(t.Context(), holdfast.Message{Body: []byte("2")})
				sent <- err
			}()
		}
		time.Sleep(30 * time.Second)
		for _, m := range s.nodes {
			m.j.reopen()
		}
		began := time.Now()
		for range names {
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("resumed after %v", d)
		}
		s.settled(10*time.Second, names...)
		time.Sleep(5 * time.Second)
		for _, name := range names {
			info, err := s.nodes["b"].Admin().Describe(t.Context(), name)
			if err != nil || info.Stats.Depth != 2 {
				t.Errorf("%s: %+v %v", name, info.Stats, err)
			}
			if got := s.history(name); len(got) > 2 {
				t.Errorf("%s was acquired by %v", name, got)
			}
		}
	})
}

// §8: a broker that lives but cannot open one queue is passed over for it, and for no other.
func TestPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		names := queues(9)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		var broken, fine string
		for _, name := range names {
			if s.owners(name)["b"] {
				broken, fine = fine, name
			}
		}
		if broken == "" {
			t.Fatal("b has too few queues")
		}
		b := s.nodes["b"]
		b.j.mu.Lock()
		b.j.broken["queue/"+broken] = errors.New("no permission for this one")
		b.j.mu.Unlock()
		b.b.Yield(broken, errors.New("it broke"))
		began := time.Now()
		send(t, s.nodes["c"].Queue(broken), "2")
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("passed over after %v", d)
		}
		before := len(s.history(broken))
		time.Sleep(2 * time.Minute)
		if at := s.owners(broken); len(at) != 1 || at["b"] {
			t.Errorf("%s is at %v", broken, at)
		}
		if got := s.history(broken); len(got) != before {
			t.Errorf("%s was acquired by %v", broken, got)
		}
		if !s.owners(fine)["b"] {
			t.Errorf("%s left b", fine)
		}
		b.j.mu.Lock()
		delete(b.j.broken, "queue/"+broken)
		b.j.mu.Unlock()
		s.until(11*time.Minute, "it is tried again", func() bool { return s.owners(broken)["b"] })
	})
}

// §8: a queue that no broker can open, since the store is too slow for that, is served soon after it can be opened again, however long that took.
func TestNobodyCanOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b", "c")
		send(t, s.nodes["a"].Queue("q"), "1")
		s.settled(10*time.Second, "q")
		slow := errors.New("no answer in time")
		for _, m := range s.nodes {
			m.j.mu.Lock()
			m.j.broken["queue/q"] = slow
			m.j.mu.Unlock()
		}
		for _, m := range s.nodes {
			m.b.Yield("q", slow)
		}
		time.Sleep(20 * time.Minute)
		for _, m := range s.nodes {
			m.j.mu.Lock()
			delete(m.j.broken, "queue/q")
			m.j.mu.Unlock()
		}
		if d := s.until(10*time.Minute, "it is served", func() bool { return len(s.owners("q")) > 0 }); d > 7*time.Second {
			t.Errorf("it is served after %v", d)
		}
		send(t, s.nodes["b"].Queue("q"), "2")
		s.settled(10*time.Second, "q")
	})
}

// G5: two brokers that both believe they own a queue, for as long as the view of one is held back, take it from each other ever more
// seldom; what they acknowledged is there.
func TestViewHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "a", "b")
		names := queues(6)
		for _, name := range names {
			send(t, s.nodes["a"].Queue(name), "1")
		}
		s.settled(10*time.Second, names...)
		a := s.nodes["a"]
		a.j.mu.Lock()
		a.j.blind = map[string][]byte{} // it believes to be alone
		a.j.mu.Unlock()
		time.Sleep(2 * time.Minute)
		for _, name := range names {
			if got := s.history(name); len(got) > 14 {
				t.Errorf("in two minutes %s was acquired %d times: %v", name, len(got), got)
			}
		}
		a.j.mu.Lock()
		a.j.blind = nil
		a.j.mu.Unlock()
		time.Sleep(6 * time.Minute)
		s.settled(time.Second, names...)
		for _, name := range names {
			if info, err := a.Admin().Describe(t.Context(), name); err != nil || info.Stats.Depth != 1 {
				t.Errorf("%s: %+v %v", name, info.Stats, err)
			}
		}
	})
}
