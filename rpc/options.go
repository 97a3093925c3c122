package rpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/transport"
)

// The defaults of Options.
const (
	DefaultMaxConns         = 10_000
	DefaultMaxStreams       = 10_000
	DefaultHandshakeTimeout = 5 * time.Second
)

// Options are what a server is made with. The zero value means the defaults; negative numbers are errors, reported
// together.
type Options struct {
	// TLS, if not nil, is used on TCP listeners. It has the server's certificate; ClientCAs and ClientAuth make
	// clients present theirs (mTLS). Unix sockets go without.
	TLS *tls.Config
	// Policy says who may do what. nil lets everyone do everything, which a server refuses on other
	// listeners than loopback addresses and Unix sockets. See Server.SetPolicy.
	Policy *access.Policy
	// Insecure allows listeners on any address without TLS, without a policy, or without both.
	Insecure bool
	// Advertise is the address of this broker that clients are told, empty for none.
	Advertise string
	// Version is the version of the broker that clients are told.
	Version string
	// PeerToken is the bearer token by which other brokers of the same journal show that they are such, empty for none. They may do
	// everything, whatever the policy says, on PeerLink, and their frames may say where a message has been before.
	PeerToken string
	PeerLink  holdfast.Link
	// Other serves the paths that the server does not know (health, metrics), without authentication. Default: 404.
	Other http.Handler
	// MaxFrameBytes is the greatest frame of messages that is taken, in bytes. Default: that of message.Limits.
	MaxFrameBytes int
	// MaxConns is how many connections may be open at once, over all listeners. Those over it are closed at once. Default 10,000.
	MaxConns int
	// MaxStreams is how many streams a connection may have open at once. Default 10,000.
	MaxStreams int
	// HandshakeTimeout is how long a client may take for a request's header, and for its Hello. Default 5 s.
	HandshakeTimeout time.Duration
	// DeadAfter is the time without a byte from a client after which its connection ends. Default 10 s.
	DeadAfter time.Duration
	// WriteTimeout is how long a client may read nothing of what waits for it. Default 10 s.
	WriteTimeout time.Duration
	// Logger gets the server's log. Default slog.Default().
	Logger *slog.Logger
}

func (o *Options) setDefaults() error {
	var errs []error
	for _, f := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxFrameBytes", &o.MaxFrameBytes, message.Limits{}.WithDefaults().MaxFrameBytes, math.MaxInt32 / 2},
		{"MaxConns", &o.MaxConns, DefaultMaxConns, math.MaxInt32},
		{"MaxStreams", &o.MaxStreams, DefaultMaxStreams, math.MaxInt32},
	} {
		if *f.v < 0 || *f.v > f.max {
			errs = append(errs, &message.FieldError{Field: f.name, Fault: fmt.Sprintf("is %d", *f.v), Limit: fmt.Sprintf("0 to %d", f.max)})
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"HandshakeTimeout", &o.HandshakeTimeout, DefaultHandshakeTimeout},
		{"DeadAfter", &o.DeadAfter, transport.DefaultDeadAfter},
		{"WriteTimeout", &o.WriteTimeout, transport.DefaultWriteTimeout},
	} {
		if *f.v < 0 {
			errs = append(errs, &message.FieldError{Field: f.name, Fault: fmt.Sprintf("is %v", *f.v), Limit: "0 or more"})
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.PeerToken != "" && o.PeerLink == nil {
		errs = append(errs, &message.FieldError{Field: "PeerLink", Fault: "is nil, and there is a PeerToken"})
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
