package hbase

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// DiscardBodies deletes bodies. In the open bucket that is one step under its fence. In closed buckets, which have no fence
// any more, the ranges are first written into the stream's row, under the fence there: whoever acquires the stream
// deletes what is written there before anything else, so that a delete which comes late finds nothing more to delete.
func (o *owner) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	err := o.check(ctx)
	if err == nil {
		err = o.discardBodies(ctx, ranges)
	}
	if err != nil {
		return o.fail("discard bodies of", err)
	}
	return nil
}

func (o *owner) discardBodies(ctx context.Context, ranges []journal.Range) error {
	lost := 0
	for {
		e := o.known()
		o.mu.Lock()
		floor := max(1, o.bodies)
		o.mu.Unlock()
		left := clip(ranges, floor, e.end)
		if len(left) == 0 {
			_, err := o.refresh(ctx) // still the owner?
			return notRefused(err)
		}
		var done bool
		var err error
		if e.closed || slices.ContainsFunc(left, func(r journal.Range) bool { return r.From < e.first }) {
			done, err = o.discardClosed(ctx, left)
		} else {
			done, err = o.discardOpen(ctx, &e, left)
		}
		if done {
			o.raiseBodies(ctx, left)
			return nil
		}
		if err != nil {
			if lost++; lost == tries || givenUp(ctx, err) {
				return unknown(err)
			}
			pause(ctx, lost)
		}
		if _, err := o.refresh(ctx); err != nil {
			return notRefused(err)
		}
	}
}

// clip returns the parts of the ranges that lie in from…to.
func clip(ranges []journal.Range, from, to uint64) []journal.Range {
	var out []journal.Range
	for _, r := range ranges {
		r.From, r.To = max(r.From, from), min(r.To, to)
		if r.From <= r.To {
			out = append(out, r)
		}
	}
	return out
}

// discardOpen deletes bodies in the open bucket.
func (o *owner) discardOpen(ctx context.Context, e *entry, ranges []journal.Range) (bool, error) {
	spans, err := o.bodiesWithin(ctx, e, ranges)
	if err != nil {
		return false, err
	}
	if len(spans) == 0 {
		_, err := o.refresh(ctx)
		return err == nil, err
	}
	const most = 1000
	for part := range slices.Chunk(spans, most) {
		var ch change
		ch.delete(forGood, bodyColumns(part)...)
		done, err := o.j.swap(ctx, "discard bodies", o.name, bucketRow(o.base, e.first), colFence, bucketFence(o.acquired.Epoch, o.nonce), &ch)
		if !done {
			return false, err
		}
		o.index.remove(e.first, part)
	}
	return true, nil
}

func bodyColumns(spans []span) []column {
	cols := make([]column, 0, len(spans))
	for _, s := range spans {
		cols = append(cols, colBody(s.first, s.last))
	}
	return cols
}

// discardClosed writes down what is to be deleted, and deletes it.
func (o *owner) discardClosed(ctx context.Context, ranges []journal.Range) (bool, error) {
	o.mu.Lock()
	finished := o.finished
	o.finished = nil
	o.mu.Unlock()
	col := colDiscard(o.acquired.Epoch, o.ids.Add(1))
	var ch change
	ch.put(col, encodeRanges(ranges))
	ch.delete(forGood, finished...)
	done, err := o.j.swap(ctx, "discard bodies", o.name, o.base, colFence, o.fence.encode(), &ch)
	if done {
		finished = nil
		if err = o.sweepBodies(ctx, ranges); err == nil {
			finished = []column{col}
		}
	}
	o.mu.Lock()
	o.finished = append(o.finished, finished...)
	o.mu.Unlock()
	return done && err == nil, err
}

// sweepBodies deletes the bodies of records that lie wholly inside one of the ranges: a whole family where a closed bucket
// does, else by name.
func (o *owner) sweepBodies(ctx context.Context, ranges []journal.Range) error {
	for _, r := range ranges {
		for seq := r.From; seq <= r.To; {
			e, err := o.bucketAt(ctx, seq)
			if err != nil {
				return err
			}
			if e == nil || e.end < seq {
				break
			}
			if e.closed && r.From <= e.first && e.end <= r.To {
				if err := o.j.sweep(ctx, "discard bodies", o.name, bucketRow(o.base, e.first), column{family: familyBodies}); err != nil {
					return err
				}
				o.index.clear(e.first)
			} else {
				spans, err := o.bodiesWithin(ctx, e, []journal.Range{r})
				if err != nil {
					return err
				}
				if err := o.j.sweep(ctx, "discard bodies", o.name, bucketRow(o.base, e.first), bodyColumns(spans)...); err != nil {
					return err
				}
				o.index.remove(e.first, spans)
			}
			seq = e.end + 1
		}
	}
	return nil
}

// bodiesWithin returns the bodies in a bucket whose records lie wholly inside one of the ranges.
func (o *owner) bodiesWithin(ctx context.Context, e *entry, ranges []journal.Range) ([]span, error) {
	if spans, ok := o.index.within(e.first, ranges); ok {
		return spans, nil
	}
	o.index.bucket(e.first, false) // what is appended from now on is remembered
	o.mu.Lock()
	floor := max(e.first, o.bodies)
	o.mu.Unlock()
	g := newGet()
	g.FilterString = andKeysOnly(columnsFrom(hex(floor)))
	r, err := o.j.get(ctx, bucketRow(o.base, e.first), g, column{family: familyBodies})
	if err != nil {
		return nil, err
	}
	var read []span
	for _, v := range r.cells {
		if s, ok := parseBody(v.Qualifier); ok {
			read = append(read, s)
		}
	}
	o.index.complete(e.first, read)
	spans, ok := o.index.within(e.first, ranges)
	if !ok { // forgotten again meanwhile, for others
		return nil, fmt.Errorf("bodies of the bucket at seq %d: too many buckets at a time", e.first)
	}
	return spans, nil
}

