package cassandra

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// Append stores rec.
func (h *hold) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	err := h.checkRecord(after, rec)
	if err == nil {
		err = h.usable(ctx)
	}
	if err == nil {
		err = h.append(ctx, after, rec)
	}
	if err != nil {
		return h.failed(fmt.Sprintf("append after seq %d to", after), h.j.ended(ctx, err))
	}
	return nil
}

func (h *hold) checkRecord(after uint64, rec *journal.Record) error {
	check := journal.CheckAppend
	if h.imported {
		check = journal.CheckImported
	}
	if err := check(h.acquired, h.j.lim, after, rec); err != nil {
		return err
	}
	if rec.Last() >= math.MaxInt64 {
		return fmt.Errorf("record at seq %d: the highest seq is %d: %w", rec.First, int64(math.MaxInt64-1), journal.ErrInvalid)
	}
	return nil
}

// errAgain says that the place of a record is free: it is to be appended once more.
var errAgain = errors.New("append again")

func (h *hold) append(ctx context.Context, after uint64, rec *journal.Record) error {
	for range 20 {
		h.mu.Lock()
		tail, opened := h.tail, h.opened
		h.mu.Unlock()
		var err error
		switch {
		case after != tail.end || rec.PrevCRC != tail.crc:
			// Repeated, or at a wrong place: the store knows.
			err = h.settle(ctx, after, rec)
		case rec.Time < tail.time:
			err = fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, tail.end, tail.time)
		default:
			err = h.appendAt(ctx, tail, opened, rec)
		}
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return unknown(errors.New("the stream's end is always another one"))
}

// appendAt appends rec at the end of a stream, and before that begins another bucket if the last one is full.
func (h *hold) appendAt(ctx context.Context, tail bucketHead, opened bool, rec *journal.Record) error {
	was := tail.start
	if tail.closed {
		tail = bucketHead{start: tail.end, fence: h.fence, place: tail.place}
		opened = false
	}
	if !opened {
		if err := h.begin(ctx, was, tail); err != nil {
			if errors.Is(err, journal.ErrFenced) {
				return h.settle(ctx, rec.First-1, rec)
			}
			return err
		}
		h.mu.Lock()
		h.tail, h.opened, h.recent, h.recentFrom = tail, true, nil, tail.start
		h.begun = append(h.begun, tail.start)
		h.mu.Unlock()
	}
	next := tail
	next.place = place{rec.Last(), rec.CRC, rec.Time}
	next.records++
	next.bytes += int64(rec.Size())
	next.closed = next.records >= h.j.o.BucketRecords || next.bytes >= int64(h.j.o.BucketBytes)
	applied, at, err := h.send(ctx, tail, next, rec)
	switch {
	case err != nil:
		return h.notSent(ctx, rec, err)
	case applied || at.int("fence") == h.fence && at.seq("end_seq") == next.end && uint32(at.int("end_crc")) == next.crc:
		h.stored(next, rec)
		return nil
	}
	return h.settle(ctx, rec.First-1, rec)
}

// notSent returns what to say of an append that ended with err.
func (h *hold) notSent(ctx context.Context, rec *journal.Record, err error) error {
	h.mu.Lock()
	open := h.open
	if errors.Is(err, journal.ErrUnknown) {
		h.open = true
	}
	h.mu.Unlock()
	if !open || errors.Is(err, journal.ErrUnknown) {
		return err
	}
	// Refused for want of space, but an earlier try of it may have been stored.
	if settled := h.settle(ctx, rec.First-1, rec); settled == nil {
		return nil
	}
	return unknown(err)
}

// stored takes a record that is stored into what the owner knows.
func (h *hold) stored(next bucketHead, rec *journal.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tail, h.open = next, false
	if hasBody(rec) {
		h.recent = append(h.recent, bodyRow{rec.First, rec.Last(), rec.BodyLen})
	}
}

// hasBody tells whether rec comes with its body: an imported one may have lost it before.
func hasBody(rec *journal.Record) bool { return rec.BodyLen > 0 && len(rec.Body) > 0 }

// begin makes the head of a bucket behind the one that began at was, and names the bucket in the head of the stream, under its fence. Only then may there be appends.
func (h *hold) begin(ctx context.Context, was uint64, b bucketHead) error {
	at := row{}
	applied := false
	err := h.j.write(ctx, "open bucket", h.name, func() (err error) {
		applied, at, err = h.j.cas(ctx, cqlOpen, h.fence, int64(b.end), int64(b.crc), b.time, h.key, int64(b.start))
		return err
	})
	if err == nil && !applied && at.int("fence") < h.fence {
		// An older owner has made it, and was held up before it could name it.
		err = h.j.write(ctx, "raise bucket", h.name, func() (err error) {
			_, _, err = h.j.cas(ctx, cqlRaiseBucket, h.fence, h.key, int64(b.start), h.fence)
			return err
		})
	}
	if err != nil {
		return err
	}
	return h.j.write(ctx, "name bucket", h.name, func() error {
		applied, at, err := h.j.cas(ctx, cqlAdvance, int64(b.start), h.key, int64(b.start), h.fence, int64(was))
		if err == nil && !applied && (at.int("fence") != h.fence || at.seq("tail") != b.start) {
			err = journal.ErrFenced
		}
		return err
	})
}

