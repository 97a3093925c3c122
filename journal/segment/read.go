package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// reader reads a stream by name: a journal.Reader. It sees what was acknowledged, and nothing that is not on stable storage unless it
// was appended as Buffered.
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

// window is a piece of a segment that was read.
type window struct {
	seg *segment
	off int64
	buf []byte
}

// windowBytes is how much is read at once of small records.
const windowBytes = 32 << 10

// get returns n bytes of a pinned segment, valid until the next call.
func (w *window) get(fl *files, seg *segment, off int64, n int) ([]byte, error) {
	if w.seg == seg && off >= w.off && off+int64(n) <= w.off+int64(len(w.buf)) {
		return w.buf[off-w.off:][:n], nil
	}
	f, err := fl.handle(seg)
	if err != nil {
		return nil, fmt.Errorf("segment %s: %w", seg.name, err)
	}
	if want := max(n, windowBytes); cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf = w.buf[:max(n, windowBytes)]
	w.seg = nil
	got, err := f.ReadAt(w.buf, off)
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = &journal.CorruptError{What: fmt.Sprintf("file %s ends at byte %d", seg.name, off+int64(got))}
		}
		return nil, fmt.Errorf("segment %s: %w", seg.name, err)
	}
	w.seg, w.off, w.buf = seg, off, w.buf[:got]
	return w.buf[:n], nil
}

// openRecord verifies an entry that is to be the record of a slot, up to its meta.
func openRecord(b []byte, s *slot) (rec journal.Record, e entry, err error) {
	e, ok := parseEntry(b)
	if !ok || e.kind != entRecord || e.payload != s.meta || e.payload < journal.HeaderSize {
		return rec, e, fmt.Errorf("entry does not verify: %w", journal.ErrCorrupt)
	}
	pay := b[entryHeaderSize:][:e.payload]
	if journal.Checksum(pay) != e.payCRC {
		return rec, e, fmt.Errorf("checksum does not match: %w", journal.ErrCorrupt)
	}
	h, err := journal.ParseHeader(pay)
	if err != nil {
		return rec, e, err
	}
	if h.First != s.first || h.Last() != s.last() {
		return rec, e, fmt.Errorf("record of seqs %d…%d in its place: %w", h.First, h.Last(), journal.ErrCorrupt)
	}
	meta := pay[journal.HeaderSize:]
	return journal.Record{Header: h, Meta: meta}, e, h.VerifyMeta(meta)
}

// readEntry reads a record that is in a segment.
func (j *Journal) readEntry(seg *segment, s *slot, body bool) (*journal.Record, error) {
	n := s.entry()
	if body {
		n += int64(s.body)
	}
	b := make([]byte, n)
	if err := j.files.readAt(seg, b, s.off); err != nil {
		return nil, err
	}
	rec, e, err := openRecord(b, s)
	if err != nil {
		return nil, fmt.Errorf("file %s, byte %d: %w", seg.name, s.off, err)
	}
	if body {
		data := b[s.entry():]
		if e.body != s.body {
			return nil, fmt.Errorf("file %s, byte %d: entry does not verify: %w", seg.name, s.off, journal.ErrCorrupt)
		}
		if err := rec.VerifyBody(data); err != nil {
			return nil, fmt.Errorf("file %s, byte %d: %w", seg.name, s.off+s.entry(), err)
		}
		rec.Body = [][]byte{data}
	}
	return &rec, nil
}

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		m := metaReader{r: r, next: from, to: to, yield: yield}
		if err := m.run(ctx); err != nil {
			yield(nil, r.fail(err))
		}
	}
}

// metaReader is a run of ReadMeta.
type metaReader struct {
	r        *reader
	next, to uint64
	chain    journal.Chain
	yield    func(*journal.Record, error) bool
	stopped  bool
	w        window
	rec      journal.Record
	buf      [blockSlots]slot
}

