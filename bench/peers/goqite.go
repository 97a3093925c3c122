package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver
	"maragu.dev/goqite"
)

// goqiteBatch is how many messages a transaction has at most.
const goqiteBatch = 250

// goqitePeer is goqite, a queue in an SQLite file of the process that uses it.
func goqitePeer() *peer {
	return &peer{
		name: "goqite", about: "SQLite in the one process that sends and receives (WAL, synchronous=FULL, one connection); up to 250 messages a transaction, sent, or received, deleted one by one and committed", synced: true,
		embedded: true,
		start: func(_ context.Context, _ *env, dir string) (*server, error) {
			return &server{addr: filepath.Join(dir, "queue.db"), dir: dir}, nil
		},
		version: func(context.Context, *env) string {
			return "goqite " + moduleVersion("maragu.dev/goqite") + " on go-sqlite3 " + moduleVersion("github.com/mattn/go-sqlite3")
		},
		connect: func(_ context.Context, addr string) (conn, error) {
			db, err := sql.Open("sqlite3", "file:"+addr+"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_txlock=immediate")
			if err != nil {
				return nil, err
			}
			// SQLite has one writer at a time; waiting here is cheaper than there.
			db.SetMaxOpenConns(1)
			return &goqiteConn{db}, nil
		},
	}
}

type goqiteConn struct{ db *sql.DB }

func (g *goqiteConn) close() { _ = g.db.Close() } // there is nobody left to tell

func (g *goqiteConn) queue(name string) *goqite.Queue {
	return goqite.New(goqite.NewOpts{DB: g.db, Name: name, Timeout: time.Minute})
}

// create makes the one table of all queues, as a file of goqite's source says it.
func (g *goqiteConn) create(ctx context.Context, _ string) error {
	var n int
	if err := g.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'goqite'").Scan(&n); err != nil || n > 0 {
		return err
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "maragu.dev/goqite")
	cmd.Dir = filepath.Join(root, "bench/peers")
	source, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the source of goqite: %w", err)
	}
	schema, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), "schema_sqlite.sql"))
	if err != nil {
		return fmt.Errorf("read goqite's schema: %w", err)
	}
	_, err = g.db.ExecContext(ctx, string(schema))
	return err
}

// in does something in one transaction.
func (g *goqiteConn) in(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (g *goqiteConn) sender(_ context.Context, queue string, window int) (sender, error) {
	q := g.queue(queue)
	return newBatcher(1, window, goqiteBatch, func(ctx context.Context, bodies [][]byte) error {
		return g.in(ctx, func(tx *sql.Tx) error {
			for _, b := range bodies {
				if err := q.SendTx(ctx, tx, goqite.Message{Body: b}); err != nil {
					return err
				}
			}
			return nil
		})
	}), nil
}

func (g *goqiteConn) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	q := g.queue(queue)
	for ctx.Err() == nil {
		n := 0
		err := g.in(context.WithoutCancel(ctx), func(tx *sql.Tx) error {
			for n < goqiteBatch {
				m, err := q.ReceiveTx(context.WithoutCancel(ctx), tx)
				if err != nil || m == nil {
					return err
				}
				got(m.Body)
				if err := q.DeleteTx(context.WithoutCancel(ctx), tx, m.ID); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("receive from goqite: %w", err)
		}
		if n == 0 {
			wait(ctx, pollTime)
			continue
		}
		done(n)
	}
	return nil
}
