package mongodb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfastmq/holdfast/journal"
)

// Append stores a record.
func (o *owner) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	what := fmt.Sprintf("append after seq %d to", after)
	check := journal.CheckAppend
	if o.importing {
		check = journal.CheckImported
	}
	if err := check(o.acquired, o.j.limits, after, rec); err != nil {
		return o.fail(what, err)
	}
	if rec.Last() > math.MaxInt64 || rec.Epoch > math.MaxInt64 {
		return o.fail(what, fmt.Errorf("%w: seq %d, epoch %d: at most %d", journal.ErrInvalid, rec.Last(), rec.Epoch, int64(math.MaxInt64)))
	}
	return o.call(ctx, what, func(ctx context.Context) error {
		o.mu.Lock()
		at := o.head
		if o.tried != rec.Header {
			o.tried, o.unknown = rec.Header, false
		}
		o.mu.Unlock()
		switch {
		case after != at.end:
			_, err := o.judge(ctx, rec, at, true)
			return err
		case rec.PrevCRC != at.crc:
			return fmt.Errorf("%w: record follows CRC %08x, seq %d has CRC %08x", journal.ErrConflict, rec.PrevCRC, at.end, at.crc)
		case rec.Time < at.time:
			return fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, at.end, at.time)
		}
		return o.store(ctx, rec, at)
	})
}

// store inserts the record behind at, and settles what became of it.
func (o *owner) store(ctx context.Context, rec *journal.Record, at tip) error {
	doc := &recordDoc{
		ID: key(o.name, at.pos+1), Stream: o.name, Pos: at.pos + 1, Owner: int64(o.acquired.Epoch),
		First: int64(rec.First), Last: int64(rec.Last()), Header: journal.AppendHeader(nil, &rec.Header), Meta: rec.Meta,
	}
	if doc.Meta == nil {
		doc.Meta = []byte{} // null is a meta that is discarded
	}
	if doc.Body = slices.Concat(rec.Body...); len(doc.Body) == 0 {
		doc.Body = nil
	}
	for n := 0; ; n++ {
		err := o.j.insert(ctx, "append", o.name, o.j.records, doc)
		o.mu.Lock()
		if errors.Is(err, errNoAnswer) {
			o.unknown = true
		}
		maybe := o.unknown
		o.mu.Unlock()
		switch {
		case err == nil:
			o.appended(rec, at.pos+1)
			return nil
		case errors.Is(err, errTaken):
			done, err := o.judge(ctx, rec, at, false)
			if done {
				return err
			}
			if n > 10 || !pause(ctx, time.Duration(n+1)*10*time.Millisecond) {
				return fmt.Errorf("%w: what is there cannot be seen yet", errNoAnswer)
			}
		case errors.Is(err, journal.ErrFull) && maybe:
			return fmt.Errorf("%w for an earlier try: %w", errNoAnswer, err)
		default:
			return err
		}
	}
}

// appended takes a record that is stored at pos as the last one.
func (o *owner) appended(rec *journal.Record, pos int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := rec.Header
	o.head = tip{pos: pos, last: pos, owner: o.acquired.Epoch, end: h.Last(), crc: h.CRC, time: h.Time, rec: &h}
	o.tried, o.unknown = journal.Header{}, false
}

// judge tells what became of a record whose number behind at is taken, or that does not follow it (old): nil if it is stored, or why
// not. done is false if that cannot be seen yet.
func (o *owner) judge(ctx context.Context, rec *journal.Record, at tip, old bool) (done bool, _ error) {
	filter := bson.D{{Key: "_id", Value: key(o.name, at.pos+1)}}
	if old {
		filter = bson.D{{Key: "s", Value: o.name}, {Key: "f", Value: int64(rec.First)}}
	}
	var d recordDoc
	found, err := o.j.findOne(ctx, o.j.records, filter, &d, options.FindOne().SetProjection(noParts))
	if err != nil {
		return true, err
	}
	if found && d.Mark == nil {
		h, err := journal.ParseHeader(d.Header)
		if err == nil && h == rec.Header {
			return o.confirmed(ctx, rec, d.Pos, old)
		}
	}
	if !found && !old {
		return false, nil
	}
	h, err := o.j.head(ctx, o.name, true)
	switch {
	case err != nil:
		return true, err
	case h.broken != nil:
		return true, h.broken
	case h.tip.end == rec.Last() && h.tip.crc == rec.CRC:
		return true, o.j.confirm(ctx) // its document is gone, a mark tells its end
	}
	fenced := o.fenced(h.ctl)
	if f, ok := h.ctl.endOf(o.acquired.Epoch); ok && fenced != nil {
		switch {
		case int64(rec.First) > f.End:
			return true, fenced
		case int64(rec.Last()) == f.End && int64(rec.CRC) == f.CRC:
			return true, o.j.confirm(ctx)
		}
	}
	switch {
	case old && !found && rec.Last() < h.low && rec.Last() <= h.tip.end:
		return true, fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, rec.First, rec.Last())
	case fenced != nil:
		return true, fenced
	case !old && d.Mark != nil && d.Owner > int64(o.acquired.Epoch):
		return true, fmt.Errorf("%w: own epoch %d, another one takes the stream under %d", journal.ErrFenced, o.acquired.Epoch, d.Owner)
	}
	return true, fmt.Errorf("%w: it ends at %d", journal.ErrConflict, h.tip.end)
}

// confirmed is called for a record that was seen at pos. An earlier try has inserted it, but its acknowledgement is missing: it is stored
// once a majority has it.
func (o *owner) confirmed(ctx context.Context, rec *journal.Record, pos int64, old bool) (done bool, _ error) {
	if err := o.j.confirm(ctx); err != nil {
		return true, err
	}
	var d recordDoc
	found, err := o.j.findOne(ctx, o.j.linRecords, bson.D{{Key: "_id", Value: key(o.name, pos)}}, &d, options.FindOne().SetProjection(noParts))
	if err != nil {
		return true, err
	}
	if h, err := journal.ParseHeader(d.Header); !found || err != nil || h != rec.Header {
		return old, fmt.Errorf("%w: the record was seen, and is gone", errNoAnswer) // rolled back: it is inserted again
	}
	if !old {
		o.appended(rec, pos)
	}
	return true, nil
}
