package rpc_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/memlink"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is a server over a link in memory.
type env struct {
	t      *testing.T
	link   *memlink.Link
	server *rpc.Server
	addr   string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	tls    *tls.Config // of clients
}

// start serves on a loopback address, or on what o and l say.
func start(t *testing.T, o rpc.Options, l net.Listener) *env {
	t.Helper()
	e := &env{t: t, link: memlink.New()}
	o.Logger = slog.New(slog.DiscardHandler)
	if l == nil {
		var err error
		if l, err = rpc.Listen(t.Context(), "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	if p, ok := l.(*pipeListener); ok {
		o.Insecure, e.dial = true, p.dial
	}
	e.addr = l.Addr().String()
	if l.Addr().Network() == "unix" {
		e.addr = "unix:" + e.addr
	}
	var err error
	if e.server, err = rpc.NewServer(e.link, o); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.server.Serve(l) }()
	t.Cleanup(func() {
		e.server.Close()
		if err := <-served; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
		e.link.Close()
	})
	return e
}

// client connects a client.
func (e *env) client(o client.Options) *client.Client {
	e.t.Helper()
	c, err := e.tryClient(o)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

func (e *env) tryClient(o client.Options) (*client.Client, error) {
	if o.Addrs == nil {
		o.Addrs = []string{e.addr}
	}
	if o.Dialer == nil {
		o.Dialer = e.dial
	}
	if o.TLS == nil {
		o.TLS = e.tls
	}
	o.Logger = slog.New(slog.DiscardHandler)
	c, err := client.Dial(e.t.Context(), o)
	if err == nil {
		e.t.Cleanup(c.Close)
	}
	return c, err
}

// pipeListener is a network within one process, for tests in virtual time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe:1" }

// raw is a client that speaks the protocol frame by frame.
type raw struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

// raw connects and asks for the upgrade.
func (e *env) raw(header ...string) *raw {
	e.t.Helper()
	dial := e.dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	network, target := "tcp", e.addr
	if path, ok := strings.CutPrefix(e.addr, "unix:"); ok {
		network, target = "unix", path
	}
	nc, err := dial(e.t.Context(), network, target)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { nc.Close() })
	c := &raw{e.t, nc, bufio.NewReader(nc)}
	c.write([]byte("GET /holdfast HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: holdfast/1\r\n" + strings.Join(header, "\r\n") + "\r\n"))
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		e.t.Fatalf("answer %s", resp.Status)
	}
	return c
}

// greeted connects and exchanges greetings.
func (e *env) greeted() *raw {
	e.t.Helper()
	c := e.raw()
	c.write(wire.AppendHello(nil, &wire.Hello{Client: "raw", MaxFrame: 1 << 20}))
	c.expect(wire.TypeWelcome)
	return c
}

