package cassandra

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// PutMember stores a member's entry.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	if err := journal.CheckMember(id, data); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if data == nil {
		data = []byte{}
	}
	err := j.changeMember(ctx, "put member", id, func(stamp, was any) statement {
		return statement{cqlPutMember, []any{data, stamp, j.key(id), was}}
	})
	if err != nil {
		return fmt.Errorf("put member %q: %w", id, j.ended(ctx, err))
	}
	return nil
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	if err := journal.CheckName("member", id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	err := j.changeMember(ctx, "delete member", id, func(_, was any) statement {
		if was == nil {
			return statement{}
		}
		return statement{cqlDeleteMember, []any{j.key(id), was}}
	})
	if err != nil {
		return fmt.Errorf("delete member %q: %w", id, j.ended(ctx, err))
	}
	return nil
}

// changeMember replaces the stamp of a member's entry by another one. The change is none if it has no statement.
func (j *Journal) changeMember(ctx context.Context, op, id string, change func(stamp, was any) statement) error {
	if err := j.writable(ctx); err != nil {
		return err
	}
	at, _, err := j.serially(ctx, cqlMember, j.key(id))
	if err != nil {
		return err
	}
	for range 20 {
		stamp := 1 + rand.Int64N(1<<62)
		var was any
		if n := at.int("stamp"); n != 0 {
			was = n
		}
		stmt := change(stamp, was)
		if stmt.cql == "" {
			return nil
		}
		applied := false
		if err := j.write(ctx, op, id, func() (err error) {
			applied, at, err = j.cas(ctx, stmt.cql, stmt.args...)
			return err
		}); err != nil || applied || at.int("stamp") == stamp {
			return err
		}
	}
	return unknown(errors.New("others change that entry all the time"))
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	if err := j.usable(ctx); err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	all := map[string][]byte{}
	it := j.session.Query(cqlMembers).PageSize(1000).IterContext(ctx)
	for {
		var id string
		var data []byte
		if !it.Scan(&id, &data) {
			break
		}
		if name, ours := strings.CutPrefix(id, j.o.prefix); ours {
			all[name] = data
		}
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("list members: %w", j.ended(ctx, j.o.rights(err)))
	}
	return all, nil
}
