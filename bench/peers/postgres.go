package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	postgresWorkers = 4
	postgresBatch   = 500
	// pollTime is how often an empty table is looked at again. Telling the workers (NOTIFY) instead would have all commits wait for each other.
	pollTime = 2 * time.Millisecond
)

// postgresPeer is a table as a queue, as careful users write it: workers lock rows that nobody else has locked, and delete those that are done in the same
// transaction, so that what a dead worker had comes back at once.
func postgresPeer() *peer {
	return &peer{
		name: "postgres", about: "a table; 4 connections insert what is waiting; 4 workers take up to 500 rows with FOR UPDATE SKIP LOCKED, delete those that are done by their ids and commit", synced: true,
		start: startPostgres, shares: "postgres", version: postgresVersion,
		connect: func(ctx context.Context, addr string) (conn, error) {
			pool, err := postgresPool(ctx, addr)
			if err != nil {
				return nil, err
			}
			return &postgres{pool}, nil
		},
	}
}

func postgresVersion(ctx context.Context, _ *env) string {
	return said(ctx, "bash", "-c", "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)/postgres --version")
}

// startPostgres starts a server by the script that the tests of Holdfast's journals use.
func startPostgres(ctx context.Context, e *env, dir string) (*server, error) {
	return e.supervise(ctx, dir, "postgres", "POSTGRES_OPTIONS=-c shared_buffers=1GB -c max_wal_size=4GB")
}

func postgresPool(ctx context.Context, addr string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2*postgresWorkers + 4
	return pgxpool.NewWithConfig(ctx, config)
}

type postgres struct{ pool *pgxpool.Pool }

func (p *postgres) close() { p.pool.Close() }

func (p *postgres) create(ctx context.Context, queue string) error {
	_, err := p.pool.Exec(ctx, "CREATE TABLE "+pgx.Identifier{queue}.Sanitize()+" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)")
	return err
}

func (p *postgres) sender(_ context.Context, queue string, window int) (sender, error) {
	insert := "INSERT INTO " + pgx.Identifier{queue}.Sanitize() + " (body) SELECT unnest($1::bytea[])"
	return newBatcher(postgresWorkers, window, window/postgresWorkers, func(ctx context.Context, bodies [][]byte) error {
		_, err := p.pool.Exec(ctx, insert, bodies)
		return err
	}), nil
}

func (p *postgres) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	table := pgx.Identifier{queue}.Sanitize()
	take := fmt.Sprintf("SELECT id, body FROM %s ORDER BY id LIMIT %d FOR UPDATE SKIP LOCKED", table, postgresBatch)
	remove := "DELETE FROM " + table + " WHERE id = ANY($1)"
	once := func() (n int, err error) {
		err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, take)
			if err != nil {
				return err
			}
			var id int64
			var body []byte
			var ids []int64
			if _, err := pgx.ForEachRow(rows, []any{&id, &body}, func() error { got(body); ids = append(ids, id); return nil }); err != nil {
				return err
			}
			if n = len(ids); n == 0 {
				return nil
			}
			_, err = tx.Exec(ctx, remove, ids)
			return err
		})
		return n, err
	}
	var wg sync.WaitGroup
	errs := make([]error, postgresWorkers)
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil {
				n, err := once()
				switch {
				case err != nil:
					errs[i] = fmt.Errorf("receive from PostgreSQL: %w", err)
					return
				case n == 0:
					wait(ctx, pollTime)
				default:
					done(n)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
