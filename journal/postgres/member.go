package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// PutMember stores a member's entry, in a table that a crash of the server empties.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	if err := journal.CheckMember(id, data); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if data == nil {
		data = []byte{}
	}
	return j.changeMember(ctx, "put member", id,
		"INSERT INTO member (id, data) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET data = excluded.data", id, data)
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	if err := journal.CheckName("member", id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return j.changeMember(ctx, "delete member", id, "DELETE FROM member WHERE id = $1", id)
}

func (j *Journal) changeMember(ctx context.Context, what, id, sql string, args ...any) error {
	err := j.change(ctx, what, "", func(ctx context.Context) error {
		if _, err := j.pool.Exec(ctx, sql, args...); err != nil {
			return changeError(err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", what, id, err)
	}
	return nil
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	var all map[string][]byte
	err := j.reading(ctx, func(ctx context.Context) error {
		rows, err := j.pool.Query(ctx, "SELECT id, data FROM member")
		if err != nil {
			return err
		}
		all = map[string][]byte{}
		var id string
		var data []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &data}, func() error {
			all[id] = data
			data = nil // the next one is to have memory of its own
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return all, nil
}
