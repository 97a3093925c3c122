// Package connect gives the commands their broker: one at an address, or one in this process on a journal.
package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/message"
)

// Flags say which broker a command talks to.
type Flags struct {
	addrs   []string
	journal string
	timeout cli.Duration
	maxBody cli.Size
	tls     bool
	tlsCA   string
	tlsCert string
	tlsKey  string
	tlsName string
	token   string

	creates bool
}

// Register adds the flags to a command.
func (f *Flags) Register(fs *pflag.FlagSet) {
	*f = Flags{timeout: cli.Duration(30 * time.Second), maxBody: message.DefaultMaxBody}
	fs.StringSliceVar(&f.addrs, "addr", []string{client.DefaultAddr}, addrUsage)
	fs.StringVar(&f.journal, "journal", "", "work on the journal of this `URL` directly, instead of with a broker at an address")
	fs.Var(&f.timeout, "timeout", "give up when the broker could not be reached for this long; 0s means never")
	fs.Var(&f.maxBody, "max-body", "largest body of a message, with --journal")
	f.registerCredentials(fs)
}

const addrUsage = "`address` of the broker, or several, separated by commas: HOST:PORT or unix:PATH"

// RegisterClient adds the flags for a broker at an address alone, for a command that uses ClientOptions instead of With. Without an
// address there is none.
func (f *Flags) RegisterClient(fs *pflag.FlagSet) {
	*f = Flags{}
	fs.StringSliceVar(&f.addrs, "addr", nil, addrUsage+"; default: a broker of its own")
	f.registerCredentials(fs)
}

// CreateStore lets --journal make a store where there is none. Commands that only look, or take, refuse that: it is a mistyped name.
func (f *Flags) CreateStore() { f.creates = true }

// Addrs are the addresses that the flags name.
func (f *Flags) Addrs() []string { return f.addrs }

func (f *Flags) registerCredentials(fs *pflag.FlagSet) {
	fs.BoolVar(&f.tls, "tls", false, "connect with TLS, trusting the system's CAs; implied by the other --tls flags")
	fs.StringVar(&f.tlsCA, "tls-ca", "", "`file` with the CAs that sign the broker's certificate, PEM")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the certificate to present, PEM")
	fs.StringVar(&f.tlsKey, "tls-key", "", "`file` with its key, PEM")
	fs.StringVar(&f.tlsName, "tls-server-name", "", "`name` that the broker's certificate must have, if not that of the address")
	fs.StringVar(&f.token, "token", "", "bearer `token` to present, or @FILE to read it from a file")
}

// Embedded tells whether the command works on a journal. What is said closer to the command goes first, the command line before the
// environment before the file; at the same place, naming both is a mistake.
func (f *Flags) Embedded(a *cli.App) (bool, error) {
	journal, addr := a.Source("journal"), a.Source("addr")
	if f.journal == "" {
		return false, nil
	}
	if journal == addr && addr != cli.FromDefault {
		return false, cli.Usagef("--addr and --journal exclude each other: a broker at an address, or a store without one")
	}
	return journal > addr, nil
}

// Limit returns a context for one administrative call.
func (f *Flags) Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Duration(f.timeout), fmt.Errorf("%w within %s", errNoAnswer, cli.FormatDuration(time.Duration(f.timeout))))
}

var errNoAnswer = errors.New("no answer")

// ClientOptions are what the flags say for a client.
func (f *Flags) ClientOptions(a *cli.App) (client.Options, error) {
	o := client.Options{
		Addrs: f.addrs, Name: "holdfast-cli/" + a.Version, Lazy: true, Logger: a.Log,
		// Who waits at a command line would rather have it soon than spare the broker.
		MaxBackoff: time.Second,
	}
	if path, ok := strings.CutPrefix(f.token, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return o, cli.Usagef("read the token: %w", err)
		}
		o.Token = strings.TrimSpace(string(b))
	} else {
		o.Token = f.token
	}
	if !f.tls && f.tlsCA == "" && f.tlsCert == "" && f.tlsKey == "" && f.tlsName == "" {
		return o, nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.tlsName}
	if f.tlsCA != "" {
		pem, err := os.ReadFile(f.tlsCA)
		if err != nil {
			return o, cli.Usagef("read the broker's CAs: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return o, cli.Usagef("read the broker's CAs: %s has no certificate in PEM", f.tlsCA)
		}
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return o, cli.Usagef("--tls-cert and --tls-key go together")
	}
	if f.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return o, cli.Usagef("read the certificate: %w", err)
		}
		o.TLS.Certificates = []tls.Certificate{cert}
	}
	return o, nil
}

// With connects, calls fn, and closes what was opened. The context of fn ends when the broker could not be reached for --timeout. An error that
// only says that the context ended is replaced by why.
func (f *Flags) With(ctx context.Context, a *cli.App, fn func(ctx context.Context, b *Broker) error) error {
	b, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	watched, cancel := context.WithCancelCause(ctx)
	stop := b.health.watch(time.Duration(f.timeout), cancel)
	err = cli.Cause(watched, fn(watched, b))
	stop()
	cancel(nil)
	return errors.Join(err, b.close(ctx, a))
}

func (f *Flags) open(ctx context.Context, a *cli.App) (*Broker, error) {
	embedded, err := f.Embedded(a)
	if err != nil {
		return nil, err
	}
	if embedded {
		return f.openJournal(ctx, a)
	}
	o, err := f.ClientOptions(a)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, o)
	if err != nil {
		var field *message.FieldError
		if errors.As(err, &field) {
			err = cli.Usage(err)
		}
		return nil, err
	}
	return newBroker(c, a, func(context.Context) error { c.Close(); return nil }), nil
}

// Queue returns a view of a queue.
func (b *Broker) Queue(name string) *holdfast.Queue {
	return holdfast.NewQueue(name, b, holdfast.Options{Logger: b.log})
}

// checkJournal turns a URL that names no journal into a usage error.
func checkJournal(err error) error {
	if errors.Is(err, journals.ErrURL) {
		return cli.Usage(err)
	}
	return err
}
