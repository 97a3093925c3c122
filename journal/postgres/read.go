package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

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
	if r.released.Load() || r.j.life.Err() != nil {
		return journal.ErrClosed
	}
	return ctx.Err()
}

func (r *reader) readError(err error) error { return fmt.Errorf("read stream %q: %w", r.name, err) }

// state reads the stream's state.
func (r *reader) state(ctx context.Context) (state, error) {
	if err := r.check(ctx); err != nil {
		return state{}, err
	}
	var s state
	err := r.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		s, err = readState(ctx, tx, r.name)
		return err
	})
	return s, err
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	s, err := r.state(ctx)
	if err != nil {
		return journal.Info{}, r.readError(err)
	}
	return s.info, nil
}

// What one request of a reader takes at most: so many rows, and so many bytes beyond the first row's.
const (
	readRows  = 512
	readBytes = 1 << 20
)

// row is a row of a range table.
type row struct {
	first uint64
	data  []byte // header and part
}

// ReadMeta yields records without bodies, a request for each readBytes of them.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		s, err := r.state(ctx)
		if err != nil {
			yield(nil, r.readError(err))
			return
		}
		if s.info.Dropped {
			return
		}
		m := metas{r: r, life: s.life, uid: s.info.UID, next: max(from, s.info.Low), to: min(to, s.info.End)}
		for m.next <= m.to {
			goOn, err := m.step(ctx, yield)
			if err != nil && !errors.Is(err, errDropped) {
				yield(nil, r.readError(err))
				return
			}
			if !goOn || err != nil {
				return
			}
		}
	}
}

// metas is a reading of metas.
type metas struct {
	r        *reader
	life     int64
	uid      journal.UID
	next, to uint64
	chain    journal.Chain
	rec      journal.Record
}

// step makes one request and yields what it has brought. It tells whether the caller wants more.
func (m *metas) step(ctx context.Context, yield func(*journal.Record, error) bool) (bool, error) {
	rows, err := m.fetch(ctx)
	if err == nil {
		err = m.r.check(ctx)
	}
	from := m.next
	for i := 0; err == nil && i < len(rows); i++ {
		var rec *journal.Record
		if rec, err = m.take(&rows[i]); err == nil && rec != nil && !yield(rec, nil) {
			return false, nil
		}
	}
	if errors.Is(err, errHole) || err == nil && m.next == from {
		err = m.missing(ctx)
	}
	return true, err
}

// fetch returns rows from the one on that holds next.
func (m *metas) fetch(ctx context.Context) (rows []row, err error) {
	err = m.r.j.reading(ctx, func(ctx context.Context) error {
		rows = nil
		x, ok, err := findExtent(ctx, m.r.j.pool, m.life, kindRecord, m.next)
		if err != nil || !ok {
			return err
		}
		to := m.to
		if x.next > 0 {
			to = min(to, x.next-1)
		}
		table := tableName(kindRecord, x.no)
		found, err := m.r.j.pool.Query(ctx, `
			SELECT first, data FROM (
				SELECT first, data, sum(octet_length(data)) OVER (ORDER BY first) - octet_length(data) AS before FROM (
					SELECT first, data FROM `+table+` WHERE stream = $1 AND first <= $3 AND first >= COALESCE(
						(SELECT first FROM `+table+` WHERE stream = $1 AND first <= $2 ORDER BY stream DESC, first DESC LIMIT 1), $2)
					ORDER BY stream, first LIMIT $4) a) b
			WHERE before < $5 ORDER BY first`, m.life, number(m.next), number(to), readRows, readBytes)
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(row_ pgx.CollectableRow) (x row, err error) {
			err = row_.Scan(&x.first, &x.data)
			return x, err
		})
		return err
	})
	return rows, err
}

