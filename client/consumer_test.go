package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// openedDelivery answers the opening of a stream to a consumer.
func (p *peer) openedDelivery() uint32 {
	h, b := p.expect(wire.TypeOpenDelivery)
	if name, err := wire.DecodeOpenDelivery(b); err != nil || name != "payments" {
		p.t.Errorf("opened for %q, %v", name, err)
	}
	p.write(wire.AppendDeliveryOpened(nil, h.Stream))
	return h.Stream
}

// noReply is where acknowledgements go that a test does not expect.
type noReply struct{ t *testing.T }

func (r noReply) Acknowledge(acks []delivery.Acknowledgment) error {
	r.t.Errorf("acknowledged %v", acks)
	return nil
}

func oneMessage(t *testing.T, seq uint64, size int) delivery.Delivery[[]byte] {
	return delivery.Delivery[[]byte]{ProducerID: "p", Incarnation: "i", Seq: seq, Floor: 1, Bodies: [][]byte{make([]byte, size)}, ReplyTo: noReply{t}}
}

// A broker that breaks the protocol on a delivery stream is told how.
func TestDeliveryBrokerFaults(t *testing.T) {
	for name, c := range map[string]struct {
		frame func(id uint32) []byte
		want  string
	}{
		"opened again":          {func(id uint32) []byte { return wire.AppendDeliveryOpened(nil, id) }, "delivery opened frame of stream 1 came before"},
		"other stream":          {func(id uint32) []byte { return wire.AppendWaits(nil, id, true, "full") }, "waits frame of stream 1 is not one of a delivery stream"},
		"a client's frame":      {func(id uint32) []byte { return wire.AppendFarewell(nil, id, &wire.Farewell{}) }, "farewell frame of stream 1 is none that a broker sends"},
		"more ranges than fit":  {func(id uint32) []byte { return wire.AppendAcknowledge(nil, id, make([]wire.Acknowledgment, 257)) }, "acknowledge frame acknowledgments are 257, limit 256"},
		"acknowledged too soon": {func(id uint32) []byte { return wire.AppendAcknowledge(nil, id, nil) }, "acknowledge frame of stream 1 comes before the stream is open"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan *wire.Error, 1)
			b := newBroker(t, func(p *peer) {
				p.greet()
				if name == "acknowledged too soon" {
					h, _ := p.expect(wire.TypeOpenDelivery)
					p.write(c.frame(h.Stream))
				} else {
					p.write(c.frame(p.openedDelivery()))
				}
				told <- p.reason()
			})
			link := mustDial(t, b.addr).Consumer("payments")
			check(t, link.Deliver(oneMessage(t, 1, 10)))
			if e := <-told; e == nil || e.Error() != c.want {
				t.Errorf("told %v, want %q", e, c.want)
			}
			link.Close()
		})
	}
}

