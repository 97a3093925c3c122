package deliverytest_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
)

// sink notes what arrives and when, and acknowledges it.
type sink struct {
	mu    sync.Mutex
	start time.Time
	got   []string
}

func (s *sink) Deliver(d delivery.Delivery[int]) error {
	s.mu.Lock()
	s.got = append(s.got, fmt.Sprintf("%v:%d+%d", time.Since(s.start), d.Seq, len(d.Bodies)))
	s.mu.Unlock()
	if d.ReplyTo != nil {
		return d.ReplyTo.Acknowledge([]delivery.Acknowledgment{{First: d.Seq, Last: d.Seq + uint64(len(d.Bodies)) - 1}})
	}
	return nil
}

func (s *sink) Farewell(delivery.Farewell) error { return nil }

type acks struct {
	mu  sync.Mutex
	got []uint64
}

func (a *acks) Acknowledge(list []delivery.Acknowledgment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range list {
		a.got = append(a.got, x.First)
	}
	return nil
}

// run sends a hundred messages in twenty envelopes and returns what arrived on both sides.
func run(t *testing.T, seed uint64, f deliverytest.Faults) (there, back string, st deliverytest.Stats) {
	synctest.Test(t, func(t *testing.T) {
		n, s, a := deliverytest.NewNetwork(seed, f), &sink{start: time.Now()}, &acks{}
		l := deliverytest.Over(n, delivery.Link[int](s))
		refused := 0
		for i := range 20 {
			if l.Deliver(delivery.Delivery[int]{Seq: uint64(5*i + 1), Bodies: make([]int, 5), ReplyTo: a}) != nil {
				refused++
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		there, back, st = fmt.Sprint(s.got), fmt.Sprint(a.got), n.Stats()
		if st.Refused != refused || st.InFlight != 0 {
			t.Errorf("%d refused, %+v", refused, st)
		}
	})
	return there, back, st
}

// The same seed has the same fate; another one has another. Each fault happens.
func TestSeed(t *testing.T) {
	f := deliverytest.Faults{Drop: 0.2, Duplicate: 0.2, MaxDelay: 30 * time.Millisecond, Split: 0.5, Refuse: 0.2}
	there, back, st := run(t, 1, f)
	there2, back2, _ := run(t, 1, f)
	other, _, _ := run(t, 2, f)
	if there != there2 || back != back2 {
		t.Errorf("the same seed gave\n%s\n%s and\n%s\n%s", there, back, there2, back2)
	}
	if there == other {
		t.Error("two seeds gave the same")
	}
	if st.Dropped == 0 || st.Duplicated == 0 || st.Refused == 0 || st.Carried == 0 {
		t.Errorf("%+v", st)
	}
	perfect, back, st := run(t, 1, deliverytest.Faults{})
	if st.Carried != 40 || st.Dropped+st.Duplicated+st.Refused != 0 || len(perfect) == 0 || back != "[1 6 11 16 21 26 31 36 41 46 51 56 61 66 71 76 81 86 91 96]" {
		t.Errorf("perfect network: %s %s %+v", perfect, back, st)
	}
}

// A cut loses what is sent and what is on its way, in both directions; after Heal all is as before.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, a := deliverytest.NewNetwork(1, deliverytest.Faults{MinDelay: time.Second, MaxDelay: time.Second}), &sink{start: time.Now()}, &acks{}
		l := deliverytest.Over(n, delivery.Link[int](s))
		send := func(seq uint64) {
			if err := l.Deliver(delivery.Delivery[int]{Seq: seq, Bodies: []int{0}, ReplyTo: a}); err != nil {
				t.Fatal(err)
			}
		}
		send(1)
		time.Sleep(1500 * time.Millisecond) // the acknowledgement is on its way
		n.Cut()
		time.Sleep(time.Second)
		send(2)
		n.Heal()
		send(3)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if fmt.Sprint(s.got, a.got) != "[1s:1+1 3.5s:3+1] [3]" {
			t.Errorf("arrived %v, acknowledged %v", s.got, a.got)
		}
	})
}
