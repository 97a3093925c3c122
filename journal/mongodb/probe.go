package mongodb

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// probe tells more of err, which says that no server was found: the client keeps what was wrong with TLS to itself, and tells a server that wants TLS by
// nothing but the end of the connection.
func probe(ctx context.Context, co *options.ClientOptions, err error) error {
	for _, host := range co.Hosts {
		if strings.HasPrefix(host, "/") {
			continue // a Unix socket
		}
		cfg := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is said to it, it is only whether the server speaks TLS
		if co.TLSConfig != nil {
			cfg = co.TLSConfig.Clone()
		}
		reached, tlsErr := handshake(ctx, cfg, host)
		switch {
		case !reached:
		case co.TLSConfig == nil && tlsErr == nil:
			return &adviceError{host + " speaks TLS; add tls=true to the URL", err}
		case co.TLSConfig != nil && tlsErr != nil:
			return &adviceError{"TLS with " + host + " fails; correct tls, tlsCAFile and tlsCertificateKeyFile in the URL", fmt.Errorf("%w: %w", tlsErr, err)}
		}
	}
	return err
}

// probeTimeout bounds how long one host is asked.
const probeTimeout = 2 * time.Second

// handshake connects to a host by TLS, and returns what was wrong with that. reached is false if it came to nothing.
func handshake(ctx context.Context, cfg *tls.Config, host string) (reached bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	name, _, err := net.SplitHostPort(host)
	if err != nil { // without a port
		name = strings.Trim(host, "[]")
		host = net.JoinHostPort(name, "27017")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if cfg.ServerName == "" {
		cfg.ServerName = name
	}
	err = tls.Client(conn, cfg).HandshakeContext(ctx)
	return ctx.Err() == nil, err
}
