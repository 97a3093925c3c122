package copier

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// atOnce is how many bodies are read at once where their order counts.
const atOnce = 16

// bodies reads bodies of the source in the order of first, as eachBody does.
func (s *stream) bodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for some := range slices.Chunk(first, atOnce) {
			got := map[uint64]*journal.Record{}
			if err := s.eachBody(ctx, some, func(rec *journal.Record) { got[rec.First] = rec }); err != nil {
				yield(nil, err)
				return
			}
			for _, seq := range some {
				if rec := got[seq]; rec != nil && !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// eachBody reads bodies of the source as ReadBodies does, but for those that are damaged: they are noted and left out. One that is not found is asked
// for once more: what a copy takes for discarded, it lacks for good.
func (s *stream) eachBody(ctx context.Context, first []uint64, f func(*journal.Record)) error {
	found := make(map[uint64]bool, len(first))
	read := func(first []uint64) error {
		for rec, err := range s.readable(ctx, first) {
			if err != nil {
				return err
			}
			found[rec.First] = true
			f(rec)
		}
		return nil
	}
	if err := read(first); err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(first), func(seq uint64) bool { return found[seq] || s.damaged[seq] })
	if len(missing) == 0 {
		return nil
	}
	before := len(found)
	err := read(missing)
	if n := len(found) - before; n > 0 {
		s.o.Logger.Warn("the source did not find bodies that it has; it was asked again", "stream", s.name, "bodies", n, "first", missing[0])
	}
	return err
}

// readable reads bodies of the source as ReadBodies does, but for those that are damaged: they are noted and left out.
func (s *stream) readable(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for len(first) > 0 {
			done := 0 // of first
			var fault error
			for rec, err := range s.r.ReadBodies(ctx, first) {
				if err != nil {
					fault = err
					break
				}
				for first[done] != rec.First {
					done++
				}
				done++
				if !yield(rec, nil) {
					return
				}
			}
			switch {
			case fault == nil:
				return
			case !errors.Is(fault, journal.ErrCorrupt):
				yield(nil, fault)
				return
			}
			n, ok := s.toDamage(ctx, first[done:], yield)
			if !ok {
				return
			}
			first = first[done+n:]
		}
	}
}

// toDamage reads bodies one by one, up to the first that is damaged, and returns how many that were. ok is false if there is no more to be done.
func (s *stream) toDamage(ctx context.Context, first []uint64, yield func(*journal.Record, error) bool) (n int, ok bool) {
	for i, seq := range first {
		for rec, err := range s.r.ReadBodies(ctx, []uint64{seq}) {
			if errors.Is(err, journal.ErrCorrupt) {
				s.note(seq, err)
				return i + 1, true
			}
			if !yield(rec, err) || err != nil {
				return i, false
			}
		}
	}
	return len(first), true
}

// note notes that the body of a record of the source cannot be read.
func (s *stream) note(seq uint64, err error) {
	if s.damaged[seq] {
		return
	}
	s.damaged[seq] = true
	if s.res.Damaged++; s.res.Damage == nil {
		s.res.Damage = err
	}
}
