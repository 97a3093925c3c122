package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// reader reads a stream by name: a journal.Reader. It sees what was acknowledged, and nothing that
// is not on stable storage unless it was appended as Buffered.
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

func (r *reader) fail(err error) error {
	return fmt.Errorf("read stream %q: %w", r.name, err)
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	if err := r.check(ctx); err != nil {
		return journal.Info{}, r.fail(err)
	}
	st := r.j.lookup(r.name)
	if st == nil {
		return journal.Info{Name: r.name, Low: 1}, nil
	}
	return st.info(), nil
}

// view is an iterator over a stream's rows and the state that belongs to it.
type view struct {
	*pebble.Iterator
	e    *engine
	st   *stream
	head head
}

func (v *view) close() error {
	err := v.Iterator.Close()
	v.e.leave()
	return err
}

// view returns nil for a stream that does not exist. hidden, if not nil, is called with the state.
func (r *reader) view(kind byte, hidden func(*discards)) (*view, error) {
	st := r.j.lookup(r.name)
	if st == nil {
		return nil, nil
	}
	e, err := r.j.use()
	if err != nil {
		return nil, err
	}
	// Under the mutex, so that no discard gets between the state and the iterator.
	st.mu.Lock()
	defer st.mu.Unlock()
	h := st.acked
	if hidden != nil {
		hidden(&st.discards)
	}
	upper := prefixEnd(kind, st.no)
	if kind != kindPart {
		upper = seqKey(kind, st.no, h.end+1)
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: prefixKey(kind, st.no), UpperBound: upper})
	if err != nil {
		e.leave()
		return nil, e.readError(r.name, 0, "open", err)
	}
	return &view{it, e, st, h}, nil
}

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		var chain journal.Chain
		next := from // the sequence may be ranged over again
		err := r.j.reading(ctx, func() error { return r.readMeta(ctx, &next, to, &chain, yield) })
		if err != nil {
			yield(nil, r.fail(err))
		}
	}
}

// readMeta yields the records from the one on that holds *next, and keeps *next and chain at where it is.
func (r *reader) readMeta(
	ctx context.Context, next *uint64, to uint64, chain *journal.Chain, yield func(*journal.Record, error) bool,
) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	v, err := r.view(kindMeta, nil)
	if err != nil || v == nil {
		return err
	}
	defer func() { _ = v.close() }() // its error came with the last step
	if *next < v.head.low {
		*next, *chain = v.head.low, journal.Chain{} // discarded
	}
	if to = min(to, v.head.end); *next > to {
		return nil
	}
	var rec journal.Record
	ok := v.SeekLT(seqKey(kindMeta, v.st.no, *next+1))
	for ; ok && *next <= to; ok = v.Next() {
		if err := r.check(ctx); err != nil {
			return err
		}
		if err := v.meta(chain, &rec, *next); err != nil {
			return err
		}
		if rec.Last() < *next { // the one before a hole
			continue
		}
		*next = rec.Last() + 1
		if !yield(&rec, nil) {
			return nil
		}
	}
	if err := v.Error(); err != nil {
		return v.e.readError(r.name, *next, "meta cannot be read", err)
	}
	if *next <= to {
		return &journal.CorruptError{Stream: r.name, Seq: *next, What: "record missing"}
	}
	return nil
}

// meta reads the row that the iterator is at, and verifies it. next is the seq that is expected.
func (v *view) meta(chain *journal.Chain, rec *journal.Record, next uint64) error {
	corrupt := func(what string, err error) error {
		return &journal.CorruptError{Stream: v.st.name, Seq: next, What: what, Err: err}
	}
	first, err := parseMetaKey(v.Key())
	if err != nil {
		return corrupt("record", err)
	}
	val, err := v.ValueAndErr()
	if err != nil {
		return v.e.readError(v.st.name, next, "meta cannot be read", err)
	}
	h, meta, _, err := openMeta(val)
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return err
	case err != nil:
		return corrupt("record does not verify", err)
	case h.First != first:
		return corrupt(fmt.Sprintf("record of seq %d in its place", h.First), nil)
	case h.UID != v.head.uid:
		return corrupt(fmt.Sprintf("record of stream uid %s in its place", h.UID), nil)
	}
	if err := chain.Next(&h); err != nil {
		var ce *journal.CorruptError
		if errors.As(err, &ce) {
			return &journal.CorruptError{Stream: v.st.name, Seq: ce.Seq, What: ce.What, Err: ce.Err}
		}
		return corrupt("record does not follow", err)
	}
	if h.Last() == v.head.end && h.CRC != v.head.endCRC {
		return corrupt("the stream's head was made for another last record", nil)
	}
	if h.First > next {
		return &journal.CorruptError{Stream: v.st.name, Seq: next, What: fmt.Sprintf("record missing: seq %d comes next", h.First)}
	}
	*rec = journal.Record{Header: h, Meta: meta}
	return nil
}

