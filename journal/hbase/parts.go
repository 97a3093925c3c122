package hbase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// WritePart stores a part in the stream's row, under the fence there.
func (o *owner) WritePart(ctx context.Context, name string, data []byte) error {
	err := journal.CheckPart(o.j.Limits(), name, data)
	if err == nil {
		err = o.changeParts(ctx, fmt.Sprintf("write part %q", name), func(ch *change, stamp int64) {
			ch.putAt(column{familyParts, name}, data, stamp)
		})
	}
	if err != nil {
		return o.fail(fmt.Sprintf("write part %q of", name), err)
	}
	return nil
}

// DeleteParts deletes parts, up to a thousand in a step.
func (o *owner) DeleteParts(ctx context.Context, names []string) error {
	err := o.check(ctx)
	for part := range slices.Chunk(names, 1000) {
		if err == nil {
			err = o.changeParts(ctx, "delete parts", func(ch *change, stamp int64) {
				for _, name := range part {
					ch.delete(stamp, column{familyParts, name})
				}
			})
		}
	}
	if err != nil {
		return o.fail("delete parts of", err)
	}
	return nil
}

// changeParts makes a change under the fence of the parts, with a time stamp that is above all before it.
func (o *owner) changeParts(ctx context.Context, op string, f func(ch *change, stamp int64)) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	n := o.stamps.Add(1)
	if n >= stampSpan-1 {
		return fmt.Errorf("%w: the owner has written as many parts as it can: acquire the stream again", journal.ErrClosed)
	}
	var ch change
	f(&ch, int64(o.fence.base+n))
	lost := 0
	for {
		done, err := o.j.swap(ctx, op, o.name, o.base, colFence, o.fence.encode(), &ch)
		if done {
			return nil
		}
		if errors.Is(err, journal.ErrFull) && lost == 0 {
			return err
		}
		if err != nil {
			if lost++; lost == tries || givenUp(ctx, err) {
				return unknown(err)
			}
			pause(ctx, lost)
			continue
		}
		if _, err = o.refresh(ctx); err != nil {
			return notRefused(err)
		}
		return unknown(fmt.Errorf("the fence of the parts is not that of epoch %d, which is the newest", o.acquired.Epoch))
	}
}

// ReadPart returns a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	err := journal.CheckName("part", name)
	if err == nil {
		err = r.check(ctx)
	}
	var found row
	if err == nil {
		found, err = r.j.get(ctx, r.base, newGet(), column{familyParts, name})
	}
	switch {
	case err != nil:
		return nil, r.fail(err)
	case len(found.cells) == 0:
		return nil, r.fail(fmt.Errorf("part %q: %w", name, journal.ErrNotFound))
	}
	return found.cells[0].Value, nil
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	g := newGet()
	g.FilterString = []byte("KeyOnlyFilter ()")
	if prefix != "" {
		// A quote in a text of the gateway's filter language is written twice.
		g.FilterString = andKeysOnly(fmt.Appendf(nil, "ColumnPrefixFilter ('%s')", strings.ReplaceAll(prefix, "'", "''")))
	}
	found, err := r.j.get(ctx, r.base, g, column{family: familyParts})
	if err != nil {
		return nil, r.fail(err)
	}
	var names []string
	for _, v := range found.cells {
		if name := string(v.Qualifier); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
