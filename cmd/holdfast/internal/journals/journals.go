// Package journals opens the journal that a URL names.
package journals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/cassandra"
)

// Options say how a journal is opened.
type Options struct {
	// ReadOnly makes nothing in the store, and changes no stream.
	ReadOnly bool
	// MustExist refuses to make an embedded store where there is none. Those on servers have their own way to be made.
	MustExist bool
	// Logger gets the driver's log.
	Logger *slog.Logger
	// OnSync, if not nil, is told how long each sync of an embedded store took, in seconds, and how many calls shared it. It
	// must be fast.
	OnSync func(seconds float64, calls int)
}

// schemes maps the scheme of a URL to the driver that opens it. This is the one place that knows all drivers.
var schemes = map[string]struct {
	open func(ctx context.Context, u *URL, o Options) (journal.Journal, error)
	help string
}{
	"cassandra":   {openCassandra, cassandra.URLHelp},
	"hbase":       {openHBase, "hbase://HOST:PORT[,HOST:PORT]/[NAMESPACE:]TABLE?synced=true  in HBase, through Thrift2 gateways, for any number of brokers"},
	"memory":      {openMemory, "memory:     in this process, lost at its end"},
	"mongodb":     {openMongoDB, "mongodb://USER:PASSWORD@HOST[,HOST]/DATABASE  in MongoDB, for any number of brokers; also mongodb+srv://"},
	"mongodb+srv": {openMongoDB, ""},
	"nats":        {openNATS, "nats://USER:PASSWORD@HOST:PORT[,HOST:PORT]?sync=always  in NATS JetStream, for any number of brokers"},
	"pebble":      {openPebble, "pebble:DIR  in a directory of this machine, for one process at a time, on Pebble"},
	"segment":     {openSegment, "segment:DIR  the segment log, in a directory of this machine, for one process at a time (the default)"},
	"postgres":    {openPostgres, "postgres://USER:PASSWORD@HOST/DATABASE  in PostgreSQL, for any number of brokers; also postgresql://"},
	"postgresql":  {openPostgres, ""}, // as PostgreSQL's own clients write it
}

// Help describes the URLs, one a line.
func Help() string {
	var lines []string
	for _, s := range slices.Sorted(maps.Keys(schemes)) {
		if schemes[s].help != "" {
			lines = append(lines, "  "+schemes[s].help)
		}
	}
	return strings.Join(lines, "\n")
}

// ErrURL says that a URL names no journal.
var ErrURL = errors.New("not the URL of a journal")

// ownProcess are the schemes of journals that one process has to itself.
var ownProcess = map[string]bool{"memory": true, "pebble": true, "segment": true}

// Shared tells whether several brokers may use the journal of a URL at the same time.
func Shared(text string) bool {
	scheme, _, ok := strings.Cut(text, ":")
	return ok && !ownProcess[scheme]
}

// Open opens a journal. Whoever opened it closes it.
func Open(ctx context.Context, text string, o Options) (journal.Journal, error) {
	u, err := Parse(text)
	if err != nil {
		return nil, err
	}
	var j journal.Journal
	if err = errors.Join(u.checkSecret(), u.checkKind()); err == nil {
		j, err = schemes[u.Scheme].open(ctx, u, o)
	}
	if err == nil {
		err = u.leftOver()
	}
	if err != nil {
		if j != nil {
			err = errors.Join(err, j.Close())
		}
		return nil, fmt.Errorf("open journal %s: %w", u.Redacted(), u.redact(err))
	}
	return j, nil
}

// URL is a journal's URL in parts: SCHEME:PLACE?OPTION=VALUE&…
type URL struct {
	Scheme string
	// Place is what stands between the scheme and the options, as it is written.
	Place string

	text    string
	options url.Values
	used    map[string]bool
}

// Parse takes the URL of a journal apart, and refuses one that no driver is for.
func Parse(text string) (*URL, error) {
	scheme, place, ok := strings.Cut(text, ":")
	if _, known := schemes[scheme]; !ok || !known {
		return nil, fmt.Errorf("%q is %w; there are\n%s", Redacted(text), ErrURL, Help())
	}
	u := &URL{Scheme: scheme, Place: place, text: text, used: map[string]bool{}}
	if place, query, ok := strings.Cut(place, "?"); ok {
		var err error
		u.Place = place
		if u.options, err = url.ParseQuery(query); err != nil {
			return nil, u.redact(fmt.Errorf("%q is %w: its options: %w", Redacted(text), ErrURL, err))
		}
	}
	return u, nil
}

// option returns the value of an option, and marks it as known.
func (u *URL) option(name string) (string, bool) {
	u.used[name] = true
	return u.options.Get(name), u.options.Has(name)
}

// whole returns the URL as it was given, for a driver that reads its options itself.
func (u *URL) whole() string {
	for name := range u.options {
		u.used[name] = true
	}
	return u.text
}

// leftOver refuses options that the driver did not ask for.
func (u *URL) leftOver() error {
	for name := range u.options {
		if !u.used[name] {
			return fmt.Errorf("%w: unknown option %q; known are %s", ErrURL, name, strings.Join(slices.Sorted(maps.Keys(u.used)), ", "))
		}
	}
	return nil
}
