package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Defaults of [Options].
const (
	DefaultSchema         = "holdfast"
	DefaultPool           = 16
	DefaultTimeout        = 10 * time.Second
	DefaultRangeBytes     = 32 << 20
	DefaultMaxRecordBytes = 32 << 20
	DefaultMaxPartBytes   = 4 << 20
)

// Options configure a [Journal]. The zero value is the default; negative values are errors.
type Options struct {
	// Schema is the database schema that holds the journal: a lower-case letter or "_", then those and digits, up to 63. It is
	// created if it is not there. "" means DefaultSchema.
	Schema string
	// Pool bounds the connections to the server. 0 means DefaultPool; at most 1000.
	Pool int
	// Timeout bounds one request to the server, waiting for a connection included. What has
	// not been answered by then has an unknown outcome. 0 means DefaultTimeout.
	Timeout time.Duration
	// RangeBytes is the size at which a table of records or bodies is followed by another one, in bytes. Space
	// comes back in such pieces. 0 means DefaultRangeBytes.
	RangeBytes int64
	// MaxRecordBytes and MaxPartBytes are the journal's limits, in bytes. 0 means
	// DefaultMaxRecordBytes and DefaultMaxPartBytes. At most 256 MiB.
	MaxRecordBytes, MaxPartBytes int
	// AcceptWeak opens also where the server's settings promise less than durable on return: fsync,
	// full_page_writes or synchronous_commit switched off. Without it that is journal.ErrWeak.
	AcceptWeak bool
	// ReadOnly opens without changing anything: there must be a journal, and every change is
	// refused with [ErrReadOnly].
	ReadOnly bool
	// Logger gets what an operator should know. nil means slog.Default.
	Logger *slog.Logger

	// hook is called around every change, by the conformance suite.
	hook hook
	// every is how often the tables are looked after. 0 means a second.
	every time.Duration
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (o *Options) validate() error {
	var errs []error
	number := func(name string, v *int64, def, most int64) {
		switch {
		case *v < 0 || *v > most:
			errs = append(errs, fmt.Errorf("option %s is %d, want 0 (default %d) up to %d", name, *v, def, most))
		case *v == 0:
			*v = def
		}
	}
	pool, record, part := int64(o.Pool), int64(o.MaxRecordBytes), int64(o.MaxPartBytes)
	number("Pool", &pool, DefaultPool, 1000)
	number("RangeBytes", &o.RangeBytes, DefaultRangeBytes, 1<<40)
	number("MaxRecordBytes", &record, DefaultMaxRecordBytes, 256<<20)
	number("MaxPartBytes", &part, DefaultMaxPartBytes, 256<<20)
	o.Pool, o.MaxRecordBytes, o.MaxPartBytes = int(pool), int(record), int(part)
	switch {
	case o.Timeout < 0:
		errs = append(errs, fmt.Errorf("option Timeout is %v, want 0 (default %v) or more", o.Timeout, DefaultTimeout))
	case o.Timeout == 0:
		o.Timeout = DefaultTimeout
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if !schemaName.MatchString(o.Schema) || strings.HasPrefix(o.Schema, "pg_") {
		errs = append(errs, fmt.Errorf("option Schema is %q, want lower-case letters, digits and _, not beginning with a digit or pg_", o.Schema))
	}
	if o.every == 0 {
		o.every = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

func (o *Options) limits() journal.Limits {
	return journal.Limits{MaxRecordBytes: o.MaxRecordBytes, MaxPartBytes: o.MaxPartBytes}
}

// passed are the options of a URL that PostgreSQL's own clients know, and that say how to connect.
var passed = []string{
	"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslsni", "sslnegotiation", "channel_binding",
	"host", "port", "user", "password", "passfile", "dbname", "connect_timeout", "target_session_attrs", "application_name",
}

// own are the options of a URL that are the driver's.
var own = map[string]func(o *Options, text string) error{
	"schema": func(o *Options, text string) error { o.Schema = text; return nil },
	"pool": func(o *Options, text string) (err error) {
		o.Pool, err = strconv.Atoi(text)
		return notNumber(text, err)
	},
	"timeout":    func(o *Options, text string) (err error) { o.Timeout, err = time.ParseDuration(text); return err },
	"range":      func(o *Options, text string) (err error) { o.RangeBytes, err = size(text); return err },
	"max-record": func(o *Options, text string) error { n, err := size(text); o.MaxRecordBytes = int(n); return err },
	"max-part":   func(o *Options, text string) error { n, err := size(text); o.MaxPartBytes = int(n); return err },
	"accept-weak": func(o *Options, text string) (err error) {
		if o.AcceptWeak, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		return nil
	},
}

func notNumber(text string, err error) error {
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	return nil
}

var units = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

// size reads a number of bytes such as 64KiB.
func size(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, ok := units[text[len(digits):]]
	if err != nil || !ok || n < 0 || n > (1<<50)/unit {
		return 0, fmt.Errorf("%q is not a size such as 512KiB or 32MiB", text)
	}
	return n * unit, nil
}

// parseURL takes the driver's options out of a URL and into o, and returns what is left for the client
// library. Every fault of the options is told.
func parseURL(text string, o *Options) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL, which has a password
		}
		return "", fmt.Errorf("the URL cannot be read: %w", err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("the URL begins with %q, want postgres://", u.Scheme+":")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", fmt.Errorf("the options of the URL: %w", err)
	}
	var errs []error
	for name, values := range query {
		set, ok := own[name]
		switch {
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("option %s is there %d times", name, len(values)))
		case ok:
			if err := set(o, values[0]); err != nil {
				errs = append(errs, fmt.Errorf("option %s: %w", name, err))
			}
			query.Del(name)
		case !slices.Contains(passed, name):
			errs = append(errs, fmt.Errorf("unknown option %q; known are %s", name, strings.Join(OptionNames(), ", ")))
		}
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return "", errors.Join(errs...)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// OptionNames returns the names of the options that a URL may have, sorted: the driver's, and those of
// PostgreSQL's own clients that say how to connect.
func OptionNames() []string {
	names := slices.Clone(passed)
	for name := range own {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
