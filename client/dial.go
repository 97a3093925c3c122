package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

const (
	dataPath = "/holdfast"
	// maxRefusal bounds what is read of an answer that refuses the connection.
	maxRefusal = 16 << 10
)

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// dialOne makes a data connection to one address. It takes DialTimeout at most.
func (c *Client) dialOne(ctx context.Context, a address) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.DialTimeout, fmt.Errorf("no answer within %v", c.o.DialTimeout))
	defer cancel()
	cn, err := c.handshake(ctx, a)
	if err != nil {
		if ctx.Err() != nil {
			err = unreachable{context.Cause(ctx)}
		}
		return nil, fmt.Errorf("connect to %s: %w", a.text, err)
	}
	return cn, nil
}

func (c *Client) handshake(ctx context.Context, a address) (*conn, error) {
	nc, err := c.dialSocket(ctx, a)
	if err != nil {
		return nil, unreachable{err}
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	buffered, err := c.upgrade(nc, a)
	if !stop() || err != nil {
		nc.Close()
		if err == nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	cn := newConn(c, a, nc, buffered)
	if !c.start(cn) {
		nc.Close()
		return nil, errClosed
	}
	select {
	case <-cn.welcomed:
		return cn, nil
	case <-cn.t.Done():
		return nil, cn.reason()
	case <-ctx.Done():
		cn.t.Fail(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// start serves a connection in a goroutine of its own.
func (c *Client) start(cn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.all[cn] = struct{}{}
	c.work.Go(func() {
		cn.serve()
		c.mu.Lock()
		delete(c.all, cn)
		c.mu.Unlock()
	})
	return true
}

// dialSocket makes a connection, with TLS if that is asked for.
func (c *Client) dialSocket(ctx context.Context, a address) (net.Conn, error) {
	nc, err := c.o.Dialer(ctx, a.network, a.target)
	if err != nil || c.o.TLS == nil || a.network == "unix" {
		return nc, err
	}
	cfg := c.o.TLS.Clone()
	cfg.NextProtos = []string{"http/1.1"} // the only one with upgrades
	if cfg.ServerName == "" {
		cfg.ServerName = a.host
	}
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return tc, nil
}

// upgrade turns an HTTP connection into a data connection, and returns what was read too far.
func (c *Client) upgrade(nc net.Conn, a address) (buffered []byte, err error) {
	host := a.target
	if a.network == "unix" {
		host = a.host
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n", dataPath, host, wire.Protocol)
	if c.o.Token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", c.o.Token)
	}
	b.WriteString("\r\n")
	if _, err := io.WriteString(nc, b.String()); err != nil {
		return nil, unreachable{err}
	}
	r := bufio.NewReader(nc)
	resp, err := http.ReadResponse(r, nil)
	var told *net.OpError
	switch {
	case errors.As(err, &told) && told.Op == "remote error":
		// An alert of TLS 1.3 comes behind the handshake: the broker wants another certificate, or one at all.
		return nil, fmt.Errorf("%w: %w", holdfast.ErrDenied, err)
	case err != nil:
		return nil, unreachable{fmt.Errorf("no HTTP answer: %w", err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, refusal(resp)
	}
	if got := resp.Header.Get("Upgrade"); !strings.EqualFold(got, wire.Protocol) {
		return nil, fmt.Errorf("%w: the broker goes on with %q, not with %s", status.ErrProtocol, got, wire.Protocol)
	}
	buffered, err = r.Peek(r.Buffered())
	return buffered, err
}

// refusal turns an HTTP answer into an error.
func refusal(resp *http.Response) error {
	text := resp.Status
	var body struct{ Message string }
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err == nil && json.Unmarshal(b, &body) == nil && body.Message != "" {
		text = body.Message
	}
	kind := holdfast.ErrUnavailable
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = holdfast.ErrDenied
	case http.StatusUpgradeRequired, http.StatusBadRequest, http.StatusNotFound:
		kind = status.ErrProtocol
	}
	return &refusedError{text, kind}
}

// unreachable is why no connection was made. It matches holdfast.ErrUnavailable, without its words, which are about queues.
type unreachable struct{ error }

func (e unreachable) Is(target error) bool { return target == holdfast.ErrUnavailable }
func (e unreachable) Unwrap() error        { return e.error }

// refusedError is a broker's refusal of a connection, in its words.
type refusedError struct {
	text string
	kind error
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.kind }

// baseURL is the address of administrative calls. Where they really go is for the transport's dialer to say.
func (c *Client) baseURL() string {
	host := "localhost"
	if a := c.addrs[0]; a.network == "tcp" {
		host = a.target
	}
	if c.o.TLS != nil {
		return "https://" + host
	}
	return "http://" + host
}

// httpTransport makes the connections of administrative calls: to the broker of the data connection, if there is one, else to
// the first address that answers.
func (c *Client) httpTransport() http.RoundTripper {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c.mu.Lock()
		from := c.at
		c.mu.Unlock()
		var failed []string
		for i := range c.addrs {
			a := c.addrs[(from+i)%len(c.addrs)]
			one, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
			nc, err := c.dialSocket(one, a)
			cancel()
			if err == nil {
				return nc, nil
			}
			failed = append(failed, fmt.Sprintf("connect to %s: %v", a.text, err))
			if ctx.Err() != nil {
				break
			}
		}
		return nil, fmt.Errorf("%s", strings.Join(failed, "; "))
	}
	t := &http.Transport{
		DialContext: dial, DialTLSContext: dial,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}
	return &authorized{t, c.o.Token}
}

// authorized adds the client's token to requests.
type authorized struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (a *authorized) CloseIdleConnections() {
	if t, ok := a.RoundTripper.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}
