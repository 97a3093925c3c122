package hbase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// reader reads a stream by name.
type reader struct {
	*chain
	released atomic.Bool
}

var _ journal.Reader = (*reader)(nil)

func (r *reader) check(ctx context.Context) error {
	if r.released.Load() {
		return journal.ErrClosed
	}
	return r.j.pool.open(ctx)
}

func (r *reader) fail(err error) error { return fmt.Errorf("read stream %q: %w", r.name, err) }

// corrupt names the place of damage.
func (r *reader) corrupt(seq uint64, err error) error {
	var ce *journal.CorruptError
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return r.fail(err)
	case errors.As(err, &ce) && ce.Stream == "":
		return r.fail(&journal.CorruptError{Stream: r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err})
	case errors.As(err, &ce):
		return r.fail(err)
	}
	return r.fail(&journal.CorruptError{Stream: r.name, Seq: seq, What: "record does not verify", Err: err})
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	err := r.check(ctx)
	var e *entry
	if err == nil {
		e, err = r.last(ctx)
	}
	switch {
	case err != nil:
		return journal.Info{}, r.fail(err)
	case e == nil:
		return journal.Info{Name: r.name, Low: 1}, nil
	}
	return e.info(r.name), nil
}

// What one call reads at a time, in bytes, as far as the bucket's sums tell, and in records.
const (
	pageBytes   = 1 << 20
	pageMetas   = 512
	pageBodies  = 64
	bodiesBytes = 4 << 20
)

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		m := metaReader{reader: r, seq: max(from, 1), to: to}
		if m.seq > m.to {
			return
		}
		for {
			recs, err := m.page(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(recs) == 0 {
				return
			}
			for i := range recs {
				if !yield(&recs[i], nil) {
					return
				}
			}
		}
	}
}

// metaReader is one reading of metas.
type metaReader struct {
	*reader
	uid     journal.UID
	seq, to uint64 // what is still to be read
	end     uint64 // the stream's, when it was last looked at
	bucket  *entry // where seq is; nil before the first page
	chain   journal.Chain
}

// page returns the next records, none at the end.
func (m *metaReader) page(ctx context.Context) ([]journal.Record, error) {
	if err := m.check(ctx); err != nil {
		return nil, m.fail(err)
	}
	if m.bucket == nil {
		if more, err := m.look(ctx); !more {
			return nil, err
		}
	}
	for m.seq <= min(m.to, m.end) {
		if m.seq > m.bucket.end && m.bucket.closed {
			if err := m.locate(ctx); err != nil {
				return nil, err
			}
		}
		recs, err := m.read(ctx)
		if err != nil || len(recs) > 0 {
			return recs, err
		}
		// Nothing where something was: discarded meanwhile, or lost.
		seq := m.seq
		if more, err := m.look(ctx); !more {
			return nil, err
		}
		if m.seq == seq {
			return nil, m.corrupt(seq, &journal.CorruptError{Seq: seq, What: "record missing"})
		}
	}
	return nil, nil
}

// look reads the stream's state and finds the place to go on. more is false if there is nothing (any more).
func (m *metaReader) look(ctx context.Context) (more bool, err error) {
	e, err := m.last(ctx)
	if err != nil {
		return false, m.fail(err)
	}
	if e == nil || m.bucket != nil && e.uid != m.uid {
		return false, nil // dropped, perhaps made anew: what was being read is gone
	}
	m.uid, m.end = e.uid, e.end
	if m.seq < e.low {
		m.seq, m.chain = e.low, journal.Chain{}
	}
	if m.seq > min(m.to, m.end) {
		return false, nil
	}
	if m.seq >= e.first {
		m.bucket = e
		return true, nil
	}
	return true, m.locate(ctx)
}

func (m *metaReader) locate(ctx context.Context) error {
	e, err := m.at(ctx, m.seq)
	if err != nil {
		return m.fail(err)
	}
	if e == nil || e.end < m.seq {
		return m.corrupt(m.seq, &journal.CorruptError{Seq: m.seq, What: "bucket missing"})
	}
	m.bucket = e
	return nil
}

