package jetstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfastmq/holdfast/journal"
)

// Defaults of URL options.
const (
	DefaultStream         = "HOLDFAST"
	DefaultTimeout        = 2 * time.Second
	DefaultConnectTimeout = 5 * time.Second
)

// Options are what a URL cannot say. The zero value is the default.
type Options struct {
	// ReadOnly opens without making anything: the JetStream stream has to be there, and every change is refused with [ErrReadOnly]. Where the
	// stream has replicas, a read that must not be stale still publishes an empty message, which means nothing and is deleted by brokers.
	ReadOnly bool
	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// hook is called around every write, by the conformance suite.
	hook hook
}

// ErrReadOnly says that the journal was opened with [Options.ReadOnly].
var ErrReadOnly = errors.New("journal is open for reading only")

// hook has the form of journaltest.Hook.
type hook = func(ctx context.Context, op, stream string, after bool) error

// config is a URL, taken apart.
type config struct {
	servers []string // nats://host:port
	hosts   string   // for messages
	stream  string

	user, password, token string
	creds, nkey           string
	tls                   *tls.Config

	domain                                  string
	replicas                                int // 0: what is there, or 3 in a cluster and 1 without
	create                                  bool
	syncDeclared                            bool
	systemUser, systemPassword, systemCreds string
	placementCluster                        string
	placementTags                           []string
	timeout, connectTimeout                 time.Duration
	tlsCA, tlsCert, tlsKey, tlsName         string
	tlsOn, tlsInsecure                      bool
}

// option is one option of a URL: how it is read.
type option struct {
	name string
	set  func(c *config, v string) error
}

func text(f func(c *config) *string) func(*config, string) error {
	return func(c *config, v string) error { *f(c) = v; return nil }
}

func boolean(f func(c *config) *bool) func(*config, string) error {
	return func(c *config, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		*f(c) = b
		return nil
	}
}

func duration(f func(c *config) *time.Duration) func(*config, string) error {
	return func(c *config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a duration above 0, like 2s", v)
		}
		*f(c) = d
		return nil
	}
}

var urlOptions = []option{
	{"replicas", func(c *config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 5 {
			return fmt.Errorf("%q is not a number of replicas, 1 to 5", v)
		}
		c.replicas = n
		return nil
	}},
	{"sync", func(c *config, v string) error {
		if v != "always" {
			return fmt.Errorf("%q: the only value is always, which declares that every server of the stream has sync_interval: always", v)
		}
		c.syncDeclared = true
		return nil
	}},
	{"system-user", text(func(c *config) *string { return &c.systemUser })},
	{"system-password", text(func(c *config) *string { return &c.systemPassword })},
	{"system-creds", text(func(c *config) *string { return &c.systemCreds })},
	{"creds", text(func(c *config) *string { return &c.creds })},
	{"nkey", text(func(c *config) *string { return &c.nkey })},
	{"domain", text(func(c *config) *string { return &c.domain })},
	{"create", boolean(func(c *config) *bool { return &c.create })},
	{"placement-cluster", text(func(c *config) *string { return &c.placementCluster })},
	{"placement-tags", func(c *config, v string) error { c.placementTags = strings.Split(v, ","); return nil }},
	{"timeout", duration(func(c *config) *time.Duration { return &c.timeout })},
	{"connect-timeout", duration(func(c *config) *time.Duration { return &c.connectTimeout })},
	{"tls", boolean(func(c *config) *bool { return &c.tlsOn })},
	{"tls-ca", text(func(c *config) *string { return &c.tlsCA })},
	{"tls-cert", text(func(c *config) *string { return &c.tlsCert })},
	{"tls-key", text(func(c *config) *string { return &c.tlsKey })},
	{"tls-server-name", text(func(c *config) *string { return &c.tlsName })},
	{"tls-insecure", boolean(func(c *config) *bool { return &c.tlsInsecure })},
}