// raiseBodies moves the seq up before which there are no bodies, after those of ranges went.
func (o *owner) raiseBodies(ctx context.Context, ranges []journal.Range) {
	o.mu.Lock()
	floor := o.bodies
	o.mu.Unlock()
	if !slices.ContainsFunc(ranges, func(r journal.Range) bool { return r.From <= floor }) {
		return
	}
	end := o.known().end
	for floor <= end {
		e, err := o.bucketAt(ctx, floor)
		if err != nil || e == nil || e.end < floor {
			break
		}
		next, ok := o.index.floor(e.first, min(e.end, end))
		if !ok || next <= floor {
			break
		}
		floor = next
		if floor <= e.end {
			break
		}
	}
	o.mu.Lock()
	o.bodies = max(o.bodies, floor)
	o.mu.Unlock()
}

// DiscardMeta raises the floor in the head, in a fenced step, and then deletes what is below it. That may come late: nothing
// below a floor is ever written.
func (o *owner) DiscardMeta(ctx context.Context, low uint64) error {
	err := o.check(ctx)
	if err == nil {
		err = o.update(ctx, "discard metas", func(ctx context.Context, h *head) (bool, error) {
			to, err := o.lowAt(ctx, h, min(low, h.end+1))
			if err != nil || to <= h.low {
				return false, notRefused(err)
			}
			h.low = to
			return true, nil
		})
	}
	if err == nil {
		err = notRefused(o.sweepMetas(ctx))
	}
	if err != nil {
		return o.fail("discard metas of", err)
	}
	return nil
}

// lowAt returns the first seq of the record that holds low.
func (o *owner) lowAt(ctx context.Context, h *head, low uint64) (uint64, error) {
	if low <= h.low || low > h.end {
		return low, nil
	}
	e, err := o.bucketAt(ctx, low)
	if err != nil || e == nil {
		return 0, err
	}
	g := newGet()
	g.StoreLimit = limit(1)
	g.FilterString = columnsFrom(hex(low))
	r, err := o.j.get(ctx, bucketRow(o.base, e.first), g, column{family: familyMetas})
	if err != nil {
		return 0, err
	}
	if len(r.cells) == 0 {
		return 0, &journal.CorruptError{Stream: o.name, Seq: low, What: "record missing"}
	}
	rec, err := journal.ParseHeader(r.cells[0].Value)
	if err != nil {
		return 0, &journal.CorruptError{Stream: o.name, Seq: low, What: "record does not verify", Err: err}
	}
	return rec.First, nil
}

// sweepMetas deletes the metas below the floor.
func (o *owner) sweepMetas(ctx context.Context) error {
	o.mu.Lock()
	seq, low := max(o.metas, 1), o.cur.low
	o.mu.Unlock()
	for seq < low {
		e, err := o.bucketAt(ctx, seq)
		if err != nil {
			return err
		}
		if e == nil || e.end < seq {
			break
		}
		key := bucketRow(o.base, e.first)
		if e.closed && e.end < low {
			err = o.j.sweep(ctx, "discard metas", o.name, key, column{family: familyMetas})
		} else {
			var r row
			g := newGet()
			g.FilterString = andKeysOnly(columnsBetween(hex(seq), hex(low-1)))
			if r, err = o.j.get(ctx, key, g, column{family: familyMetas}); err == nil {
				var cols []column
				for _, v := range r.cells {
					cols = append(cols, column{familyMetas, string(v.Qualifier)})
				}
				err = o.j.sweep(ctx, "discard metas", o.name, key, cols...)
			}
		}
		if err != nil {
			return err
		}
		seq = e.end + 1
	}
	o.mu.Lock()
	o.metas = max(o.metas, low)
	o.mu.Unlock()
	return nil
}

func encodeRanges(ranges []journal.Range) []byte {
	b := []byte{headVersion}
	for _, r := range ranges {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, r.From), r.To)
	}
	return b
}

func decodeRanges(b []byte) ([]journal.Range, error) {
	if len(b)%16 != 1 || b[0] != headVersion {
		return nil, fmt.Errorf("ranges: do not verify: %w", journal.ErrCorrupt)
	}
	var ranges []journal.Range
	for b = b[1:]; len(b) > 0; b = b[16:] {
		ranges = append(ranges, journal.Range{From: binary.BigEndian.Uint64(b), To: binary.BigEndian.Uint64(b[8:])})
	}
	return ranges, nil
}

// newGet returns a read of one row, to be restricted.
func newGet() *thrift2.TGet { return &thrift2.TGet{} }

func limit(n int32) *int32 { return &n }

// Filters in the gateway's language, over qualifiers that are of hex digits.

func columnsFrom(first string) []byte {
	return fmt.Appendf(nil, "ColumnRangeFilter ('%s', true, 'g', true)", first)
}

func columnsBetween(first, last string) []byte {
	return fmt.Appendf(nil, "ColumnRangeFilter ('%s', true, '%s', true)", first, last)
}

func andKeysOnly(filter []byte) []byte { return append(filter, " AND KeyOnlyFilter ()"...) }
