package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
)

// fill stores n messages with the bodies 0…n-1.
func fill(t testing.TB, n int, link holdfast.Link) {
	t.Helper()
	q := newQueue(link)
	defer closeQueue(t, q)
	batch := make([]holdfast.Message, n)
	for i := range batch {
		batch[i] = msg(fmt.Sprint(i))
	}
	if _, err := q.SendBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// consumer runs Consume until stop is called, which returns its result.
func consumer(t testing.TB, link holdfast.Link, o holdfast.ConsumeOptions, h func(context.Context, *holdfast.Delivery) error) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newQueue(link).Consume(ctx, h, o) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// runs counts handler runs by body.
type runs struct {
	mu sync.Mutex
	m  map[string]int
}

func (r *runs) add(d *holdfast.Delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]int{}
	}
	r.m[string(d.Body)]++
	return len(r.m)
}

func (r *runs) times() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Values(r.m))
}

// Every message is handled once and gone; one worker sees them in order.
func TestConsume(t *testing.T) {
	for _, o := range []holdfast.ConsumeOptions{{Workers: 1}, {Workers: 1, Prefetch: 1}, {Workers: 8}, {Workers: 3, Prefetch: 100}} {
		t.Run(fmt.Sprintf("workers=%d prefetch=%d", o.Workers, o.Prefetch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNaive(t, &naiveOptions{latency: time.Millisecond})
				fill(t, 5000, n)
				var r runs
				var inOrder atomic.Int64
				all := make(chan struct{})
				stop := consumer(t, n, o, func(ctx context.Context, d *holdfast.Delivery) error {
					if inOrder.Add(1); o.Workers == 1 && d.ID.Seq != uint64(inOrder.Load()) {
						t.Errorf("G6: message %v is the %dth", d.ID, inOrder.Load())
					}
					if d.Attempt != 1 || d.ID.Stream != n.uid || d.Receipt().Seq != d.ID.Seq || d.Queue() != "orders" {
						t.Errorf("delivery: %+v", d)
					}
					if r.add(d) == 5000 {
						close(all)
					}
					return nil
				})
				<-all
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if times := r.times(); len(times) != 5000 || times[4999] != 1 {
					t.Errorf("%d messages, up to %d times", len(times), times[len(times)-1])
				}
				if left := n.bodies(); len(left) != 0 {
					t.Errorf("%d are left", len(left))
				}
				n.ask(func() {
					if most := n.receivers[0].most; o.Prefetch > 0 && most > o.Prefetch {
						t.Errorf("G4: held %d, asked for %d", most, o.Prefetch)
					}
				})
			})
		})
	}
}

// Issue: "a handler ten times slower than the visibility timeout runs once (renewal), never twice at the same time". The same holds for
// messages that wait behind it.
func TestSlowHandlersRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{visibility: 2 * time.Second})
		fill(t, 10, n)
		var r runs
		all := make(chan struct{})
		handler := func(ctx context.Context, d *holdfast.Delivery) error {
			seen := r.add(d)
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
				t.Errorf("handler of %v: %v", d.ID, context.Cause(ctx))
			}
			if seen == 10 {
				close(all)
			}
			return nil
		}
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 2, Prefetch: 10}, handler)
		other := consumer(t, n, holdfast.ConsumeOptions{Workers: 2}, handler) // it finds nothing
		<-all
		if err := errors.Join(stop(), other()); err != nil {
			t.Fatal(err)
		}
		if times := r.times(); len(times) != 10 || times[9] != 1 {
			t.Errorf("runs: %v", times)
		}
		if left := n.bodies(); len(left) != 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// Renewal ends at MaxRenew: the lease is lost, the handler's context ends with ErrLeaseLost, and what it returns counts for nothing.
func TestMaxRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{visibility: 2 * time.Second})
		fill(t, 1, n)
		var calls atomic.Int64
		again := make(chan struct{})
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 2, MaxRenew: 10 * time.Second}, func(ctx context.Context, d *holdfast.Delivery) error {
			if calls.Add(1) == 2 {
				if d.Attempt != 2 {
					t.Errorf("attempt %d", d.Attempt)
				}
				close(again)
				return nil
			}
			begin := time.Now()
			child, cancel := context.WithTimeout(ctx, time.Hour) // a context of its own hears of it too
			defer cancel()
			<-child.Done()
			wantErr(t, context.Cause(child), holdfast.ErrLeaseLost, "cause")
			wantErr(t, context.Cause(ctx), holdfast.ErrLeaseLost, "cause")
			wantErr(t, ctx.Err(), context.Canceled, "error")
			if d := time.Since(begin); d < 10*time.Second || d > 13*time.Second {
				t.Errorf("lost after %v", d)
			}
			return nil
		})
		<-again
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if left := n.bodies(); len(left) != 0 || calls.Load() != 2 {
			t.Errorf("%v are left after %d calls", left, calls.Load())
		}
	})
}

