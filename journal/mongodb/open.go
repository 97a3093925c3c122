package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/holdfastmq/holdfast/journal"
)

// Defaults of a URL.
const (
	DefaultDatabase = "holdfast"
	DefaultTimeout  = 5 * time.Second
)

// maxPart bounds parts, in bytes.
const maxPart = 4 << 20

// overhead is what of the largest document is left for the fields around a record, in bytes.
const overhead = 4 << 10

// Options are what a URL cannot say. The zero value is the default.
type Options struct {
	// ReadOnly opens without making anything: the database has to hold a journal, and every change is refused with [ErrReadOnly].
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
	uri      string // without the driver's own options
	hosts    string // for messages
	database string
	timeout  time.Duration
	declared bool // durable=declared
}

// Open opens the journal of a URL, and makes its collections if they are not there and opts.ReadOnly is not set: then
// it is journal.ErrNotFound. docs/journals.md lists the URL's
// options.
//
// Every write asks for a majority that has it in its journal. A URL that asks for less, a server whose storage engine has no journal, and one that does not
// promise what MongoDB does and is not declared durable by the URL (durable=declared) are journal.ErrWeak. Other errors:
// journal.ErrNewerFormat, journal.ErrInvalid for the URL, and those of the connection, which say what to change.
func Open(ctx context.Context, rawURL string, opts Options) (*Journal, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	cfg, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("mongodb journal: %w", err)
	}
	j, err := open(ctx, cfg, opts)
	if err != nil {
		return nil, fmt.Errorf("mongodb journal at %s/%s: %w", cfg.hosts, cfg.database, err)
	}
	return j, nil
}

// parseURL takes a URL apart. What it says shows no password.
func parseURL(raw string) (*config, error) {
	c := &config{database: DefaultDatabase, timeout: DefaultTimeout}
	uri, query, _ := strings.Cut(raw, "?")
	bad := func(format string, args ...any) (*config, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{journal.ErrInvalid}, args...)...)
	}
	if !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://") {
		return bad("URL does not begin with mongodb:// or mongodb+srv://")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("its options: %w", err)
	}
	if d := values.Get("durable"); values.Has("durable") {
		if d != "declared" {
			return bad("option durable: %q: the only value is declared, which says that the server acknowledges a write only when it is on stable storage", d)
		}
		c.declared = true
		values.Del("durable")
	}
	authority := uri[strings.Index(uri, "://")+3:]
	authority, path, _ := strings.Cut(authority[strings.LastIndex(authority, "@")+1:], "/")
	c.hosts = authority
	if path != "" {
		c.database = path
	} else if c.uri = uri; !strings.HasSuffix(uri, "/") {
		uri += "/"
	}
	c.uri = uri
	if len(values) > 0 {
		c.uri += "?" + values.Encode()
	}
	if strings.HasPrefix(uri, "mongodb+srv://") && authority == "" {
		return bad("no host")
	}
	cs, err := connstring.Parse(c.uri)
	if err != nil {
		return bad("%s", strings.ReplaceAll(err.Error(), c.uri, "it"))
	}
	return c, c.check(cs)
}

// check refuses what the driver cannot do with.
func (c *config) check(cs *connstring.ConnString) error {
	var errs []error
	if len(cs.UnknownOptions) > 0 {
		var names []string
		for name := range cs.UnknownOptions {
			names = append(names, name)
		}
		slices.Sort(names)
		errs = append(errs, fmt.Errorf("%w: unknown options %s; there are durable=declared and those of MongoDB's connection strings", journal.ErrInvalid, strings.Join(names, ", ")))
	}
	if strings.ContainsAny(c.database, `/\. "$*<>:|?`) || len(c.database) > 60 {
		errs = append(errs, fmt.Errorf("%w: %q is not the name of a database", journal.ErrInvalid, c.database))
	}
	if cs.JSet && !cs.J {
		errs = append(errs, fmt.Errorf("%w: journal=false; take it out of the URL, every write waits for the journal", journal.ErrWeak))
	}
	if cs.WNumberSet || cs.WString != "" && cs.WString != "majority" {
		errs = append(errs, fmt.Errorf("%w: the URL's write concern w; take it out, every write waits for a majority", journal.ErrWeak))
	}
	if l := cs.ReadConcernLevel; l != "" && l != "majority" && l != "linearizable" {
		errs = append(errs, fmt.Errorf("%w: readConcernLevel=%s; take it out, reads are linearizable where they have to be", journal.ErrWeak, l))
	}
	if cs.ReadPreference != "" && !strings.EqualFold(cs.ReadPreference, "primary") {
		errs = append(errs, fmt.Errorf("%w: readPreference=%s; take it out, others than the primary lag behind", journal.ErrWeak, cs.ReadPreference))
	}
	if cs.TimeoutSet && cs.Timeout > 0 {
		c.timeout = cs.Timeout
	}
	return errors.Join(errs...)
}

