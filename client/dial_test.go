package client

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// Whatever answers instead of a broker that lets the client in is told in one sentence, of the right kind.
func TestRefusals(t *testing.T) {
	http := func(text string) func(p *peer) {
		return func(p *peer) {
			_, _ = p.r.ReadString('\n')
			p.write([]byte("HTTP/1.1 " + strings.ReplaceAll(text, "\n", "\r\n")))
		}
	}
	for name, c := range map[string]struct {
		serve func(p *peer)
		kind  error
		want  string
	}{
		"unauthorized":  {http("401 Unauthorized\nContent-Length: 35\n\n" + `{"message":"the token is not known"}`[:35] + "}"), holdfast.ErrDenied, "401 Unauthorized"},
		"told why":      {http("403 Forbidden\nContent-Length: 27\n\n" + `{"message":"not from here"}`), holdfast.ErrDenied, "not from here"},
		"version":       {http("426 Upgrade Required\nContent-Length: 26\n\n" + `{"message":"speaks other"}`), status.ErrProtocol, "speaks other"},
		"stopping":      {http("503 Service Unavailable\nContent-Length: 0\n\n"), holdfast.ErrUnavailable, "503 Service Unavailable"},
		"web server":    {http("200 OK\nContent-Length: 0\n\n"), holdfast.ErrUnavailable, "200 OK"},
		"other upgrade": {http("101 Switching Protocols\nUpgrade: websocket\n\n"), status.ErrProtocol, `goes on with "websocket"`},
		"not HTTP":      {func(p *peer) { p.write([]byte("220 mail.example ESMTP\r\n")); _, _ = io.Copy(io.Discard, p.r) }, holdfast.ErrUnavailable, "no HTTP answer"},
		"hangs up":      {func(p *peer) {}, holdfast.ErrUnavailable, "no HTTP answer"},
		"silent":        {func(p *peer) { _, _ = io.Copy(io.Discard, p.r) }, holdfast.ErrUnavailable, "no answer within 200ms"},
		"no welcome":    {func(p *peer) { p.upgrade(); _, _ = io.Copy(io.Discard, p.r) }, holdfast.ErrUnavailable, "no answer within 200ms"},
		"welcome late": {func(p *peer) {
			p.upgrade()
			p.write(wire.AppendPong(nil, 1))
			p.write(wire.AppendAccepted(nil, 1, &wire.Accepted{}))
			p.rest()
		}, holdfast.ErrUnavailable, "accepted frame of stream 1 comes before welcome"},
		"goaway": {func(p *peer) {
			p.upgrade()
			p.write(wire.AppendGoaway(nil, &wire.Error{Code: wire.CodeUnavailable, Message: "full up"}))
		}, holdfast.ErrUnavailable, "full up"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, c.serve)
			_, err := dial(t, Options{Addrs: []string{b.addr}, DialTimeout: 200 * time.Millisecond})
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), b.addr) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.want)
			}
			if c.kind == holdfast.ErrUnavailable && !retryable(err) {
				t.Errorf("%v is not worth another try", err)
			}
		})
	}
}

// serveSenders greets and opens senders' streams until the connection ends.
func serveSenders(p *peer) {
	p.greet()
	for {
		h, _, err := p.next()
		if err != nil {
			return
		}
		if h.Type == wire.TypeOpenSender {
			p.write(wire.AppendSenderOpened(nil, h.Stream, &wire.SenderOpened{Epoch: 1, MaxBody: 10, MaxFrame: 100}))
		}
	}
}

// The addresses are tried in order; when the broker in use is lost, the next one takes over (§8).
func TestFailover(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	dead.Close()
	ends := make(chan *peer, 10)
	first := newBroker(t, func(p *peer) { ends <- p; serveSenders(p) })
	second := newBroker(t, serveSenders)
	c := mustDial(t, dead.Addr().String(), first.addr, second.addr)
	if c.Addr() != first.addr {
		t.Errorf("connected to %s", c.Addr())
	}
	ev := newEvents()
	if _, err := openSender(t.Context(), c, ev); err != nil {
		t.Fatal(err)
	}
	(<-ends).nc.Close()
	if e := <-ev; !strings.HasPrefix(e, "broken: connection to "+first.addr+": queue unavailable: ") {
		t.Error(e)
	}
	if _, err := openSender(t.Context(), c, ev); err != nil {
		t.Fatal(err)
	}
	if c.Addr() != second.addr {
		t.Errorf("then connected to %s", c.Addr())
	}
}

// When one broker refuses the client and another does not answer, it is worth another try; when all refuse, it is not.
func TestMixedRefusals(t *testing.T) {
	refuse := func(p *peer) {
		_, _ = p.r.ReadString('\n')
		p.write([]byte("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"))
	}
	a, b := newBroker(t, refuse), newBroker(t, refuse)
	if _, err := dial(t, Options{Addrs: []string{a.addr, b.addr}}); !errors.Is(err, holdfast.ErrDenied) {
		t.Errorf("both refuse: %v", err)
	}
	b.stop()
	if _, err := dial(t, Options{Addrs: []string{a.addr, b.addr}}); !retryable(err) {
		t.Errorf("one refuses: %v", err)
	}
}

