package cassandra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// reader reads a stream by name: a journal.Reader.
type reader struct {
	j         *Journal
	name, key string
	released  atomic.Bool
}

var _ journal.Reader = (*reader)(nil)

// usable refuses reads by a hold that has ended.
func (r *reader) usable(ctx context.Context) error {
	if r.released.Load() {
		return journal.ErrClosed
	}
	return r.j.usable(ctx)
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	info, err := r.info(ctx)
	if err != nil {
		return journal.Info{}, failed("read the state of", r.name, r.j.ended(ctx, r.named(err)))
	}
	return info, nil
}

func (r *reader) info(ctx context.Context) (journal.Info, error) {
	if err := r.usable(ctx); err != nil {
		return journal.Info{}, err
	}
	h, err := r.j.readHead(ctx, r.key, true)
	switch {
	case err != nil:
		return journal.Info{}, err
	case !h.exists:
		return journal.Info{Name: r.name, Low: 1}, nil
	case h.dropped:
		return h.info(r.name, h.base), nil
	}
	b, err := r.j.newestPlace(ctx, r.key, &h)
	return h.info(r.name, b.place), err
}

// named adds the stream to the place of damage.
func (r *reader) named(err error) error {
	var ce *journal.CorruptError
	if errors.As(err, &ce) && ce.Stream == "" {
		return &journal.CorruptError{Stream: r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err}
	}
	return err
}

// metaPage is how many records are asked for at once.
const metaPage = 64

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		m := metaReader{reader: r, at: max(from, 1), to: min(to, math.MaxInt64-1), yield: yield}
		if err := m.run(ctx); err != nil && !m.stopped {
			yield(nil, failed("read", r.name, r.j.ended(ctx, r.named(err))))
		}
	}
}

// metaReader is one run of ReadMeta.
type metaReader struct {
	*reader
	at, to  uint64 // what is still to be read
	yield   func(*journal.Record, error) bool
	stopped bool

	uid   journal.UID
	chain journal.Chain
	rec   journal.Record
	// missed is where a record was missing at the last look. It is damage if it is missing again, and was not discarded meanwhile.
	missed uint64
}

// errMoved says that a bucket is not there any more.
var errMoved = errors.New("discarded meanwhile")