// read returns the records of the bucket from seq on that follow one another, none if there is a gap right at seq.
func (m *metaReader) read(ctx context.Context) ([]journal.Record, error) {
	b := m.bucket
	n := min(pageBytes/average(b.metaBytes, b.records)+1, pageMetas)
	if left := m.to - m.seq; left < n { // a record has one seq at least
		n = left + 1
	}
	g := newGet()
	g.StoreLimit = limit(int32(n))
	g.FilterString = columnsFrom(hex(m.seq))
	r, err := m.j.get(ctx, bucketRow(m.base, b.first), g, column{family: familyMetas})
	if err != nil {
		return nil, m.fail(err)
	}
	var recs []journal.Record
	for _, v := range r.cells {
		h, err := journal.ParseHeader(v.Value)
		if err != nil {
			return m.damaged(recs, err)
		}
		if h.First > m.seq {
			return recs, nil // the next page begins with the gap
		}
		if h.First > m.to {
			break
		}
		meta := v.Value[journal.HeaderSize:]
		if err = m.chain.Next(&h); err == nil {
			err = h.VerifyMeta(meta)
		}
		if err == nil && string(v.Qualifier) != hex(h.Last()) {
			err = fmt.Errorf("record of seqs %d…%d in the place of another: %w", h.First, h.Last(), journal.ErrCorrupt)
		}
		if err != nil {
			return m.damaged(recs, err)
		}
		recs = append(recs, journal.Record{Header: h, Meta: meta})
		m.seq = h.Last() + 1
	}
	return recs, nil
}

// damaged returns what was read before the damage, or the damage if nothing was.
func (m *metaReader) damaged(recs []journal.Record, err error) ([]journal.Record, error) {
	if len(recs) > 0 {
		m.chain = journal.Chain{} // the damaged record is read again, alone
		last := &recs[len(recs)-1]
		if nextErr := m.chain.Next(&last.Header); nextErr != nil {
			return nil, m.corrupt(m.seq, nextErr)
		}
		return recs, nil
	}
	return nil, m.corrupt(m.seq, err)
}

// ReadBodies yields records with bodies.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		if err := r.check(ctx); err != nil {
			yield(nil, r.fail(err))
			return
		}
		if len(first) == 0 {
			return
		}
		e, err := r.last(ctx)
		if err != nil {
			yield(nil, r.fail(err))
			return
		}
		if e == nil {
			return
		}
		n := min(pageBodies, len(first), int(bodiesBytes/average(e.bodyBytes, e.records))+1)
		for page := range slices.Chunk(first, n) {
			found, err := r.bodies(ctx, e, page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, seq := range page {
				raw, ok := found[seq]
				if !ok {
					continue
				}
				rec, err := r.body(e, seq, raw)
				if err != nil {
					yield(nil, r.corrupt(seq, err))
					return
				}
				if rec != nil && !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// body makes a record of a body's cell, nil if it is of another life of the stream.
func (r *reader) body(e *entry, seq uint64, raw []byte) (*journal.Record, error) {
	h, err := journal.ParseHeader(raw)
	if err != nil {
		return nil, err
	}
	if h.First != seq {
		return nil, fmt.Errorf("record of seqs %d…%d in the place of another: %w", h.First, h.Last(), journal.ErrCorrupt)
	}
	if h.UID != e.uid || e.dropped {
		return nil, nil
	}
	data := bytes.Clone(raw[journal.HeaderSize:]) // one may be asked for twice
	if err := h.VerifyBody(data); err != nil {
		return nil, err
	}
	return &journal.Record{Header: h, Body: [][]byte{data}}, nil
}

// bodies reads the cells of bodies by the first seqs of their records, those that are there.
func (r *reader) bodies(ctx context.Context, last *entry, first []uint64) (map[uint64][]byte, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	wanted := map[uint64][]string{} // prefixes of qualifiers, by bucket
	for _, seq := range first {
		if seq == 0 || seq > last.end {
			continue
		}
		e := last
		if seq < last.first {
			var err error
			if e, err = r.at(ctx, seq); err != nil {
				return nil, r.fail(err)
			}
		}
		if e != nil {
			wanted[e.first] = append(wanted[e.first], "'"+hex(seq)+"'")
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	gets := make([]*thrift2.TGet, 0, len(wanted))
	for bucket, prefixes := range wanted {
		slices.Sort(prefixes)
		prefixes = slices.Compact(prefixes) // the filter refuses to have one twice
		gets = append(gets, &thrift2.TGet{
			Row: []byte(bucketRow(r.base, bucket)), Columns: thriftColumns([]column{{family: familyBodies}}, noStamp),
			FilterString: []byte("MultipleColumnPrefixFilter (" + strings.Join(prefixes, ", ") + ")"),
		})
	}
	rows, err := r.j.getMany(ctx, gets)
	if err != nil {
		return nil, r.fail(err)
	}
	found := make(map[uint64][]byte, len(first))
	for _, row := range rows {
		for _, v := range row.ColumnValues {
			if s, ok := parseBody(v.Qualifier); ok {
				found[s.first] = v.Value
			}
		}
	}
	return found, nil
}
