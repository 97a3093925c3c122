package failovertest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/linktest"
	"github.com/holdfastmq/holdfast/queue"
)

// lonely is a table of members in which a broker sees itself alone.
type lonely struct {
	journal.Coordinator
	self string
}

func (l lonely) Members(ctx context.Context) (map[string][]byte, error) {
	all, err := l.Coordinator.Members(ctx)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{l.self: all[l.self]}, nil
}

// either is a link to two brokers that do not agree: each opening goes to the other one.
type either struct {
	doors [2]holdfast.Link
	limit time.Duration // of an opening: where a broker waits to know more, the other one is asked
	n     atomic.Int64
}

func (e *either) next() holdfast.Link { return e.doors[e.n.Add(1)%2] }

func (e *either) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	return e.next().OpenSender(ctx, queue, c, ev)
}

func (e *either) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	return e.next().OpenReceiver(ctx, queue, c, ev)
}

// Admin looks at the store's newest owner: the other one's answer may be of a second ago.
func (e *either) Admin() holdfast.Admin { return newest{e.doors[0].Admin(), e} }

type newest struct {
	holdfast.Admin
	e *either
}

func (a newest) Describe(ctx context.Context, name string) (info holdfast.QueueInfo, err error) {
	for _, d := range a.e.doors {
		limited, cancel := context.WithTimeout(ctx, a.e.limit)
		got, e := d.Admin().Describe(limited, name)
		cancel()
		if e == nil && got.Epoch > info.Epoch {
			info = got
		} else if e != nil && info.Epoch == 0 {
			err = e
		}
	}
	if info.Epoch > 0 {
		err = nil
	}
	return info, err
}

// G5: two brokers that both believe to own a queue, because one of them does not see the other: histories do not interleave. What is acknowledged
// is received (G1, G2), once stored (G3), in order (G6), with each outcome told apart (G10); and the records of the stream follow one another, none of an
// older owner behind one of a newer.
func TestTwoOwners(t *testing.T) {
	each(t, func(t *testing.T, on store) {
		url := on.journal(t)
		quiet := slog.New(slog.DiscardHandler)
		// Each time that one is fenced it waits twice as long: more messages than that, and both wait for longer than a receiver that ends has time.
		beat, messages := 100*time.Millisecond, 150
		if on.soak {
			beat, messages = 500*time.Millisecond, 100 // a slower store
		}
		e := &either{limit: 10 * beat}
		blind := "a" // the one that is not to have the queue
		if placement.Score("a", "run") > placement.Score("b", "run") {
			blind = "b"
		}
		for i, name := range []string{"a", "b"} {
			j := openJournal(t, url)
			coord := j.(journal.Coordinator)
			if name == blind {
				coord = lonely{coord, name}
			}
			n, err := cluster.Open(t.Context(), j, coord, cluster.Options{
				Address: name, Heartbeat: beat, Expiry: 3 * beat, Broker: broker.Options{Logger: quiet}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
				defer cancel()
				if err := n.Close(ctx); err != nil {
					t.Log(err) // the other one may have fenced it
				}
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			})
			e.doors[i] = n.Door()
		}
		await(t, "the queue", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return e.doors[0].Admin().Create(ctx, "run", queue.Config{VisibilityTimeout: 2 * time.Second, RetryFirst: 20 * time.Millisecond, RetryCap: 100 * time.Millisecond}) == nil
		})
		before, err := e.Admin().Describe(t.Context(), "run")
		if err != nil {
			t.Fatal(err)
		}
		linktest.Run(t, e, linktest.Options{Seed: seed(t), Life: 10 * beat, Messages: messages, Patience: clitest.Patience})
		after, err := e.Admin().Describe(t.Context(), "run")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("epochs %d to %d", before.Epoch, after.Epoch)
		if after.Epoch < before.Epoch+3 {
			t.Errorf("the brokers hardly fought: epochs %d to %d", before.Epoch, after.Epoch)
		}
		for _, fault := range verify(t.Context(), t, url) {
			t.Errorf("what is stored: %v", fault)
		}
	})
}
