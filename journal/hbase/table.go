package hbase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// hook is called around every write, as journaltest's Hook describes.
type hook = func(ctx context.Context, op, stream string, after bool) error

// errLost stands for a request or an answer that a hook made get lost.
var errLost = errors.New("connection lost")

// client is the calls of a gateway.
type client = *thrift2.THBaseServiceClient

// row is what a get or scan returned of one.
type row struct {
	key   []byte
	cells []*thrift2.TColumnValue
}

// value returns a cell's value, nil if it is not there.
func (r *row) value(c column) []byte {
	for _, v := range r.cells {
		if string(v.Family) == c.family && string(v.Qualifier) == c.qualifier {
			return v.Value
		}
	}
	return nil
}

// read makes a call that changes nothing. If a connection is lost, as when the gateway was restarted, it is made again.
func (j *Journal) read(ctx context.Context, f func(ctx context.Context, c client) error) error {
	var io *thrift2.TIOError
	return j.opts.explain(retry(ctx, func() error {
		err := j.pool.do(ctx, f)
		if errors.As(err, &io) {
			return &finalError{err}
		}
		return err
	}))
}

// finalError is one that comes again if the call does. HBase's are such: the gateway has tried often enough.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// get reads cells of a row: of one column, or of a family (no qualifier) through a filter.
func (j *Journal) get(ctx context.Context, key string, g *thrift2.TGet, columns ...column) (row, error) {
	g.Row, g.Columns = []byte(key), thriftColumns(columns, 0)
	var r row
	err := j.read(ctx, func(ctx context.Context, c client) error {
		res, err := c.Get(ctx, j.table, g)
		if err == nil {
			r = row{res.Row, res.ColumnValues}
		}
		return err
	})
	return r, err
}

// getMany is get for several rows, whose results it returns in order.
func (j *Journal) getMany(ctx context.Context, gets []*thrift2.TGet) ([]*thrift2.TResult_, error) {
	var all []*thrift2.TResult_
	err := j.read(ctx, func(ctx context.Context, c client) (err error) {
		all, err = c.GetMultiple(ctx, j.table, gets)
		return err
	})
	if err == nil && len(all) != len(gets) {
		err = fmt.Errorf("the gateway answers %d reads with %d results", len(gets), len(all))
	}
	return all, err
}

// scan reads up to n rows that have the column, from one row to another: upwards from start (included) to stop (excluded), or
// downwards.
func (j *Journal) scan(ctx context.Context, start, stop string, down bool, n int32, col column) ([]row, error) {
	s := &thrift2.TScan{
		StartRow: []byte(start), StopRow: []byte(stop), Columns: thriftColumns([]column{col}, 0), Reversed: &down, Limit: &n, Caching: &n,
	}
	var rows []row
	err := j.read(ctx, func(ctx context.Context, c client) error {
		res, err := c.GetScannerResults(ctx, j.table, s, n)
		rows = rows[:0]
		for _, r := range res {
			rows = append(rows, row{r.Row, r.ColumnValues})
		}
		return err
	})
	return rows, err
}

// noStamp lets the region server choose the time stamp.
const noStamp = 0

// forGood is the time stamp of deletes that nothing is ever written behind: it hides whatever a region server's clock was
// when the cell was written, and is.
const forGood = 1 << 62

func thriftColumns(columns []column, stamp int64) []*thrift2.TColumn {
	cols := make([]*thrift2.TColumn, 0, len(columns))
	for _, c := range columns {
		t := &thrift2.TColumn{Family: []byte(c.family)}
		if c.qualifier != "" {
			t.Qualifier = []byte(c.qualifier)
		}
		if stamp != noStamp {
			t.Timestamp = &stamp
		}
		cols = append(cols, t)
	}
	return cols
}

// change is what a write does to one row, in one step.
type change struct {
	puts     []*thrift2.TColumnValue
	columns  []*thrift2.TColumn // to delete
	families []*thrift2.TColumn // to delete
}

func (c *change) put(col column, value []byte) { c.putAt(col, value, noStamp) }

func (c *change) putAt(col column, value []byte, stamp int64) {
	v := &thrift2.TColumnValue{Family: []byte(col.family), Qualifier: []byte(col.qualifier), Value: value}
	if stamp != noStamp {
		v.Timestamp = &stamp
	}
	c.puts = append(c.puts, v)
}

