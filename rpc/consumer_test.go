package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// handled writes down what a consumer's handler was given, by producer.
type handled struct {
	mu  sync.Mutex
	all map[string][]uint64
}

func (h *handled) note(producer string, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[string][]uint64)
	}
	h.all[producer] = append(h.all[producer], n)
}

func (h *handled) of(producer string) []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[producer]
}

// inOrder fails unless a producer's messages were 1…n, each once, in order.
func (h *handled) inOrder(t *testing.T, producer string, n uint64) {
	t.Helper()
	got := h.of(producer)
	if uint64(len(got)) != n {
		t.Errorf("%s: %d messages handled, want %d", producer, len(got), n)
	}
	for i, v := range got {
		if v != uint64(i)+1 {
			t.Errorf("%s: message %d was handled as number %d", producer, v, i+1)
			return
		}
	}
}

// consumer serves a consumer under a name. Its messages are their number and anything behind it.
func (e *env) consumer(name string, o delivery.ConsumerOptions[[]byte], h *handled) *delivery.ConsumerController[[]byte] {
	e.t.Helper()
	o.Codec, o.Logger = delivery.Raw(), quiet
	c, err := delivery.NewConsumerController(o, func(ctx context.Context, b []byte) error {
		m, _ := delivery.MetadataOf(ctx)
		h.note(m.ProducerID, binary.LittleEndian.Uint64(b))
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close(); <-c.Stopped() })
	if err := e.server.AddConsumer(name, c.Remote()); err != nil {
		e.t.Fatal(err)
	}
	return c
}

// producer makes one that sends by a link.
func (e *env) producer(to delivery.Link[[]byte], o delivery.ProducerOptions[[]byte]) *delivery.ProducerController[[]byte] {
	e.t.Helper()
	o.Codec, o.Logger, o.Remote = delivery.Raw(), quiet, to
	p, err := delivery.NewProducerController(o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { p.Close(); <-p.Stopped() })
	return p
}

// numbered is message n with a body of at least size bytes.
func numbered(n uint64, size int) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, max(size-8, 0))...)
}

func postAll(t *testing.T, p *delivery.ProducerController[[]byte], n uint64, size int) {
	t.Helper()
	for i := range n {
		if err := p.PostFunc(t.Context(), numbered(i+1, size), nil); err != nil {
			t.Errorf("post %d: %v", i+1, err)
			return
		}
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-p.Stopped()
}

// Producers reach a consumer in another program by TCP, a Unix socket and TLS, also where there are no queues: each message is
// handled once and in order, acknowledgements come back the same way, and the farewell frees the entry (§6, links).
func TestDeliveryOverConnections(t *testing.T) {
	for name, serve := range map[string]func(t *testing.T) *env{
		"tcp": func(t *testing.T) *env { return start(t, rpc.Options{}, nil) },
		"tls": func(t *testing.T) *env { return startTLS(t, rpc.Options{}) },
		"unix": func(t *testing.T) *env {
			l, err := rpc.Listen(t.Context(), "unix:"+filepath.Join(t.TempDir(), "s"))
			check(t, err)
			return start(t, rpc.Options{}, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t)
			var h handled
			consumer := e.consumer("payments", delivery.ConsumerOptions[[]byte]{InOrder: true}, &h)
			link := e.client(client.Options{}).Consumer("payments")
			defer link.Close()
			var work sync.WaitGroup
			const each = 1000
			for _, id := range []string{"a", "b", "c"} {
				// A resend time that never comes: nothing may be lost on the way.
				p := e.producer(link, delivery.ProducerOptions[[]byte]{ProducerID: id, WindowSize: 100, ResendTimeout: time.Hour})
				work.Go(func() { postAll(t, p, each, 20) })
			}
			work.Wait()
			for _, id := range []string{"a", "b", "c"} {
				h.inOrder(t, id, each)
			}
			waitFor(t, func() bool { return consumer.Stats().Farewells == 3 })
			if st := consumer.Stats(); st.Handled != 3*each || st.Producers != 0 || st.Known != 0 {
				t.Errorf("%+v", st)
			}
			if m := e.server.Metrics(); m.Streams != 1 {
				t.Errorf("%d streams", m.Streams)
			}
		})
	}
}