// Rounds over addresses that do not answer are spaced by a growing pause with jitter, which its context can end (G9).
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		c, err := dial(t, Options{
			Addrs: []string{"a:1", "b:1"}, Lazy: true, MaxBackoff: 4 * time.Second,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				tries.Add(1)
				return nil, errors.New("no route")
			},
		})
		check(t, err)
		begun := time.Now()
		var pauses []time.Duration
		for range 12 {
			at := time.Now()
			if _, err := openSender(t.Context(), c, newEvents()); !retryable(err) || !strings.Contains(err.Error(), "no route") {
				t.Fatal(err)
			}
			pauses = append(pauses, time.Since(at))
		}
		if n := tries.Load(); n != 24 {
			t.Errorf("%d tries in 12 rounds over two addresses", n)
		}
		if pauses[0] != 0 || pauses[1] > 50*time.Millisecond || pauses[11] < 2*time.Second || pauses[11] > 4*time.Second {
			t.Errorf("pauses %v", pauses)
		}
		if took := time.Since(begun); took < 10*time.Second || took > 40*time.Second {
			t.Errorf("12 rounds took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		at := time.Now()
		if _, err := openSender(ctx, c, newEvents()); !errors.Is(err, context.DeadlineExceeded) || time.Since(at) != time.Second {
			t.Errorf("%v after %v", err, time.Since(at))
		}
		// Several callers share a round.
		before := tries.Load()
		errs := make(chan error)
		for range 10 {
			go func() { _, err := openSender(t.Context(), c, newEvents()); errs <- err }()
		}
		for range 10 {
			if err := <-errs; !retryable(err) {
				t.Error(err)
			}
		}
		if n := tries.Load() - before; n != 2 {
			t.Errorf("%d tries for 10 callers at once", n)
		}
		// A client that is closed waits for nothing.
		go func() { _, err := openSender(t.Context(), c, newEvents()); errs <- err }()
		synctest.Wait()
		at = time.Now()
		c.Close()
		if err := <-errs; !errors.Is(err, holdfast.ErrClosed) || time.Since(at) != 0 {
			t.Errorf("%v after %v", err, time.Since(at))
		}
	})
}

// Wrong options are reported together, by field (G11).
func TestOptions(t *testing.T) {
	_, err := Dial(t.Context(), Options{
		Addrs:       []string{"", "nowhere", "host:", "unix:", ":9650", "[::1]:9650", "unix:/run/x"},
		DialTimeout: -1, MaxBackoff: -1, DeadAfter: -1, WriteTimeout: -1, MaxFrameBytes: 100, Token: "a b",
	})
	var fields []string
	var collect func(err error)
	collect = func(err error) {
		var f *message.FieldError
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				collect(e)
			}
		} else if errors.As(err, &f) {
			fields = append(fields, f.Field)
		} else if err != nil {
			collect(errors.Unwrap(err))
		}
	}
	collect(errors.Unwrap(err))
	if got := strings.Join(fields, " "); got != "address address address address DialTimeout MaxBackoff DeadAfter WriteTimeout MaxFrameBytes Token" {
		t.Errorf("%s of %v", got, err)
	}
	c, err := dial(t, Options{Lazy: true})
	check(t, err)
	if c.Addr() != "" || c.addrs[0].text != DefaultAddr {
		t.Errorf("%q %v", c.Addr(), c.addrs)
	}
}

// The client asks as docs/protocol.md says.
func TestRequest(t *testing.T) {
	asked := make(chan string, 1)
	b := newBroker(t, func(p *peer) {
		r := p.upgrade()
		_, hello := p.expect(wire.TypeHello)
		m, err := wire.DecodeHello(hello)
		if err != nil {
			t.Error(err)
		}
		asked <- strings.Join([]string{r.Method, r.URL.Path, r.Host, r.Header.Get("Connection"), r.Header.Get("Upgrade"), r.Header.Get("Authorization"), m.Client}, " ")
	})
	_, _ = dial(t, Options{Addrs: []string{b.addr}, Token: "secret", Name: "tester"})
	if got := <-asked; got != "GET /holdfast "+b.addr+" Upgrade holdfast/1 Bearer secret tester" {
		t.Error(got)
	}
}

// The error of connecting speaks of brokers and addresses, and of why; and it says that it can be tried again.
func TestDialErrors(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		addrs []string
		want  string
	}{
		{[]string{"unix:" + none}, "connect to unix:" + none + ": dial unix " + none},
		{[]string{"unix:" + none, "unix:" + none + "2"}, "no broker can be used: connect to unix:" + none + ": dial unix " + none},
	} {
		_, err := Dial(t.Context(), Options{Addrs: c.addrs})
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.HasPrefix(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "queue") {
			t.Errorf("%v", err)
		}
	}
}