// delete deletes columns, or families (no qualifier), with a time stamp: what is not younger.
func (c *change) delete(stamp int64, columns ...column) {
	for _, t := range thriftColumns(columns, stamp) {
		if t.Qualifier == nil {
			c.families = append(c.families, t)
		} else {
			c.columns = append(c.columns, t)
		}
	}
}

// synced is asked for by every mutation. An explicit SYNC_WAL would be weaker than asking for nothing.
var synced = thrift2.TDurability_FSYNC_WAL

func (c *change) mutations(key []byte) *thrift2.TRowMutations {
	m := &thrift2.TRowMutations{Row: key}
	for _, d := range c.deletions(key) {
		m.Mutations = append(m.Mutations, &thrift2.TMutation{DeleteSingle: d})
	}
	if len(c.puts) > 0 {
		m.Mutations = append(m.Mutations, &thrift2.TMutation{Put: &thrift2.TPut{Row: key, ColumnValues: c.puts, Durability: &synced}})
	}
	return m
}

// deletions returns what the change deletes. One call deletes columns or families: which, its type says.
func (c *change) deletions(key []byte) []*thrift2.TDelete {
	var all []*thrift2.TDelete
	if len(c.columns) > 0 {
		all = append(all, &thrift2.TDelete{Row: key, Columns: c.columns, DeleteType: thrift2.TDeleteType_DELETE_COLUMNS, Durability: &synced})
	}
	if len(c.families) > 0 {
		all = append(all, &thrift2.TDelete{Row: key, Columns: c.families, DeleteType: thrift2.TDeleteType_DELETE_FAMILY, Durability: &synced})
	}
	return all
}

// swap applies a change to a row if a cell of it has the given value; nil means that there is no such cell. false means that it has
// another one, and nothing happened. An error means that either may be so.
func (j *Journal) swap(ctx context.Context, op, stream, key string, col column, want []byte, c *change) (bool, error) {
	return j.compare(ctx, op, stream, key, col, thrift2.TCompareOperator_EQUAL, want, c)
}

func (j *Journal) compare(
	ctx context.Context, op, stream, key string, col column, how thrift2.TCompareOperator, want []byte, c *change,
) (done bool, err error) {
	m := c.mutations([]byte(key))
	err = j.write(ctx, op, stream, func(ctx context.Context, cl client) (err error) {
		done, err = cl.CheckAndMutate(ctx, j.table, []byte(key), []byte(col.family), []byte(col.qualifier), how, want, m)
		return err
	})
	return done && err == nil, err
}

// sweep deletes columns or families of a row, for good, without a condition: only what was allowed by a fenced step and is never written again.
func (j *Journal) sweep(ctx context.Context, op, stream, key string, columns ...column) error {
	const most = 1000
	for part := range slices.Chunk(columns, most) {
		var ch change
		ch.delete(forGood, part...)
		for _, d := range ch.deletions([]byte(key)) {
			err := retry(ctx, func() error {
				return j.write(ctx, op, stream, func(ctx context.Context, c client) error { return c.DeleteSingle(ctx, j.table, d) })
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes a call that changes something, with the hook around it.
func (j *Journal) write(ctx context.Context, op, stream string, f func(ctx context.Context, c client) error) error {
	if j.opts.ReadOnly {
		return ErrReadOnly
	}
	h := j.opts.hook
	if h != nil && h(ctx, op, stream, false) != nil {
		return errLost
	}
	err := j.opts.explain(j.pool.do(ctx, f))
	if h != nil && h(ctx, op, stream, true) != nil {
		return errLost
	}
	return err
}

// tries is how often a change whose outcome is unknown is tried before it is told as unknown.
const tries = 3

// retry repeats f, which may be repeated, while it fails.
func retry(ctx context.Context, f func() error) error {
	var err error
	for n := range tries {
		if err = f(); err == nil || givenUp(ctx, err) {
			return err
		}
		if n+1 < tries {
			pause(ctx, n)
		}
	}
	return err
}

// givenUp tells whether there is no use in trying again.
func givenUp(ctx context.Context, err error) bool {
	var late *timeoutError
	var final *finalError
	return ctx.Err() != nil || errors.As(err, &final) || errors.Is(err, journal.ErrClosed) || errors.Is(err, ErrReadOnly) || errors.As(err, &late)
}

// pause waits before another try: 5 ms, 20 ms, …, or for the context's end.
func pause(ctx context.Context, n int) {
	timer := time.NewTimer(5 * time.Millisecond << (2 * min(n, 3)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
