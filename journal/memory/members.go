package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

var _ journal.Coordinator = (*Journal)(nil)

// PutMember stores a copy of a member's entry. It survives [Store.Crash].
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	if err := journal.CheckMember(id, data); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return j.withMembers(ctx, fmt.Sprintf("put member %q", id), func(members map[string][]byte) {
		members[id] = append([]byte{}, data...)
	})
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	if err := journal.CheckName("member", id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return j.withMembers(ctx, fmt.Sprintf("delete member %q", id), func(members map[string][]byte) {
		delete(members, id)
	})
}

// Members returns a copy of all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := j.withMembers(ctx, "list members", func(members map[string][]byte) {
		for id, data := range members {
			all[id] = bytes.Clone(data)
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (j *Journal) withMembers(ctx context.Context, what string, f func(members map[string][]byte)) error {
	if err := j.check(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	f(j.store.members)
	return nil
}