// take verifies a row. The record is nil if it ends before next.
func (m *metas) take(x *row) (*journal.Record, error) {
	h, err := journal.ParseHeader(x.data)
	corrupt := func(what string, err error) error {
		return &journal.CorruptError{Stream: m.r.name, Seq: m.next, What: what, Err: err}
	}
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return nil, err
	case err != nil:
		return nil, corrupt("record does not verify", err)
	case h.First != x.first:
		return nil, corrupt(fmt.Sprintf("record of seq %d in the place of seq %d", h.First, x.first), nil)
	case h.UID != m.uid:
		return nil, corrupt(fmt.Sprintf("record of stream uid %s in its place", h.UID), nil)
	case h.Last() < m.next:
		return nil, nil
	case h.First > m.next:
		return nil, errHole
	}
	if err := m.chain.Next(&h); err != nil {
		var ce *journal.CorruptError
		if errors.As(err, &ce) {
			return nil, &journal.CorruptError{Stream: m.r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err}
		}
		return nil, corrupt("record does not follow", err)
	}
	meta := x.data[journal.HeaderSize:]
	if err := h.VerifyMeta(meta); err != nil {
		return nil, corrupt("record does not verify", err)
	}
	m.rec = journal.Record{Header: h, Meta: meta}
	m.next = h.Last() + 1
	return &m.rec, nil
}

// errHole says that a row comes next which is behind the one that should.
var errHole = errors.New("hole")

// errDropped says that the stream that was being read is no more.
var errDropped = errors.New("dropped")

// missing decides what it means that no row holds next: it was discarded meanwhile, or it is lost.
func (m *metas) missing(ctx context.Context) error {
	s, err := m.r.state(ctx)
	switch {
	case err != nil:
		return err
	case s.life != m.life || s.info.Dropped:
		return errDropped
	case m.next < s.info.Low:
		m.next, m.chain = s.info.Low, journal.Chain{}
		return nil
	}
	return &journal.CorruptError{Stream: m.r.name, Seq: m.next, What: "record missing"}
}

// ReadBodies yields records with bodies, without metas.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for left := first; len(left) > 0; {
			rows, n, err := r.fetchBodies(ctx, left)
			for i := 0; err == nil && i < len(rows); i++ {
				var rec *journal.Record
				if rec, err = r.body(&rows[i]); err == nil && !yield(rec, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, r.readError(err))
				return
			}
			left = left[n:]
		}
	}
}

// body verifies a row of a body.
func (r *reader) body(x *row) (*journal.Record, error) {
	h, err := journal.ParseHeader(x.data)
	if errors.Is(err, journal.ErrNewerFormat) {
		return nil, err
	}
	if err == nil && h.First != x.first {
		err = fmt.Errorf("record of seq %d in its place: %w", h.First, journal.ErrCorrupt)
	}
	var data []byte
	if err == nil {
		data = x.data[journal.HeaderSize:]
		err = h.VerifyBody(data)
	}
	if err != nil {
		return nil, &journal.CorruptError{Stream: r.name, Seq: x.first, What: "body does not verify", Err: err}
	}
	return &journal.Record{Header: h, Body: [][]byte{data}}, nil
}

// fetchBodies returns the rows of the first n of the given seqs, those that are there, in order.
func (r *reader) fetchBodies(ctx context.Context, first []uint64) (rows []row, n int, err error) {
	if err := r.check(ctx); err != nil {
		return nil, 0, err
	}
	err = r.j.reading(ctx, func(ctx context.Context) error {
		rows, n = nil, min(len(first), readRows)
		seqs := make([]int64, n)
		for i := range n {
			seqs[i] = number(first[i])
		}
		// Each seq's table first, and then runs of seqs that share one.
		found, err := r.j.pool.Query(ctx, `
			SELECT s.life, COALESCE((SELECT no FROM extent e WHERE e.life = s.life AND e.kind = 2 AND e.first <= q.seq
				ORDER BY e.life DESC, e.kind DESC, e.first DESC LIMIT 1), 0)
			FROM stream s, unnest($2::bigint[]) WITH ORDINALITY AS q(seq, ord) WHERE s.name = $1 AND NOT s.dropped ORDER BY q.ord`, r.name, seqs)
		if err != nil {
			return err
		}
		type at struct{ life, no int64 }
		places, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (p at, err error) {
			err = row.Scan(&p.life, &p.no)
			return p, err
		})
		if err != nil || len(places) == 0 {
			return err
		}
		bytes := 0
		for i := 0; i < len(places); {
			k := i + 1
			for k < len(places) && places[k] == places[i] {
				k++
			}
			if places[i].no == 0 {
				i = k
				continue
			}
			got, cut, err := r.fetchRun(ctx, places[i].life, places[i].no, seqs[i:k], readBytes-bytes)
			if err != nil {
				return err
			}
			for _, x := range got {
				bytes += len(x.data)
			}
			rows = append(rows, got...)
			if i += cut; i < k || bytes >= readBytes {
				n = i
				return nil
			}
		}
		return nil
	})
	return rows, n, err
}