func open(ctx context.Context, cfg *config, opts Options) (*Journal, error) {
	yes := true
	safe := &writeconcern.WriteConcern{W: "majority", Journal: &yes}
	co := options.Client().ApplyURI(cfg.uri).SetAppName("holdfast").SetWriteConcern(safe).SetReadPreference(readpref.Primary())
	if err := co.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", journal.ErrInvalid, err)
	}
	client, err := mongo.Connect(co)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	j := &Journal{client: client, opts: opts, timeout: cfg.timeout, self: rand.Text(), calls: map[*context.CancelCauseFunc]struct{}{}}
	if err := j.prepare(ctx, cfg); err != nil {
		if errors.Is(err, errAway) {
			err = probe(ctx, co, err)
		}
		cctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.Disconnect(cctx)
		return nil, err
	}
	return j, nil
}

// hello is what a server says of itself.
type hello struct {
	SetName  string `bson:"setName"`
	Msg      string `bson:"msg"`
	MaxBSON  int    `bson:"maxBsonObjectSize"`
	MaxBytes int    `bson:"maxMessageSizeBytes"`
}

// prepare checks that the store is as it has to be, and makes what is missing.
func (j *Journal) prepare(ctx context.Context, cfg *config) error {
	db := j.client.Database(cfg.database)
	var h hello
	if err := j.command(ctx, j.client.Database("admin"), bson.D{{Key: "hello", Value: 1}}, &h); err != nil {
		return explain(err)
	}
	if h.Msg == "isdbgrid" {
		return fmt.Errorf("%w: the server is a router of a sharded cluster; name the hosts of a replica set", journal.ErrInvalid)
	}
	j.set = h.SetName != ""
	if err := j.checkServer(ctx, cfg); err != nil {
		return err
	}
	weak, lin := options.Collection(), options.Collection()
	if j.set {
		weak.SetReadConcern(readconcern.Majority())
		lin.SetReadConcern(readconcern.Linearizable())
	}
	j.records, j.linRecords = db.Collection(recordsName, weak), db.Collection(recordsName, lin)
	j.control, j.linControl = db.Collection(controlName, weak), db.Collection(controlName, lin)
	j.parts, j.members, j.confirms = db.Collection(partsName, weak), db.Collection(membersName, lin), db.Collection(confirmName, weak)
	j.limits = journal.Limits{MaxRecordBytes: h.MaxBSON - overhead, MaxPartBytes: min(maxPart, h.MaxBSON-overhead)}
	if h.MaxBSON < 1<<20 {
		return fmt.Errorf("%w: documents may have %d bytes, and the driver needs 1 MiB", journal.ErrInvalid, h.MaxBSON)
	}
	if err := j.makeSchema(ctx, db); err != nil {
		return explain(err)
	}
	if err := j.checkEngine(ctx, db); err != nil || j.opts.ReadOnly {
		return err
	}
	return j.checkWriting(ctx)
}

// checkWriting writes as a test: whoever may not is to know now, and so is who has a replica set without a majority.
func (j *Journal) checkWriting(ctx context.Context) error {
	err := j.confirm(ctx)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case j.set && errors.Is(err, errNoAnswer):
		return &adviceError{"no majority of the replica set acknowledges a write; see that its members run (rs.status())", err}
	}
	return explain(err)
}

// command runs a command that changes nothing.
func (j *Journal) command(ctx context.Context, db *mongo.Database, cmd bson.D, result any) error {
	tctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	return db.RunCommand(tctx, cmd).Decode(result)
}