// A handler that fails or panics has its message come again; RetryAfter and GiveBack choose how.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{retryDelay: time.Minute})
		fill(t, 5, n)
		var mu sync.Mutex
		var story []string
		begin := time.Now()
		all := make(chan struct{})
		acked := 0
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 1}, func(ctx context.Context, d *holdfast.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			story = append(story, fmt.Sprintf("%s/%d@%v", d.Body, d.Attempt, time.Since(begin)))
			switch fmt.Sprintf("%s/%d", d.Body, d.Attempt) {
			case "0/1":
				return errors.New("no")
			case "1/1":
				panic("oh")
			case "2/1":
				return fmt.Errorf("later: %w", holdfast.RetryAfter(5*time.Second, errors.New("busy")))
			case "3/1":
				if len(story) < 5 {
					return holdfast.GiveBack(nil)
				}
			}
			if acked++; acked == 5 {
				close(all)
			}
			return nil
		})
		<-all
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(story[4:6]) // what was given back comes again before or after what is on its way at that moment
		slices.Sort(story[7:])  // both are due at the same moment
		got := strings.Join(story, " ")
		if want := "0/1@0s 1/1@0s 2/1@0s 3/1@0s 3/1@0s 4/1@0s 2/2@5s 0/2@1m0s 1/2@1m0s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// At its end a consumer gives back what was not begun with, lets handlers finish, and has everything answered.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		fill(t, 100, n)
		var begun, ended atomic.Int64
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 4, Prefetch: 50}, func(ctx context.Context, d *holdfast.Delivery) error {
			begun.Add(1)
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
				t.Error("a running handler was cut off before DrainTimeout")
			}
			ended.Add(1)
			return nil
		})
		time.Sleep(10 * time.Second)
		begin := time.Now()
		given := make(chan time.Duration, 1)
		go func() {
			for held := 100; held > 4; {
				time.Sleep(time.Millisecond)
				n.ask(func() { held = n.receivers[0].holds })
			}
			given <- time.Since(begin)
		}()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if g := <-given; g > 100*time.Millisecond {
			t.Errorf("what waited was given back after %v", g)
		}
		if begun.Load() != 4 || ended.Load() != 4 || len(n.bodies()) != 96 {
			t.Errorf("%d begun, %d ended, %d left", begun.Load(), ended.Load(), len(n.bodies()))
		}
		n.ask(func() {
			for i := range n.msgs {
				if m := &n.msgs[i]; m.lease != 0 || m.attempt != 0 {
					t.Errorf("message %d: leased %v, counted %d times", i, m.lease, m.attempt)
				}
			}
		})
	})
}

// Handlers that go on beyond DrainTimeout are cut off, and those that do not heed that are left behind: Consume does not hang (G9).
func TestDrainTimeout(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		t.Run(fmt.Sprintf("heeds=%v", heeds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNaive(t, nil)
				fill(t, 1, n)
				began, let := make(chan struct{}), make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- newQueue(n).Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
						close(began)
						if heeds {
							<-ctx.Done()
							return ctx.Err()
						}
						<-let
						return nil
					}, holdfast.ConsumeOptions{Workers: 1, DrainTimeout: 10 * time.Second})
				}()
				<-began
				cancel()
				begin := time.Now()
				err := <-ended
				wantErr(t, err, context.DeadlineExceeded, "consume")
				if d := time.Since(begin); d < 10*time.Second || d > 25*time.Second {
					t.Errorf("ended after %v", d)
				}
				n.ask(func() {
					m := &n.msgs[0]
					if heeds && (m.lease != 0 || m.attempt != 0) {
						t.Error("the message of a handler that was cut off is given back uncounted")
					}
					if !heeds && m.lease == 0 {
						t.Error("the message of a handler that still runs must not be handed out")
					}
				})
				close(let)
				synctest.Wait()
			})
		})
	}
}

// A handler that ends its goroutine costs its message a failure and the consumer nothing.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		fill(t, 20, n)
		var r runs
		all := make(chan struct{})
		stop := consumer(t, n, holdfast.ConsumeOptions{Workers: 1}, func(ctx context.Context, d *holdfast.Delivery) error {
			if string(d.Body) == "7" && d.Attempt == 1 {
				runtimeGoexit()
			}
			if r.add(d) == 20 {
				close(all)
			}
			return nil
		})
		<-all
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if times := r.times(); times[19] != 1 || len(n.bodies()) != 0 {
			t.Errorf("runs %v, left %v", times, n.bodies())
		}
	})
}
