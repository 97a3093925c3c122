package holdfast_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// G4: credit is given only for what the broker has been told is done, so that a receiver holds no more than its prefetch by the
// broker's count either, however slow the answers are.
func TestCreditFollowsSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: 20 * time.Millisecond})
		fill(t, 500, n)
		var done atomic.Int64
		all := make(chan struct{})
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 4, Prefetch: 40}, func(ctx context.Context, d *holdfast.Delivery) error {
			time.Sleep(time.Duration(1+d.ID.Seq%4) * time.Millisecond)
			if done.Add(1) == 500 {
				close(all)
			}
			return nil
		})
		<-all
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		n.ask(func() {
			if most := n.receivers[0].most; most > 40 || most < 30 {
				t.Errorf("G4: held %d, asked for 40", most)
			}
		})
	})
}

// The window of a consumer that sets none grows while its handlers are fast, and falls when messages begin to wait, so that a slow one
// does not hoard what others could do.
func TestWindowFindsItsMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: 2 * time.Millisecond})
		fill(t, 60_000, n)
		var slow atomic.Bool
		var done atomic.Int64
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 4}, func(ctx context.Context, d *holdfast.Delivery) error {
			if slow.Load() {
				time.Sleep(500 * time.Millisecond)
			}
			if done.Add(1) == 20_000 {
				slow.Store(true)
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		held := 0
		n.ask(func() {
			if held = n.receivers[0].holds; n.receivers[0].most < 1000 {
				t.Errorf("held at most %d while handlers were fast", n.receivers[0].most)
			}
		})
		if held > 40 {
			t.Errorf("still holds %d of a queue that it does in half a second each", held)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What is lost while it waits is never begun with, announced or not; what is lost while it is worked on is cancelled.
func TestLostWhileWaiting(t *testing.T) {
	const fast = 300 // so that starts are announced ahead
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		fill(t, fast+10, n)
		var handled []string
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 1, Prefetch: fast + 10}, func(ctx context.Context, d *holdfast.Delivery) error {
			if d.ID.Seq <= fast {
				return nil
			}
			handled = append(handled, string(d.Body))
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				handled[len(handled)-1] += " cancelled"
				wantErr(t, context.Cause(ctx), holdfast.ErrLeaseLost, "cause")
			}
			return nil
		})
		time.Sleep(time.Second)
		purge := func(from, to int) {
			n.ask(func() {
				r := n.receivers[0]
				var spans []queue.LeaseSpan
				for i := from; i < to; i++ {
					m := &n.msgs[i]
					spans = append(spans, queue.LeaseSpan{Lease: m.lease, Seq: uint64(i + 1), Count: 1})
					m.gone, m.lease, m.r = true, 0, nil
					n.held--
					n.live--
					r.holds--
				}
				n.after(func() { r.ev.Lost(spans, queue.LostPurged) })
			})
		}
		purge(fast, fast+4)
		time.Sleep(2 * time.Minute)
		purge(fast+7, fast+9)
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(handled); got != "[300 cancelled 304 305 306 309]" {
			t.Errorf("handled %v", got)
		}
	})
}

// Starts are announced one by one when handlers take their time, so that a crash charges no message that was not begun with.
func TestStartsOfSlowHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		fill(t, 100, n)
		began := make(chan struct{}, 100)
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 2, Prefetch: 100}, func(ctx context.Context, d *holdfast.Delivery) error {
			began <- struct{}{}
			time.Sleep(2 * time.Millisecond)
			return nil
		})
		for range 20 {
			<-began
			begun := 0
			n.ask(func() {
				for i := range n.msgs {
					if n.msgs[i].started && !n.msgs[i].gone {
						begun++
					}
				}
			})
			if begun > 5 { // two at work; the acknowledgements of those before may be on their way
				t.Errorf("%d are announced, and two workers work", begun)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// What a stuck handler has before it is done by the other workers, although its start was announced.
func TestOthersTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		fill(t, 1000, n)
		var others atomic.Int64
		rest := make(chan struct{})
		ended := make(chan struct{})
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 2, Prefetch: 1000}, func(ctx context.Context, d *holdfast.Delivery) error {
			if d.ID.Seq == 900 {
				select {
				case <-rest:
				case <-time.After(time.Hour):
					t.Errorf("only %d others were done meanwhile", others.Load())
				}
				close(ended)
			} else if others.Add(1) == 999 {
				close(rest)
			}
			return nil
		})
		<-ended
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if left := n.bodies(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}
