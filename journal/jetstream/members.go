package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// PutMember stores a member's entry. It is conditional on the entry that this handle has put last, so that a put that comes late does
// not replace a later one.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	if err := journal.CheckMember(id, data); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return j.member(ctx, "put", id, func(ctx context.Context) error {
		subject := j.names.member(id)
		for {
			j.mu.Lock()
			last, known := j.members[id]
			j.mu.Unlock()
			if !known {
				m, err := j.c.get(ctx, getRequest{Last: subject})
				if err != nil {
					return err
				}
				if m != nil {
					last = m.seq
				}
			}
			seq, err := j.write(ctx, "put member", "", message{subject: subject, data: [][]byte{data}, cond: subject, last: last, rollup: true})
			j.mu.Lock()
			delete(j.members, id)
			if err == nil {
				j.members[id] = seq
			}
			j.mu.Unlock()
			if !errors.Is(err, errMismatch) && !errors.Is(err, errBusy) {
				return err
			}
			if !pause(ctx, 5*time.Millisecond) {
				return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
		}
	})
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	if err := journal.CheckName("member", id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return j.member(ctx, "delete", id, func(ctx context.Context) error {
		j.mu.Lock()
		delete(j.members, id)
		j.mu.Unlock()
		return j.purgeHooked(ctx, "", j.names.member(id), ^uint64(0))
	})
}

func (j *Journal) member(ctx context.Context, what, id string, f func(ctx context.Context) error) error {
	if j.opts.ReadOnly {
		return fmt.Errorf("%s member %q: %w", what, id, ErrReadOnly)
	}
	if err := j.call(ctx, f); err != nil {
		return fmt.Errorf("%s member %q: %w", what, id, unknown(err))
	}
	return nil
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := j.call(ctx, func(ctx context.Context) error {
		at, err := j.confirm(ctx)
		if err != nil {
			return err
		}
		got, err := j.last(ctx, at, j.names.members())
		if err != nil {
			return err
		}
		for _, m := range got {
			id, err := lastToken(m.subject)
			if err != nil {
				return fmt.Errorf("subject %s: %w", m.subject, err)
			}
			all[id] = append([]byte{}, m.data...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return all, nil
}
