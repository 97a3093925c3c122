package copier

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// What is read at once: so many records, and so many bytes beyond the last one's.
const (
	batchRecords = 256
	batchBytes   = 4 << 20
)

// next is the seq that is to be read next.
func (s *stream) next() uint64 {
	if n := len(s.ahead); n > 0 {
		return s.ahead[n-1].Last() + 1
	}
	return s.at.end + 1
}

// records reads up to seq to. What it has read is written by write, or before that if it is too much to be kept.
func (s *stream) records(ctx context.Context, to uint64) error {
	for s.next() <= to {
		info, err := s.info(ctx)
		if err != nil {
			return err
		}
		if s.next() < info.Low {
			if err := s.write(ctx); err != nil {
				return err
			}
			if err := s.bridge(ctx, info); err != nil {
				return err
			}
			continue
		}
		if err := s.kept(ctx, to); err != nil {
			return err
		}
	}
	return nil
}

// kept reads records whose metas are kept, from where reading has come to, up to seq to or to where the source has discarded
// meanwhile.
func (s *stream) kept(ctx context.Context, to uint64) error {
	var batch []*journal.Record
	begin := s.next()
	size, next := 0, begin
	flush := func() error {
		err := s.load(ctx, batch)
		batch, size = nil, 0
		if err == nil && s.held >= s.o.Ahead {
			err = s.write(ctx)
		}
		return err
	}
	for rec, err := range s.r.ReadMeta(ctx, next, to) {
		if err != nil {
			return err
		}
		if rec.First > next {
			break // discarded meanwhile
		}
		if rec.First < next {
			return fmt.Errorf("%w: its stream ends at seq %d, where no record of the source ends: it has been written to since it was copied", ErrTarget, s.at.end)
		}
		c := &journal.Record{Header: rec.Header, Meta: bytes.Clone(rec.Meta)}
		batch, size, next = append(batch, c), size+rec.Size(), rec.Last()+1
		if len(batch) == batchRecords || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if next == begin {
		// Nothing was there: the source's state decides what that means.
		if info, err := s.info(ctx); err != nil || info.Low > next {
			return err
		}
		return &journal.CorruptError{Stream: s.name, Seq: next, What: "the source does not have the record"}
	}
	return flush()
}

// load reads the bodies of a batch.
func (s *stream) load(ctx context.Context, batch []*journal.Record) error {
	var first []uint64
	for _, rec := range batch {
		if rec.BodyLen > 0 {
			first = append(first, rec.First)
		}
	}
	bodies := map[uint64]*journal.Record{}
	if err := s.eachBody(ctx, first, func(rec *journal.Record) { bodies[rec.First] = rec }); err != nil {
		return err
	}
	for _, rec := range batch {
		if rec.BodyLen > 0 {
			b := bodies[rec.First]
			switch {
			case b == nil && s.damaged[rec.First]:
			case b == nil:
				s.lacking++
			case b.BodyCRC != rec.BodyCRC || b.BodyLen != rec.BodyLen:
				return &journal.CorruptError{Stream: s.name, Seq: rec.First, What: "the source's body is that of another record"}
			default:
				rec.Body = b.Body
			}
		}
		s.held += held(rec)
	}
	s.ahead = append(s.ahead, batch...)
	return nil
}

// write gives the target what was read ahead.
func (s *stream) write(ctx context.Context) error {
	if err := s.writeParts(ctx); err != nil {
		return err
	}
	all := s.ahead
	s.ahead, s.held = nil, 0
	size := 0
	for i, rec := range all {
		all[i] = nil
		// One sync for many, where the driver can.
		size += held(rec)
		rec.Buffered = i < len(all)-1 && (i+1)%batchRecords != 0 && size < batchBytes
		if !rec.Buffered {
			size = 0
		}
		if err := s.append(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// append appends one record to the target.
func (s *stream) append(ctx context.Context, rec *journal.Record) error {
	if rec.PrevCRC != s.at.crc && s.at.end > 0 {
		return fmt.Errorf("%w: it has another record at seq %d than the source: it has been written to since it was copied", ErrTarget, s.at.end)
	}
	if n := held(rec); n > s.lim.MaxRecordBytes { // written since fits has looked
		return &LimitError{Stream: s.name, Seq: rec.First, Size: n, Limit: s.lim.MaxRecordBytes, Count: 1}
	}
	if rec.Epoch > s.h.Acquired().Epoch {
		at := s.at
		if err := s.importAs(ctx, journal.Info{UID: s.uid, Epoch: rec.Epoch}); err != nil {
			return err
		}
		if s.at.end != at.end || s.at.crc != at.crc {
			return fmt.Errorf("%w: somebody else has written to it: it ends at seq %d, %d was copied", ErrTarget, s.at.end, at.end)
		}
	}
	err := s.settle(ctx, func(ctx context.Context) error { return s.h.Append(ctx, s.at.end, rec) })
	if errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrConflict) {
		return fmt.Errorf("%w: somebody else uses it: %w", ErrTarget, err)
	}
	if err != nil {
		return err
	}
	s.at = position{rec.Last(), rec.CRC, rec.Time, rec.Epoch}
	s.res.Records++
	if len(rec.Body) > 0 {
		s.res.Bodies++
		s.res.Bytes += int64(rec.BodyLen)
	}
	s.res.Bytes += int64(rec.MetaLen)
	s.o.Progress(Progress{Stream: s.name, Seq: s.at.end, End: max(s.res.SourceEnd, s.at.end), Records: s.res.Records, Bytes: s.res.Bytes})
	return nil
}

// bridge brings the target's end to seq Low-1 of a source that has discarded metas beyond it: by the records
// below that whose bodies are needed, and by skips between them. The target discards their metas, too, before the end.
//
// The CRC of each is made the one that the source has at that seq, so that the chain goes on with the source's
// records. A body's record has its meta no longer; four bytes stand for it.
func (s *stream) bridge(ctx context.Context, info journal.Info) error {
	to, err := s.before(ctx, info)
	if err != nil {
		return err
	}
	live, err := s.live(ctx, s.at.end, to.end+1)
	if err != nil {
		return err
	}
	for rec, err := range s.bodies(ctx, live) {
		if err != nil {
			return err
		}
		if rec.First > s.at.end+1 {
			if err := s.skipTo(ctx, position{rec.First - 1, rec.PrevCRC, rec.Time, rec.Epoch}); err != nil {
				return err
			}
		}
		stand := &journal.Record{Header: rec.Header, Body: rec.Body}
		stand.Kind = journal.KindSkip
		if err := sealAs(stand, rec.PrevCRC, rec.CRC); err != nil {
			return err
		}
		if err := s.append(ctx, stand); err != nil {
			return err
		}
	}
	s.bridged = true
	return s.skipTo(ctx, to)
}

// skipTo appends a record for everything up to to, which is not needed.
func (s *stream) skipTo(ctx context.Context, to position) error {
	if s.at.end >= to.end {
		return nil
	}
	rec := &journal.Record{Header: journal.Header{
		UID: s.uid, Epoch: max(to.epoch, 1), First: s.at.end + 1, Count: to.end - s.at.end, Kind: journal.KindSkip, Time: max(to.time, s.at.time),
	}}
	if err := sealAs(rec, s.at.crc, to.crc); err != nil {
		return err
	}
	return s.append(ctx, rec)
}