// optionNames returns the names of all URL options.
func optionNames() []string {
	var names []string
	for _, o := range urlOptions {
		names = append(names, o.name)
	}
	slices.Sort(names)
	return names
}

// parseURL takes a URL apart. All faults are reported together; none shows a password.
func parseURL(raw string) (*config, error) {
	c := &config{stream: DefaultStream, create: true, timeout: DefaultTimeout, connectTimeout: DefaultConnectTimeout}
	rest, ok := strings.CutPrefix(raw, "nats://")
	if !ok {
		return nil, fmt.Errorf("URL does not begin with nats://: %w", journal.ErrInvalid)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if err := c.userinfo(authority[:at]); err != nil {
			errs = append(errs, err)
		}
		authority = authority[at+1:]
	}
	c.hosts = authority
	for host := range strings.SplitSeq(authority, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), "4222"
		}
		if n, err := strconv.Atoi(port); name == "" || err != nil || n < 1 || n > 65535 {
			bad("%q is not HOST or HOST:PORT", host)
			continue
		}
		c.servers = append(c.servers, "nats://"+net.JoinHostPort(name, port))
	}
	if path != "" {
		c.stream = path
	}
	if strings.ContainsAny(c.stream, " \t\r\n.*>/\\") || len(c.stream) > 64 {
		bad("%q is not the name of a JetStream stream: up to 64 characters without spaces and . * > / \\", c.stream)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		bad("its options: %w", err)
	}
	for name, v := range values {
		i := slices.IndexFunc(urlOptions, func(o option) bool { return o.name == name })
		switch {
		case i < 0:
			bad("unknown option %q; known are %s", name, strings.Join(optionNames(), ", "))
		case len(v) != 1:
			bad("option %s is given %d times", name, len(v))
		default:
			if err := urlOptions[i].set(c, v[0]); err != nil {
				bad("option %s: %w", name, err)
			}
		}
	}
	if err := c.loadTLS(); err != nil {
		errs = append(errs, err)
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		bad("tls-cert and tls-key go together")
	}
	if c.systemPassword != "" && c.systemUser == "" {
		bad("system-password without system-user")
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", journal.ErrInvalid, errors.Join(errs...))
	}
	return c, nil
}

// userinfo reads USER:PASSWORD, or TOKEN alone.
func (c *config) userinfo(s string) error {
	user, password, both := strings.Cut(s, ":")
	var err1, err2 error
	user, err1 = url.PathUnescape(user)
	password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return errors.New("user and password: a % that begins no escape; write it as %25")
	}
	if both {
		c.user, c.password = user, password
	} else {
		c.token = user
	}
	return nil
}

// loadTLS reads the files that the TLS options name.
func (c *config) loadTLS() error {
	if !c.tlsOn && c.tlsCA == "" && c.tlsCert == "" && c.tlsName == "" && !c.tlsInsecure {
		return nil
	}
	t := &tls.Config{ServerName: c.tlsName, InsecureSkipVerify: c.tlsInsecure, MinVersion: tls.VersionTLS12}
	if c.tlsCA != "" {
		pem, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return fmt.Errorf("option tls-ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("option tls-ca: %s has no certificate in PEM form", c.tlsCA)
		}
	}
	if c.tlsCert != "" && c.tlsKey != "" {
		cert, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return fmt.Errorf("options tls-cert and tls-key: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	c.tls = t
	return nil
}

// auth returns how the driver logs in.
func (c *config) auth() ([]nats.Option, error) {
	switch {
	case c.creds != "":
		return []nats.Option{nats.UserCredentials(c.creds)}, nil
	case c.nkey != "":
		o, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("option nkey: %w", err)
		}
		return []nats.Option{o}, nil
	case c.token != "":
		return []nats.Option{nats.Token(c.token)}, nil
	case c.user != "":
		return []nats.Option{nats.UserInfo(c.user, c.password)}, nil
	}
	return nil, nil
}
