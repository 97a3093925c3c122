package copier

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfastmq/holdfast/journal"
)

// bodies reads bodies of the source as ReadBodies does, but for those that are damaged: they are noted and left out.
func (s *stream) bodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
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
