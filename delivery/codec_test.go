package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/delivery/deliverytest"
)

// Each codec carries a message from end to end.
func TestCodecs(t *testing.T) {
	roundTrip(t, "JSON by default", nil, map[string]int{"a": 1}, func(m map[string]int) bool { return m["a"] == 1 })
	roundTrip(t, "raw", delivery.Raw(), []byte("bytes"), func(b []byte) bool { return string(b) == "bytes" })
	roundTrip(t, "raw, empty", delivery.Raw(), []byte{}, func(b []byte) bool { return len(b) == 0 })
	roundTrip(t, "protobuf", delivery.Protobuf[wrapperspb.StringValue](), wrapperspb.String("proto"),
		func(s *wrapperspb.StringValue) bool { return s.GetValue() == "proto" })
	own := delivery.CodecFunc(func(n int) ([]byte, error) { return []byte(strconv.Itoa(n)), nil },
		func(b []byte) (int, error) { return strconv.Atoi(string(b)) })
	roundTrip(t, "own", own, 42, func(n int) bool { return n == 42 })
}

func roundTrip[T any](t *testing.T, name string, codec delivery.Codec[T], v T, same func(T) bool) {
	t.Run(name, func(t *testing.T) {
		var got []bool
		c := newConsumer(t, delivery.ConsumerOptions[T]{Codec: codec}, func(_ context.Context, v T) error {
			got = append(got, same(v))
			return nil
		})
		p := newProducer(t, delivery.ProducerOptions[T]{Remote: c.Remote(), Codec: codec})
		if err := p.Send(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != "[true]" {
			t.Errorf("got %v", got)
		}
	})
}

func TestCodecErrorsAreTold(t *testing.T) {
	if _, err := delivery.Protobuf[wrapperspb.StringValue]().Decode([]byte{0xff}); err == nil {
		t.Error("protobuf decoded nonsense")
	}
	if _, err := delivery.JSON[int]().Decode([]byte("x")); err == nil {
		t.Error("JSON decoded nonsense")
	}
	// A codec that panics is an error of the message, on either side.
	boom := delivery.CodecFunc(func(int) ([]byte, error) { panic("encode") }, func([]byte) (int, error) { panic("decode") })
	p := newProducer(t, delivery.ProducerOptions[int]{Remote: &wire[[]byte]{}, Codec: boom})
	if err := p.Send(t.Context(), 1); !errors.Is(err, delivery.ErrNotSent) {
		t.Error(err)
	}
}

// §6: "Large bodies are chunked over links with a frame limit and reassembled before the handler." Over a network that
// loses three parts of ten, a body of 200 parts arrives, whole, because what came is kept.
func TestChunking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := deliverytest.NewNetwork(1, deliverytest.Faults{Drop: 0.3, Duplicate: 0.1, MaxDelay: 20 * time.Millisecond})
		var got [][]byte
		c := newConsumer(t, delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw()}, func(_ context.Context, b []byte) error {
			got = append(got, b)
			return nil
		})
		frames := &frameLimit{Link: deliverytest.Over(network, c.Remote()), limit: 1000, t: t}
		p := newProducer(t, delivery.ProducerOptions[[]byte]{Remote: frames, Codec: delivery.Raw()})
		large := bytes.Repeat([]byte("0123456789"), 20_000)
		bodies := [][]byte{[]byte("small"), large, bytes.Repeat([]byte("x"), 1000), bytes.Repeat([]byte("y"), 1001), nil}
		for _, b := range bodies {
			if err := p.Send(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		for i, b := range bodies {
			if !bytes.Equal(got[i], b) {
				t.Errorf("body %d: %d bytes arrived, want %d", i, len(got[i]), len(b))
			}
		}
		if st := c.Stats(); st.Assembling != 0 || st.DeadLetters != 0 || st.Handled != 5 {
			t.Errorf("%+v", st)
		}
		if !frames.parts {
			t.Error("nothing was cut")
		}
	})
}

// frameLimit is a link that says its limit and checks that it is kept.
type frameLimit struct {
	delivery.Link[[]byte]
	limit int
	parts bool
	t     *testing.T
}

func (f *frameLimit) FrameLimit() int { return f.limit }

func (f *frameLimit) Deliver(d delivery.Delivery[[]byte]) error {
	n := 0
	for _, b := range d.Bodies {
		n += len(b)
	}
	if n > f.limit {
		f.t.Errorf("an envelope of %d bytes", n)
	}
	f.parts = f.parts || d.Parts > 0
	return f.Link.Deliver(d)
}

// Parts that make no sense, or more than is ever put together, are dead letters; unfinished messages are given up.
func TestChunkingFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var letters []string
		c := newConsumer(t, delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw(), MaxAssemblyBytes: 10_000, OnDeadLetter: func(d delivery.DeadLetter) {
			letters = append(letters, d.Cause.Error())
		}}, func(context.Context, []byte) error { return nil })
		part := func(change func(*delivery.Delivery[[]byte])) {
			d := delivery.Delivery[[]byte]{ProducerID: "p", Incarnation: "i", Seq: 1, Floor: 1, ReplyTo: &collector{},
				Bodies: [][]byte{[]byte("ab")}, Part: 0, Parts: 2, Total: 4}
			change(&d)
			_ = c.Remote().Deliver(d)
		}
		part(func(d *delivery.Delivery[[]byte]) { d.Parts = 1 })
		part(func(d *delivery.Delivery[[]byte]) { d.Total = 1 << 40 })
		part(func(d *delivery.Delivery[[]byte]) { d.Bodies = append(d.Bodies, nil) })
		part(func(d *delivery.Delivery[[]byte]) { d.Seq = 0 })
		if len(letters) != 4 || c.Stats().Assembling != 0 {
			t.Errorf("%q", letters)
		}
		part(func(*delivery.Delivery[[]byte]) {})
		if c.Stats().Assembling != 1 {
			t.Error("a part was not kept")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := c.Stats(); st.Assembling != 0 || st.AssemblyLost != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A part of a message that is in progress says nothing about its body; whatever its handler does at that very moment, no
// other body than the whole one reaches it.
func TestPartsWhileTheHandlerFails(t *testing.T) {
	var attempts atomic.Int64
	c := newConsumer(t, delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw()}, func(_ context.Context, b []byte) error {
		if string(b) != "abcd" {
			t.Errorf("handled %q", b)
		}
		attempts.Add(1)
		return errors.New("not now")
	})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := 0; attempts.Load() < 500 && !t.Failed(); i++ {
				_ = c.Remote().Deliver(delivery.Delivery[[]byte]{ProducerID: "p", Incarnation: "i", Seq: 1, Floor: 1, ReplyTo: &collector{},
					Bodies: [][]byte{[]byte("abcd")[2*(i%2) : 2*(i%2)+2]}, Part: i % 2, Parts: 2, Total: 4})
			}
		})
	}
	senders.Wait()
}
