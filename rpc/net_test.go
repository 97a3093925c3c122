package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/rpc"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{t, cert, key, pool}
}

// sign returns a certificate for a name, for servers and clients.
func (a *authority) sign(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	check(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// startTLS serves with TLS; clients know the authority.
func startTLS(t *testing.T, o rpc.Options) *env {
	t.Helper()
	ca := newAuthority(t)
	o.TLS = &tls.Config{Certificates: []tls.Certificate{ca.sign("server")}}
	e := start(t, o, nil)
	e.tls = &tls.Config{RootCAs: ca.pool}
	return e
}

// proxy is a TCP connection that can be stalled and cut.
type proxy struct {
	addr string
	l    net.Listener
	wg   sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	stalled chan struct{}
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &proxy{addr: l.Addr().String(), l: l}
	p.wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", target)
			if err != nil {
				a.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, a, b)
			p.mu.Unlock()
			p.wg.Go(func() { p.pump(a, b) })
			p.wg.Go(func() { p.pump(b, a) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) pump(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			<-stalled
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				_ = to.(*net.TCPConn).CloseWrite()
			}
			return
		}
	}
}

// stall lets nothing more through, as a network that is gone does.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// cut closes all connections and lets new ones through.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// stallConn is a connection whose writes can be made to go nowhere, and whose reads to bring nothing.
type stallConn struct {
	net.Conn
	stuck chan struct{} // closed when the connection is stalled
	done  chan struct{}
	once  sync.Once
}

// stallable is a dialer whose connections are noted and can be stalled.
func (e *env) stallable(ends *[]net.Conn) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := e.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s := &stallConn{Conn: nc, stuck: make(chan struct{}), done: make(chan struct{})}
		*ends = append(*ends, s)
		return s, nil
	}
}

func (c *stallConn) stall() { close(c.stuck) }

func (c *stallConn) isStuck() bool {
	select {
	case <-c.stuck:
		return true
	default:
		return false
	}
}

// Read brings nothing once the connection is stalled.
func (c *stallConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if !c.isStuck() {
			return n, err
		}
		if err != nil {
			<-c.done
			return 0, net.ErrClosed
		}
	}
}

// Write pretends.
func (c *stallConn) Write(p []byte) (int, error) {
	if c.isStuck() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Close ends what hangs.
func (c *stallConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
