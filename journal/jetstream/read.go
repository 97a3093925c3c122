package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// reader reads a stream by name: a journal.Reader.
type reader struct {
	j        *Journal
	name     string
	released atomic.Bool
}

var _ journal.Reader = (*reader)(nil)

func (r *reader) check() error {
	if r.released.Load() {
		return journal.ErrClosed
	}
	return nil
}

func (r *reader) begin(ctx context.Context) (context.Context, func(error) error, error) {
	if err := r.check(); err != nil {
		return nil, nil, r.readError(err)
	}
	ctx, end, err := r.j.begin(ctx)
	if err != nil {
		return nil, nil, r.readError(err)
	}
	return ctx, func(err error) error {
		if err = end(err); err != nil {
			return r.readError(err)
		}
		return nil
	}, nil
}

func (r *reader) readError(err error) error {
	return fmt.Errorf("read stream %q: %w", r.name, err)
}

// Info returns the stream's state.
func (r *reader) Info(ctx context.Context) (journal.Info, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return journal.Info{}, err
	}
	h, err := r.j.head(ctx, r.name, true)
	if err == nil {
		err = h.broken
	}
	if err = end(err); err != nil {
		return journal.Info{}, err
	}
	return h.info(r.name), nil
}

const (
	fetchRecords = 256     // at most that many records are asked for at once,
	fetchBytes   = 1 << 20 // and about that many bytes
	fetchBodies  = 16
)

