package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// slowStarts is a link over which announcing a start takes some time.
type slowStarts struct{ holdfast.Link }

type slowStartsReceiver struct{ holdfast.ReceiverLink }

func (l slowStarts) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	r, o, err := l.Link.OpenReceiver(ctx, name, c, ev)
	return slowStartsReceiver{r}, o, err
}

func (r slowStartsReceiver) Started(spans []queue.LeaseSpan, reply holdfast.Outcomes) {
	time.Sleep(time.Millisecond) //holdfast:allow sleep: in the virtual time of the test below
	r.ReceiverLink.Started(spans, reply)
}

// A receiver never holds more messages than it was asked for (G4), also while it announces that it begins with one.
func TestReceiverAsksForNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		q := newQueue(slowStarts{n})
		for range 5 {
			if _, err := q.Send(t.Context(), msg("x")); err != nil {
				t.Fatal(err)
			}
		}
		r, err := q.NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ds, err := r.Receive(t.Context(), 1)
			if err != nil || len(ds) != 1 {
				t.Fatal(len(ds), err)
			}
			synctest.Wait()
			held := 0
			n.ask(func() { held = n.held })
			if held != 1 {
				t.Errorf("G4: %d messages are leased, and one was asked for", held)
			}
			if err := ds[0].Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		closeQueue(t, q)
	})
}
