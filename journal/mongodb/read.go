package mongodb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// fetchBodies is how many bodies are asked for at once.
const fetchBodies = 16

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
	if h.ctl == nil || h.ctl.Dropped {
		return nil
	}
	for again := 0; s.next <= s.to; {
		was := s.next
		stop, err := s.step(ctx, yield)
		if stop || err != nil {
			return err
		}
		if s.next > was {
			again = 0
			continue
		}
		// There is no more: the server that answered lags behind, or the rest was discarded meanwhile.
		if again++; again > 5 {
			return &journal.CorruptError{Stream: r.name, Seq: s.next, What: "record missing"}
		}
		if stop, err := s.again(ctx); stop || err != nil {
			return err
		}
		if !pause(ctx, time.Duration(again)*5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// holding matches the records that begin at seq or before; the last of them holds it.
func (r *reader) holding(seq uint64) bson.D {
	return bson.D{{Key: "s", Value: r.name}, {Key: "f", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lte", Value: int64(min(seq, math.MaxInt64))}}}}
}

func lastFirst() *options.FindOneOptionsBuilder {
	return options.FindOne().SetSort(bson.D{{Key: "f", Value: -1}})
}

// step reads on from s.next, and yields what it finds. It tells whether reading has ended.
func (s *scan) step(ctx context.Context, yield func(*journal.Record) bool) (stop bool, _ error) {
	j := s.r.j
	var d recordDoc
	first := int64(s.next)
	found, err := j.findOne(ctx, j.records, s.r.holding(s.next), &d, lastFirst().SetProjection(noParts))
	if err != nil {
		return true, err
	}
	if found && uint64(d.Last) >= s.next {
		first = d.First
	}
	to := int64(min(s.to, math.MaxInt64))
	cur, err := j.records.Find(ctx, bson.D{{Key: "s", Value: s.r.name}, {Key: "f", Value: bson.D{{Key: "$gte", Value: first}, {Key: "$lte", Value: to}}}},
		options.Find().SetSort(bson.D{{Key: "f", Value: 1}}).SetProjection(bson.D{{Key: "b", Value: 0}}).SetBatchSize(256))
	if err != nil {
		return s.failed(ctx, err)
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.timeout)
		defer cancel()
		_ = cur.Close(cctx) // the server forgets it by itself, too
	}()
	for s.next <= s.to && cur.Next(ctx) {
		d = recordDoc{}
		if err := cur.Decode(&d); err != nil {
			return s.bad(ctx, err)
		}
		hdr, err := journal.ParseHeader(d.Header)
		if err != nil {
			return s.bad(ctx, err)
		}
		if hdr.First > s.next && s.chain == (journal.Chain{}) || hdr.UID != s.h.uid {
			return s.bad(ctx, &journal.CorruptError{Seq: s.next, What: "record missing"})
		}
		if hdr.Last() < s.next {
			continue
		}
		if err := s.chain.Next(&hdr); err != nil {
			return s.bad(ctx, err)
		}
		if err := hdr.VerifyMeta(d.Meta); err != nil {
			return s.bad(ctx, err)
		}
		s.rec = journal.Record{Header: hdr, Meta: append(s.rec.Meta[:0], d.Meta...)}
		s.next = hdr.Last() + 1
		if !yield(&s.rec) {
			return true, nil
		}
	}
	if err := cur.Err(); err != nil {
		return s.failed(ctx, err)
	}
	return false, nil
}

// failed is for errors of the connection: reading goes on where it was, a few times.
func (s *scan) failed(ctx context.Context, err error) (stop bool, _ error) {
	if ctx.Err() != nil {
		return true, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
	if err = classify(err); !errors.Is(err, errNoAnswer) {
		return true, err
	}
	s.r.j.opts.Logger.Debug("journal: reading goes on after an error", "stream", s.r.name, "err", err)
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
		return s.next > s.to, nil
	}
	return false, nil
}

// ReadBodies yields records with bodies.
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
	for chunk := range slices.Chunk(first, fetchBodies) {
		got, err := r.bodies(ctx, r.j.records, chunk)
		if err != nil {
			return err
		}
		for _, f := range chunk {
			if r.j.set && got[int64(f)] == nil { // it may be missing only where it was looked for
				more, err := r.bodies(ctx, r.j.linRecords, []uint64{f})
				if err != nil {
					return err
				}
				if got[int64(f)] = more[int64(f)]; got[int64(f)] != nil {
					if h, err = r.j.head(ctx, r.name, true); err != nil {
						return err
					}
				}
			}
			d := got[int64(f)]
			if d == nil || h.ctl == nil || h.ctl.Dropped || h.ctl.bodyGone(d.First, d.Last) {
				continue
			}
			rec, err := r.verifyBody(d, f)
			if err != nil {
				return err
			}
			if !yield(rec) {
				return nil
			}
		}
	}
	return nil
}

// bodies reads the records at first that have a body.
func (r *reader) bodies(ctx context.Context, c *mongo.Collection, first []uint64) (map[int64]*recordDoc, error) {
	in := bson.A{}
	for _, f := range first {
		if f > 0 && f <= math.MaxInt64 {
			in = append(in, int64(f))
		}
	}
	got := map[int64]*recordDoc{}
	if len(in) == 0 {
		return got, nil
	}
	return got, r.j.read(ctx, func(ctx context.Context) error {
		cur, err := c.Find(ctx, bson.D{{Key: "s", Value: r.name}, {Key: "f", Value: bson.D{{Key: "$in", Value: in}}}, {Key: "b", Value: bson.D{{Key: "$exists", Value: true}}}})
		if err != nil {
			return err
		}
		var docs []recordDoc
		if err := cur.All(ctx, &docs); err != nil {
			return err
		}
		for i := range docs {
			got[docs[i].First] = &docs[i]
		}
		return nil
	})
}

// verifyBody takes a document with a body apart. It copies what is in it.
func (r *reader) verifyBody(d *recordDoc, first uint64) (*journal.Record, error) {
	hdr, err := journal.ParseHeader(d.Header)
	if errors.Is(err, journal.ErrNewerFormat) {
		return nil, fmt.Errorf("record at seq %d: %w", first, err)
	}
	if err == nil {
		err = hdr.VerifyBody(d.Body)
	}
	if err == nil && hdr.First != first {
		err = fmt.Errorf("it is that of seq %d", hdr.First)
	}
	if err != nil {
		return nil, &journal.CorruptError{Stream: r.name, Seq: first, What: "body does not verify", Err: err}
	}
	rec := &journal.Record{Header: hdr, Body: [][]byte{slices.Clone(d.Body)}}
	if hdr.VerifyMeta(d.Meta) == nil {
		rec.Meta = slices.Clone(d.Meta)
	}
	return rec, nil
}

// ReadPart returns a part.
func (r *reader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if err := journal.CheckName("part", name); err != nil {
		return nil, r.readError(err)
	}
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	data, err := r.readPart(ctx, name)
	if err = end(err); err != nil {
		return nil, err
	}
	return data, nil
}

func (r *reader) readPart(ctx context.Context, name string) ([]byte, error) {
	docs, c, err := r.partDocs(ctx, bson.E{Key: "n", Value: name}, nil)
	if err != nil {
		return nil, err
	}
	if d := best(c, docs); d != nil {
		return append([]byte{}, d.Data...), nil
	}
	return nil, fmt.Errorf("part %q: %w", name, journal.ErrNotFound)
}

// best returns the document of a part that counts, or nil.
func best(c *control, docs []partDoc) (d *partDoc) {
	v := int64(0)
	for i := range docs {
		if w := c.validPart(&docs[i]); w > v {
			v, d = w, &docs[i]
		}
	}
	return d
}

// partDocs reads documents of parts, and then a control state that says which of them count; nil if there is no stream. A part that became valid
// between the two may be replaced or refer to a document that was not read yet: then both are read again.
func (r *reader) partDocs(ctx context.Context, filter bson.E, projection bson.D) ([]partDoc, *control, error) {
	var docs []partDoc
	for n := 0; ; n++ {
		before, err := r.j.head(ctx, r.name, true)
		if err != nil {
			return nil, nil, err
		}
		if before.ctl == nil || before.ctl.Dropped {
			return nil, &control{Since: math.MaxInt64}, nil
		}
		err = r.j.read(ctx, func(ctx context.Context) error {
			q := bson.D{{Key: "s", Value: r.name}}
			if filter.Key != "" {
				q = append(q, filter)
			}
			opts := options.Find()
			if projection != nil {
				opts.SetProjection(projection)
			}
			cur, err := r.j.parts.Find(ctx, q, opts)
			if err != nil {
				return err
			}
			docs = nil
			return cur.All(ctx, &docs)
		})
		if err != nil {
			return nil, nil, err
		}
		after, err := r.j.head(ctx, r.name, false)
		if err != nil {
			return nil, nil, err
		}
		if after.v == before.v || n >= 20 {
			return docs, before.ctl, nil
		}
	}
}

// Parts lists part names.
func (r *reader) Parts(ctx context.Context, prefix string) ([]string, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	names, err := r.listParts(ctx, prefix)
	if err = end(err); err != nil {
		return nil, err
	}
	return names, nil
}

func (r *reader) listParts(ctx context.Context, prefix string) ([]string, error) {
	docs, c, err := r.partDocs(ctx, bson.E{}, bson.D{{Key: "d", Value: 0}})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range docs {
		if strings.HasPrefix(docs[i].Name, prefix) && c.validPart(&docs[i]) > 0 {
			names = append(names, docs[i].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
