package jetstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"

	"github.com/holdfastmq/holdfast/journal"
)

// Open opens the journal of a URL, and makes its JetStream stream if it is not there and opts.ReadOnly is not set: then
// it is journal.ErrNotFound. docs/journals.md lists the URL's
// options.
//
// A server answers before it has synced, unless its sync_interval is always. Open reads that setting of every server of the stream if the URL
// gives it a user of the system account (system-user and system-password, or system-creds); otherwise the URL has to declare it (sync=always). An
// undeclared or weaker setting is journal.ErrWeak, and so is a stream that would lose messages by its own limits. Other errors:
// journal.ErrNewerFormat, journal.ErrInvalid for the URL, and those of the connection, which say what to change.
func Open(ctx context.Context, rawURL string, opts Options) (*Journal, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	cfg, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("jetstream journal: %w", err)
	}
	j, err := open(ctx, cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("jetstream journal at %s/%s: %w", cfg.hosts, cfg.stream, err)
	}
	return j, nil
}

func open(ctx context.Context, cfg *config, opts Options) (*Journal, error) {
	if !cfg.syncDeclared && cfg.systemUser == "" && cfg.systemCreds == "" {
		return nil, fmt.Errorf("%w: a client cannot see whether the servers sync before they answer; set sync_interval: always in the jetstream section of every server, and declare it in the URL with sync=always, or let it be read with system-user and system-password (or system-creds)", journal.ErrWeak)
	}
	c := &client{
		api: "$JS.API.", stream: cfg.stream, timeout: cfg.timeout, log: opts.Logger, names: names{cfg.stream},
		tries: map[*context.CancelCauseFunc]struct{}{},
	}
	if cfg.domain != "" {
		c.api = "$JS." + cfg.domain + ".API."
	}
	auth, err := cfg.auth()
	if err != nil {
		return nil, err
	}
	if c.nc, err = connect(ctx, cfg, auth, c); err != nil {
		return nil, err
	}
	j := &Journal{
		c: c, opts: opts, names: c.names, calls: map[*context.CancelCauseFunc]struct{}{}, members: map[string]uint64{},
	}
	if err := j.prepare(ctx, cfg); err != nil {
		c.nc.Close()
		return nil, err
	}
	return j, nil
}

// prepare checks that the store is as it has to be.
func (j *Journal) prepare(ctx context.Context, cfg *config) error {
	c := j.c
	if err := checkVersion(c.nc.ConnectedServerVersion()); err != nil {
		return err
	}
	var err error
	if cfg.domain != "" {
		c.js, err = njs.NewWithDomain(c.nc, cfg.domain)
	} else {
		c.js, err = njs.New(c.nc)
	}
	if err != nil {
		return err
	}
	info, err := j.stream(ctx, cfg)
	if err != nil {
		return c.explain(err)
	}
	if err := checkStream(cfg, info); err != nil {
		return err
	}
	j.replicas = info.Config.Replicas
	if err := checkSync(ctx, cfg, info, j.opts.Logger); err != nil {
		return err
	}
	if err := j.checkRights(ctx); err != nil {
		return c.explain(err)
	}
	limit := int(c.nc.MaxPayload())
	if m := int(info.Config.MaxMsgSize); m > 0 {
		limit = min(limit, m)
	}
	if limit < minMessage {
		return fmt.Errorf("%w: messages may have %d bytes, and the driver needs %d; raise max_payload of the servers (or the stream's max_msg_size)", journal.ErrInvalid, limit, minMessage)
	}
	if !j.opts.ReadOnly {
		j.layBallast(ctx)
	}
	j.limits = journal.Limits{MaxRecordBytes: limit - overhead, MaxPartBytes: limit - overhead}
	return nil
}

// overhead is what of the largest message of a server is left for the driver's headers, in bytes: conditions with the longest subjects.
const overhead = 4 << 10

// minMessage is the least that the largest message of a server has to hold, in bytes: the ballast, and the headers.
const minMessage = ballastBytes + overhead

