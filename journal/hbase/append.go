package hbase

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// Append stores a record, with the head that then holds, by one check-and-mutate on the last bucket's head; the first record behind a
// closed bucket makes the next one. Record.Buffered changes nothing.
func (o *owner) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	check := journal.CheckAppend
	if o.importing {
		check = journal.CheckImported
	}
	err := check(o.acquired, o.j.Limits(), after, rec)
	if err == nil {
		err = o.check(ctx)
	}
	if err == nil {
		err = o.append(ctx, after, rec)
	}
	if err != nil {
		return o.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	return nil
}

func (o *owner) append(ctx context.Context, after uint64, rec *journal.Record) error {
	e := o.known()
	lost, fresh := 0, false // fresh: e was read in this call
	for {
		if e.end != after || e.crc != rec.PrevCRC {
			if fresh {
				return o.settle(ctx, &e, rec)
			}
		} else {
			if rec.Time < e.time {
				return fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, e.end, e.time)
			}
			done, err := o.putRecord(ctx, &e, rec)
			if done {
				return nil
			}
			if errors.Is(err, journal.ErrFull) && o.doubted(rec, false) {
				err = unknown(err) // an earlier try may still be on its way
			}
			if err != nil && !errors.Is(err, journal.ErrFull) {
				o.doubted(rec, true)
				if lost++; lost == tries || givenUp(ctx, err) {
					return unknown(err)
				}
				pause(ctx, lost)
			} else if err != nil {
				return err
			}
		}
		// Refused, or without an answer: the store knows.
		last, err := o.last(ctx)
		switch {
		case err != nil:
			o.doubted(rec, true)
			return notRefused(err)
		case last == nil:
			return &journal.CorruptError{Stream: o.name, What: "it has no bucket any more"}
		case last.nonce != o.nonce:
			return o.settle(ctx, last, rec)
		}
		o.advance(last)
		e, fresh = *last, true
		if e.dropped {
			return errDropped
		}
	}
}

// doubted remembers that an append of the record may have taken effect later, or tells whether one may.
func (o *owner) doubted(rec *journal.Record, set bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if set {
		o.doubt = rec.CRC
	}
	return o.doubt == rec.CRC
}

// putRecord makes the one call of an append, behind the head e.
func (o *owner) putRecord(ctx context.Context, e *entry, rec *journal.Record) (bool, error) {
	h := e.head
	want := e.raw
	if h.closed {
		h.startBucket()
		want = nil
	}
	body := 0
	for _, c := range rec.Body {
		body += len(c)
	}
	h.end, h.crc, h.time = rec.Last(), rec.CRC, rec.Time
	h.records++
	h.metaBytes += uint64(len(rec.Meta))
	h.bodyBytes += uint64(body)
	h.closed = h.records >= uint64(o.j.opts.BucketRecords) || h.metaBytes+h.bodyBytes >= uint64(o.j.opts.BucketBytes)
	o.mu.Lock()
	h.metas, h.bodies = max(h.metas, o.metas), max(h.bodies, o.bodies)
	o.mu.Unlock()
	h.rev++

	raw := h.encode()
	ch := change{puts: make([]*thrift2.TColumnValue, 0, 4)}
	ch.put(colHead, raw)
	switch {
	case h.closed:
		ch.put(colFence, closedFence)
	case want == nil:
		ch.put(colFence, bucketFence(h.epoch, h.nonce))
	}
	header := journal.AppendHeader(make([]byte, 0, journal.HeaderSize+max(len(rec.Meta), body)), &rec.Header)
	ch.put(colMeta(rec.Last()), append(header, rec.Meta...))
	if body > 0 {
		v := journal.AppendHeader(make([]byte, 0, journal.HeaderSize+body), &rec.Header)
		for _, c := range rec.Body {
			v = append(v, c...)
		}
		ch.put(colBody(rec.First, rec.Last()), v)
	}
	if want == nil {
		o.index.begin(h.first)
	}
	done, err := o.j.swap(ctx, "append", o.name, bucketRow(o.base, h.first), colHead, want, &ch)
	if done {
		o.advance(&entry{h, raw})
		o.stored(h.first, rec)
	}
	return done, err
}

// stored remembers the body of a record that is stored in a bucket.
func (o *owner) stored(bucket uint64, rec *journal.Record) {
	if len(rec.Body) > 0 {
		o.index.add(bucket, span{rec.First, rec.Last()})
	}
}

// settle decides what to say of a record that cannot be stored (now) behind the head e: whether an earlier try of it
// was. Nobody says "not stored" before it is sure.
func (o *owner) settle(ctx context.Context, e *entry, rec *journal.Record) error {
	mine := e.nonce == o.nonce
	at := ended{e.end, e.crc}
	if !mine {
		var ok bool
		var err error
		if at, ok, err = o.howEnded(ctx, o.acquired.Epoch, o.known().first); err != nil {
			return notRefused(err)
		}
		if !ok {
			return unknown(fmt.Errorf("epoch %d has ended, and it is not to be found where", o.acquired.Epoch))
		}
	}
	refused := func() error {
		if mine {
			return fmt.Errorf("%w: it ends at %d with CRC %08x", journal.ErrConflict, e.end, e.crc)
		}
		return o.fencedError(e.epoch)
	}
	switch {
	case rec.Last() > at.end:
		return refused()
	case rec.Last() == at.end && rec.CRC == at.crc:
		return o.found(ctx, rec)
	case rec.Last() == at.end:
		return refused()
	}
	// Somewhere before the end: the record itself tells, as long as it is there.
	b, err := o.at(ctx, rec.First)
	if err != nil {
		return notRefused(err)
	}
	var r row
	if b != nil {
		if r, err = o.j.get(ctx, bucketRow(o.base, b.first), newGet(), colMeta(rec.Last())); err != nil {
			return notRefused(err)
		}
	}
	switch raw := r.value(colMeta(rec.Last())); {
	case raw != nil && bytes.HasPrefix(raw, journal.AppendHeader(nil, &rec.Header)):
		o.stored(b.first, rec)
		return nil
	case raw == nil && rec.Last() < e.low && rec.UID == o.acquired.UID:
		return unknown(fmt.Errorf("seqs %d…%d were written and are discarded", rec.First, rec.Last()))
	}
	return refused()
}

// found remembers the body of the record at the stream's end.
func (o *owner) found(ctx context.Context, rec *journal.Record) error {
	if b, err := o.bucketAt(ctx, rec.First); err == nil && b != nil {
		o.stored(b.first, rec)
	}
	return nil // what is not remembered costs space only
}
