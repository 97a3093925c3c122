package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// ReadPart returns a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.readError(err)
	}
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	data, err := r.readPart(ctx, name)
	if err = end(err); err != nil {
		return nil, err
	}
	return data, nil
}

func (r *reader) readPart(ctx context.Context, name string) ([]byte, error) {
	at, err := r.j.confirm(ctx)
	if err != nil {
		return nil, err
	}
	ctl, err := r.control(ctx, at)
	if err != nil {
		return nil, err
	}
	if ctl != nil && !ctl.Dropped {
		got, err := r.j.last(ctx, at, r.j.names.part(r.name, name))
		if err != nil {
			return nil, err
		}
		if len(got) == 1 && !ctl.partGone(name, got[0].seq) {
			return got[0].data, nil
		}
	}
	return nil, fmt.Errorf("part %q: %w", name, journal.ErrNotFound)
}

// control reads the control state from a server that has message at, nil if there is none.
func (r *reader) control(ctx context.Context, at uint64) (*control, error) {
	cm, rm, err := r.j.headMessages(ctx, at, r.name)
	if err != nil {
		return nil, err
	}
	h, err := parseHead(r.name, cm, rm)
	if err != nil {
		return nil, err
	}
	return h.ctl, nil
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	names, err := r.listParts(ctx, prefix)
	if err = end(err); err != nil {
		return nil, err
	}
	return names, nil
}

func (r *reader) listParts(ctx context.Context, prefix string) ([]string, error) {
	at, err := r.j.confirm(ctx)
	if err != nil {
		return nil, err
	}
	ctl, err := r.control(ctx, at)
	if err != nil || ctl == nil || ctl.Dropped {
		return nil, err
	}
	subjects, err := r.j.c.subjectsAt(ctx, r.j.names.parts(r.name), at)
	if err != nil {
		return nil, err
	}
	var names, doubtful []string
	for s := range subjects {
		name, err := lastToken(s)
		if err != nil {
			return nil, fmt.Errorf("subject %s: %w", s, err)
		}
		switch {
		case !strings.HasPrefix(name, prefix):
		case slices.ContainsFunc(ctl.Parts, func(p partGone) bool { return p.Name == name }), ctl.Unclean:
			doubtful = append(doubtful, name)
		default:
			names = append(names, name)
		}
	}
	for _, name := range doubtful {
		got, err := r.j.last(ctx, at, r.j.names.part(r.name, name))
		if err != nil {
			return nil, err
		}
		if len(got) == 1 && !ctl.partGone(name, got[0].seq) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
