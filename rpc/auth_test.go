package rpc_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/access"
)

const (
	sendToken = "send-0123456789abcdef"
	bothToken = "both-0123456789abcdef"
)

func policy(t *testing.T, lines ...string) *access.Policy {
	t.Helper()
	p, err := access.Parse(strings.NewReader(strings.Join(lines, "\n")))
	check(t, err)
	return p
}

// Without a token that the broker knows, nothing is answered; with one, a stream is opened to the queues that it is for, and
// another right or queue is refused without harm to the connection (§9).
func TestTokens(t *testing.T) {
	e := start(t, rpc.Options{Policy: policy(t,
		"token sender "+sendToken+" send orders*",
		"token worker "+bothToken+" send,receive",
	)}, nil)
	for _, token := range []string{"", "wrong-0123456789abcdef", sendToken[1:], sendToken + "x"} {
		if _, err := e.tryClient(client.Options{Token: token}); !errors.Is(err, holdfast.ErrDenied) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	resp, err := http.Get("http://" + e.addr + "/holdfast")
	check(t, err)
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	resp.Body.Close()
	if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != `Bearer realm="holdfast"` || !strings.Contains(string(body), `"unauthenticated"`) {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	http.DefaultClient.CloseIdleConnections()

	c := e.client(client.Options{Token: sendToken})
	log := newSenderLog()
	s, _ := openSender(t, c, "orders.eu", log)
	_, _, err = c.OpenReceiver(t.Context(), "orders.eu", holdfast.ReceiverConfig{}, newReceiverLog())
	if !errors.Is(err, holdfast.ErrDenied) || err.Error() != `permission denied: sender may not receive from queue "orders.eu"` {
		t.Errorf("receive: %v", err)
	}
	if _, _, err := c.OpenSender(t.Context(), "returns", holdfast.SenderConfig{}, newSenderLog()); !errors.Is(err, holdfast.ErrDenied) {
		t.Errorf("other queue: %v", err)
	}
	if err := c.Admin().Delete(t.Context(), "orders.eu"); !errors.Is(err, holdfast.ErrDenied) {
		t.Errorf("delete: %v", err)
	}
	check(t, s.Send(1, frameOf("x")))
	want(t, log.events, "accepted 1 first 1 count 1 dup 0")

	w := e.client(client.Options{Token: bothToken})
	rev := newReceiverLog()
	r, _ := openReceiver(t, w, "orders.eu", holdfast.ReceiverConfig{}, rev)
	r.Credit(1, 100)
	want(t, rev.events, "message 1 lease 1 attempt 1: x")
	if got := e.server.Metrics().Unauthorized; got != 5 {
		t.Errorf("%d requests were refused", got)
	}

	// A policy that is replaced holds from the next connection on, and cannot be taken away.
	check(t, e.server.SetPolicy(policy(t, "token worker "+bothToken+" admin")))
	if _, err := e.tryClient(client.Options{Token: sendToken}); !errors.Is(err, holdfast.ErrDenied) {
		t.Errorf("old token: %v", err)
	}
	if err := e.server.SetPolicy(nil); err == nil {
		t.Error("the policy could be taken away")
	}
}

// With mTLS, a client is whom its certificate names; a stranger's certificate, or none, is refused.
func TestMutualTLS(t *testing.T) {
	ca, strangers := newAuthority(t), newAuthority(t)
	for _, mode := range []tls.ClientAuthType{tls.RequireAndVerifyClientCert, tls.VerifyClientCertIfGiven} {
		e := start(t, rpc.Options{
			TLS:    &tls.Config{Certificates: []tls.Certificate{ca.sign("server")}, ClientCAs: ca.pool, ClientAuth: mode},
			Policy: policy(t, `cert shop "cn:The Shop" send`),
		}, nil)
		with := func(certs ...tls.Certificate) *tls.Config { return &tls.Config{RootCAs: ca.pool, Certificates: certs} }
		c := e.client(client.Options{TLS: with(ca.sign("The Shop"))})
		openSender(t, c, "q", newSenderLog())
		_, _, err := c.OpenReceiver(t.Context(), "q", holdfast.ReceiverConfig{}, newReceiverLog())
		if !errors.Is(err, holdfast.ErrDenied) || !strings.Contains(err.Error(), "shop may not receive") {
			t.Errorf("receive: %v", err)
		}
		for name, cfg := range map[string]*tls.Config{
			"another name": with(ca.sign("Shop")),
			"none":         with(),
			"a stranger's": with(strangers.sign("The Shop")),
		} {
			if _, err := e.tryClient(client.Options{TLS: cfg}); !errors.Is(err, holdfast.ErrDenied) {
				t.Errorf("mode %v, %s: %v", mode, name, err)
			}
		}
		if _, err := e.tryClient(client.Options{TLS: &tls.Config{RootCAs: strangers.pool}}); err == nil || errors.Is(err, holdfast.ErrDenied) {
			t.Errorf("a broker that the client does not know: %v", err)
		}
	}
}

// A listener that others can reach is refused without both TLS and a policy, unless that is asked for.
func TestListenersOfOthers(t *testing.T) {
	ca := newAuthority(t)
	withTLS := &tls.Config{Certificates: []tls.Certificate{ca.sign("server")}}
	some := policy(t, "token a 0123456789abcdef send")
	for _, c := range []struct {
		o    rpc.Options
		addr string
		ok   bool
	}{
		{rpc.Options{}, "127.0.0.1:0", true},
		{rpc.Options{}, "[::1]:0", true},
		{rpc.Options{}, "0.0.0.0:0", false},
		{rpc.Options{}, "[::]:0", false},
		{rpc.Options{TLS: withTLS}, "0.0.0.0:0", false},
		{rpc.Options{Policy: some}, "0.0.0.0:0", false},
		{rpc.Options{TLS: withTLS, Policy: some}, "0.0.0.0:0", true},
		{rpc.Options{Insecure: true}, "0.0.0.0:0", true},
	} {
		l, err := rpc.Listen(t.Context(), c.addr)
		if err != nil && strings.Contains(c.addr, "::") {
			continue // a machine without IPv6
		}
		check(t, err)
		s, err := rpc.NewServer(nil, c.o)
		check(t, err)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		if c.ok {
			nc, err := net.Dial("tcp", l.Addr().String())
			check(t, err)
			nc.Close()
			s.Close()
		}
		if err := <-served; errors.Is(err, holdfast.ErrClosed) != c.ok || !c.ok && !strings.Contains(err.Error(), "insecure") {
			t.Errorf("%s with %+v: %v", c.addr, c.o, err)
		}
		s.Close()
	}
}

// A Unix socket is for its user alone; one that was left behind is replaced, one in use is not.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := rpc.Listen(t.Context(), "unix:"+path)
	check(t, err)
	info, err := os.Stat(path)
	check(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if _, err := rpc.Listen(t.Context(), "unix:"+path); err == nil {
		t.Error("a second listener on the same path")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	l, err = rpc.Listen(t.Context(), "unix:"+path)
	if err != nil {
		t.Fatalf("on a socket that was left behind: %v", err)
	}
	l.Close()
	check(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := rpc.Listen(t.Context(), "unix:"+path); err == nil {
		t.Error("a file was replaced")
	}
	for _, addr := range []string{"unix:", "nowhere", "127.0.0.1:70000"} {
		if _, err := rpc.Listen(t.Context(), addr); err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// A server that asks nobody who they are does not answer a browser on behalf of a page from elsewhere.
func TestBrowsers(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	port := e.addr[strings.LastIndex(e.addr, ":"):]
	for _, c := range []struct {
		host, origin string
		code         int
	}{
		{e.addr, "", 404}, {"localhost" + port, "", 404}, {"[::1]" + port, "", 404},
		{"evil.example" + port, "", 403}, {e.addr, "http://evil.example", 403}, {"", "", 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.addr+"/holdfast.v1.Admin/Nothing", strings.NewReader("{}"))
		check(t, err)
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		resp.Body.Close()
		if resp.StatusCode != c.code {
			t.Errorf("host %q, origin %q: %s, want %d", c.host, c.origin, resp.Status, c.code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// What is no data connection is told what one looks like; versions that the broker does not speak are named.
func TestUpgradeRefusals(t *testing.T) {
	e := start(t, rpc.Options{Other: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "well") })}, nil)
	for _, c := range []struct {
		method, path string
		header       http.Header
		code         int
		want         string
	}{
		{"GET", "/holdfast", nil, 400, "Upgrade: holdfast/1"},
		{"POST", "/holdfast", http.Header{"Connection": {"upgrade"}, "Upgrade": {"holdfast/1"}}, 400, "GET"},
		{"GET", "/holdfast", http.Header{"Connection": {"upgrade"}, "Upgrade": {"holdfast/7, websocket"}}, 426, `asks for \"holdfast/7, websocket\", this broker speaks holdfast/1`},
		{"GET", "/healthz", nil, 200, "well"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+e.addr+c.path, nil)
		check(t, err)
		for k, v := range c.header {
			r.Header[k] = v
		}
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		resp.Body.Close()
		if resp.StatusCode != c.code || !strings.Contains(string(b), c.want) {
			t.Errorf("%s %s %v: %s %s", c.method, c.path, c.header, resp.Status, b)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for _, o := range []rpc.Options{{MaxConns: -1}, {MaxFrameBytes: -5}, {MaxStreams: -1}, {DeadAfter: -1}, {WriteTimeout: -1}, {HandshakeTimeout: -1}} {
		if _, err := rpc.NewServer(nil, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := rpc.NewServer(nil, rpc.Options{MaxConns: -1, MaxStreams: -1}); err == nil || strings.Count(err.Error(), "is -1") != 2 {
		t.Errorf("two faults: %v", err)
	}
}