func (m *metaReader) run(ctx context.Context) error {
	for m.at <= m.to && !m.stopped {
		if err := m.usable(ctx); err != nil {
			return err
		}
		h, err := m.j.readHead(ctx, m.key, true)
		if err != nil || !h.exists || h.dropped {
			return err
		}
		if m.uid == (journal.UID{}) {
			m.uid = h.uid
		}
		if m.uid != h.uid {
			return nil // dropped and made anew: what was being read is gone
		}
		if m.at < h.low {
			m.at, m.chain = h.low, journal.Chain{}
		}
		start, found, err := m.bucketOf(ctx, &h)
		if err != nil || m.at > m.to {
			return err
		}
		if found {
			err = m.buckets(ctx, &h, start)
		} else {
			err = m.missing()
		}
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	return nil
}

// missing is the error for what is not there: perhaps it was discarded since the head of the stream was read.
func (m *metaReader) missing() error {
	if m.missed == m.at {
		return &journal.CorruptError{Seq: m.at, What: "record missing"}
	}
	m.missed = m.at
	return errMoved
}

// bucketOf finds the bucket that holds, or will hold, the next record.
func (m *metaReader) bucketOf(ctx context.Context, h *head) (uint64, bool, error) {
	if m.at > h.tail {
		return h.tail, true, nil
	}
	row, found, err := m.j.read(ctx, cqlBucketOf, m.key, int64(m.at-1))
	return row.seq("start"), found, err
}

// buckets reads from one bucket on, up to the end of the stream as it is when it gets there.
func (m *metaReader) buckets(ctx context.Context, h *head, start uint64) error {
	for {
		b, found, err := m.j.readBucket(ctx, m.key, start)
		if err != nil {
			return err
		}
		if !found {
			return m.noBucket(ctx, h, start)
		}
		if m.at <= b.end {
			if err := m.rows(ctx, &b); err != nil || m.stopped {
				return err
			}
		}
		if m.at > m.to || !b.closed {
			return nil
		}
		start = b.end
	}
}

// noBucket says what it means that a bucket is not there: it begins where the stream ends, or it was dropped.
func (m *metaReader) noBucket(ctx context.Context, h *head, start uint64) error {
	now, err := m.j.readHead(ctx, m.key, true)
	switch {
	case err != nil:
		return err
	case now.fence != h.fence && m.missed != m.at, now.low > m.at, now.tail != h.tail, now.dropped:
		m.missed = m.at
		return errMoved
	case start > now.tail, start == now.tail && start == now.base.end:
		return nil // not begun yet: the next append does that, or the Acquire under way
	}
	return m.missing()
}

// rows reads a bucket's records.
func (m *metaReader) rows(ctx context.Context, b *bucketHead) error {
	first := m.at
	row, found, err := m.j.read(ctx, cqlLastMeta, m.key, int64(b.start), int64(m.at))
	if err != nil {
		return err
	}
	if found {
		// The record that holds it may begin before. Its key is believed here, and verified when it is read.
		if hd, err := journal.ParseHeader(row.bytes("header")); err != nil || hd.Last() >= m.at {
			first = row.seq("seq")
		}
	}
	it := m.j.session.Query(cqlMetas, m.key, int64(b.start), int64(first), int64(min(b.end, m.to))).PageSize(metaPage).IterContext(ctx)
	defer it.Close() //nolint:errcheck // looked at below, where it matters
	var seq int64
	var header, meta []byte
	for it.Scan(&seq, &header, &meta) {
		if m.at > m.to {
			return nil
		}
		if uint64(seq) > m.at {
			return m.missing()
		}
		if err := m.next(uint64(seq), header, meta); err != nil || m.stopped {
			return err
		}
		if err := m.usable(ctx); err != nil {
			return err
		}
	}
	if err := it.Close(); err != nil {
		return m.j.o.rights(err)
	}
	if m.at <= min(b.end, m.to) {
		return m.missing()
	}
	return nil
}

// next verifies a record and yields it.
func (m *metaReader) next(seq uint64, header, meta []byte) error {
	damaged := func(err error) error {
		var ce *journal.CorruptError
		if errors.As(err, &ce) || errors.Is(err, journal.ErrNewerFormat) {
			return err
		}
		return &journal.CorruptError{Seq: seq, What: "record does not verify", Err: err}
	}
	hd, err := journal.ParseHeader(header)
	switch {
	case err != nil:
		return damaged(err)
	case hd.First != seq || hd.UID != m.uid:
		return &journal.CorruptError{Seq: seq, What: fmt.Sprintf("record of seq %d of stream uid %s in its place", hd.First, hd.UID)}
	}
	if err := m.chain.Next(&hd); err != nil {
		return damaged(err)
	}
	if err := hd.VerifyMeta(meta); err != nil {
		return damaged(err)
	}
	m.rec = journal.Record{Header: hd, Meta: append(m.rec.Meta[:0], meta...)}
	m.at = hd.Last() + 1
	m.stopped = !m.yield(&m.rec, nil)
	return nil
}

// bodiesAtOnce is how many bodies are asked for at once.
const bodiesAtOnce = 16

// ReadBodies yields records with bodies.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		for left := first; len(left) > 0; {
			n, recs, err := r.someBodies(ctx, left)
			for _, rec := range recs {
				if !yield(rec, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, failed("read bodies of", r.name, r.j.ended(ctx, r.named(err))))
				return
			}
			left = left[n:]
		}
	}
}

