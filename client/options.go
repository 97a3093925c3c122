package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/rpc/transport"
)

// The defaults of Options.
const (
	DefaultAddr          = "127.0.0.1:9650"
	DefaultDialTimeout   = 5 * time.Second
	DefaultMaxBackoff    = 5 * time.Second
	DefaultMaxFrameBytes = 256 << 20
)

// deadAfterSeveral is the default of Options.DeadAfter with several addresses.
const deadAfterSeveral = 3 * time.Second

// unixPrefix marks an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// Options are what a client is made with. The zero value means the defaults; negative numbers are errors, reported
// together.
type Options struct {
	// Addrs are the addresses of brokers, HOST:PORT or unix:PATH, in the order in which they are tried. Default
	// 127.0.0.1:9650.
	Addrs []string
	// TLS, if not nil, is used on TCP connections. The server's name is that of the address, unless it says
	// another. A certificate in it is presented to brokers that ask (mTLS).
	TLS *tls.Config
	// Token is the bearer token that the client presents, empty for none.
	Token string
	// Name is what the client is called in the broker's log. Default "holdfast-go".
	Name string
	// DialTimeout is how long one address may take to answer. Default 5 s.
	DialTimeout time.Duration
	// MaxBackoff bounds the pause before the next attempt when no address answered. Default 5 s.
	MaxBackoff time.Duration
	// DeadAfter is the time without a byte from the broker after which the connection ends. Default 10 s; with several
	// addresses 3 s, since there is somewhere else to go.
	DeadAfter time.Duration
	// WriteTimeout is how long the broker may read nothing of what waits for it. Default 10 s.
	WriteTimeout time.Duration
	// MaxFrameBytes is the most that the client takes at once, hence bounds the messages that it can receive.
	// Default 256 MiB; at least 64 KiB. Frames are no larger than 256 KiB unless a message is.
	MaxFrameBytes int
	// NoRedirect makes the opening of a stream whose queue is at another broker fail with a holdfast.MovedError, instead of going there.
	NoRedirect bool
	// Lazy lets Dial return without a connection.
	Lazy bool
	// Dialer makes the connections; network is "tcp" or "unix". Default net.Dialer.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets the client's log. Default slog.Default().
	Logger *slog.Logger
}

// address is a parsed element of Addrs.
type address struct {
	text    string // as it was given
	network string
	target  string
	host    string // for TLS and HTTP
}

func parseAddress(s string) (address, error) {
	if path, ok := strings.CutPrefix(s, unixPrefix); ok {
		if path == "" {
			return address{}, &message.FieldError{Field: "address", Fault: fmt.Sprintf("%q has no path", s)}
		}
		return address{s, "unix", path, "localhost"}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return address{}, &message.FieldError{Field: "address", Fault: fmt.Sprintf("%q is not one", s), Limit: "HOST:PORT or unix:PATH"}
	}
	if host == "" {
		host = "localhost"
	}
	return address{s, "tcp", net.JoinHostPort(host, port), host}, nil
}

func (o *Options) setDefaults() ([]address, error) {
	var errs []error
	if len(o.Addrs) == 0 {
		o.Addrs = []string{DefaultAddr}
	}
	var addrs []address
	for _, s := range o.Addrs {
		a, err := parseAddress(s)
		if err != nil {
			errs = append(errs, err)
		}
		addrs = append(addrs, a)
	}
	deadAfter := transport.DefaultDeadAfter
	if len(addrs) > 1 {
		deadAfter = deadAfterSeveral
	}
	for _, f := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"DialTimeout", &o.DialTimeout, DefaultDialTimeout},
		{"MaxBackoff", &o.MaxBackoff, DefaultMaxBackoff},
		{"DeadAfter", &o.DeadAfter, deadAfter},
		{"WriteTimeout", &o.WriteTimeout, transport.DefaultWriteTimeout},
	} {
		if *f.v < 0 {
			errs = append(errs, &message.FieldError{Field: f.name, Fault: fmt.Sprintf("is %v", *f.v), Limit: "0 or more"})
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.MaxFrameBytes != 0 && (o.MaxFrameBytes < 64<<10 || o.MaxFrameBytes > math.MaxInt32) {
		errs = append(errs, &message.FieldError{Field: "MaxFrameBytes", Fault: fmt.Sprintf("is %d", o.MaxFrameBytes), Limit: "64 KiB to 2 GiB"})
	}
	if o.MaxFrameBytes == 0 {
		o.MaxFrameBytes = DefaultMaxFrameBytes
	}
	if strings.ContainsAny(o.Token, " \t\r\n") {
		errs = append(errs, &message.FieldError{Field: "Token", Fault: "has blanks or line ends"})
	}
	if o.Name == "" {
		o.Name = "holdfast-go"
	}
	if o.Dialer == nil {
		o.Dialer = (&net.Dialer{}).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return addrs, errors.Join(errs...)
}
