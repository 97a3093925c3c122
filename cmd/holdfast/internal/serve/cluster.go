package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc"
)

// openBroker opens the broker: alone on a journal of its own, or as one of several on a journal that can be shared. It
// completes what the front door is made with.
func (p *process) openBroker(ctx context.Context, listeners []net.Listener, ro *rpc.Options) (holdfast.Link, error) {
	o := broker.Options{
		Name: p.name(listeners), Limits: message.Limits{MaxBody: p.maxBody()}, NoAutoCreate: p.f.noCreate,
		CacheBytes: int64(p.f.cache), SendBudget: int64(p.f.budget), OpenLimit: p.f.opening, Logger: p.a.Log,
	}
	coord, ok := p.journal.(journal.Coordinator)
	if !ok || !journals.Shared(p.f.journal) {
		b, err := broker.Open(ctx, p.journal, o)
		p.broker = b
		return b, err
	}
	if p.f.advertise == "" && !reachable(listeners[0].Addr()) {
		p.a.Log.Warn("clients and brokers of other machines cannot reach this one at its address: say another by --advertise", "address", o.Name)
	}
	secret := newSecret()
	n, err := cluster.Open(ctx, p.journal, coord, cluster.Options{
		Broker: o, Address: o.Name, Heartbeat: time.Duration(p.f.heartbeat), Expiry: time.Duration(p.f.expiry),
		Dial: p.dialPeer, Secret: secret, Pin: p.pin,
	})
	if err != nil {
		return nil, err
	}
	p.node, p.broker = n, n.Broker()
	ro.Advertise, ro.PeerToken, ro.PeerLink = o.Name, secret, n.Broker()
	return n.Door(), nil
}

// maxBody is the largest body that the command line allows, 0 if it does not say: then it depends on the journal.
func (p *process) maxBody() int {
	if p.a.Source("max-body") == cli.FromDefault {
		return 0
	}
	return int(p.f.maxBody)
}

// checkAddress refuses to share a journal under an address that means something else on each machine.
func (p *process) checkAddress(listeners []net.Listener) error {
	if p.f.advertise != "" || !journals.Shared(p.f.journal) {
		return nil
	}
	if a, ok := listeners[0].Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return cli.Usagef("brokers that share a journal tell each other and their clients where they are: say by --advertise under which address this one, which listens on %s, can be reached", a)
	}
	return nil
}

// reachable tells that others than this machine may reach an address.
func reachable(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// pin is the SHA-256 of the broker's certificate, empty without TLS.
func (p *process) pin() string {
	if p.certs == nil {
		return ""
	}
	return fingerprint(p.certs.current.Load().Certificate[0])
}

func fingerprint(cert []byte) string {
	sum := sha256.Sum256(cert)
	return hex.EncodeToString(sum[:])
}

var errPin = errors.New("the broker there has another certificate than the one that it publishes in the journal")

// dialPeer makes a link to another broker. Who it is, is told by the certificate that it has published in the journal, and not by the CAs
// that clients trust.
func (p *process) dialPeer(ctx context.Context, to cluster.Peer) (cluster.PeerLink, error) {
	o := client.Options{
		Addrs: []string{to.Address}, Token: to.Secret, Name: "holdfast-broker/" + p.a.Version, NoRedirect: true, Lazy: true,
		DialTimeout: time.Second, MaxBackoff: time.Second, DeadAfter: 3 * time.Second, Logger: p.a.Log,
	}
	if to.Pin != "" {
		o.TLS = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // what follows is stricter
			VerifyConnection: func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 || fingerprint(s.PeerCertificates[0].Raw) != to.Pin {
					return errPin
				}
				return nil
			},
		}
		if p.certs != nil {
			o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.certs.current.Load(), nil }
		}
	}
	return client.Dial(ctx, o)
}
