package cassandra

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// cas makes a compare-and-set. If it was refused, at holds what the condition was compared with: nothing where there is no row.
func (j *Journal) cas(ctx context.Context, stmt string, args ...any) (applied bool, at row, err error) {
	at = row{}
	tried := &retry{}
	applied, err = j.session.Query(stmt, args...).RetryPolicy(tried).MapScanCASContext(ctx, at)
	return applied, at, j.outcome(ctx, tried, err)
}

// statement is one of those that make a change together.
type statement struct {
	cql  string
	args []any
}

// casAll makes several compare-and-sets of one partition as one.
func (j *Journal) casAll(ctx context.Context, stmts []statement) (applied bool, at row, err error) {
	if len(stmts) == 1 {
		return j.cas(ctx, stmts[0].cql, stmts[0].args...)
	}
	at = row{}
	tried := &retry{}
	b := j.session.Batch(gocql.LoggedBatch).RetryPolicy(tried)
	for _, s := range stmts {
		b.Entries = append(b.Entries, gocql.BatchEntry{Stmt: s.cql, Args: s.args, Idempotent: true})
	}
	applied, it, err := b.MapExecCASContext(ctx, at)
	if it != nil {
		err = errors.Join(err, it.Close())
	}
	return applied, at, j.outcome(ctx, tried, err)
}

// exec makes a plain write.
func (j *Journal) exec(ctx context.Context, stmt string, args ...any) error {
	tried := &retry{}
	return j.outcome(ctx, tried, j.session.Query(stmt, args...).RetryPolicy(tried).ExecContext(ctx))
}

// outcome is the error of a change: unknown, unless a node has refused the only try.
func (j *Journal) outcome(ctx context.Context, tried *retry, err error) error {
	if err == nil {
		return nil
	}
	if isFull(err) && !tried.again {
		return fmt.Errorf("%w: %w", journal.ErrFull, err)
	}
	return unknown(j.ended(ctx, j.o.rights(err)))
}

// serially reads one row such that whatever was under way before is completed or excluded. found is false where there is none.
func (j *Journal) serially(ctx context.Context, stmt string, args ...any) (r row, found bool, err error) {
	return j.one(ctx, j.session.Query(stmt, args...).Consistency(j.serial()))
}

func (j *Journal) serial() gocql.Consistency {
	if j.o.Local {
		return gocql.LocalSerial
	}
	return gocql.Serial
}

// read reads one row from a majority.
func (j *Journal) read(ctx context.Context, stmt string, args ...any) (r row, found bool, err error) {
	return j.one(ctx, j.session.Query(stmt, args...))
}

func (j *Journal) one(ctx context.Context, q *gocql.Query) (r row, found bool, err error) {
	r = row{}
	switch err := q.MapScanContext(ctx, r); {
	case errors.Is(err, gocql.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, j.ended(ctx, j.o.rights(err))
	}
	return r, true, nil
}

// row is a row by column. A column that is null or absent reads as zero.
type row map[string]any

func (r row) int(column string) int64 {
	switch v := r[column].(type) {
	case int64:
		return v
	case int:
		return int64(v)
	}
	return 0
}

func (r row) seq(column string) uint64 { return uint64(r.int(column)) }

func (r row) bytes(column string) []byte {
	b, _ := r[column].([]byte)
	return b
}

func (r row) bool(column string) bool {
	b, _ := r[column].(bool)
	return b
}