// A window far larger than what a connection takes at once, and bodies far larger than a frame, lose nothing on the way:
// the producer is held back instead (G4). Large bodies arrive as they were, in parts.
func TestDeliveryHoldsBackProducer(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	var h handled
	e.consumer("small", delivery.ConsumerOptions[[]byte]{MaxWaitingPerProducer: delivery.MaxWindow}, &h)
	link := e.client(client.Options{}).Consumer("small")
	p := e.producer(link, delivery.ProducerOptions[[]byte]{ProducerID: "a", WindowSize: delivery.MaxWindow, ResendTimeout: time.Hour})
	postAll(t, p, delivery.MaxWindow, 100)
	h.inOrder(t, "a", delivery.MaxWindow)
	if st := p.Stats(); st.LinkErrors != 0 {
		t.Errorf("%+v", st)
	}

	sums := make(chan []byte, 8)
	large, err := delivery.NewConsumerController(delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw(), Logger: quiet}, func(_ context.Context, b []byte) error {
		sums <- b
		return nil
	})
	check(t, err)
	defer func() { large.Close(); <-large.Stopped() }()
	check(t, e.server.AddConsumer("large", large.Remote()))
	p = e.producer(e.client(client.Options{}).Consumer("large"), delivery.ProducerOptions[[]byte]{ResendTimeout: time.Hour})
	rng := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{5 << 20, 0, 1, wire.MaxEnvelopeBodies, wire.MaxEnvelopeBodies + 1} {
		body := make([]byte, size)
		_, _ = rng.Read(body)
		check(t, p.Send(t.Context(), body))
		if got := <-sums; !bytes.Equal(got, body) {
			t.Errorf("a body of %d bytes came as %d others", size, len(got))
		}
	}
}

// Connections are cut under a producer, by seed: while neither side restarts, each message is handled exactly once and in order
// (§12), and the link opens its stream again by itself.
func TestDeliveryCuts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := start(t, rpc.Options{}, nil)
	proxy := newProxy(t, e.addr)
	var h handled
	consumer := e.consumer("payments", delivery.ConsumerOptions[[]byte]{InOrder: true}, &h)
	link := e.client(client.Options{Addrs: []string{proxy.addr}, MaxBackoff: 5 * time.Millisecond}).Consumer("payments")
	ctx, cancel := context.WithCancel(t.Context())
	var cutting, work sync.WaitGroup
	var cuts atomic.Int64
	cutting.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for {
			timer := time.NewTimer(time.Duration(rng.IntN(30)) * time.Millisecond)
			select {
			case <-timer.C:
				proxy.cut()
				cuts.Add(1)
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	})
	const each = 400
	for i, id := range []string{"a", "b", "large"} {
		p := e.producer(link, delivery.ProducerOptions[[]byte]{
			ProducerID: id, WindowSize: 8, ResendTimeout: 20 * time.Millisecond, ResendCap: 100 * time.Millisecond,
		})
		n, size := uint64(each), 100
		if i == 2 {
			n, size = 10, 2*wire.MaxEnvelopeBodies+5 // its parts come over several connections
		}
		work.Go(func() { postAll(t, p, n, size) })
	}
	work.Wait()
	cancel()
	cutting.Wait()
	h.inOrder(t, "a", each)
	h.inOrder(t, "b", each)
	h.inOrder(t, "large", 10)
	t.Logf("%d cuts, %d connections, %+v", cuts.Load(), e.server.Metrics().Accepted, consumer.Stats())
}