// ReadMeta yields records without bodies.
func (r *reader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		ctx, end, err := r.begin(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		stopped := false
		err = r.readMeta(ctx, from, to, func(rec *journal.Record) bool {
			stopped = !yield(rec, nil)
			return !stopped
		})
		if err = end(err); err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// scan is the state of a ReadMeta.
type scan struct {
	r        *reader
	h        *head
	next, to uint64 // the seqs that are still to be read
	at       uint64 // the message to go on with
	chain    journal.Chain
	rec      journal.Record
}

func (r *reader) readMeta(ctx context.Context, from, to uint64, yield func(*journal.Record) bool) error {
	if from > to {
		return nil
	}
	h, err := r.j.head(ctx, r.name, true)
	if err != nil {
		return err
	}
	s := &scan{r: r, h: h, next: max(from, h.low, 1), to: min(to, h.tip.end)}
	if h.broken != nil {
		s.to = to // it ends nowhere but at the damage
	}
	if h.ctl == nil || h.ctl.Dropped || s.next > s.to {
		return nil
	}
	if s.at, err = r.search(ctx, h, s.next); err != nil {
		return err
	}
	for lagging := 0; s.next <= s.to; {
		was := s.at
		stop, err := s.step(ctx, yield)
		if stop || err != nil {
			return err
		}
		if s.at > was {
			lagging = 0
			continue
		}
		// The server that answered has no more: it lags behind, or the rest was discarded meanwhile.
		if lagging++; lagging > 1 {
			if stop, err := s.again(ctx); stop || err != nil {
				return err
			}
			if lagging > 20 {
				return s.missing()
			}
			if !pause(ctx, time.Duration(lagging)*5*time.Millisecond) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// step fetches some messages and yields what is in them. It tells whether reading has ended.
func (s *scan) step(ctx context.Context, yield func(*journal.Record) bool) (stop bool, _ error) {
	var got []stored
	_, err := s.r.j.c.fetch(ctx, getRequest{Seq: s.at, Next: s.r.j.names.records(s.r.name), Batch: fetchRecords, MaxBytes: fetchBytes},
		func(m stored) bool { got = append(got, m); return true })
	if err != nil && len(got) == 0 {
		if ctx.Err() != nil || !errors.Is(err, errNoAnswer) {
			return true, err
		}
		return false, nil // as if it lagged behind
	}
	for i := range got {
		m := &got[i]
		if m.seq > s.h.tip.seq || s.next > s.to {
			break
		}
		if isMark(m.data) {
			s.at = m.seq + 1
			continue
		}
		hdr, err := journal.ParseHeader(m.data)
		if err != nil {
			return s.bad(ctx, err)
		}
		if hdr.Last() < s.next {
			s.at = m.seq + 1
			continue
		}
		if hdr.First > s.next && s.chain == (journal.Chain{}) || hdr.UID != s.h.uid {
			return s.bad(ctx, &journal.CorruptError{Seq: s.next, What: "record missing"})
		}
		if err := s.chain.Next(&hdr); err != nil {
			return s.bad(ctx, err)
		}
		meta := m.data[journal.HeaderSize:]
		if err := hdr.VerifyMeta(meta); err != nil {
			return s.bad(ctx, err)
		}
		s.rec = journal.Record{Header: hdr, Meta: append(s.rec.Meta[:0], meta...)}
		s.next, s.at = hdr.Last()+1, m.seq+1
		if !yield(&s.rec) {
			return true, nil
		}
	}
	return false, nil
}

// bad returns what is wrong at s.next, unless it was discarded meanwhile.
func (s *scan) bad(ctx context.Context, err error) (stop bool, _ error) {
	was := s.next
	if stop, err := s.again(ctx); stop || err != nil || s.next > was {
		return stop, err
	}
	if errors.Is(err, journal.ErrNewerFormat) {
		return true, fmt.Errorf("record at seq %d: %w", s.next, err)
	}
	var ce *journal.CorruptError
	if errors.As(err, &ce) {
		return true, &journal.CorruptError{Stream: s.r.name, Seq: ce.Seq, What: ce.What, Err: ce.Err}
	}
	return true, &journal.CorruptError{Stream: s.r.name, Seq: s.next, What: "record does not verify", Err: err}
}

func (s *scan) missing() error {
	return &journal.CorruptError{Stream: s.r.name, Seq: s.next, What: "record missing"}
}

// again looks whether what is being read was discarded meanwhile, and goes on behind that.
func (s *scan) again(ctx context.Context) (stop bool, _ error) {
	h, err := s.r.j.head(ctx, s.r.name, true)
	if err != nil {
		return true, err
	}
	if h.ctl == nil || h.ctl.Dropped || h.uid != s.h.uid {
		return true, nil // dropped: what was being read is gone
	}
	s.h = h
	if h.low > s.next {
		s.next, s.chain = h.low, journal.Chain{}
		s.at, err = s.r.search(ctx, h, s.next)
		return s.next > s.to, err
	}
	return false, nil
}

// search returns a message of the record subject to begin with, so that the record that holds seq is there or
// soon behind. It asks for single messages, as in a binary search.
func (r *reader) search(ctx context.Context, h *head, seq uint64) (uint64, error) {
	lo, hi := max(h.ctl.LowAt, 1), h.tip.seq
	for hi > lo+64 {
		mid := lo + (hi-lo)/2
		m, err := r.j.c.get(ctx, getRequest{Seq: mid, Next: r.j.names.records(r.name)})
		if err != nil {
			return 0, err
		}
		if m == nil || m.seq >= hi {
			hi = mid
			continue
		}
		t, err := parseTip(m)
		if err != nil {
			return lo, nil //nolint:nilerr // damaged: whoever reads up to it in order tells
		}
		switch {
		case t.rec != nil && t.rec.First <= seq && seq <= t.end:
			return m.seq, nil
		case t.end < seq:
			lo = m.seq
		default:
			hi = mid
		}
	}
	return lo, nil
}

// find returns the record that holds seq, which is kept, and its message.
func (r *reader) find(ctx context.Context, h *head, seq uint64) (uint64, *journal.Header, error) {
	at, err := r.search(ctx, h, seq)
	if err != nil {
		return 0, nil, err
	}
	for {
		m, err := r.j.c.get(ctx, getRequest{Seq: at, Next: r.j.names.records(r.name)})
		if err != nil {
			return 0, nil, err
		}
		if m == nil {
			return 0, nil, &journal.CorruptError{Stream: r.name, Seq: seq, What: "record missing"}
		}
		at = m.seq + 1
		t, err := parseTip(m)
		if err != nil {
			return 0, nil, &journal.CorruptError{Stream: r.name, Seq: seq, What: "record does not verify", Err: err}
		}
		if t.rec == nil || t.end < seq {
			continue
		}
		if t.rec.First > seq {
			return 0, nil, &journal.CorruptError{Stream: r.name, Seq: seq, What: "record missing"}
		}
		return m.seq, t.rec, nil
	}
}

// recordAt returns the header of the record at first, or nil if none begins there or it is discarded.
func (r *reader) recordAt(ctx context.Context, h *head, first uint64) (*journal.Header, error) {
	if first < h.low || first > h.tip.end {
		return nil, nil
	}
	_, rec, err := r.find(ctx, h, first)
	if err != nil || rec.First != first {
		return nil, err
	}
	return rec, nil
}

// ReadBodies yields records with bodies, without metas.
func (r *reader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	return func(yield func(*journal.Record, error) bool) {
		ctx, end, err := r.begin(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		stopped := false
		err = r.readBodies(ctx, first, func(rec *journal.Record) bool {
			stopped = !yield(rec, nil)
			return !stopped
		})
		if err = end(err); err != nil && !stopped {
			yield(nil, err)
		}
	}
}

func (r *reader) readBodies(ctx context.Context, first []uint64, yield func(*journal.Record) bool) error {
	if len(first) == 0 {
		return nil
	}
	h, err := r.j.head(ctx, r.name, false)
	if err != nil {
		return err
	}
	linear := r.j.replicas == 1
	for chunk := range slices.Chunk(first, fetchBodies) {
		got, err := r.bodies(ctx, 0, h, chunk)
		if err != nil {
			return err
		}
		if !linear && slices.ContainsFunc(chunk, func(f uint64) bool { return got[f] == nil }) {
			// One that is missing may be so only where it was looked for.
			at, err := r.j.confirm(ctx)
			if err != nil {
				return err
			}
			if h, err = r.j.head(ctx, r.name, true); err != nil {
				return err
			}
			if got, err = r.bodies(ctx, at, h, chunk); err != nil {
				return err
			}
		}
		for _, f := range chunk {
			m := got[f]
			if m == nil {
				continue
			}
			rec, err := r.verifyBody(m, f)
			if err != nil {
				return err
			}
			if twice := len(chunk) != len(got); twice {
				got[f] = &stored{m.subject, m.seq, slices.Clone(m.data)}
			}
			if !yield(rec) {
				return nil
			}
		}
	}
	return nil
}

// bodies reads the messages with the bodies of the records at first that are not discarded.
func (r *reader) bodies(ctx context.Context, at uint64, h *head, first []uint64) (map[uint64]*stored, error) {
	got := map[uint64]*stored{}
	if h.ctl == nil || h.ctl.Dropped {
		return got, nil
	}
	var subjects []string
	for _, f := range first {
		if s := r.j.names.bodyAt(r.name, f); f > 0 && !slices.Contains(subjects, s) {
			subjects = append(subjects, s)
		}
	}
	if len(subjects) == 0 {
		return got, nil
	}
	msgs, err := r.j.last(ctx, at, subjects...)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		m := &msgs[i]
		b, ok := parseBody(m.subject)
		if !ok || h.ctl.bodyGone(b.first, m.seq) || b.first > h.tip.end && h.broken == nil {
			continue
		}
		if other := got[b.first]; other != nil {
			// One of them was never acknowledged.
			rec, err := r.recordAt(ctx, h, b.first)
			if err != nil {
				return nil, err
			}
			switch {
			case rec != nil && other.subject == r.j.names.body(r.name, rec):
				continue
			case rec != nil && m.subject != r.j.names.body(r.name, rec), rec == nil && other.seq > m.seq:
				continue
			}
		}
		got[b.first] = m
	}
	return got, nil
}

// verifyBody takes a message with a body apart.
func (r *reader) verifyBody(m *stored, first uint64) (*journal.Record, error) {
	hdr, err := journal.ParseHeader(m.data)
	if errors.Is(err, journal.ErrNewerFormat) {
		return nil, fmt.Errorf("body of the record at seq %d: %w", first, err)
	}
	if err == nil {
		err = hdr.VerifyBody(m.data[journal.HeaderSize:])
	}
	if err == nil && hdr.First != first {
		err = fmt.Errorf("it is that of seq %d", hdr.First)
	}
	if err != nil {
		return nil, &journal.CorruptError{Stream: r.name, Seq: first, What: "body does not verify", Err: err}
	}
	return &journal.Record{Header: hdr, Body: [][]byte{m.data[journal.HeaderSize:]}}, nil
}