// fetchRun returns rows of one table, and how many of the seqs it has got to before they were more than budget.
func (r *reader) fetchRun(ctx context.Context, life, no int64, seqs []int64, budget int) ([]row, int, error) {
	found, err := r.j.pool.Query(ctx, `
		SELECT ord, first, CASE WHEN before < $3 THEN data END FROM (
			SELECT q.ord, b.first, b.data, sum(octet_length(b.data)) OVER (ORDER BY q.ord) - octet_length(b.data) AS before
			FROM unnest($2::bigint[]) WITH ORDINALITY AS q(seq, ord) JOIN `+tableName(kindBody, no)+` b ON b.stream = $1 AND b.first = q.seq) a
		ORDER BY ord`, life, seqs, max(budget, 1))
	if err != nil {
		return nil, 0, err
	}
	cut := len(seqs)
	var rows []row
	var ord int
	var x row
	_, err = pgx.ForEachRow(found, []any{&ord, &x.first, &x.data}, func() error {
		if x.data != nil {
			rows = append(rows, x)
		} else if cut == len(seqs) {
			cut = ord - 1
		}
		x.data = nil
		return nil
	})
	return rows, cut, err
}

// sealPart puts a checksum before the data of a part.
func sealPart(data []byte) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(data)), journal.Checksum(data))
	return append(b, data...)
}

// openPart verifies what sealPart has made.
func openPart(b []byte) ([]byte, error) {
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != journal.Checksum(b[4:]) {
		return nil, fmt.Errorf("checksum does not match: %w", journal.ErrCorrupt)
	}
	return b[4:], nil
}

// ReadPart returns a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.readError(err)
	}
	if err := r.check(ctx); err != nil {
		return nil, r.readError(err)
	}
	var data []byte
	err := r.j.reading(ctx, func(ctx context.Context) error {
		var life, no, id int64
		err := r.j.pool.QueryRow(ctx, "SELECT p.life, p.no, p.id FROM stream s JOIN part p ON p.life = s.life WHERE s.name = $1 AND NOT s.dropped AND p.name = $2",
			r.name, name).Scan(&life, &no, &id)
		if errors.Is(err, pgx.ErrNoRows) {
			return journal.ErrNotFound
		}
		if err != nil {
			return err
		}
		err = r.j.pool.QueryRow(ctx, "SELECT data FROM "+tableName(kindBody, no)+" WHERE stream = $1 AND first = $2", life, -id).Scan(&data)
		if errors.Is(err, pgx.ErrNoRows) {
			return &journal.CorruptError{Stream: r.name, What: fmt.Sprintf("part %q: its data is missing", name)}
		}
		return err
	})
	if err == nil {
		if data, err = openPart(data); err != nil {
			err = &journal.CorruptError{Stream: r.name, What: fmt.Sprintf("part %q", name), Err: err}
		}
	}
	if err != nil {
		return nil, r.readError(fmt.Errorf("part %q: %w", name, err))
	}
	return data, nil
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.readError(err)
	}
	var names []string
	err := r.j.reading(ctx, func(ctx context.Context) error {
		rows, err := r.j.pool.Query(ctx, `SELECT p.name FROM stream s JOIN part p ON p.life = s.life
			WHERE s.name = $1 AND NOT s.dropped AND p.name >= $2 AND starts_with(p.name, $2) ORDER BY p.name`, r.name, prefix)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return nil, r.readError(err)
	}
	return names, nil
}