// A producer waits for a consumer that is not there yet, or not any more, and goes on when there is one. The stream ends
// with the consumer; the connection and its other streams stay.
func TestDeliveryConsumerComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, rpc.Options{}, newPipeListener())
		c := e.client(client.Options{})
		log := newSenderLog()
		s, _ := openSender(t, c, "q", log)
		link := c.Consumer("payments")
		p := e.producer(link, delivery.ProducerOptions[[]byte]{ProducerID: "a", ResendTimeout: 300 * time.Millisecond, ResendCap: time.Second})

		early, err := p.Post(t.Context(), numbered(1, 0))
		check(t, err)
		time.Sleep(time.Minute)
		if st := p.Stats(); st.Retransmitted == 0 || st.Confirmed != 0 {
			t.Errorf("without consumer: %+v", st)
		}
		x := delivery.Delivery[[]byte]{ProducerID: "x", Incarnation: "x", Seq: 1, Floor: 1, Bodies: [][]byte{nil}}
		for err = link.Deliver(x); err == nil; err = link.Deliver(x) {
			synctest.Wait() // it waited for a stream, which was refused
		}
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("refused for %v", err)
		}
		var h handled
		first := e.consumer("payments", delivery.ConsumerOptions[[]byte]{}, &h)
		check(t, early.Wait(t.Context()))

		e.server.RemoveConsumer("payments")
		e.server.RemoveConsumer("nobody")
		synctest.Wait()
		if m := e.server.Metrics(); m.Streams != 1 || m.Connections != 1 {
			t.Errorf("after the consumer was removed: %+v", m)
		}
		later, err := p.Post(t.Context(), numbered(2, 0))
		check(t, err)
		time.Sleep(time.Minute)
		e.consumer("payments", delivery.ConsumerOptions[[]byte]{}, &h)
		check(t, later.Wait(t.Context()))
		// A consumer takes the place of another on an open stream.
		e.consumer("payments", delivery.ConsumerOptions[[]byte]{}, &h)
		check(t, p.Send(t.Context(), numbered(3, 0)))
		h.inOrder(t, "a", 3)
		if st := first.Stats(); st.Handled != 1 {
			t.Errorf("the first consumer: %+v", st)
		}
		check(t, s.Send(1, frameOf("y")))
		want(t, log.events, "accepted 1 first 1 count 1 dup 0")
		p.Close()
		<-p.Stopped()
		c.Close()
		e.server.Close()
		synctest.Wait()
	})
}

// What goes to a new stream waits for its opening instead of for the resend time: the first message takes no longer than the others.
func TestDeliveryFirstMessage(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	var h handled
	e.consumer("payments", delivery.ConsumerOptions[[]byte]{}, &h)
	link := e.client(client.Options{Lazy: true}).Consumer("payments")
	p := e.producer(link, delivery.ProducerOptions[[]byte]{ProducerID: "a", ResendTimeout: time.Hour})
	check(t, p.Send(t.Context(), numbered(1, 0)))
	if st := p.Stats(); st.LinkErrors != 0 {
		t.Errorf("%+v", st)
	}
	h.inOrder(t, "a", 1)
}

// A producer needs the right to send to the consumer's name, and is told why if it does not have it; the connection stays (§9).
func TestDeliveryRights(t *testing.T) {
	e := start(t, rpc.Options{Policy: policy(t,
		"token sender "+sendToken+" send payments*",
		"token worker "+bothToken+" receive,admin",
	)}, nil)
	var h handled
	e.consumer("payments", delivery.ConsumerOptions[[]byte]{}, &h)
	e.consumer("secrets", delivery.ConsumerOptions[[]byte]{}, &h)
	d := delivery.Delivery[[]byte]{ProducerID: "x", Incarnation: "x", Seq: 1, Floor: 1, Bodies: [][]byte{numbered(1, 0)}, ReplyTo: replies(nil)}
	for _, c := range []struct{ token, consumer string }{
		{"wrong-0123456789abcdef", "payments"}, {bothToken, "payments"}, {sendToken, "secrets"},
	} {
		link := e.client(client.Options{Token: c.token, Lazy: true}).Consumer(c.consumer)
		waitFor(t, func() bool { return errors.Is(link.Deliver(d), holdfast.ErrDenied) })
	}
	if got := h.of("x"); len(got) != 0 {
		t.Errorf("handled %v", got)
	}
	p := e.producer(e.client(client.Options{Token: sendToken}).Consumer("payments"), delivery.ProducerOptions[[]byte]{ProducerID: "a"})
	check(t, p.Send(t.Context(), numbered(1, 0)))
	if m := e.server.Metrics(); m.ProtocolErrors != 0 {
		t.Errorf("%+v", m)
	}
	if e.server.AddConsumer("no name", stuck{}) == nil || e.server.AddConsumer("nobody", nil) == nil {
		t.Error("a bad name, or no consumer, is accepted")
	}
}

// replies takes acknowledgements.
type replies func(acks []delivery.Acknowledgment)

func (r replies) Acknowledge(acks []delivery.Acknowledgment) error {
	if r != nil {
		r(acks)
	}
	return nil
}