// connect opens a connection. c is told of what happens to it; it may be nil.
func connect(ctx context.Context, cfg *config, auth []nats.Option, c *client) (*nats.Conn, error) {
	opts := append([]nats.Option{
		nats.Name("holdfast"), nats.Timeout(cfg.connectTimeout), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.NoEcho(),
	}, auth...)
	if cfg.tls != nil {
		opts = append(opts, nats.Secure(cfg.tls))
	}
	if c != nil {
		opts = append(opts, nats.ErrorHandler(c.onError), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.abort(errDisconnected)
			if err != nil {
				c.log.Warn("journal: connection to NATS lost", "err", err)
			}
		}), nats.ReconnectHandler(func(nc *nats.Conn) {
			c.log.Info("journal: connected to NATS again", "server", nc.ConnectedServerName())
		}))
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(cfg.servers, ","), opts...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, explainConnect(r.err)
		}
		return r.nc, nil
	case <-ctx.Done():
		go func() { // the attempt ends by its own timeout
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// explainConnect says what to change.
func explainConnect(err error) error {
	var unknownCA x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var network net.Error
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("the server refuses the user or its password; correct them in the URL (nats://USER:PASSWORD@…, creds=FILE or nkey=FILE): %w", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no server can be reached; correct the hosts in the URL, or start a server: %w", err)
	case errors.As(err, &unknownCA):
		return fmt.Errorf("the server's certificate is of an unknown authority; name its file with tls-ca=FILE: %w", err)
	case errors.As(err, &host):
		return fmt.Errorf("the server's certificate is for another host; use the right one, or tls-server-name=NAME: %w", err)
	case errors.As(err, &record), errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("the server does not use TLS; take the tls options out of the URL: %w", err)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("the server wants TLS; add tls=true to the URL: %w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("a file that the URL names cannot be read; correct creds, nkey or system-creds: %w", err)
	case errors.As(err, &dns):
		return fmt.Errorf("host %s is not known; correct the hosts in the URL: %w", dns.Name, err)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("no server answers; correct the hosts in the URL, and see what listens there and what filters packets on the way: %w", err)
	case errors.Is(err, io.EOF), errors.As(err, &network):
		return fmt.Errorf("what listens there does not answer as a NATS server would; correct the hosts in the URL: %w", err)
	}
	return fmt.Errorf("connect: %w", err)
}

// checkVersion refuses servers that lack atomic batches.
func checkVersion(v string) error {
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		return fmt.Errorf("server version %q cannot be read", v)
	}
	if a < 2 || a == 2 && b < 12 {
		return fmt.Errorf("the server is NATS %s; 2.12 or later is needed (atomic batches): upgrade it", v)
	}
	return nil
}

// explain adds what to change to errors of JetStream.
func (c *client) explain(err error) error {
	var denied *deniedError
	c.mu.Lock()
	text := c.denied
	c.mu.Unlock()
	switch {
	case errors.As(err, &denied):
		return err
	case text != "":
		return fmt.Errorf("%w (%w)", &deniedError{errors.New(text)}, err)
	case errors.Is(err, njs.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("JetStream is not enabled for the user's account; enable it there, or use a user of another account: %w", err)
	case errors.Is(err, njs.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("JetStream does not answer; enable it on the server (a jetstream section in its configuration), or correct domain= in the URL: %w", err)
	}
	return err
}

// schemaKey is where the JetStream stream has the layout's version.
const schemaKey = "holdfast-schema"

// wanted is the configuration of a stream that is made.
func wanted(cfg *config, replicas int) njs.StreamConfig {
	s := njs.StreamConfig{
		Name: cfg.stream, Description: "Holdfast journal", Subjects: []string{cfg.stream + ".>"},
		Retention: njs.LimitsPolicy, Storage: njs.FileStorage, Replicas: replicas, Discard: njs.DiscardNew,
		AllowDirect: true, AllowRollup: true, AllowAtomicPublish: true,
		Metadata: map[string]string{schemaKey: strconv.Itoa(formatVersion)},
	}
	if cfg.placementCluster != "" || len(cfg.placementTags) > 0 {
		s.Placement = &njs.Placement{Cluster: cfg.placementCluster, Tags: cfg.placementTags}
	}
	return s
}

// stream finds the JetStream stream, or makes it.
func (j *Journal) stream(ctx context.Context, cfg *config) (*njs.StreamInfo, error) {
	c := j.c
	var err error
	for n := range 10 {
		if n > 0 && !pause(ctx, 200*time.Millisecond) {
			break
		}
		tctx, done := c.try(ctx)
		c.st, err = c.js.Stream(tctx, cfg.stream)
		if errors.Is(err, njs.ErrStreamNotFound) {
			if !cfg.create || j.opts.ReadOnly {
				done()
				return nil, cfg.noStream(err)
			}
			replicas := cfg.replicas
			if replicas == 0 {
				replicas = 1
				if c.nc.ConnectedClusterName() != "" {
					replicas = 3
				}
			}
			if c.st, err = c.js.CreateStream(tctx, wanted(cfg, replicas)); err != nil {
				err = fmt.Errorf("make stream %s with %d replicas: %w", cfg.stream, replicas, err)
			}
		}
		done()
		if err == nil {
			return c.st.CachedInfo(), nil
		}
		var api *njs.APIError
		var denied *deniedError
		if ctx.Err() != nil || errors.As(err, &denied) || errors.As(err, &api) && api.Code < 500 {
			break
		}
		if cause := context.Cause(tctx); errors.As(cause, &denied) {
			return nil, denied
		}
	}
	return nil, err
}

// noStream is the error where the stream is not there and must not be made.
func (c *config) noStream(err error) error {
	why := "nothing is made for reading only: correct the URL (nats://HOST/STREAM)"
	if !c.create {
		why = "the URL has create=false"
	}
	return fmt.Errorf("there is no stream %s, and %s: %w: %w", c.stream, why, journal.ErrNotFound, err)
}

// checkStream refuses a stream that is not as this driver needs it.
func checkStream(cfg *config, info *njs.StreamInfo) error {
	s := info.Config
	if v := s.Metadata[schemaKey]; v != strconv.Itoa(formatVersion) {
		n, err := strconv.Atoi(v)
		switch {
		case err == nil && n > formatVersion:
			return fmt.Errorf("stream %s has layout %d, this binary knows up to %d: %w", s.Name, n, formatVersion, journal.ErrNewerFormat)
		default:
			return fmt.Errorf("stream %s was not made by Holdfast (its metadata has no %s); name another one in the URL (nats://HOST/STREAM): %w", s.Name, schemaKey, journal.ErrInvalid)
		}
	}
	var errs []error
	weak := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	weak(s.Storage != njs.FileStorage, "its storage is memory; it has to be file")
	weak(s.Retention != njs.LimitsPolicy, "its retention is %v; it has to be limits", s.Retention)
	weak(s.MaxAge != 0, "max_age deletes messages after %v; set it to 0", s.MaxAge)
	weak(s.MaxMsgsPerSubject > 0, "max_msgs_per_subject deletes messages; set it to -1")
	weak((s.MaxMsgs > 0 || s.MaxBytes > 0) && s.Discard != njs.DiscardNew, "discard is old, and there is a limit: old messages would be deleted for new ones; set discard to new")
	weak(s.PersistMode != njs.DefaultPersistMode, "persist_mode is %v, which does not sync; it has to be default", s.PersistMode)
	weak(s.NoAck, "no_ack leaves publishes without an answer; set it to false")
	weak(s.Mirror != nil || len(s.Sources) > 0, "it copies from other streams; it must not")
	weak(s.DenyDelete || s.DenyPurge, "it denies deleting; set deny_delete and deny_purge to false")
	weak(s.Sealed, "it is sealed")
	weak(!s.AllowDirect, "allow_direct is off; set it to true")
	weak(!s.AllowRollup, "allow_rollup_hdrs is off; set it to true")
	weak(!s.AllowAtomicPublish, "allow_atomic is off; set it to true")
	weak(s.SubjectTransform != nil, "it transforms subjects; it must not")
	if len(errs) > 0 {
		return fmt.Errorf("%w: change stream %s (nats stream edit): %w", journal.ErrWeak, s.Name, errors.Join(errs...))
	}
	if cfg.replicas != 0 && cfg.replicas != s.Replicas {
		return fmt.Errorf("stream %s has %d replicas, and the URL says replicas=%d; change one of them (nats stream edit %s --replicas=%d): %w",
			s.Name, s.Replicas, cfg.replicas, s.Name, cfg.replicas, journal.ErrInvalid)
	}
	if cfg.placementCluster != "" && (info.Cluster == nil || info.Cluster.Name != cfg.placementCluster) {
		return fmt.Errorf("stream %s is not in the cluster %s that the URL names: move it (nats stream edit), or change placement-cluster: %w", s.Name, cfg.placementCluster, journal.ErrInvalid)
	}
	if len(cfg.placementTags) > 0 && (s.Placement == nil || strings.Join(s.Placement.Tags, ",") != strings.Join(cfg.placementTags, ",")) {
		return fmt.Errorf("stream %s is not placed by the tags that the URL names: change one of them (nats stream edit): %w", s.Name, journal.ErrInvalid)
	}
	return nil
}

// checkRights tries each kind of request that the driver makes: a user who lacks a right is told at once.
func (j *Journal) checkRights(ctx context.Context) error {
	if j.opts.ReadOnly {
		if _, err := j.confirm(ctx); err != nil {
			return err
		}
		return j.checkReading(ctx)
	}
	var seq uint64
	var err error
	for n := range 10 {
		if n > 0 && !pause(ctx, 200*time.Millisecond) {
			break
		}
		var denied *deniedError
		if seq, err = j.c.publish(ctx, message{subject: j.names.confirm()}); err == nil || errors.As(err, &denied) || ctx.Err() != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, journal.ErrFull) {
		return fmt.Errorf("publish: %w", err)
	}
	if err := j.checkReading(ctx); err != nil {
		return err
	}
	if err := j.c.purge(ctx, j.names.confirm(), seq); err != nil {
		return err
	}
	if err := j.c.deleteMessage(ctx, seq); err != nil && seq > 0 {
		return err
	}
	return nil
}

// checkReading tries both ways to read.
func (j *Journal) checkReading(ctx context.Context) error {
	if _, err := j.c.get(ctx, getRequest{Last: j.names.confirm()}); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	if _, err := j.last(ctx, 0, j.names.confirm()); err != nil {
		return fmt.Errorf("read messages directly: %w", err)
	}
	return nil
}
