package delivery_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
)

// §6, "Work pulling (a producer, many workers, by demand)": a fast worker does more than a slow one, nobody gets more
// than its demand, and everything is handled once.
func TestWorkPoolByDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := delivery.NewWorkPool[int](delivery.WorkPoolOptions{BufferSize: 4})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		by, times := map[string]int{}, map[int]int{}
		consumers := map[string]*delivery.ConsumerController[int]{}
		for name, pace := range map[string]time.Duration{"fast": time.Millisecond, "slow": 10 * time.Millisecond} {
			c := newConsumer(t, delivery.ConsumerOptions[int]{}, func(_ context.Context, n int) error {
				time.Sleep(pace)
				mu.Lock()
				defer mu.Unlock()
				by[name]++
				times[n]++
				if consumers[name].Stats().Unsettled > 2 {
					t.Errorf("%s has more than it asked for", name)
				}
				return nil
			})
			consumers[name] = c
			leave, err := pool.Join(c, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		for i := range 200 {
			if _, err := pool.Post(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		if err := pool.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(times) != 200 || by["fast"]+by["slow"] != 200 || by["fast"] < 5*by["slow"] {
			t.Errorf("%v, %d different", by, len(times))
		}
	})
}

// A worker that leaves, or whose consumer stops, loses nothing: what it had goes to another.
func TestWorkPoolWorkerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := delivery.NewWorkPool[int](delivery.WorkPoolOptions{})
		hang := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		first := newConsumer(t, delivery.ConsumerOptions[int]{}, hang)
		leave, err := pool.Join(first, 3)
		if err != nil {
			t.Fatal(err)
		}
		second := newConsumer(t, delivery.ConsumerOptions[int]{}, hang)
		if _, err := pool.Join(second, 3); err != nil {
			t.Fatal(err)
		}
		var confirmations []*delivery.Confirmation
		for i := range 10 {
			c, err := pool.Post(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			confirmations = append(confirmations, c)
		}
		synctest.Wait()
		if waiting, with := pool.Unconfirmed(); waiting != 4 || with != 6 || pool.Workers() != 2 {
			t.Fatalf("%d waiting, %d with workers", waiting, with)
		}
		leave()
		leave()
		if waiting, with := pool.Unconfirmed(); waiting != 7 || with != 3 {
			t.Fatalf("after leave: %d waiting, %d with workers", waiting, with)
		}
		second.Close() // noticed at the next transmission
		time.Sleep(time.Second)
		if waiting, with := pool.Unconfirmed(); waiting != 10 || with != 0 || pool.Workers() != 0 {
			t.Fatalf("after the consumer stopped: %d waiting, %d with workers", waiting, with)
		}
		var got []int
		third := newConsumer(t, delivery.ConsumerOptions[int]{}, func(_ context.Context, n int) error {
			got = append(got, n)
			return nil
		})
		if _, err := pool.Join(third, 100); err != nil {
			t.Fatal(err)
		}
		for _, c := range confirmations {
			if err := c.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 10 {
			t.Errorf("handled %v", got)
		}
		pool.Close()
	})
}

// G4 and G9: a pool without workers holds its callers, says when it is full, and settles everything once when closed.
func TestWorkPoolFullAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := delivery.NewWorkPool[int](delivery.WorkPoolOptions{BufferSize: 2})
		c, _ := pool.Post(t.Context(), 1)
		var outcome []error
		if err := pool.Offer(2, func(err error) { outcome = append(outcome, err) }); err != nil {
			t.Fatal(err)
		}
		if err := pool.Offer(3, nil); !errors.Is(err, delivery.ErrBufferFull) {
			t.Errorf("offer to a full pool: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := pool.Post(ctx, 3); !errors.Is(err, delivery.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("post to a full pool: %v", err)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- pool.Send(t.Context(), 4) }()
		synctest.Wait()
		if err := pool.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		pool.Close()
		if err := <-blocked; !errors.Is(err, delivery.ErrStopped) {
			t.Error(err)
		}
		if err := c.Err(); !errors.Is(err, delivery.ErrStopped) || !errors.Is(err, delivery.ErrNotSent) || len(outcome) != 1 {
			t.Errorf("%v, %v", err, outcome)
		}
		if _, err := pool.Join(&wire[int]{}, 1); !errors.Is(err, delivery.ErrStopped) {
			t.Error(err)
		}
		if err := pool.Offer(5, nil); !errors.Is(err, delivery.ErrNotSent) {
			t.Error(err)
		}
		if _, err := delivery.NewWorkPool[int](delivery.WorkPoolOptions{BufferSize: -1}); !errors.Is(err, delivery.ErrInvalidOption) {
			t.Error(err)
		}
		if _, err := pool.Join(nil, 1); !errors.Is(err, delivery.ErrInvalidOption) {
			t.Error(err)
		}
	})
}