// stuck is a consumer that does nothing.
type stuck struct{}

func (stuck) Deliver(delivery.Delivery[[]byte]) error { return nil }
func (stuck) Farewell(delivery.Farewell) error        { return nil }

// envelopes keeps what it is given.
type envelopes chan delivery.Delivery[[]byte]

func (e envelopes) Deliver(d delivery.Delivery[[]byte]) error { e <- d; return nil }
func (envelopes) Farewell(delivery.Farewell) error            { return nil }

// Acknowledgements reach the producer that they are for, whatever else is in them. The way back ends with its stream, and
// then a consumer's acknowledgement is lost with an error.
func TestDeliveryAcknowledgements(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	got := make(envelopes, 100)
	check(t, e.server.AddConsumer("payments", got))
	c := e.client(client.Options{})
	link := c.Consumer("payments")
	acks := make(chan string, 100)
	send := func(producer, incarnation string, bodies ...[]byte) delivery.Delivery[[]byte] {
		check(t, link.Deliver(delivery.Delivery[[]byte]{
			ProducerID: producer, Incarnation: incarnation, Seq: 5, Floor: 2, Bodies: bodies, Part: 1, Parts: 3, Total: 9,
			ReplyTo: replies(func(a []delivery.Acknowledgment) { acks <- fmt.Sprint(producer, incarnation, a) }),
		}))
		return <-got
	}
	many := make([][]byte, 300)
	for i := range many {
		many[i] = bytes.Repeat([]byte{byte(i)}, (i*i)%777)
	}
	d := send("a", "1", many...)
	if d.ProducerID != "a" || d.Incarnation != "1" || d.Seq != 5 || d.Floor != 2 || d.Part != 1 || d.Parts != 3 || d.Total != 9 {
		t.Errorf("%+v", d)
	}
	for i, b := range d.Bodies {
		if !bytes.Equal(b, many[i]) || cap(b) != len(b) {
			t.Errorf("body %d has %d bytes, cap %d, want %d", i, len(b), cap(b), len(many[i]))
		}
	}
	send("a", "2", nil)
	a := func(producer, incarnation string, first uint64) delivery.Acknowledgment {
		return delivery.Acknowledgment{ProducerID: producer, Incarnation: incarnation, First: first, Last: first + 1}
	}
	check(t, d.ReplyTo.Acknowledge([]delivery.Acknowledgment{
		a("b", "1", 1), a("a", "1", 5), a("a", "1", 9), a("a", "2", 5), a("", "", 0), a("a", "3", 5), a("a", "2", 7),
	}))
	for _, w := range []string{"a1[{a 1 5 6} {a 1 9 10}]", "a2[{a 2 5 6}]", "a2[{a 2 7 8}]"} {
		if got := <-acks; got != w {
			t.Errorf("acknowledged %s, want %s", got, w)
		}
	}
	check(t, link.Farewell(delivery.Farewell{ProducerID: "a", Incarnation: "1", Floor: 11}))
	check(t, d.ReplyTo.Acknowledge(make([]delivery.Acknowledgment, 3*wire.MaxAcknowledgments)))
	check(t, d.ReplyTo.Acknowledge([]delivery.Acknowledgment{a("a", "1", 5), a("a", "2", 8)}))
	if got := <-acks; got != "a2[{a 2 8 9}]" {
		t.Errorf("after its farewell: %s", got)
	}
	link.Close()
	link.Close()
	waitFor(t, func() bool { return e.server.Metrics().Streams == 0 })
	if err := d.ReplyTo.Acknowledge([]delivery.Acknowledgment{a("a", "2", 5)}); err == nil {
		t.Error("acknowledged by a stream that is closed")
	}
	if err := link.Deliver(d); err == nil {
		t.Error("delivered by a link that is closed")
	}
	c.Close()
	if err := c.Consumer("payments").Deliver(d); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("by a closed client: %v", err)
	}
}

