package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

func runtimeGoexit() { runtime.Goexit() }

var errCable = errors.New("cable pulled")

// When the stream breaks, running handlers go on under the same session; what was not begun with returns and is handed out again,
// uncounted.
func TestSessionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		fill(t, 20, n)
		var r runs
		all := make(chan struct{})
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 2, Prefetch: 20}, func(ctx context.Context, d *holdfast.Delivery) error {
			if d.Attempt != 1 {
				t.Errorf("message %v: attempt %d", d.ID, d.Attempt)
			}
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				t.Errorf("message %v: %v", d.ID, context.Cause(ctx))
			}
			if r.add(d) == 20 {
				close(all)
			}
			return nil
		})
		go func() {
			for range 9 {
				time.Sleep(7 * time.Second)
				n.breakAll(errCable)
			}
		}()
		<-all
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if times := r.times(); len(times) != 20 || times[19] != 1 || len(n.bodies()) != 0 {
			t.Errorf("runs %v, left %v", times, n.bodies())
		}
	})
}

// If the session does not come back in time, its messages go to others, and its handlers are told: at once when the broker says so on
// the next stream, and without one when the lease must have ended.
func TestSessionComesBackTooLate(t *testing.T) {
	for _, away := range []time.Duration{8 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNaive(t, &naiveOptions{visibility: 20 * time.Second})
				fill(t, 1, n)
				began := make(chan struct{})
				lost := make(chan time.Duration, 1)
				var first atomic.Bool
				var done atomic.Int64
				begin := time.Now()
				stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 1}, func(ctx context.Context, d *holdfast.Delivery) error {
					if first.Swap(true) {
						done.Add(1)
						return nil
					}
					close(began)
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), holdfast.ErrLeaseLost, "cause")
					lost <- time.Since(begin)
					return nil
				})
				<-began
				n.refuse(errCable)
				n.breakAll(errCable)
				time.AfterFunc(away, func() { n.refuse(nil) })
				after := <-lost
				if latest := min(away+5*time.Second, 21*time.Second); after > latest {
					t.Errorf("told after %v, want at most %v", after, latest)
				}
				for done.Load() == 0 {
					time.Sleep(time.Second)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if left := n.bodies(); len(left) != 0 {
					t.Errorf("left %v", left)
				}
			})
		})
	}
}

// Breaks all the time, short handlers: nothing is lost, and only what was under way can be handled twice.
func TestConsumeOverBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: 2 * time.Millisecond})
		fill(t, 4000, n)
		var r runs
		all := make(chan struct{})
		var over sync.Once
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 4}, func(ctx context.Context, d *holdfast.Delivery) error {
			time.Sleep(time.Duration(d.ID.Seq%5) * time.Millisecond)
			if r.add(d) == 4000 {
				over.Do(func() { close(all) })
			}
			return nil
		})
		quit := make(chan struct{})
		breaks := 0
		go func() {
			for {
				select {
				case <-quit:
					return
				case <-time.After(83 * time.Millisecond):
					breaks++
					n.breakAll(errCable)
				}
			}
		}()
		<-all
		close(quit)
		for len(n.bodies()) > 0 { // a break may have come between the last handlers and their acknowledgements
			time.Sleep(10 * time.Millisecond)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		twice := 0
		for _, k := range r.times() {
			twice += k - 1
		}
		if breaks < 10 || twice > breaks*12 { // each worker can begin with some before it hears of the break
			t.Errorf("%d breaks, %d handled again", breaks, twice)
		}
	})
}

// A broker of a lower epoch has been deposed: its hand-overs are rejected (design §8).
func TestLowerEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		n.ask(func() { n.epoch = 7 })
		var seen sync.Map
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 1}, func(ctx context.Context, d *holdfast.Delivery) error {
			seen.Store(string(d.Body), d.Receipt().Epoch)
			return nil
		})
		q := newQueue(n)
		defer closeQueue(t, q)
		if _, err := q.Send(t.Context(), msg("before")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.ask(func() { n.epoch = 6 })
		n.breakAll(errCable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := q.Send(ctx, msg("between"))
		wantErr(t, err, context.DeadlineExceeded, "send to a deposed broker")
		if errors.Is(err, holdfast.ErrUnknown) {
			t.Errorf("never handed over: %v", err)
		}
		n.ask(func() { n.epoch = 8 })
		if _, err := q.Send(t.Context(), msg("after")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		seen.Range(func(k, v any) bool { got[k.(string)] = v.(uint64); return true })
		if len(got) != 2 || got["before"] != 7 || got["after"] != 8 {
			t.Errorf("handled %v", got)
		}
	})
}

// Reasons that time does not heal end sends and Consume; others do not.
func TestPermanentErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		q := newQueue(n)
		defer closeQueue(t, q)
		for _, want := range []error{holdfast.ErrNoQueue, holdfast.ErrDenied, holdfast.ErrClosed} {
			n.refuse(fmt.Errorf("open: %w", want))
			_, err := q.Send(t.Context(), msg("x"))
			wantErr(t, err, want, "send")
			if errors.Is(err, holdfast.ErrUnknown) {
				t.Errorf("G10: never handed over: %v", err)
			}
			wantErr(t, q.Consume(t.Context(), func(context.Context, *holdfast.Delivery) error { return nil }, holdfast.ConsumeOptions{}), want, "consume")
			r, err := q.NewReceiver(holdfast.ReceiverOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Receive(t.Context(), 1)
			wantErr(t, err, want, "receive")
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		n.refuse(fmt.Errorf("open: %w", holdfast.ErrUnavailable))
		time.AfterFunc(time.Minute, func() { n.refuse(nil) })
		if _, err := q.Send(t.Context(), msg("x")); err != nil {
			t.Error(err)
		}
		// Handed over, and then the queue is gone: nobody knows.
		n.ask(func() { n.latency = time.Minute })
		ended := make(chan error, 1)
		go func() { _, err := q.Send(t.Context(), msg("y")); ended <- err }()
		synctest.Wait()
		n.refuse(fmt.Errorf("open: %w", holdfast.ErrNoQueue))
		n.breakAll(errCable)
		err := <-ended
		wantErr(t, err, holdfast.ErrUnknown, "send")
		wantErr(t, err, holdfast.ErrNoQueue, "send")
	})
}