// someBodies reads those of the first n bodies that are alive. n is at least 1: as many as are in the bucket of the first. With an error
// come those before what is damaged.
func (r *reader) someBodies(ctx context.Context, first []uint64) (n int, recs []*journal.Record, err error) {
	if err := r.usable(ctx); err != nil {
		return 0, nil, err
	}
	if first[0] == 0 || first[0] > math.MaxInt64-1 {
		return 1, nil, nil
	}
	// The mark is read before the bodies: what it leaves is alive, unless it is discarded meanwhile.
	row, found, err := r.j.read(ctx, cqlBucketOf, r.key, int64(first[0]-1))
	if err != nil || !found || row.bool("dropped") || row.seq("start") < row.seq("base_end") {
		return 1, nil, err
	}
	gone, all, err := decodeGone(row.bytes("gone"))
	if err != nil || all {
		return 1, nil, err
	}
	start := row.seq("start")
	b, found, err := r.j.read(ctx, cqlBucket, r.key, int64(start))
	if err != nil || !found {
		return 1, nil, err
	}
	var ask []int64
	for n < len(first) && n < bodiesAtOnce && first[n] > start && first[n] <= b.seq("end_seq") {
		if !gone.has(first[n]) {
			ask = append(ask, int64(first[n]))
		}
		n++
	}
	if len(ask) == 0 {
		return max(n, 1), nil, nil
	}
	got, err := r.bodyRows(ctx, start, ask)
	if err != nil {
		return 0, nil, err
	}
	for _, seq := range ask {
		row, ok := got[seq]
		if !ok {
			continue // it never had one, or there is no such record
		}
		rec, err := r.body(ctx, start, seq, row)
		if err != nil {
			return 0, recs, err
		}
		if rec != nil {
			recs = append(recs, rec)
		}
	}
	return n, recs, nil
}

// storedBody is a row of a body: without data if that is in a table of its own.
type storedBody struct{ header, data []byte }

func (r *reader) bodyRows(ctx context.Context, start uint64, ask []int64) (map[int64]storedBody, error) {
	got := map[int64]storedBody{}
	it := r.j.session.Query(cqlBodies, r.key, int64(start), ask).IterContext(ctx)
	for {
		var seq int64
		var b storedBody
		if !it.Scan(&seq, &b.header, &b.data) {
			break
		}
		got[seq] = b
	}
	if err := it.Close(); err != nil {
		return nil, r.j.o.rights(err)
	}
	return got, nil
}

// body verifies a body, and reads it before if it is in a table of its own. It returns nil for one that was discarded meanwhile.
func (r *reader) body(ctx context.Context, start uint64, seq int64, b storedBody) (*journal.Record, error) {
	damaged := func(err error) error {
		if errors.Is(err, journal.ErrNewerFormat) {
			return err
		}
		return &journal.CorruptError{Stream: r.name, Seq: uint64(seq), What: "body does not verify", Err: err}
	}
	hd, err := journal.ParseHeader(b.header)
	if err != nil {
		return nil, damaged(err)
	}
	if hd.First != uint64(seq) {
		return nil, damaged(fmt.Errorf("header of seq %d: %w", hd.First, journal.ErrCorrupt))
	}
	data := b.data
	if len(data) == 0 {
		row, found, err := r.j.read(ctx, cqlBig, r.key, int64(start), seq, int64(hd.Epoch), int64(hd.CRC))
		if err != nil {
			return nil, err
		}
		if !found {
			gone, err := r.isGone(ctx, uint64(seq))
			if err != nil || gone {
				return nil, err
			}
			return nil, damaged(errors.New("body missing"))
		}
		data = row.bytes("data")
	}
	if err := hd.VerifyBody(data); err != nil {
		return nil, damaged(err)
	}
	return &journal.Record{Header: hd, Body: [][]byte{bytes.Clone(data)}}, nil
}

// isGone tells whether a body is discarded by now.
func (r *reader) isGone(ctx context.Context, seq uint64) (bool, error) {
	row, found, err := r.j.read(ctx, cqlBucketOf, r.key, int64(seq-1))
	if err != nil || !found || row.bool("dropped") {
		return true, err
	}
	gone, all, err := decodeGone(row.bytes("gone"))
	if err != nil {
		return false, err
	}
	return all || gone.has(seq) || row.seq("start") < row.seq("base_end"), nil
}
