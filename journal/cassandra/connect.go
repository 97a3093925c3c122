package cassandra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// tries is on how many nodes a request is tried.
const tries = 3

// cluster returns the client's configuration. timeout bounds one answer.
func (o *Options) cluster(timeout time.Duration) *gocql.ClusterConfig {
	c := gocql.NewCluster(o.Hosts...)
	c.ProtoVersion = 5
	c.Consistency, c.SerialConsistency = gocql.Quorum, gocql.Serial
	if o.Local {
		c.Consistency, c.SerialConsistency = gocql.LocalQuorum, gocql.LocalSerial
	}
	c.Timeout, c.WriteTimeout, c.ConnectTimeout = timeout, timeout, o.ConnectTimeout
	// A node that is paused, not down, must not be waited for long: neither when connecting nor when asking.
	c.ReconnectInterval = time.Second
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
	// Every request of this driver can be repeated.
	c.DefaultIdempotence = true
	c.RetryPolicy = reads{}
	c.WriteCoalesceWaitTime = 0
	// Timestamps are the server's, or the driver's own (see graveTime), never this machine's.
	c.DefaultTimestamp = false
	c.Metadata.CacheMode = gocql.KeyspaceOnly
	c.Logger = logger{o.Logger}
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS != nil {
		c.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: !o.TLS.InsecureSkipVerify}
	}
	var near gocql.HostSelectionPolicy
	switch {
	case o.Local:
		// What is local is decided by the node that is asked: one of another datacenter must never be.
		c.HostFilter = gocql.DataCenterHostFilter(o.Datacenter)
		near = gocql.RoundRobinHostPolicy()
	case o.Datacenter != "":
		near = gocql.DCAwareRoundRobinPolicy(o.Datacenter)
	default:
		near = gocql.RoundRobinHostPolicy()
	}
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(near, gocql.ShuffleReplicas())
	return c
}

// retry tries a request on the next node, whatever was wrong with the last one but the request itself. One that is used for a
// single request tells whether there was more than one try.
type retry struct{ again bool }

// reads is retry for what changes nothing.
type reads struct{}

// Attempt tells whether there may be another try.
func (reads) Attempt(q gocql.RetryableQuery) bool { return new(retry).Attempt(q) }

// GetRetryType tells how to go on after err.
func (reads) GetRetryType(err error) gocql.RetryType { return new(retry).GetRetryType(err) }

// Attempt tells whether there may be another try.
func (r *retry) Attempt(q gocql.RetryableQuery) bool {
	return q.Attempts() < tries && q.Context().Err() == nil
}

// GetRetryType tells how to go on after err.
func (r *retry) GetRetryType(err error) gocql.RetryType {
	var invalid *gocql.RequestErrInvalid
	var denied *gocql.RequestErrUnauthorized
	var syntax *gocql.RequestErrSyntax
	var config *gocql.RequestErrConfig
	if errors.As(err, &invalid) || errors.As(err, &denied) || errors.As(err, &syntax) || errors.As(err, &config) {
		return gocql.Rethrow
	}
	r.again = true
	return gocql.RetryNextHost
}

// dial opens a session. The client's own function takes no context.
func dial(ctx context.Context, c *gocql.ClusterConfig) (*gocql.Session, error) {
	type result struct {
		s   *gocql.Session
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := c.CreateSession()
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.s.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// checkDatacenter refuses a datacenter that has no node.
func (o *Options) checkDatacenter(s *gocql.Session) error {
	if o.Datacenter == "" {
		return nil
	}
	var names []string
	for _, h := range s.GetHosts() {
		if h.DataCenter() == o.Datacenter {
			return nil
		}
		names = append(names, h.DataCenter())
	}
	slices.Sort(names)
	return fmt.Errorf("no node is in datacenter %q; option dc takes one of %s", o.Datacenter, strings.Join(slices.Compact(names), ", "))
}

// logger passes on what the client logs, one level lower: it calls each lost connection an error.
type logger struct{ l *slog.Logger }

func (l logger) log(level slog.Level, msg string, fields []gocql.LogField) {
	if !l.l.Enabled(context.Background(), level) {
		return
	}
	args := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		args = append(args, f.Name, f.Value.String())
	}
	l.l.Log(context.Background(), level, "cassandra client: "+msg, args...)
}

func (l logger) Error(msg string, fields ...gocql.LogField)   { l.log(slog.LevelInfo, msg, fields) }
func (l logger) Warning(msg string, fields ...gocql.LogField) { l.log(slog.LevelInfo, msg, fields) }
func (l logger) Info(msg string, fields ...gocql.LogField)    { l.log(slog.LevelDebug, msg, fields) }
func (l logger) Debug(string, ...gocql.LogField)              {}
