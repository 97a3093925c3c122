package cassandra

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Defaults of Options.
const (
	DefaultPort           = 9042
	DefaultTimeout        = 2 * time.Second
	DefaultMaxRecordBytes = 4 << 20
	DefaultMaxPartBytes   = 1 << 20
	DefaultInlineBytes    = 32 << 10
	DefaultBucketRecords  = 512
	DefaultBucketBytes    = 16 << 20
)

// Options say where a cluster is and how it is used. Hosts and Keyspace are required; otherwise zero is the
// default, and negative an error.
type Options struct {
	// Hosts are the addresses of some nodes, each with or without a port. The others are found through them.
	Hosts []string
	// Keyspace is the keyspace that the tables are in: lower-case letters, digits and "_". It is made if there is none and
	// Replication is set.
	Keyspace string
	// Username and Password log in, if Username is not empty.
	Username, Password string
	// TLS, if not nil, makes all connections use it. ServerName may be left empty: each node's own address is then verified.
	TLS *tls.Config
	// Datacenter is where the nodes are that requests go to. Empty means those that Hosts are in any datacenter.
	Datacenter string
	// Local makes a majority of the replicas in Datacenter enough (LOCAL_QUORUM, LOCAL_SERIAL), instead of a majority of all. All processes that use the
	// keyspace must then be of that datacenter; the keyspace remembers it, and others are refused.
	Local bool
	// Replication is the number of replicas in each datacenter that a new keyspace gets; an existing one must
	// have it. 0 means that the keyspace must exist, with at least 2. 1 has to be given: it declares that the loss of
	// a node may lose data.
	Replication int
	// AcceptWeak accepts a commit log that is synced later than a write is answered (commitlog_sync: periodic), or whose mode the role may not
	// read: a power cut of a majority of the replicas then loses what was acknowledged.
	AcceptWeak bool
	// ReadOnly changes nothing: every change is refused with [ErrReadOnly]. The tables must exist.
	ReadOnly bool

	// Timeout bounds the wait for one answer of a node; a request is tried on up to three. Default DefaultTimeout.
	Timeout time.Duration
	// ConnectTimeout bounds each step of connecting to a node. Default: half of Timeout, at least 1 s.
	ConnectTimeout time.Duration

	// MaxRecordBytes and MaxPartBytes are the journal's limits. Defaults DefaultMaxRecordBytes, or less if the nodes are
	// configured to take less, and DefaultMaxPartBytes. More than the nodes take is refused.
	MaxRecordBytes, MaxPartBytes int
	// InlineBytes is up to which size a body is written together with its meta. Cassandra writes a conditional change twice, so that larger ones
	// are quicker in a write of their own, before. Default DefaultInlineBytes.
	InlineBytes int
	// BucketRecords and BucketBytes are when a bucket is full. Defaults DefaultBucketRecords and DefaultBucketBytes.
	BucketRecords, BucketBytes int

	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// hook is called around every write, by the conformance suite; prefix is put before all names of
	// streams and members, so that tests can share a keyspace.
	hook   hook
	prefix string
}

// hook is journaltest.Hook.
type hook = func(ctx context.Context, op, stream string, after bool) error

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

func (o *Options) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Hosts) == 0 {
		fault("no host: name at least one node of the cluster")
	}
	if !keyspaceName.MatchString(o.Keyspace) {
		fault("keyspace %q: want a name of up to 48 lower-case letters, digits and _, that begins with a letter", o.Keyspace)
	}
	if o.Password != "" && o.Username == "" {
		fault("a password without a user name")
	}
	if o.Local && o.Datacenter == "" {
		fault("local consistency needs the name of the datacenter")
	}
	if o.Replication < 0 || o.Replication > 100 {
		fault("replication %d: want the number of replicas in each datacenter", o.Replication)
	}
	if o.Timeout < 0 || o.ConnectTimeout < 0 {
		fault("timeouts %v and %v: want 0 (default) or more", o.Timeout, o.ConnectTimeout)
	}
	for _, f := range []struct {
		name      string
		val       *int
		def, most int
	}{
		{"MaxRecordBytes", &o.MaxRecordBytes, 0, 1 << 30},
		{"MaxPartBytes", &o.MaxPartBytes, DefaultMaxPartBytes, 1 << 30},
		{"InlineBytes", &o.InlineBytes, DefaultInlineBytes, 1 << 30},
		{"BucketRecords", &o.BucketRecords, DefaultBucketRecords, 1 << 20},
		{"BucketBytes", &o.BucketBytes, DefaultBucketBytes, 1 << 30},
	} {
		if *f.val < 0 || *f.val > f.most {
			fault("%s is %d, want 0 (default) up to %d", f.name, *f.val, f.most)
		}
		if *f.val == 0 {
			*f.val = f.def
		}
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = max(time.Second, o.Timeout/2)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