func (m *metaReader) run(ctx context.Context) error {
	if err := m.r.check(ctx); err != nil {
		return err
	}
	st := m.r.j.lookup(m.r.name)
	if st == nil {
		return nil
	}
	for !m.stopped {
		more, err := m.block(ctx, st)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if m.stopped {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if d := st.damage; d != nil && m.to > st.acked.end && m.r.j.refuse() == nil {
		return &journal.CorruptError{Stream: st.name, Seq: st.acked.end + 1, What: d.What, Err: d}
	}
	return nil
}

// block yields the records of the block that holds next.
func (m *metaReader) block(ctx context.Context, st *stream) (more bool, err error) {
	st.mu.Lock()
	h := st.acked
	if m.next < h.low {
		m.next, m.chain = h.low, journal.Chain{} // discarded
	}
	end := min(m.to, h.end)
	if m.next > end {
		st.mu.Unlock()
		return false, nil
	}
	i := st.index.find(m.next)
	if i == len(st.index.blocks) {
		st.mu.Unlock()
		return false, &journal.CorruptError{Stream: st.name, Seq: m.next, What: "record missing"}
	}
	b := st.index.blocks[i]
	seg, slots := b.seg, b.slots(&m.buf)
	seg.pins.Add(1)
	st.mu.Unlock()
	defer seg.pins.Add(-1)
	m.w.seg = nil // what was read of it before may have been written since
	for k := range slots {
		s := &slots[k]
		if s.last() < m.next {
			continue
		}
		if s.first > end {
			return false, nil
		}
		if err := m.r.check(ctx); err != nil {
			return false, err
		}
		if err := m.record(seg, s, &h); err != nil {
			return false, err
		}
		m.next = s.last() + 1
		if !m.yield(&m.rec, nil) {
			m.stopped = true
			return false, nil
		}
	}
	return true, nil
}

// record reads and verifies a record.
func (m *metaReader) record(seg *segment, s *slot, h *head) error {
	corrupt := func(what string, err error) error {
		return &journal.CorruptError{Stream: m.r.name, Seq: max(m.next, s.first), What: what, Err: err}
	}
	if s.first > m.next {
		return &journal.CorruptError{Stream: m.r.name, Seq: m.next, What: fmt.Sprintf("record missing: seq %d comes next", s.first)}
	}
	b, err := m.w.get(m.r.j.files, seg, s.off, int(s.entry()))
	if err != nil {
		if errors.Is(err, journal.ErrCorrupt) || isNotExist(err) {
			return corrupt("meta cannot be read", err)
		}
		return err
	}
	rec, _, err := openRecord(b, s)
	switch {
	case errors.Is(err, journal.ErrNewerFormat):
		return err
	case err != nil:
		return corrupt(fmt.Sprintf("record does not verify (file %s, byte %d)", seg.name, s.off), err)
	case rec.UID != h.uid:
		return corrupt(fmt.Sprintf("record of stream uid %s in its place", rec.UID), nil)
	}
	if err := m.chain.Next(&rec.Header); err != nil {
		var ce *journal.CorruptError
		if errors.As(err, &ce) {
			return &journal.CorruptError{Stream: m.r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err}
		}
		return corrupt("record does not follow", err)
	}
	if rec.Last() == h.end && rec.CRC != h.endCRC {
		return corrupt("the stream's head was made for another last record", nil)
	}
	m.rec = rec
	return nil
}

// ReadBodies yields records with bodies, without metas.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		st := r.j.lookup(r.name)
		for _, seq := range first {
			if err := r.check(ctx); err != nil {
				yield(nil, r.fail(err))
				return
			}
			if st == nil {
				return
			}
			rec, err := r.body(st, seq)
			if err != nil {
				yield(nil, r.fail(err))
				return
			}
			if rec != nil && !yield(rec, nil) {
				return
			}
		}
	}
}

// body returns the record that begins at seq with its body, or nil if there is none.
func (r *reader) body(st *stream, seq uint64) (*journal.Record, error) {
	st.mu.Lock()
	uid := st.acked.uid
	seg, s, ok := st.index.get(seq)
	if !ok || !s.alive {
		st.mu.Unlock()
		return nil, nil
	}
	seg.pins.Add(1)
	st.mu.Unlock()
	defer seg.pins.Add(-1)
	rec, err := r.j.readEntry(seg, &s, true)
	if err == nil && rec.UID != uid {
		err = fmt.Errorf("record of stream uid %s in its place: %w", rec.UID, journal.ErrCorrupt)
	}
	switch {
	case err == nil:
		rec.Meta = nil
		return rec, nil
	case errors.Is(err, journal.ErrNewerFormat):
		return nil, err
	case errors.Is(err, journal.ErrCorrupt), isNotExist(err):
		return nil, &journal.CorruptError{Stream: r.name, Seq: seq, What: "body cannot be read", Err: err}
	}
	return nil, err
}

// ReadPart returns a copy of a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.fail(err)
	}
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	data, err := r.part(r.j.lookup(r.name), name)
	if err != nil {
		return nil, r.fail(fmt.Errorf("part %q: %w", name, err))
	}
	return data, nil
}

func (r *reader) part(st *stream, name string) ([]byte, error) {
	if st == nil {
		return nil, journal.ErrNotFound
	}
	st.mu.Lock()
	p, ok := st.parts[name]
	if !ok {
		st.mu.Unlock()
		return nil, journal.ErrNotFound
	}
	p.seg.pins.Add(1)
	st.mu.Unlock()
	defer p.seg.pins.Add(-1)
	data, err := r.j.readPart(name, &p)
	if err != nil && (errors.Is(err, journal.ErrCorrupt) || isNotExist(err)) {
		return nil, &journal.CorruptError{Stream: r.name, What: fmt.Sprintf("part %q", name), Err: err}
	}
	return data, err
}

// readPart reads a part that is in a segment.
func (j *Journal) readPart(name string, p *part) ([]byte, error) {
	b := make([]byte, p.bytes())
	if err := j.files.readAt(p.seg, b, p.off); err != nil {
		return nil, err
	}
	e, ok := parseEntry(b)
	at := entryHeaderSize + int64(p.payload)
	if !ok || e.kind != entPart || e.payload != p.payload || e.body != p.size ||
		journal.Checksum(b[entryHeaderSize:at]) != e.payCRC || journal.Checksum(b[at:]) != e.bodyCRC {
		return nil, fmt.Errorf("file %s, byte %d: checksum does not match: %w", p.seg.name, p.off, journal.ErrCorrupt)
	}
	c := cursor{b: b[entryHeaderSize:at]}
	if got := c.str(); got != name {
		return nil, fmt.Errorf("file %s, byte %d: part %q in its place: %w", p.seg.name, p.off, got, journal.ErrCorrupt)
	}
	return b[at:], nil
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if err := r.check(ctx); err != nil {
		return nil, r.fail(err)
	}
	st := r.j.lookup(r.name)
	if st == nil {
		return nil, nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	var names []string
	for name := range st.parts {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
