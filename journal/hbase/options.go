package hbase

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// The defaults of [Options].
const (
	DefaultTable          = "holdfast"
	DefaultMaxRecordBytes = 8 << 20
	// DefaultFramedBytes is DefaultMaxRecordBytes for a framed gateway, which takes 2 MiB a frame unless it is configured
	// otherwise.
	DefaultFramedBytes   = 1_900_000
	DefaultBucketRecords = 4096
	DefaultBucketBytes   = 64 << 20
	DefaultConnections   = 16
	DefaultTimeout       = 5 * time.Second
)

// maxCell bounds MaxRecordBytes: a cell of more than 10 MiB, name included, is refused by HBase as it comes.
const maxCell = 10<<20 - 4096

// Options say which HBase, and how. [ParseURL] makes them from a URL.
type Options struct {
	// Gateways are the addresses (host:port) of Thrift2 gateways of one HBase, at least one. The first that can be
	// reached is used, and the next ones when it is lost.
	Gateways []string
	// Table is the table's name, with "NAMESPACE:" before it outside the default namespace. It is created if there is none.
	// Empty means DefaultTable.
	Table string
	// Synced declares that HBase's write-ahead log is on a file system which syncs to the disks, on a majority of
	// its replicas, when it is asked to: HDFS of Hadoop 3, or a local file system under Hadoop 3. No gateway can tell. Without it, Open
	// fails with journal.ErrWeak.
	Synced bool

	// Framed is set for a gateway that speaks the framed transport (-f).
	Framed bool
	// HTTP and HTTPS are set for a gateway in its HTTP mode (hbase.regionserver.thrift.http), or a proxy before one.
	HTTP, HTTPS bool
	// CAFile is a PEM file with the certificates to trust with HTTPS. Empty means those of the system.
	CAFile string
	// CertFile and KeyFile are PEM files with the client's own certificate for HTTPS. Empty means none.
	CertFile, KeyFile string
	// User and Password are for the basic authentication of a proxy before the gateway, with HTTPS. The gateway has none.
	User, Password string

	// MaxRecordBytes is the journal's limit for records and parts, in bytes. 0 means DefaultMaxRecordBytes, or DefaultFramedBytes
	// with Framed; at most 10 MiB less 4 KiB.
	MaxRecordBytes int
	// BucketRecords and BucketBytes bound a bucket: the record that reaches one of them is its last. 0 means
	// DefaultBucketRecords and DefaultBucketBytes.
	BucketRecords, BucketBytes int
	// Regions is in how many regions a new table begins, 1…256. 0 means 1. HBase splits them further as they grow.
	Regions int
	// Connections bounds the connections to gateways; calls beyond it wait. 0 means DefaultConnections.
	Connections int
	// Timeout bounds one call to the gateway, and reaching one. 0 means DefaultTimeout.
	Timeout time.Duration

	// ReadOnly opens without changing anything: every change is refused with [ErrReadOnly], and there must be a table.
	ReadOnly bool
	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// hook is called around every write, by the conformance suite.
	hook hook
	// prefix is put before all rows, so that tests share a table.
	prefix string
}

// ErrReadOnly says that the journal was opened with [Options.ReadOnly].
var ErrReadOnly = errors.New("journal is open for reading only")

// tableName is what HBase takes for the name of a table.
var tableName = regexp.MustCompile(`^([A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

func (o *Options) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	number := func(name string, v *int, def, most int) {
		switch {
		case *v < 0 || *v > most:
			fail("%w: %s is %d, want 0 (default %d) up to %d", journal.ErrInvalid, name, *v, def, most)
		case *v == 0:
			*v = def
		}
	}
	if len(o.Gateways) == 0 {
		fail("%w: no address of a gateway", journal.ErrInvalid)
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if !tableName.MatchString(o.Table) {
		fail("%w: table %q: want [NAMESPACE:]TABLE of letters, digits, \"_\", \".\" and \"-\"", journal.ErrInvalid, o.Table)
	}
	if o.Framed && (o.HTTP || o.HTTPS) || o.HTTP && o.HTTPS {
		fail("%w: of framed, http and https only one can be true", journal.ErrInvalid)
	}
	if !o.HTTPS && (o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.User != "" || o.Password != "") {
		fail("%w: certificates, user and password need https: the gateway's own protocol has neither encryption nor authentication", journal.ErrInvalid)
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		fail("%w: a certificate and its key go together", journal.ErrInvalid)
	}
	record := DefaultMaxRecordBytes
	if o.Framed {
		record = DefaultFramedBytes
	}
	number("MaxRecordBytes", &o.MaxRecordBytes, record, maxCell)
	number("BucketRecords", &o.BucketRecords, DefaultBucketRecords, 1<<20)
	number("BucketBytes", &o.BucketBytes, DefaultBucketBytes, 1<<30)
	number("Regions", &o.Regions, 1, 256)
	number("Connections", &o.Connections, DefaultConnections, 1000)
	switch {
	case o.Timeout < 0:
		fail("%w: Timeout is %v, want 0 (default %v) or more", journal.ErrInvalid, o.Timeout, DefaultTimeout)
	case o.Timeout == 0:
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if len(errs) == 0 && !o.Synced {
		fail("%w: no gateway tells whether HBase's write-ahead log reaches the disks when a mutation asks for FSYNC_WAL: see that HBase runs on Hadoop 3, "+
			"on HDFS with at least three replicas or on a local file system, and then say synced=true in the URL", journal.ErrWeak)
	}
	return errors.Join(errs...)
}
