package mongodb

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfastmq/holdfast/journal"
)

// PutMember stores a member's entry.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	if err := journal.CheckMember(id, data); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return j.member(ctx, "put", id, func(ctx context.Context) error {
		_, err := j.members.ReplaceOne(ctx, bson.D{{Key: "_id", Value: id}}, memberDoc{id, append([]byte{}, data...)}, options.Replace().SetUpsert(true))
		return err
	})
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	if err := journal.CheckName("member", id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return j.member(ctx, "delete", id, func(ctx context.Context) error {
		_, err := j.members.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}})
		return err
	})
}

func (j *Journal) member(ctx context.Context, what, id string, f func(ctx context.Context) error) error {
	if j.opts.ReadOnly {
		return fmt.Errorf("%s member %q: %w", what, id, ErrReadOnly)
	}
	err := j.call(ctx, func(ctx context.Context) error { return j.hooked(ctx, what+" member", "", f) })
	if err != nil {
		return fmt.Errorf("%s member %q: %w", what, id, unknown(err))
	}
	return nil
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := j.call(ctx, func(ctx context.Context) error {
		return j.read(ctx, func(ctx context.Context) error {
			cur, err := j.members.Find(ctx, bson.D{})
			if err != nil {
				return err
			}
			var docs []memberDoc
			if err := cur.All(ctx, &docs); err != nil {
				return err
			}
			clear(all)
			for _, d := range docs {
				all[d.ID] = append([]byte{}, d.Data...)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return all, nil
}
