package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a broker that does what a test says, frame by frame.
type broker struct {
	t    *testing.T
	addr string
	l    net.Listener
	wg   sync.WaitGroup
}

// peer is a connection at the broker's side.
type peer struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

// newBroker accepts connections and gives each to serve, in a goroutine of its own.
func newBroker(t *testing.T, serve func(p *peer)) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	b := &broker{t: t, addr: l.Addr().String(), l: l}
	b.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() {
				defer nc.Close()
				serve(&peer{t, nc, bufio.NewReader(nc)})
			})
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *broker) stop() {
	b.l.Close()
	b.wg.Wait()
}

// upgrade answers the request.
func (p *peer) upgrade() *http.Request {
	r, err := http.ReadRequest(p.r)
	if err != nil {
		return nil
	}
	p.write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: holdfast/1\r\n\r\n"))
	return r
}

// greet answers the request and the client's Hello.
func (p *peer) greet() {
	p.upgrade()
	p.expect(wire.TypeHello)
	p.write(wire.AppendWelcome(nil, &wire.Welcome{MaxFrame: 1 << 20, MaxStreams: 10}))
}

func (p *peer) write(b []byte) { _, _ = p.nc.Write(b) }

func (p *peer) next() (wire.Header, []byte, error) {
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(p.r, head); err != nil {
		return wire.Header{}, nil, err
	}
	h, err := wire.ParseHeader(head, 1<<30)
	if err != nil {
		return h, nil, err
	}
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return h, nil, err
	}
	return h, b, h.Verify(head, b)
}

// expect reads a frame of a type; pings do not count.
func (p *peer) expect(t wire.Type) (wire.Header, []byte) {
	for {
		h, b, err := p.next()
		switch {
		case err == nil && h.Type == wire.TypePing && t != wire.TypePing:
		case err != nil || h.Type != t:
			p.t.Errorf("broker got %v %v, want %v", h.Type, err, t)
			return h, nil
		default:
			return h, b
		}
	}
}

// reason reads until the connection ends and returns the reason that the client gave, nil if it gave none.
func (p *peer) reason() (reason *wire.Error) {
	for {
		h, b, err := p.next()
		if err != nil {
			return reason
		}
		if h.Type == wire.TypeGoaway && reason == nil {
			if reason, err = wire.DecodeGoaway(b); err != nil {
				p.t.Error(err)
			}
		}
	}
}

// rest reads until the connection ends.
func (p *peer) rest() { _ = p.reason() }

// opened answers the opening of a sender's stream.
func (p *peer) opened() uint32 {
	h, _ := p.expect(wire.TypeOpenSender)
	p.write(wire.AppendSenderOpened(nil, h.Stream, &wire.SenderOpened{Epoch: 1, Credit: wire.Credit{Messages: 100, Bytes: 1000}, MaxBody: 100, MaxFrame: 1000}))
	return h.Stream
}

// openedReceiver answers the opening of a receiver's stream.
func (p *peer) openedReceiver() uint32 {
	h, _ := p.expect(wire.TypeOpenReceiver)
	p.write(wire.AppendReceiverOpened(nil, h.Stream, &wire.ReceiverOpened{Epoch: 1}))
	return h.Stream
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, o Options) (*Client, error) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	c, err := Dial(t.Context(), o)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func mustDial(t *testing.T, addrs ...string) *Client {
	t.Helper()
	c, err := dial(t, Options{Addrs: addrs})
	check(t, err)
	return c
}

// events is a listener of both kinds that writes down what it is told.
type events chan string

func (e events) Accepted(a holdfast.Accepted)     { e <- fmt.Sprintf("accepted %d", a.UpTo) }
func (e events) Refused(resume uint64, err error) { e <- fmt.Sprintf("refused %d %v", resume, err) }
func (e events) Waits(waits bool, reason string)  { e <- fmt.Sprintf("waits %v %s", waits, reason) }
func (e events) Deliver(runs []holdfast.Run)      { e <- fmt.Sprintf("deliver %d", len(runs)) }
func (e events) Lost(spans []queue.LeaseSpan, reason string) {
	e <- fmt.Sprintf("lost %v %s", spans, reason)
}
func (e events) Broken(err error) { e <- "broken: " + err.Error() }

func newEvents() events { return make(events, 1000) }

func openSender(ctx context.Context, c *Client, ev events) (holdfast.SenderLink, error) {
	s, _, err := c.OpenSender(ctx, "q", holdfast.SenderConfig{}, ev)
	return s, err
}

func openReceiver(t *testing.T, c *Client, ev events) holdfast.ReceiverLink {
	t.Helper()
	r, _, err := c.OpenReceiver(t.Context(), "q", holdfast.ReceiverConfig{}, ev)
	check(t, err)
	return r
}

// retryable tells what the senders and receivers above do with an error: try again.
func retryable(err error) bool {
	return errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrDenied) && !errors.Is(err, holdfast.ErrClosed)
}
