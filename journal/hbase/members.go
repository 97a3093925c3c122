package hbase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// An entry is a cell in the row of members: a byte that tells whether there is one, and its data. Deleting writes the byte, so that a
// put which follows at once is not hidden by the delete, whatever the clocks of region servers say; what was deleted long ago is taken out
// by whoever sees it.
const (
	memberGone = 0
	memberHere = 1
)

// goneFor is how much older than the newest entry a deleted one is when it is taken out, in milliseconds.
const goneFor = int64(24 * time.Hour / time.Millisecond)

// nobody is no entry.
var nobody = []byte{255}

func (j *Journal) rowMembers() string { return j.opts.prefix + rowMembers }

// PutMember stores a member's entry.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	err := journal.CheckMember(id, data)
	if err == nil {
		err = j.putMember(ctx, id, append([]byte{memberHere}, data...))
	}
	if err != nil {
		return fmt.Errorf("put member %q: %w", id, err)
	}
	return nil
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	err := journal.CheckName("member", id)
	if err == nil {
		err = j.putMember(ctx, id, []byte{memberGone})
	}
	if err != nil {
		return fmt.Errorf("delete member %q: %w", id, err)
	}
	return nil
}

// putMember writes a cell, over the one that is there. As a condition on that cell it gets a time stamp which is not below that one's.
func (j *Journal) putMember(ctx context.Context, id string, value []byte) error {
	if err := j.pool.open(ctx); err != nil {
		return err
	}
	col := column{familyParts, id}
	var ch change
	ch.put(col, value)
	err := retry(ctx, func() error {
		for {
			done, err := j.compare(ctx, "put member", "", j.rowMembers(), col, thrift2.TCompareOperator_NOT_EQUAL, nobody, &ch)
			if done || err != nil {
				return err
			}
			// There is none yet.
			done, err = j.swap(ctx, "put member", "", j.rowMembers(), col, nil, &ch)
			if done || err != nil {
				return err
			}
		}
	})
	if err == nil || errors.Is(err, ErrReadOnly) {
		return err
	}
	return unknown(err)
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	err := j.pool.open(ctx)
	var r row
	if err == nil {
		r, err = j.get(ctx, j.rowMembers(), newGet(), column{family: familyParts})
	}
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	newest := int64(0)
	for _, v := range r.cells {
		newest = max(newest, v.GetTimestamp())
	}
	all := map[string][]byte{}
	for _, v := range r.cells {
		switch {
		case len(v.Value) > 0 && v.Value[0] == memberHere:
			all[string(v.Qualifier)] = v.Value[1:]
		case v.GetTimestamp() < newest-goneFor && !j.opts.ReadOnly:
			j.forget(ctx, v)
		}
	}
	return all, nil
}

// forget takes a deleted entry out, up to its own time stamp. If that fails, somebody else will.
func (j *Journal) forget(ctx context.Context, v *thrift2.TColumnValue) {
	d := &thrift2.TDelete{
		Row: []byte(j.rowMembers()), Durability: &synced, DeleteType: thrift2.TDeleteType_DELETE_COLUMNS,
		Columns: thriftColumns([]column{{familyParts, string(v.Qualifier)}}, v.GetTimestamp()),
	}
	err := j.write(ctx, "forget member", "", func(ctx context.Context, c client) error { return c.DeleteSingle(ctx, j.table, d) })
	if err != nil {
		j.log.Debug("hbase journal: an entry of a member that has gone stays", "member", string(v.Qualifier), "err", err)
	}
}
