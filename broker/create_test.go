package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/queue"
)

// G11: a queue whose broker died, or was replaced, between its making and its configuration can be created again, and is then as it was asked for; one that
// was configured keeps that, also if it was never used.
func TestCreateCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.NewStore(memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := fault.New(store.Open(), fault.Options{})
		j.SetPlan(func(c fault.Call) fault.Action {
			if c.Op == fault.Append {
				return fault.FailWith(errors.New("not this time"))
			}
			return fault.Action{}
		})
		b := open(t, j, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want := queue.Config{VisibilityTimeout: time.Minute}
		if err := b.Queue("q").Create(ctx, want); err == nil {
			t.Fatal("it was created")
		}
		b.crash()

		b = open(t, store.Open(), Options{})
		for range 2 { // the second one finds what it asks for
			if err := b.Queue("q").Create(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := b.Queue("q").Describe(t.Context()); err != nil || info.Config.VisibilityTimeout != time.Minute {
			t.Errorf("%+v, %v", info.Config, err)
		}
		if err := b.Queue("q").Create(t.Context(), queue.Config{}); !errors.Is(err, holdfast.ErrQueueExists) {
			t.Errorf("with another configuration: %v", err)
		}
		if err := b.Queue("default").Create(t.Context(), queue.Config{}); err != nil {
			t.Fatal(err)
		}
		if err := b.Queue("default").Create(t.Context(), want); !errors.Is(err, holdfast.ErrQueueExists) {
			t.Errorf("over a queue that was created with the default configuration: %v", err)
		}
		shut(t, b)
		b = open(t, store.Open(), Options{}) // from snapshots
		if err := b.Queue("default").Create(t.Context(), want); !errors.Is(err, holdfast.ErrQueueExists) {
			t.Errorf("after a restart: %v", err)
		}
		shut(t, b)
	})
}
