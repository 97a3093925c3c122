package cassandra

import (
	"context"
	"errors"
	"fmt"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// ErrReadOnly says that the journal was opened for reading only.
var ErrReadOnly = errors.New("journal was opened for reading only")

// unknown makes err an outcome that is not known, if it is not nil.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", journal.ErrUnknown, err)
}

// isFull tells whether a node refused to write because its disk is as full as its guardrail allows.
func isFull(err error) bool {
	var invalid *gocql.RequestErrInvalid
	return errors.As(err, &invalid) && strings.Contains(invalid.Message(), "disk usage")
}

// rights says what role lacks, if that is what err is about.
func (o *Options) rights(err error) error {
	var denied *gocql.RequestErrUnauthorized
	if !errors.As(err, &denied) {
		return err
	}
	return fmt.Errorf("the role %q may not do that; let a superuser GRANT SELECT and MODIFY ON KEYSPACE %s TO it (and CREATE, for the first start): %w",
		o.Username, o.Keyspace, err)
}

// explain says what to change, where that can be told from the error of a first connection, which has no type.
func (o *Options) explain(err error) error {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	hosts := strings.Join(o.Hosts, ", ")
	switch {
	case has("authentication required"):
		return fmt.Errorf("the cluster wants a user name and a password; write cassandra://USER:PASSWORD@…: %w", err)
	case has("Provided username", "username and/or password"):
		return fmt.Errorf("the cluster does not accept the password of user %q; correct user or password in the URL: %w", o.Username, err)
	case has("x509:", "tls:", "certificate"):
		return fmt.Errorf("TLS with %s fails; check the options ca, cert, key and tls-name: %w", hosts, err)
	case has("EOF", "reset by peer") && o.TLS == nil:
		return fmt.Errorf("%s ended the connection; if the cluster wants TLS, add the option tls=true: %w", hosts, err)
	case has("unsupported protocol", "Invalid or unsupported protocol"):
		return fmt.Errorf("the cluster is too old; want Apache Cassandra 5.0 or later: %w", err)
	default:
		return fmt.Errorf("none of %s can be reached as a Cassandra node; check hosts and ports (9042 if none is given), and that the nodes run: %w", hosts, err)
	}
}

// failed wraps what ended a call on a stream.
func failed(what, name string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, name, err)
}

// ended returns what a call is to say that ends with err while the journal is being closed or its context has ended.
func (j *Journal) ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case j.closed.Load() && !errors.Is(err, journal.ErrClosed):
		return fmt.Errorf("%w: %w", journal.ErrClosed, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
