package fault

import (
	"context"
	"iter"

	"github.com/holdfastmq/holdfast/journal"
)

type reader struct {
	j     *Journal
	name  string
	inner journal.Reader
}

func (r *reader) call(ctx context.Context, op Op, f func(context.Context) error) error {
	return r.j.call(ctx, Call{Op: op, Stream: r.name}, f)
}

func (r *reader) Info(ctx context.Context) (info journal.Info, err error) {
	err = r.call(ctx, Info, func(ctx context.Context) (err error) {
		info, err = r.inner.Info(ctx)
		return err
	})
	return info, err
}

func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return iterate(ctx, r.j, Call{Op: ReadMeta, Stream: r.name}, r.inner.ReadMeta(ctx, from, to))
}

func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return iterate(ctx, r.j, Call{Op: ReadBodies, Stream: r.name}, r.inner.ReadBodies(ctx, first))
}

func (r *reader) ReadPart(ctx context.Context, name string) (data []byte, err error) {
	err = r.j.call(ctx, Call{Op: ReadPart, Stream: r.name, Part: name}, func(ctx context.Context) (err error) {
		data, err = r.inner.ReadPart(ctx, name)
		return err
	})
	return data, err
}

func (r *reader) Parts(ctx context.Context, prefix string) (names []string, err error) {
	err = r.call(ctx, Parts, func(ctx context.Context) (err error) {
		names, err = r.inner.Parts(ctx, prefix)
		return err
	})
	return names, err
}

type stream struct {
	reader
	inner journal.Stream
}

var _ journal.Stream = (*stream)(nil)

func (s *stream) Acquired() journal.Info { return s.inner.Acquired() }

func (s *stream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	return s.j.call(ctx, Call{Op: Append, Stream: s.name, Record: rec}, func(ctx context.Context) error {
		return s.inner.Append(ctx, after, rec)
	})
}

func (s *stream) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return s.call(ctx, DiscardBodies, func(ctx context.Context) error { return s.inner.DiscardBodies(ctx, ranges) })
}

func (s *stream) DiscardMeta(ctx context.Context, low uint64) error {
	return s.call(ctx, DiscardMeta, func(ctx context.Context) error { return s.inner.DiscardMeta(ctx, low) })
}

func (s *stream) WritePart(ctx context.Context, name string, data []byte) error {
	return s.j.call(ctx, Call{Op: WritePart, Stream: s.name, Part: name}, func(ctx context.Context) error {
		return s.inner.WritePart(ctx, name, data)
	})
}

func (s *stream) DeleteParts(ctx context.Context, names []string) error {
	return s.call(ctx, DeleteParts, func(ctx context.Context) error { return s.inner.DeleteParts(ctx, names) })
}

func (s *stream) Drop(ctx context.Context) error {
	return s.call(ctx, Drop, func(ctx context.Context) error { return s.inner.Drop(ctx) })
}

func (s *stream) Release() error { return s.inner.Release() }
