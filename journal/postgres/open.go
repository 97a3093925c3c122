package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastmq/holdfast/journal"
)

// Open opens the journal of a URL such as postgres://user:password@host:5432/database?schema=holdfast, and makes its
// tables if there are none. Options in the URL come before those in o: schema, pool, timeout, range, max-record, max-part, accept-weak, and
// those by which PostgreSQL's own clients say how to connect (sslmode, sslrootcert, …). Any other is an error.
//
// The server has to be a primary. Its settings are read: one that promises less than durable on return is
// journal.ErrWeak, unless o.AcceptWeak. A journal that a newer version has made is journal.ErrNewerFormat. The error
// of a server that cannot be used says what to change, and never has the password.
func Open(ctx context.Context, url string, o Options) (*Journal, error) {
	j, err := open(ctx, url, o)
	if err != nil {
		return nil, fmt.Errorf("postgres journal: %w", err)
	}
	return j, nil
}

func open(ctx context.Context, url string, o Options) (*Journal, error) {
	rest, err := parseURL(url, &o)
	if err := errors.Join(err, o.validate()); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(rest)
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			err = parse.Unwrap() // its text repeats the URL
		}
		return nil, fmt.Errorf("the URL cannot be used: %w", err)
	}
	configure(cfg, &o)
	j := &Journal{opts: o, user: cfg.ConnConfig.User, database: cfg.ConnConfig.Database, log: o.Logger}
	if j.database == "" {
		j.database = j.user
	}
	j.life, j.end = context.WithCancel(context.Background())
	if j.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := j.prepare(ctx); err != nil {
		j.end()
		j.pool.Close()
		place := net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port)))
		return nil, explain(err, place, j.user, j.database)
	}
	if !o.ReadOnly {
		j.loops.Go(j.maintain)
	}
	return j, nil
}

// configure sets what every connection has.
func configure(cfg *pgxpool.Config, o *Options) {
	cfg.MaxConns = int32(o.Pool)
	cfg.MinConns = 0
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = o.Timeout
	}
	// Several processes roll tables, so statements of tables that are gone fill the cache.
	cfg.ConnConfig.StatementCacheCapacity = 256
	// The server might become a standby, or another one take its name: only a primary's answers count. ReadOnly too, as
	// a standby may be behind.
	cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	for name, value := range map[string]string{
		"search_path": o.Schema,
		// A client that stands still in the middle of a transaction must not hold up its successor.
		"idle_in_transaction_session_timeout": strconv.Itoa(max(1, int(o.Timeout.Milliseconds()))),
		// Range tables have no statistics, and plans are made while they are empty. All statements are to go by
		// the primary key, always.
		"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		"plan_cache_mode": "force_generic_plan", "jit": "off",
	} {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
}

// prepare makes sure that the server can be relied on, and that there is a journal.
func (j *Journal) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*j.opts.Timeout)
	defer cancel()
	if err := j.checkServer(ctx); err != nil {
		return err
	}
	if err := j.prepareSchema(ctx); err != nil {
		return err
	}
	return j.tables.refresh(ctx, j.pool)
}

// minVersion is the oldest server that has all that the statements use.
const minVersion = 130000

// checkServer reads the settings that durability depends on.
func (j *Journal) checkServer(ctx context.Context) error {
	conn, err := j.pool.Acquire(ctx)
	if err != nil {
		if errors.Is(err, pgconn.ErrStandbyConnection) {
			return fmt.Errorf("the server is a standby, which cannot store anything: name the primary, or all hosts of the cluster, in the URL (%w)", err)
		}
		return err
	}
	defer conn.Release()
	var version int
	var fsync, pages, commit, standbys string
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'),
		current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`).Scan(&version, &fsync, &pages, &commit, &standbys)
	if err != nil {
		return err
	}
	if version < minVersion {
		return fmt.Errorf("the server is of version %d.%d, want %d or newer", version/10000, version%10000, minVersion/10000)
	}
	var weak []string
	if fsync != "on" {
		weak = append(weak, "fsync is "+fsync+", want on")
	}
	if pages != "on" {
		weak = append(weak, "full_page_writes is "+pages+", want on")
	}
	if commit == "off" || standbys != "" && (commit == "local" || commit == "remote_write") {
		weak = append(weak, fmt.Sprintf("synchronous_commit is %s, want on (ALTER ROLE %s SET synchronous_commit = on)", commit, j.user))
	}
	if len(weak) == 0 {
		return nil
	}
	if j.opts.AcceptWeak {
		j.log.Warn("the server may lose what it has acknowledged, as accepted in the URL", "settings", strings.Join(weak, "; "), slog.String("user", j.user))
		return nil
	}
	return fmt.Errorf("%w: %s; or accept it with accept-weak=true in the URL", journal.ErrWeak, strings.Join(weak, "; "))
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