// ReadBodies yields records with bodies, without metas.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		left := first
		if err := r.j.reading(ctx, func() error { return r.readBodies(ctx, &left, yield) }); err != nil {
			yield(nil, r.fail(err))
		}
	}
}

// readBodies takes from left what it has read.
func (r *reader) readBodies(ctx context.Context, left *[]uint64, yield func(*journal.Record, error) bool) error {
	if err := r.check(ctx); err != nil {
		return err
	}
	first := *left
	dead := make([]bool, len(first))
	v, err := r.view(kindBody, func(d *discards) {
		if len(d.runs)+len(d.done) > 0 {
			for i, seq := range first {
				dead[i] = d.hides(seq)
			}
		}
	})
	if err != nil || v == nil {
		return err
	}
	defer func() { _ = v.close() }() // its error came with the last step
	for i, seq := range first {
		if err := r.check(ctx); err != nil {
			return err
		}
		if dead[i] || seq == 0 || seq > v.head.end {
			continue
		}
		rec, err := v.body(seq)
		if err != nil {
			return err
		}
		*left = first[i+1:]
		if rec != nil && !yield(rec, nil) {
			return nil
		}
	}
	return nil
}

// body returns the record that begins at seq with its body, or nil if there is none.
func (v *view) body(seq uint64) (*journal.Record, error) {
	name := v.st.name
	prefix := seqKey(kindBody, v.st.no, seq)
	if !v.SeekGE(prefix) {
		if err := v.Error(); err != nil {
			return nil, v.e.readError(name, seq, "body cannot be read", err)
		}
		return nil, nil
	}
	if !bytes.HasPrefix(v.Key(), prefix) {
		return nil, nil
	}
	s, err := parseBodyKey(v.Key())
	if err != nil {
		return nil, v.e.readError(name, seq, "body", err)
	}
	val, err := v.ValueAndErr()
	if err != nil {
		return nil, v.e.readError(name, seq, "body cannot be read", err)
	}
	h, err := openBody(val, s, v.head.uid)
	if err != nil {
		return nil, v.e.readError(name, seq, "body", err)
	}
	return &journal.Record{Header: h, Body: [][]byte{bytes.Clone(val[journal.HeaderSize:])}}, nil
}

// openBody verifies the row of a body against its key and stream.
func openBody(v []byte, s span, uid journal.UID) (journal.Header, error) {
	h, err := journal.ParseHeader(v)
	switch {
	case err != nil:
		return h, err
	case h.First != s.first || h.Last() != s.last || h.UID != uid:
		return h, fmt.Errorf("another record is in its place: %w", journal.ErrCorrupt)
	}
	return h, h.VerifyBody(v[journal.HeaderSize:])
}

// ReadPart returns a copy of a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.fail(err)
	}
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	st := r.j.lookup(r.name)
	var data []byte
	err := journal.ErrNotFound
	if st != nil {
		err = r.j.reading(ctx, func() (err error) {
			data, err = r.readPart(st, name)
			return err
		})
	}
	if err != nil {
		return nil, r.fail(fmt.Errorf("part %q: %w", name, err))
	}
	return data, nil
}

func (r *reader) readPart(st *stream, name string) ([]byte, error) {
	e, err := r.j.use()
	if err != nil {
		return nil, err
	}
	defer e.leave()
	v, closer, err := e.db.Get(partKey(st.no, name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, journal.ErrNotFound
	}
	if err != nil {
		return nil, e.readError(r.name, 0, "cannot be read", err)
	}
	defer closer.Close()
	data, err := openPart(v)
	if err != nil {
		return nil, &journal.CorruptError{Stream: r.name, What: fmt.Sprintf("part %q", name), Err: err}
	}
	return append([]byte{}, data...), nil
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	var names []string
	err := r.j.reading(ctx, func() (err error) {
		names, err = r.listParts(prefix)
		return err
	})
	if err != nil {
		return nil, r.fail(err)
	}
	return names, nil
}

func (r *reader) listParts(prefix string) ([]string, error) {
	v, err := r.view(kindPart, nil)
	if err != nil || v == nil {
		return nil, err
	}
	defer func() { _ = v.close() }() // its error came with the last step
	var names []string
	for ok := v.SeekGE(partKey(v.st.no, prefix)); ok; ok = v.Next() {
		name := string(v.Key()[5:])
		if !strings.HasPrefix(name, prefix) {
			break
		}
		names = append(names, name)
	}
	if err := v.Error(); err != nil {
		return nil, v.e.readError(r.name, 0, "list parts", err)
	}
	return names, nil
}