// What would break the connection is refused, with field and limit (G11).
func TestDeliveryRefusals(t *testing.T) {
	b := newBroker(t, func(p *peer) { p.greet(); p.rest() })
	link := mustDial(t, b.addr).Consumer("payments")
	defer link.Close()
	long := oneMessage(t, 1, 1)
	long.ProducerID = strings.Repeat("x", wire.MaxString+1)
	many := oneMessage(t, 1, 1)
	many.Bodies = make([][]byte, wire.MaxEnvelopeCount+1)
	part := oneMessage(t, 1, 1)
	part.Part = -1
	for field, d := range map[string]delivery.Delivery[[]byte]{
		"bodies": oneMessage(t, 1, wire.MaxEnvelopeBodies+1), "producer id or incarnation": long, "part": part, "bodies ": many,
	} {
		var e *message.FieldError
		if err := link.Deliver(d); !errors.As(err, &e) || e.Field != strings.TrimSpace(field) || e.Limit == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// While the broker does not read, a link takes what fits into its bounds, then waits two seconds, and then nothing waits any
// more (G4); a link that is closed waits for nothing. Once the broker reads again, it goes on.
func TestDeliveryStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		read, took := make(chan struct{}), make(chan uint64, 1000)
		var wg sync.WaitGroup
		wg.Go(func() {
			p := &peer{t, far, bufio.NewReader(far)}
			p.greet()
			p.openedDelivery()
			<-read
			for {
				h, b, err := p.next()
				if err != nil {
					close(took)
					return
				}
				if h.Type == wire.TypeEnvelope {
					m, err := wire.DecodeEnvelope(b)
					if err != nil {
						t.Error(err)
					}
					took <- m.Seq
				}
			}
		})
		c, err := dial(t, Options{Addrs: []string{"127.0.0.1:1"}, Dialer: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
		check(t, err)
		link := c.Consumer("payments")
		const size = 100 << 10
		seq := uint64(0)
		next := func() (time.Duration, error) {
			seq++
			start := time.Now()
			err := link.Deliver(oneMessage(t, seq, size))
			return time.Since(start), err
		}
		var last time.Duration
		for err == nil {
			if last, err = next(); seq > 20 {
				t.Fatal("it takes everything")
			}
			synctest.Wait()
		}
		if !errors.Is(err, errNoRoom) || last != patience || seq < maxQueued/size || seq > maxQueued/size+3 {
			t.Errorf("envelope %d was refused after %v for %v", seq, last, err)
		}
		if d, err := next(); d != 0 || !errors.Is(err, errNoRoom) {
			t.Errorf("the next one after %v for %v", d, err)
		}
		close(read)
		synctest.Wait()
		if d, err := next(); d != 0 || err != nil {
			t.Errorf("after it was read: %v, %v", d, err)
		}
		synctest.Wait()
		link.Close()
		if _, err := next(); !errors.Is(err, errNoStream) {
			t.Errorf("after it was closed: %v", err)
		}
		c.Close()
		far.Close()
		wg.Wait()
		n := len(took)
		if want := int(seq) - 3; n != want { // two were refused, one came too late
			t.Errorf("%d envelopes arrived, want %d", n, want)
		}
	})
}

// A stream that is not answered holds a bounded part of what is sent, and no longer than two seconds; it opens when the
// answer comes, with what waited first.
func TestDeliveryEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		answer, seqs := make(chan struct{}), make(chan uint64, 2*maxEarly)
		var wg sync.WaitGroup
		wg.Go(func() {
			p := &peer{t, far, bufio.NewReader(far)}
			p.greet()
			h, _ := p.expect(wire.TypeOpenDelivery)
			<-answer
			p.write(wire.AppendDeliveryOpened(nil, h.Stream))
			for {
				h, b, err := p.next()
				if err != nil {
					return
				}
				if m, err := wire.DecodeEnvelope(b); err == nil && h.Type == wire.TypeEnvelope {
					seqs <- m.Seq
				}
			}
		})
		c, err := dial(t, Options{Addrs: []string{"127.0.0.1:1"}, Dialer: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
		check(t, err)
		link := c.Consumer("payments")
		for i := range uint64(maxEarly) {
			check(t, link.Deliver(oneMessage(t, i+1, 10)))
		}
		start := time.Now()
		if err := link.Deliver(oneMessage(t, 9999, 10)); !errors.Is(err, errNoRoom) || time.Since(start) != patience {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if err := link.Deliver(oneMessage(t, 9999, 10)); !errors.Is(err, errNoRoom) || time.Since(start) != patience {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if err := link.Farewell(delivery.Farewell{}); !errors.Is(err, errNoStream) {
			t.Errorf("farewell: %v", err)
		}
		close(answer)
		synctest.Wait()
		check(t, link.Deliver(oneMessage(t, maxEarly+1, 10)))
		for i := range uint64(maxEarly + 1) {
			if got := <-seqs; got != i+1 {
				t.Fatalf("envelope %d came as number %d", got, i+1)
			}
		}
		c.Close()
		far.Close()
		wg.Wait()
	})
}

// A link that is closed while its stream is being opened closes the stream once it is; one whose stream breaks at once opens
// another.
func TestDeliveryOpeningRaces(t *testing.T) {
	closed := make(chan wire.Type, 1)
	answer := make(chan struct{})
	b := newBroker(t, func(p *peer) {
		p.greet()
		h, _ := p.expect(wire.TypeOpenDelivery)
		<-answer
		p.write(wire.AppendDeliveryOpened(nil, h.Stream))
		h, _, _ = p.next()
		closed <- h.Type
		// The second link: open and broken in one breath, then open.
		h, _ = p.expect(wire.TypeOpenDelivery)
		p.write(wire.AppendBroken(wire.AppendDeliveryOpened(nil, h.Stream), h.Stream, &wire.Error{Code: wire.CodeUnavailable}))
		for {
			h, _, err := p.next()
			switch {
			case err != nil:
				return
			case h.Type == wire.TypeOpenDelivery:
				p.write(wire.AppendDeliveryOpened(nil, h.Stream))
			case h.Type == wire.TypeEnvelope && h.Stream == 3:
				select {
				case closed <- h.Type:
				default: // one is enough, and more may come
				}
			}
		}
	})
	c := mustDial(t, b.addr)
	link := c.Consumer("payments")
	check(t, link.Deliver(oneMessage(t, 1, 1)))
	link.Close()
	close(answer)
	if got := <-closed; got != wire.TypeClose {
		t.Errorf("after the link was closed came %v", got)
	}
	link = c.Consumer("payments")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for got := wire.Type(0); got != wire.TypeEnvelope; {
		_ = link.Deliver(oneMessage(t, 1, 1)) // lost while there is no stream
		select {
		case got = <-closed:
		case <-tick.C:
		}
	}
	link.Close()
}