// send makes the append's compare-and-set, and before it the write of a large body.
func (h *hold) send(ctx context.Context, tail, next bucketHead, rec *journal.Record) (applied bool, at row, err error) {
	header := journal.AppendHeader(nil, &rec.Header)
	meta := rec.Meta
	if meta == nil {
		meta = []byte{}
	}
	start, first := int64(tail.start), int64(rec.First)
	args := []any{
		int64(next.end), int64(next.crc), next.time, next.closed, next.records, next.bytes, header, meta,
		h.key, start, first, h.fence, int64(tail.end), int64(tail.crc),
	}
	stmt := cqlAppend
	if hasBody(rec) {
		body := rec.Body[0]
		if len(rec.Body) > 1 {
			body = slices.Concat(rec.Body...)
		}
		if len(body) <= h.j.o.InlineBytes {
			stmt, args = cqlAppendBody, append(args, header, body, h.key, start, first)
		} else {
			// What comes of it without its record is dead: it goes with the bucket.
			err = h.j.write(ctx, "body", h.name, func() error {
				return h.j.exec(ctx, cqlPutBig, h.key, start, first, int64(rec.Epoch), int64(rec.CRC), body)
			})
			if err != nil {
				return false, nil, err
			}
			stmt, args = cqlAppendRef, append(args, header, h.key, start, first)
		}
	}
	err = h.j.write(ctx, "append", h.name, func() (err error) {
		applied, at, err = h.j.cas(ctx, stmt, args...)
		return err
	})
	return applied, at, err
}

// settle finds out what to say of a record that was refused, or is at another place than the end: whether it is stored,
// whether it can never be, or that its place is free (errAgain).
func (h *hold) settle(ctx context.Context, after uint64, rec *journal.Record) error {
	for range 20 {
		now, err := h.j.readHead(ctx, h.key, true)
		if err != nil {
			return unknown(err)
		}
		r, found, err := h.j.read(ctx, cqlBucketOf, h.key, int64(min(after, math.MaxInt64)))
		if err != nil {
			return unknown(err)
		}
		if !found || r.seq("start") < now.base.end {
			return h.settleDropped(&now, after, rec)
		}
		start := r.seq("start")
		b, found, err := h.j.readBucket(ctx, h.key, start)
		if err != nil {
			return unknown(err)
		}
		switch {
		case !found && start == now.tail && start == now.base.end && now.fence != h.fence:
			return h.fencedBy(&now) // the stream begins anew
		case !found:
			continue // dropped between the two reads
		case b.closed && b.end < rec.First && start != now.tail:
			return h.settleDropped(&now, after, rec)
		case b.fence < now.fence && start == now.tail:
			// Somebody is about to acquire the stream. Whatever is still under way of this owner ends with its fence in this bucket.
			err := h.j.write(ctx, "raise bucket", h.name, func() error {
				_, _, err := h.j.cas(ctx, cqlRaiseBucket, now.fence, h.key, int64(b.start), now.fence)
				return err
			})
			if err != nil {
				return err
			}
			continue
		}
		stands, err := h.stands(ctx, b, rec)
		if err != nil || stands {
			return err
		}
		return h.verdict(&now, b, after, rec)
	}
	return unknown(errors.New("the stream goes on faster than it can be read"))
}

// stands tells whether rec is stored in a bucket, and takes it over if it is the last record there.
func (h *hold) stands(ctx context.Context, b bucketHead, rec *journal.Record) (bool, error) {
	r, found, err := h.j.read(ctx, cqlMetaAt, h.key, int64(b.start), int64(rec.First))
	if err != nil {
		return false, unknown(err)
	}
	if !found {
		return false, nil
	}
	there, err := journal.ParseHeader(r.bytes("header"))
	if err != nil {
		return false, unknown(err)
	}
	if there != rec.Header {
		return false, nil
	}
	h.mu.Lock()
	known := h.tail.end
	h.mu.Unlock()
	if b.fence == h.fence && b.end == rec.Last() && known < b.end {
		h.stored(b, rec)
	}
	return true, nil
}

// verdict says what to say of a record that is not stored, after a bucket that could hold it.
func (h *hold) verdict(now *head, b bucketHead, after uint64, rec *journal.Record) error {
	if now.fence != h.fence {
		return h.fencedBy(now)
	}
	if b.fence != h.fence || b.end != after || b.crc != rec.PrevCRC {
		return fmt.Errorf("%w: it ends at seq %d, CRC %08x", journal.ErrConflict, b.end, b.crc)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tail.place != b.place {
		// An append of unknown outcome was stored, and its owner goes on without having repeated it.
		h.recent, h.recentFrom, h.missed = nil, b.end, true
	}
	h.tail, h.opened = b, true
	return errAgain
}

// settleDropped says what to say of a record whose place is in a bucket that was dropped: nothing of this owner that is under way can be stored there any more.
func (h *hold) settleDropped(now *head, after uint64, rec *journal.Record) error {
	gone := fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, rec.First, rec.Last())
	if now.fence == h.fence {
		if rec.Last() > h.end() {
			return fmt.Errorf("%w: it ends at seq %d", journal.ErrConflict, h.end())
		}
		return gone
	}
	f, known := now.after(h.acquired.Epoch)
	if now.fence == h.fence+1 && now.dropped {
		f = fence{end: now.base.end, crc: now.base.crc}
	} else if !known {
		return gone
	}
	switch {
	case rec.Last() > f.end, rec.Last() == f.end && rec.CRC != f.crc:
		return h.fencedBy(now)
	case rec.Last() == f.end:
		return nil
	case !h.imported && after < h.acquired.End:
		return h.fencedBy(now) // behind its back: written before this owner's time, so by another one
	}
	return gone
}
