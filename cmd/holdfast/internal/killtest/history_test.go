package killtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
	"github.com/holdfastmq/holdfast/journal/memory"
)

// deliveries hands out messages with the given bodies and keys by a broker in memory, so that they are true ones.
func deliveries(t *testing.T, queue string, msgs ...holdfast.Message) []*holdfast.Delivery {
	t.Helper()
	b, err := broker.Open(t.Context(), memory.New(), broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	q := b.Queue(queue)
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var all []*holdfast.Delivery
	for len(all) < len(msgs) {
		ds, err := r.Receive(t.Context(), len(msgs)-len(all))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ds...)
	}
	return all
}

// The judge lets pass what is right, and finds each thing that may not be.
func TestHistoryJudges(t *testing.T) {
	const q, s = "q", "s"
	msg := func(n int) holdfast.Message { return holdfast.Message{Body: killtest.Body(s, n, "")} }
	keyed := func(n int) holdfast.Message {
		return holdfast.Message{Body: killtest.Body(s, n, fmt.Sprint("k", n)), Key: fmt.Sprint("k", n)}
	}
	stream := [16]byte{1}
	for _, c := range []struct {
		name string
		play func(t *testing.T, h *killtest.History)
		want string // empty: nothing
	}{
		{"all is well", func(t *testing.T, h *killtest.History) {
			ds := deliveries(t, q, msg(1), msg(2))
			for n := 1; n <= 2; n++ {
				h.Sending(q, s, n, "")
				h.Outcome(q, s, n, ds[n-1].ID, nil)
				h.Delivered(q, ds[n-1])
				h.Delivered(q, ds[n-1])
				h.Deleted(q, ds[n-1])
			}
			h.Sending(q, s, 3, "")
			h.Outcome(q, s, 3, holdfast.ID{}, errors.New("full"))
			h.Sending(q, s, 4, "")
			h.Outcome(q, s, 4, holdfast.ID{}, fmt.Errorf("send: %w", holdfast.ErrUnknown))
		}, ""},
		{"lost", func(_ *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			h.Outcome(q, s, 1, holdfast.ID{Stream: stream, Seq: 1}, nil)
		}, "G1: {q s 1} was acknowledged, and is lost"},
		{"never sent", func(t *testing.T, h *killtest.History) {
			h.Delivered(q, deliveries(t, q, msg(1))[0])
		}, "received and never sent"},
		{"changed", func(t *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			m := msg(1)
			m.Body[len(m.Body)-1] ^= 1
			h.Delivered(q, deliveries(t, q, m)[0])
		}, "received and never sent"},
		{"stored twice", func(t *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			for _, d := range deliveries(t, q, msg(1), msg(1)) {
				h.Delivered(q, d)
			}
		}, "G3: {q s 1} is stored twice"},
		{"two messages of one id", func(_ *testing.T, h *killtest.History) {
			for n := 1; n <= 2; n++ {
				h.Sending(q, s, n, "")
				h.Outcome(q, s, n, holdfast.ID{Stream: stream, Seq: 1}, nil)
			}
		}, "have the same id"},
		{"said not to be stored", func(t *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			h.Outcome(q, s, 1, holdfast.ID{}, errors.New("full"))
			h.Delivered(q, deliveries(t, q, msg(1))[0])
		}, "G10"},
		{"came back", func(t *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			d := deliveries(t, q, msg(1))[0]
			h.Delivered(q, d)
			h.Deleted(q, d)
			h.Delivered(q, d)
		}, "G2: {q s 1} was acknowledged for good, and came again"},
		{"order of a sender", func(t *testing.T, h *killtest.History) {
			ds := deliveries(t, q, msg(2), msg(1))
			h.Sending(q, s, 1, "")
			h.Sending(q, s, 2, "")
			h.Delivered(q, ds[0])
			h.Delivered(q, ds[1])
		}, "G6: q s: message 1 is stored at seq 2, behind message 2 at seq 1"},
		{"order of a key", func(t *testing.T, h *killtest.History) {
			ds := deliveries(t, q, keyed(1), keyed(2))
			ds[1].Key, ds[1].Body = "k1", killtest.Body(s, 2, "k1")
			h.Sending(q, s, 1, "k1")
			h.Sending(q, s, 2, "k1")
			h.Delivered(q, ds[1])
			h.Delivered(q, ds[0])
		}, "G6: of key k1, seq 1 came after seq 2"},
		{"count falls", func(t *testing.T, h *killtest.History) {
			h.Sending(q, s, 1, "")
			d := deliveries(t, q, msg(1))[0]
			d.Attempt = 3
			h.Delivered(q, d)
			d.Attempt = 2
			h.Delivered(q, d)
		}, "the delivery count of {q s 1} fell from 3 to 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := killtest.NewHistory()
			c.play(t, h)
			got := strings.Join(h.Check(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
