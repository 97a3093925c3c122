package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
)

func newReceiver(t testing.TB, link holdfast.Link, o holdfast.ReceiverOptions) *holdfast.Receiver {
	t.Helper()
	r, err := newQueue(link).NewReceiver(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Close(ctx)
	})
	return r
}

// G4: a receiver never holds more than it was asked for, and gets what it asked for.
func TestReceiveOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		fill(t, 10, n)
		r := newReceiver(t, n, holdfast.ReceiverOptions{})
		time.Sleep(time.Minute)
		n.ask(func() {
			if n.receivers[0].most != 0 {
				t.Errorf("holds %d without being asked", n.receivers[0].most)
			}
		})
		next := 0
		for _, limit := range []int{1, 3, 4, 100} {
			ds, err := r.Receive(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			if want := min(limit, 10-next); len(ds) != want {
				t.Fatalf("got %d of %d", len(ds), want)
			}
			for _, d := range ds {
				if string(d.Body) != fmt.Sprint(next) {
					t.Fatalf("G6: got %s, want %d", d.Body, next)
				}
				next++
			}
			if err := r.Ack(t.Context(), ds...); err != nil {
				t.Fatal(err)
			}
			n.ask(func() {
				if most := n.receivers[0].most; most > max(limit, 4) {
					t.Errorf("G4: held %d", most)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Receive(ctx, 5)
		wantErr(t, err, context.DeadlineExceeded, "receive from an empty queue")
		// What was asked for and came too late is kept for the next call, under a renewed lease.
		fill(t, 5, n)
		time.Sleep(10 * time.Minute)
		if st := r.Stats(); st.Waiting != 5 {
			t.Errorf("%+v", st)
		}
		ds, err := r.Receive(t.Context(), 2)
		if err != nil || len(ds) != 2 || ds[0].Attempt != 1 {
			t.Fatalf("%v, %v", ds, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(n.bodies()) != 5 {
			t.Error("what was not acknowledged must not be gone")
		}
		_, err = r.Receive(t.Context(), 1)
		wantErr(t, err, holdfast.ErrClosed, "receive after Close")
		wantErr(t, ds[0].Ack(t.Context()), holdfast.ErrUnknown, "ack after Close")
		_, err = r.Receive(t.Context(), 0)
		var field *message.FieldError
		if !errors.As(err, &field) {
			t.Errorf("limit 0: %v", err)
		}
	})
}

// Each way of settling a delivery, and what a lost lease says.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond, visibility: 5 * time.Second})
		fill(t, 4, n)
		r := newReceiver(t, n, holdfast.ReceiverOptions{NoRenew: true})
		get := func(body string, attempt int) *holdfast.Delivery {
			t.Helper()
			ds, err := r.Receive(t.Context(), 1)
			if err != nil || string(ds[0].Body) != body || ds[0].Attempt != attempt {
				t.Fatalf("got %s at attempt %d, %v; want %s at %d", ds[0].Body, ds[0].Attempt, err, body, attempt)
			}
			return ds[0]
		}
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx := t.Context()
		ok(get("0", 1).Ack(ctx))
		ok(get("1", 1).Release(ctx))
		ok(get("1", 1).Nack(ctx, 3*time.Second))
		d2 := get("2", 1)
		time.Sleep(4 * time.Second)
		ok(d2.Extend(ctx, 10*time.Second))
		time.Sleep(9 * time.Second)
		d1 := get("1", 2)
		ok(d2.Ack(ctx))
		wantErr(t, d2.Ack(ctx), holdfast.ErrLeaseLost, "a second ack")
		time.Sleep(10 * time.Second) // without renewal the lease ends
		wantErr(t, d1.Ack(ctx), holdfast.ErrLeaseLost, "a late ack")
		wantErr(t, d1.Extend(ctx, 0), holdfast.ErrLeaseLost, "a late extension")
		ok(get("1", 3).Ack(ctx))

		// An answer that does not come is unknown, and is asked for again on the next stream.
		d3 := get("3", 1)
		n.ask(func() { n.latency = time.Minute })
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		wantErr(t, d3.Ack(short), holdfast.ErrUnknown, "ack without an answer")
		n.ask(func() { n.latency = 0 })
		ok(r.Close(ctx))
		if left := n.bodies(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

// Unbound leases outlive the receiver.
func TestUnbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		fill(t, 3, n)
		r := newReceiver(t, n, holdfast.ReceiverOptions{Unbound: true})
		ds, err := r.Receive(t.Context(), 3)
		if err != nil || len(ds) != 3 {
			t.Fatal(ds, err)
		}
		n.breakAll(errCable)
		time.Sleep(time.Second)
		if err := ds[0].Ack(t.Context()); err != nil {
			t.Errorf("ack over another stream: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.ask(func() {
			if !n.msgs[0].gone || n.msgs[1].lease == 0 || n.msgs[2].lease == 0 {
				t.Error("the leases ended with the receiver")
			}
		})
	})
}

// A second delivery is begun with only once the broker has confirmed the start (design §7), and acknowledgements made while there is no
// connection are carried out after it.
func TestAckWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		fill(t, 2, n)
		r := newReceiver(t, n, holdfast.ReceiverOptions{})
		ds, err := r.Receive(t.Context(), 2)
		if err != nil || len(ds) != 2 {
			t.Fatal(ds, err)
		}
		n.refuse(errCable)
		n.breakAll(errCable)
		time.AfterFunc(3*time.Second, func() { n.refuse(nil) })
		begin := time.Now()
		if err := r.Ack(t.Context(), ds...); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) < 3*time.Second {
			t.Error("acknowledged by nobody")
		}
		if left := n.bodies(); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

// A message with a typed body; one that cannot be decoded fails, and comes again until its limit.
func TestTyped(t *testing.T) {
	type order struct{ Number int }
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, nil)
		q := newQueue(n)
		defer closeQueue(t, q)
		orders := holdfast.Typed(q, holdfast.JSON[order]())
		if _, err := orders.Send(t.Context(), order{7}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), msg("no JSON")); err != nil {
			t.Fatal(err)
		}
		if _, err := orders.SendMessage(t.Context(), order{8}, holdfast.Message{Headers: []holdfast.Header{{Name: "by", Value: "post"}}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		if err := orders.Consume(ctx, func(ctx context.Context, o order) error {
			d, ok := holdfast.FromContext(ctx)
			got = append(got, fmt.Sprint(o.Number, ok, len(d.Headers)))
			if o.Number == 8 {
				cancel()
			}
			return nil
		}, holdfast.ConsumeOptions{Workers: 1}); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != "[7 true 0 8 true 1]" {
			t.Errorf("got %v", got)
		}
		n.ask(func() {
			if m := &n.msgs[1]; m.gone || m.attempt == 0 {
				t.Errorf("the message without JSON: gone %v, failed %d times", m.gone, m.attempt)
			}
		})
	})
}

// A second message with a dedup id is not stored, and its sender gets the id of the first.
func TestDedupID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaive(t, &naiveOptions{latency: time.Millisecond})
		s := newSender(t, n, holdfast.SenderOptions{})
		got := make([]uint64, 10)
		for i := range got {
			m := msg(fmt.Sprint(i))
			m.DedupID = [...]string{"a", "", "b", "a", "", "c", "c", "a", "d", "d"}[i]
			if err := s.SendAsync(t.Context(), m, func(id holdfast.ID, err error) {
				if got[i] = id.Seq; err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != "[1 2 3 1 4 5 5 1 6 6]" {
			t.Errorf("ids %v", got)
		}
	})
}