// explain says what to change.
func explain(err error) error {
	var se mongo.ServerError
	text := err.Error()
	switch {
	case errors.As(err, &se) && (se.HasErrorCode(codeAuthFailed) || se.HasErrorCode(codeUnauthorized)), errors.Is(err, errNoAnswer) && errors.As(err, &se):
		return classify(err)
	case strings.Contains(text, "auth error"), strings.Contains(text, "AuthenticationFailed"):
		return &adviceError{"the server refuses the user or its password; correct them in the URL, or authSource", err}
	case strings.Contains(text, "x509"), strings.Contains(text, "tls:"):
		return &adviceError{"TLS fails; correct tls, tlsCAFile and tlsCertificateKeyFile in the URL", err}
	case errors.Is(err, context.DeadlineExceeded), mongo.IsTimeout(err), mongo.IsNetworkError(err), strings.Contains(text, "server selection error"):
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return err
}

// checkServer refuses servers that are not MongoDB, unless they are declared durable.
func (j *Journal) checkServer(ctx context.Context, cfg *config) error {
	var info bson.M
	if err := j.command(ctx, j.client.Database("admin"), bson.D{{Key: "buildInfo", Value: 1}}, &info); err != nil {
		return explain(err)
	}
	for field := range info {
		if strings.HasPrefix(strings.ToLower(field), "ferretdb") && !cfg.declared {
			return fmt.Errorf("%w: the server is FerretDB, which does not wait for a write concern; if its store is on stable storage before it answers, say so with durable=declared", journal.ErrWeak)
		}
	}
	return nil
}

// checkEngine refuses a storage engine without a journal.
func (j *Journal) checkEngine(ctx context.Context, db *mongo.Database) error {
	var stats bson.M
	if err := j.command(ctx, db, bson.D{{Key: "collStats", Value: recordsName}}, &stats); err != nil {
		return explain(fmt.Errorf("read the storage engine: %w", err))
	}
	if _, memory := stats["inMemory"]; memory {
		return fmt.Errorf("%w: the server's storage engine is inMemory; use one with a journal (wiredTiger)", journal.ErrWeak)
	}
	if !j.set {
		j.opts.Logger.Info("journal: MongoDB without a replica set: one copy of all data")
	}
	return nil
}

// schemaDoc says what layout the database has.
type schemaDoc struct {
	ID      string `bson:"_id"`
	Version int    `bson:"version"`
}

// makeSchema makes the collections and indexes. A database of a newer layout is refused before anything is changed.
func (j *Journal) makeSchema(ctx context.Context, db *mongo.Database) error {
	schema := db.Collection(schemaName)
	var doc schemaDoc
	found, err := j.findOne(ctx, schema, bson.D{{Key: "_id", Value: "layout"}}, &doc)
	if err != nil {
		return err
	}
	if found && doc.Version > schemaVersion {
		return fmt.Errorf("the database has layout %d, this binary knows up to %d: %w", doc.Version, schemaVersion, journal.ErrNewerFormat)
	}
	switch {
	case found:
		return nil
	case j.opts.ReadOnly:
		return fmt.Errorf("the database holds no journal, and nothing is made for reading only: correct the URL (mongodb://HOST/DATABASE): %w", journal.ErrNotFound)
	}
	tctx, cancel := context.WithTimeout(ctx, 10*j.timeout)
	defer cancel()
	for c, keys := range map[*mongo.Collection]bson.D{
		j.records: {{Key: "s", Value: 1}, {Key: "f", Value: 1}},
		j.parts:   {{Key: "s", Value: 1}, {Key: "n", Value: 1}},
		j.control: {{Key: "s", Value: 1}, {Key: "v", Value: 1}},
	} {
		if _, err := c.Indexes().CreateOne(tctx, mongo.IndexModel{Keys: keys}); err != nil {
			return fmt.Errorf("make the index of %s: %w", c.Name(), classify(err))
		}
	}
	if _, err := schema.InsertOne(tctx, schemaDoc{"layout", schemaVersion}); err != nil && !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("store the layout's version: %w", classify(err))
	}
	return nil
}
