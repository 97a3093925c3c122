package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// reader reads a stream by name: a journal.Reader.
type reader struct {
	j        *Journal
	name     string
	released atomic.Bool
}

var _ journal.Reader = (*reader)(nil)

func (r *reader) check(ctx context.Context) error {
	if r.released.Load() {
		return journal.ErrClosed
	}
	return r.j.check(ctx)
}

func (r *reader) readError(err error) error {
	return fmt.Errorf("read stream %q: %w", r.name, err)
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	if err := r.check(ctx); err != nil {
		return journal.Info{}, r.readError(err)
	}
	st := r.j.store.lookup(r.name)
	if st == nil {
		return journal.Info{Name: r.name, Low: 1}, nil
	}
	return st.info(), nil
}

// readBatch is how many records are taken under one lock.
const readBatch = 64

// batch is what one step of ReadMeta takes from a stream.
type batch struct {
	uid      journal.UID
	low, end uint64
	recs     []entry
}

// metas returns up to readBatch records from the one on that holds seq from.
func (s *stream) metas(from, to uint64) batch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := batch{uid: s.uid, low: s.low, end: s.end}
	i, ok := slices.BinarySearchFunc(s.recs, from, byFirst)
	if !ok && i > 0 && s.recs[i-1].Last() >= from {
		i--
	}
	for ; i < len(s.recs) && len(b.recs) < readBatch && s.recs[i].First <= to; i++ {
		b.recs = append(b.recs, *s.recs[i])
	}
	return b
}

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		var uid journal.UID
		var chain journal.Chain
		var rec journal.Record
		from := max(from, 1) // the sequence may be ranged over again
		for from <= to {
			if err := r.check(ctx); err != nil {
				yield(nil, r.readError(err))
				return
			}
			st := r.j.store.lookup(r.name)
			if st == nil {
				return
			}
			b := st.metas(from, to)
			if uid == (journal.UID{}) {
				uid = b.uid
			}
			if b.uid != uid {
				return // dropped and made anew meanwhile: what was being read is gone
			}
			if from < b.low {
				from, chain = b.low, journal.Chain{} // discarded, perhaps meanwhile
			}
			for i := range b.recs {
				e := &b.recs[i]
				if e.First > from {
					break
				}
				if err := verify(&chain, e); err != nil {
					yield(nil, r.corrupt(e.First, err))
					return
				}
				// The same buffer each time: who keeps a record beyond its step is to notice.
				rec = journal.Record{Header: e.Header, Meta: append(rec.Meta[:0], e.meta...)}
				from = e.Last() + 1
				if !yield(&rec, nil) {
					return
				}
			}
			if len(b.recs) == readBatch && b.recs[readBatch-1].Last() < from {
				continue
			}
			if from <= min(to, b.end) {
				yield(nil, r.corrupt(from, &journal.CorruptError{Seq: from, What: "record missing"}))
			}
			return
		}
	}
}

// verify checks a record as every driver does on reading.
func verify(chain *journal.Chain, e *entry) error {
	h, err := journal.ParseHeader(journal.AppendHeader(nil, &e.Header))
	if err != nil {
		return err
	}
	if err := chain.Next(&h); err != nil {
		return err
	}
	return h.VerifyMeta(e.meta)
}

func (r *reader) corrupt(seq uint64, err error) error {
	var ce *journal.CorruptError
	if errors.As(err, &ce) {
		return r.readError(&journal.CorruptError{Stream: r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err})
	}
	return r.readError(&journal.CorruptError{Stream: r.name, Seq: seq, What: "record does not verify", Err: err})
}

// ReadBodies yields records with bodies.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for _, seq := range first {
			if err := r.check(ctx); err != nil {
				yield(nil, r.readError(err))
				return
			}
			st := r.j.store.lookup(r.name)
			if st == nil {
				return
			}
			rec, err := st.body(seq)
			switch {
			case err != nil:
				yield(nil, r.corrupt(seq, err))
				return
			case rec != nil && !yield(rec, nil):
				return
			}
		}
	}
}

// body returns the record whose first seq is given, or nil if there is none or its body was
// discarded.
func (s *stream) body(seq uint64) (*journal.Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	in := s.recs
	i, ok := slices.BinarySearchFunc(in, seq, byFirst)
	if !ok {
		in = s.bodies
		i, ok = slices.BinarySearchFunc(in, seq, byFirst)
	}
	if !ok || in[i].body == nil {
		return nil, nil
	}
	if _, err := journal.ParseHeader(journal.AppendHeader(nil, &in[i].Header)); err != nil {
		return nil, err
	}
	if err := in[i].VerifyBody(in[i].body); err != nil {
		return nil, err
	}
	return &journal.Record{Header: in[i].Header, Meta: bytes.Clone(in[i].meta), Body: [][]byte{bytes.Clone(in[i].body)}}, nil
}

// ReadPart returns a copy of a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.readError(err)
	}
	if err := r.check(ctx); err != nil {
		return nil, r.readError(err)
	}
	if st := r.j.store.lookup(r.name); st != nil {
		if data, ok := st.part(name); ok {
			return data, nil
		}
	}
	return nil, r.readError(fmt.Errorf("part %q: %w", name, journal.ErrNotFound))
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.readError(err)
	}
	st := r.j.store.lookup(r.name)
	if st == nil {
		return nil, nil
	}
	return st.partNames(prefix), nil
}