// A server that ends does not wait for producers. A consumer that is shut down before it has acknowledged everything that it
// accepted; so nothing is handled again by its successor.
func TestDeliveryShutdown(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	begun, finish := make(chan struct{}, 10), make(chan struct{})
	c, err := delivery.NewConsumerController(delivery.ConsumerOptions[[]byte]{Codec: delivery.Raw(), Logger: quiet}, func(context.Context, []byte) error {
		begun <- struct{}{}
		<-finish
		return nil
	})
	check(t, err)
	check(t, e.server.AddConsumer("payments", c.Remote()))
	p := e.producer(e.client(client.Options{}).Consumer("payments"), delivery.ProducerOptions[[]byte]{ResendTimeout: time.Hour})
	sent, err := p.Post(t.Context(), numbered(1, 0))
	check(t, err)
	<-begun
	down := make(chan error, 1)
	go func() { down <- c.Shutdown(t.Context()) }()
	waitFor(t, func() bool { return errors.Is(c.Remote().Deliver(delivery.Delivery[[]byte]{}), delivery.ErrStopped) })
	close(finish)
	check(t, <-down)
	check(t, e.server.Shutdown(t.Context()))
	check(t, sent.Wait(t.Context()))
	<-c.Stopped()
}

// Frames of delivery that come where they may not end the connection with the reason; an envelope that is malformed in what
// it says is a dead letter and disturbs nobody (§6).
func TestDeliveryFaults(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	dead := make(chan error, 10)
	var h handled
	consumer := e.consumer("payments", delivery.ConsumerOptions[[]byte]{OnDeadLetter: func(d delivery.DeadLetter) { dead <- d.Cause }}, &h)
	envelope := func(id uint32, seq uint64) []byte {
		return wire.AppendEnvelope(nil, id, &wire.Envelope{ProducerID: "raw", Incarnation: "1", Seq: seq, Floor: 1, Bodies: [][]byte{numbered(seq, 0)}})
	}
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"not opened":       {envelope(9, 1), "envelope frame of stream 9 comes before its stream was opened"},
		"to a sender":      {envelope(1, 1), "envelope frame of stream 1 is not one of a sender's stream"},
		"credit":           {wire.AppendCredit(nil, 2, wire.Credit{Messages: 1, Bytes: 1}), "credit frame of stream 2 is not one of a delivery stream"},
		"a broker's frame": {wire.AppendAcknowledge(nil, 2, nil), "acknowledge frame of stream 2 is none that a client sends"},
		"stream id again":  {wire.AppendOpenDelivery(nil, 2, "payments"), "open delivery frame of stream 2 does not have a higher id than 2"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := e.greeted()
			raw.sender(1, "q")
			raw.write(wire.AppendOpenDelivery(nil, 2, "payments"))
			raw.expect(wire.TypeDeliveryOpened)
			raw.write(c.frame)
			if got := raw.goaway(); got.Code != wire.CodeProtocol || got.Error() != c.want {
				t.Errorf("told %v %q, want %q", got.Code, got, c.want)
			}
		})
	}
	raw := e.greeted()
	raw.write(wire.AppendOpenDelivery(nil, 1, "nobody"))
	if r, err := wire.DecodeBroken(raw.expect(wire.TypeBroken)); err != nil || r.Code != wire.CodeUnavailable {
		t.Errorf("no such consumer: %v %v", r, err)
	}
	raw.write(envelope(1, 1)) // it was on its way
	raw.write(wire.AppendOpenDelivery(nil, 2, "payments"))
	raw.expect(wire.TypeDeliveryOpened)
	raw.write(envelope(2, 0))
	raw.write(envelope(2, 1<<60))
	raw.write(wire.AppendEnvelope(nil, 2, &wire.Envelope{ProducerID: "raw", Incarnation: "1", Seq: 1, Floor: 1}))
	raw.write(wire.AppendFarewell(nil, 2, &wire.Farewell{ProducerID: "nobody", Incarnation: "1", Floor: 1 << 63}))
	for range 3 {
		if err := <-dead; err == nil {
			t.Error("a dead letter without cause")
		}
	}
	raw.write(envelope(2, 1))
	acks, err := wire.DecodeAcknowledge(raw.expect(wire.TypeAcknowledge))
	if err != nil || len(acks) != 1 || acks[0] != (wire.Acknowledgment{ProducerID: "raw", Incarnation: "1", First: 1, Last: 1}) {
		t.Errorf("%v %v", acks, err)
	}
	h.inOrder(t, "raw", 1)
	if st := consumer.Stats(); st.Producers != 1 || st.DeadLetters != 3 {
		t.Errorf("%+v", st)
	}
}
