package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// The optional sides of the journal under the wrapper. Without them their methods return
// errors.ErrUnsupported.
var (
	_ journal.Coordinator = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
)

// Import makes the caller the owner of a stream's copy.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	inner, ok := j.inner.(journal.Importer)
	if !ok {
		return nil, fmt.Errorf("import stream %q: %w by this journal", name, errors.ErrUnsupported)
	}
	var s journal.Stream
	err := j.call(ctx, Call{Op: Import, Stream: name}, func(ctx context.Context) (err error) {
		s, err = inner.Import(ctx, name, from)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &stream{reader: reader{j: j, name: name, inner: s}, inner: s}, nil
}

// PutMember stores a member's entry.
func (j *Journal) PutMember(ctx context.Context, id string, data []byte) error {
	return j.members(ctx, Call{Op: PutMember, Stream: id}, func(ctx context.Context, c journal.Coordinator) error {
		return c.PutMember(ctx, id, data)
	})
}

// DeleteMember removes a member's entry.
func (j *Journal) DeleteMember(ctx context.Context, id string) error {
	return j.members(ctx, Call{Op: DeleteMember, Stream: id}, func(ctx context.Context, c journal.Coordinator) error {
		return c.DeleteMember(ctx, id)
	})
}

// Members returns all entries.
func (j *Journal) Members(ctx context.Context) (all map[string][]byte, err error) {
	err = j.members(ctx, Call{Op: Members}, func(ctx context.Context, c journal.Coordinator) (err error) {
		all, err = c.Members(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (j *Journal) members(ctx context.Context, c Call, f func(context.Context, journal.Coordinator) error) error {
	inner, ok := j.inner.(journal.Coordinator)
	if !ok {
		return fmt.Errorf("%s: %w by this journal", c.Op, errors.ErrUnsupported)
	}
	return j.call(ctx, c, func(ctx context.Context) error { return f(ctx, inner) })
}
