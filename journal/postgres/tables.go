package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// tables are the range tables that new rows go to. Processes that share a journal share them; one that writes
// to a table for some time after another has closed it does no harm.
type tables struct {
	mu      sync.Mutex
	current [3]int64 // by kind
	written [3]int64 // bytes, by this process since it last looked at the size
}

// now returns the table that a new row goes to.
func (t *tables) now(kind int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current[kind]
}

// wrote counts what was written.
func (t *tables) wrote(kind, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written[kind] += int64(bytes)
}

// take returns what was written since it was last asked.
func (t *tables) take(kind int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.written[kind]
	t.written[kind] = 0
	return n
}

// refresh learns which tables are current.
func (t *tables) refresh(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, "SELECT kind, max(no) FROM range WHERE NOT closed GROUP BY kind")
	if err != nil {
		return err
	}
	var kind int
	var no int64
	found := map[int]int64{}
	if _, err := pgx.ForEachRow(rows, []any{&kind, &no}, func() error { found[kind] = no; return nil }); err != nil {
		return err
	}
	if found[kindRecord] == 0 || found[kindBody] == 0 {
		return fmt.Errorf("the table \"range\" names no open tables")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current[kindRecord], t.current[kindBody] = found[kindRecord], found[kindBody]
	return nil
}

// roll looks at the size of the table that rows of a kind go to, if this process has written to it, and opens another
// one if it is full.
func (j *Journal) roll(ctx context.Context, kind int) error {
	if j.tables.take(kind) == 0 {
		return nil
	}
	return j.reading(ctx, func(ctx context.Context) error {
		if err := j.tables.refresh(ctx, j.pool); err != nil {
			return err
		}
		var size int64
		no := j.tables.now(kind)
		if err := j.pool.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", tableName(kind, no)).Scan(&size); err != nil {
			return err
		}
		if size < j.opts.RangeBytes {
			return nil
		}
		err := pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, advisoryLock("pg_advisory_xact_lock", j.opts.Schema, lockRoll)); err != nil {
				return err
			}
			if err := j.tables.refresh(ctx, tx); err != nil || j.tables.now(kind) != no {
				return err // another process was faster
			}
			_, err := makeTable(ctx, tx, kind, true)
			return err
		})
		if err != nil {
			return err
		}
		return j.tables.refresh(ctx, j.pool)
	})
}

// makeTable makes a range table. A current one takes all new rows from now on; any other is closed from
// the beginning.
func makeTable(ctx context.Context, tx pgx.Tx, kind int, current bool) (int64, error) {
	var no int64
	if err := tx.QueryRow(ctx, "SELECT nextval('range_no')").Scan(&no); err != nil {
		return 0, err
	}
	sql := rangeSQL(kind, no)
	if current {
		sql += fmt.Sprintf("UPDATE range SET closed = true WHERE kind = %d AND no <> %d AND NOT closed;", kind, no)
	} else {
		sql += fmt.Sprintf("UPDATE range SET closed = true WHERE no = %d;", no)
	}
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return no, err
}