// sender opens a sender's stream.
func (c *raw) sender(id uint32, name string) wire.SenderOpened {
	c.t.Helper()
	c.write(wire.AppendOpenSender(nil, id, &wire.OpenSender{Queue: name, Producer: queue.Producer{ID: "raw", Incarnation: "1"}}))
	o, err := wire.DecodeSenderOpened(c.expect(wire.TypeSenderOpened))
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// receiver opens a receiver's stream.
func (c *raw) receiver(id uint32, name string) {
	c.t.Helper()
	c.write(wire.AppendOpenReceiver(nil, id, &wire.OpenReceiver{Queue: name}))
	c.expect(wire.TypeReceiverOpened)
}

func (c *raw) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// next reads a frame.
func (c *raw) next() (wire.Header, []byte, error) {
	head := make([]byte, wire.HeaderSize)
	if _, err := io.ReadFull(c.r, head); err != nil {
		return wire.Header{}, nil, err
	}
	h, err := wire.ParseHeader(head, 1<<30)
	if err != nil {
		return h, nil, err
	}
	p := make([]byte, h.Length)
	if _, err := io.ReadFull(c.r, p); err != nil {
		return h, nil, err
	}
	return h, p, h.Verify(head, p)
}

// expect reads a frame of a type.
func (c *raw) expect(t wire.Type) []byte {
	c.t.Helper()
	h, p, err := c.next()
	if err != nil || h.Type != t {
		text := ""
		if h.Type == wire.TypeBroken || h.Type == wire.TypeGoaway {
			e, err := wire.DecodeBroken(p)
			text = fmt.Sprint(e, err)
		}
		c.t.Fatalf("got %v %v %s, want %v", h.Type, err, text, t)
	}
	return p
}

// goaway reads frames until the broker says why it ends the connection.
func (c *raw) goaway() *wire.Error {
	c.t.Helper()
	for {
		h, p, err := c.next()
		if err != nil {
			c.t.Fatalf("ended without a reason: %v", err)
		}
		if h.Type != wire.TypeGoaway {
			continue
		}
		e, err := wire.DecodeGoaway(p)
		if err != nil {
			c.t.Fatal(err)
		}
		return e
	}
}

func frameOf(bodies ...string) []byte {
	var b message.Builder
	for _, s := range bodies {
		b.Add(&message.Message{Body: []byte(s)})
	}
	return b.Finish()
}

func sendFrame(id uint32, first uint64, bodies ...string) []byte {
	f := frameOf(bodies...)
	return append(wire.AppendSendHeader(nil, id, first, len(f)), f...)
}

// senderLog is a SenderEvents that writes down what it is told.
type senderLog struct{ events chan string }

func newSenderLog() *senderLog { return &senderLog{make(chan string, 10_000)} }

func (l *senderLog) Accepted(a holdfast.Accepted) {
	l.events <- fmt.Sprintf("accepted %d first %d count %d dup %d", a.UpTo, a.First, a.Count, a.Duplicates)
}
func (l *senderLog) Refused(resume uint64, err error) {
	l.events <- fmt.Sprintf("refused %d: %v", resume, err)
}
func (l *senderLog) Waits(waits bool, reason string) {
	l.events <- fmt.Sprintf("waits %v: %s", waits, reason)
}
func (l *senderLog) Broken(err error) { l.events <- "broken: " + kindOf(err) }

// receiverLog is a ReceiverEvents that writes down what it is told.
type receiverLog struct {
	events chan string
	mu     sync.Mutex
	runs   []holdfast.Run
}

func newReceiverLog() *receiverLog { return &receiverLog{events: make(chan string, 10_000)} }

func (l *receiverLog) Deliver(runs []holdfast.Run) {
	l.mu.Lock()
	l.runs = append(l.runs, runs...)
	l.mu.Unlock()
	for _, r := range runs {
		cur := message.NewSpanCursor(r.Data)
		for i := range r.Count {
			raw, ok := cur.Next()
			if !ok {
				l.events <- "malformed run"
			}
			l.events <- fmt.Sprintf("message %d lease %d attempt %d: %.40s", r.Seq+i, r.Lease+i, r.Attempt, raw.Body)
		}
	}
}
func (l *receiverLog) Lost(spans []queue.LeaseSpan, reason string) {
	l.events <- fmt.Sprintf("lost %v: %s", spans, reason)
}
func (l *receiverLog) Broken(err error) { l.events <- "broken: " + kindOf(err) }

// kindOf names what errors.Is and errors.As say of an error.
func kindOf(err error) string {
	var field *message.FieldError
	if errors.As(err, &field) {
		return "field " + field.Field
	}
	for _, k := range []error{holdfast.ErrDenied, holdfast.ErrNoQueue, holdfast.ErrFenced, holdfast.ErrUnavailable, holdfast.ErrClosed, holdfast.ErrUnknown} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	return fmt.Sprint(err)
}

// want reads events and compares them.
func want(t *testing.T, events <-chan string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		select {
		case got := <-events:
			if got != w {
				t.Fatalf("event %q, want %q", got, w)
			}
		case <-t.Context().Done():
			t.Fatalf("no event, want %q", w)
		}
	}
}
