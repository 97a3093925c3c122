package cluster

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// §8, §7 Time: two brokers whose clocks differ by an hour behave as with equal clocks: a queue moves as quickly, in either direction; what was leased or
// failed comes back, and what is delayed comes, after as long as with one clock, also at the broker whose clock is behind what is stored.
func TestClocksApart(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("by ", ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { clocksApart(t, ahead) })
		})
	}
}

func clocksApart(t *testing.T, ahead time.Duration) {
	s := newSim(t, "a")
	s.ahead["b"] = ahead
	name := better("b", "a")
	q := s.nodes["a"].Queue(name)
	if err := q.Create(t.Context(), queue.Config{VisibilityTimeout: 30 * time.Second, RetryFirst: 5 * time.Second, RetryCap: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.timeouts(q)
		s.join("b")
		s.until(20*time.Second, "b has the queue", func() bool { return s.owners(name)["b"] })
		s.timeouts(q)
		s.nodes["b"].kill()
		began := time.Now()
		send(t, q, "first")
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("the pause was %v", d)
		}
		if d := s.receive(q, "first"); d.Attempt != 1 {
			t.Errorf("attempt %d", d.Attempt)
		} else {
			s.settle(q, holdfast.SettleAck, d, 0)
		}
	}
	if info, err := q.Describe(t.Context()); err != nil || info.Stats.Depth != 0 || info.Stats.Expired != 0 {
		t.Errorf("in the end %+v, %v", info, err)
	}
}

// timeouts checks how long a message takes to come back, and to come.
func (s *sim) timeouts(q *holdfast.Queue) {
	s.t.Helper()
	took := func(what string, want time.Duration, f func()) {
		s.t.Helper()
		began := time.Now()
		f()
		if d := time.Since(began); d < want-time.Second || d > want+2*time.Second {
			s.t.Errorf("%s after %v, want %v", what, d, want)
		}
	}
	send(s.t, q, "one")
	d := s.receive(q, "one")
	took("a lease ended", 30*time.Second, func() { d = s.receive(q, "one") })
	took("a retry", 5*time.Second, func() {
		s.settle(q, holdfast.SettleNack, d, 5*time.Second)
		d = s.receive(q, "one")
	})
	s.settle(q, holdfast.SettleAck, d, 0)
	took("a delay ended", 10*time.Second, func() {
		if _, err := q.Send(s.t.Context(), holdfast.Message{Body: []byte("two"), Delay: 10 * time.Second}); err != nil {
			s.t.Fatal(err)
		}
		d = s.receive(q, "two")
	})
	s.settle(q, holdfast.SettleAck, d, 0)
}

// receive receives one message by a receiver that does not renew leases.
func (s *sim) receive(q *holdfast.Queue, want string) *holdfast.Delivery {
	s.t.Helper()
	r, err := q.NewReceiver(holdfast.ReceiverOptions{Unbound: true})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	ds, err := r.Receive(ctx, 1)
	if err != nil || string(ds[0].Body) != want {
		s.t.Fatalf("received %v, %v", ds, err)
	}
	if err := r.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	return ds[0]
}

func (s *sim) settle(q *holdfast.Queue, op holdfast.SettleOp, d *holdfast.Delivery, delay time.Duration) {
	s.t.Helper()
	if out, err := q.Settle(s.t.Context(), op, []holdfast.Receipt{d.Receipt()}, delay); err != nil || len(out) > 0 {
		s.t.Fatalf("settle: %v, %v", out, err)
	}
}
