package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// attempt is an append that ended without an answer, or between its two steps.
type attempt struct {
	rec     journal.Header
	unknown bool   // its record may be on the way
	body    uint64 // the message with its body, 0 if that is not stored for sure
	again   bool   // its body was sent more than once
}

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
	return o.call(ctx, what, func(ctx context.Context) error {
		o.mu.Lock()
		at := o.head
		if o.try.rec != rec.Header {
			o.try = attempt{rec: rec.Header}
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

// store publishes the record behind at, until it is known what became of it.
func (o *owner) store(ctx context.Context, rec *journal.Record, at tip) error {
	for n := 0; ; n++ {
		seq, err := o.send(ctx, rec, at)
		switch {
		case err == nil:
			o.appended(rec, seq)
			return nil
		case errors.Is(err, errMismatch), errors.Is(err, errBusy):
			done, err := o.judge(ctx, rec, at, false)
			if done {
				return err
			}
			if n > 20 || !pause(ctx, time.Duration(min(n+1, 20))*5*time.Millisecond) {
				return fmt.Errorf("%w: another publish is under way", errNoAnswer)
			}
		case rec.BodyLen == 0 && o.j.dropBallast(ctx, err):
		case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrTooLarge):
			if o.unsettled() {
				return fmt.Errorf("%w for an earlier try: %w", errNoAnswer, err)
			}
			o.giveUp()
			return err
		default:
			return err
		}
	}
}

// giveUp deletes the body of a record that was refused: another record may take its place.
func (o *owner) giveUp() {
	o.mu.Lock()
	body := o.try.body
	o.try.body = 0
	o.mu.Unlock()
	if body > 0 {
		o.add(task{run: func(ctx context.Context) error { return o.j.c.deleteMessage(ctx, body) }})
	}
}

func (o *owner) unsettled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.try.unknown
}

// send publishes the record and its body on the condition that at is the last message of the record subject. In a stream with
// replicas both are one batch, which costs no more than one message; with one replica a batch costs several times as much as two
// messages, one after the other. The body is first, so that no record is without it; a body without record has no meaning.
func (o *owner) send(ctx context.Context, rec *journal.Record, at tip) (uint64, error) {
	records := o.j.names.records(o.name)
	header := journal.AppendHeader(nil, &rec.Header)
	meta := message{subject: records, data: [][]byte{header, rec.Meta}, cond: records, last: at.seq}
	if len(rec.Body) == 0 || rec.BodyLen == 0 {
		return o.sent(o.j.write(ctx, "append", o.name, meta))
	}
	body := message{subject: o.j.names.body(o.name, &rec.Header), data: append([][]byte{header}, rec.Body...), cond: records, last: at.seq}
	o.mu.Lock()
	stored := o.try.body
	o.mu.Unlock()
	if o.j.replicas > 1 && stored == 0 {
		seq, err := o.sent(o.j.write(ctx, "append", o.name, body, meta))
		var api *apiError
		if err == nil {
			o.bodyStored(seq - 1)
		}
		if !errors.As(err, &api) || api.Code != tooManyBatches {
			return seq, err
		}
	}
	if stored == 0 {
		seq, err := o.j.write(ctx, "append body", o.name, body)
		if err != nil {
			o.mu.Lock()
			o.try.again = true
			o.mu.Unlock()
			return 0, err
		}
		o.bodyStored(seq)
	}
	return o.sent(o.j.write(ctx, "append", o.name, meta))
}

func (o *owner) bodyStored(seq uint64) {
	o.mu.Lock()
	o.try.body = seq
	o.mu.Unlock()
}

// sent remembers whether a record may be on its way.
func (o *owner) sent(seq uint64, err error) (uint64, error) {
	if errors.Is(err, errNoAnswer) {
		o.mu.Lock()
		o.try.unknown, o.try.again = true, true
		o.mu.Unlock()
	}
	return seq, err
}

// appended takes a record that is stored in message seq as the last one.
func (o *owner) appended(rec *journal.Record, seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := rec.Header
	o.head = tip{seq: seq, epoch: h.Epoch, end: h.Last(), crc: h.CRC, time: h.Time, rec: &h}
	if rec.BodyLen > 0 && len(rec.Body) > 0 {
		b := bodyRef{subject: o.j.names.body(o.name, &h), first: h.First, last: h.Last(), seq: o.try.body}
		if o.try.again {
			b.seq = 0 // there may be several messages of that subject
		}
		o.remember(b)
	}
	o.try = attempt{}
}

// judge tells what became of a record that could not be stored behind at, or that does not follow it (old): nil if it is stored, or why not. done is
// false if it is not decided and may be sent again.
func (o *owner) judge(ctx context.Context, rec *journal.Record, at tip, old bool) (done bool, _ error) {
	h, err := o.j.head(ctx, o.name, false)
	if err != nil {
		return true, err
	}
	if h.broken != nil {
		return true, h.broken
	}
	if h.ctl == nil {
		return true, &journal.CorruptError{Stream: o.name, What: "its control state is gone"}
	}
	if !old && h.tip.seq <= at.seq {
		return false, nil // a publish is under way, or the server that answered lags behind
	}
	if h.tip.end == rec.Last() && h.tip.crc == rec.CRC {
		if !old && h.tip.rec != nil {
			o.appended(rec, h.tip.seq)
		}
		return true, nil
	}
	fenced := o.fenced(h.ctl)
	if f, ok := h.ctl.endOf(o.acquired.Epoch); ok && fenced != nil {
		switch {
		case rec.First > f.End:
			return true, fenced
		case rec.Last() == f.End && rec.CRC == f.CRC:
			return true, nil
		}
	}
	got, err := o.recordAt(ctx, h, rec.First)
	switch {
	case err != nil:
		return true, err
	case got != nil && *got == rec.Header:
		return true, nil
	case got == nil && rec.Last() < h.low && rec.Last() <= h.tip.end && (old || o.unsettled()):
		return true, fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, rec.First, rec.Last())
	case fenced != nil:
		return true, fenced
	}
	return true, fmt.Errorf("%w: it ends at %d", journal.ErrConflict, h.tip.end)
}
