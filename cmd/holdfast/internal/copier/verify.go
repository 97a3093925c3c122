package copier

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// verify reads the whole copy, up to where it is complete, and compares it with the source: headers, and through their
// CRCs the metas and bodies; which bodies there are; and parts. What the source has discarded since is no difference.
func (s *stream) verify(ctx context.Context) error {
	info, err := s.h.Info(ctx)
	if err != nil {
		return err
	}
	if info.UID != s.uid || info.End != s.at.end || info.EndCRC != s.at.crc {
		return fmt.Errorf("%w: it ends at seq %d of stream uid %s, seq %d of %s was copied", ErrVerify, info.End, info.UID, s.at.end, s.uid)
	}
	if err := s.verifyRecords(ctx, info.Low); err != nil {
		return err
	}
	live, err := s.live(ctx, 0, min(info.Low, s.at.end+1))
	if err != nil {
		return err
	}
	for len(live) > 0 {
		n := min(len(live), batchRecords)
		if err := s.verifyBodies(ctx, live[:n]); err != nil {
			return err
		}
		live = live[n:]
	}
	if err := s.whole(ctx); err != nil {
		return err
	}
	if err := s.discardDead(ctx); err != nil {
		return err
	}
	return s.verifyParts(ctx)
}

// verifyRecords compares the records from seq low on.
func (s *stream) verifyRecords(ctx context.Context, low uint64) error {
	next, stop := iter.Pull2(s.r.ReadMeta(ctx, low, s.at.end))
	defer stop()
	var have journal.Header // of the source
	var first []uint64
	for rec, err := range s.h.ReadMeta(ctx, low, s.at.end) {
		if err != nil {
			return err
		}
		for have.First < rec.First {
			src, err, ok := next()
			if err != nil {
				return err
			}
			if !ok {
				have.First = math.MaxUint64 // it has discarded the rest
				break
			}
			have = src.Header
		}
		if have.First > rec.First {
			// Discarded in the source since, or not there: only the first can be.
			if info, err := s.info(ctx); err != nil || rec.First >= info.Low {
				return fmt.Errorf("%w: the source has no record at seq %d (%w)", ErrVerify, rec.First, err)
			}
			continue
		}
		if have != rec.Header {
			return fmt.Errorf("%w: the record at seq %d has another header", ErrVerify, rec.First)
		}
		s.res.Verified++
		if rec.BodyLen > 0 {
			first = append(first, rec.First)
		}
		if len(first) == batchRecords {
			if err := s.verifyBodies(ctx, first); err != nil {
				return err
			}
			first = first[:0]
		}
		s.o.Progress(Progress{Stream: s.name, Verifying: true, Seq: rec.Last(), End: s.at.end, Records: s.res.Verified, Bytes: s.res.Bytes})
	}
	return s.verifyBodies(ctx, first)
}

// verifyBodies compares which bodies there are, and their CRCs; the drivers have compared the bodies with those.
func (s *stream) verifyBodies(ctx context.Context, first []uint64) error {
	type sum struct {
		last   uint64
		n, crc uint32
	}
	copied, source := map[uint64]sum{}, map[uint64]sum{}
	add := func(have map[uint64]sum, rec *journal.Record) {
		have[rec.First] = sum{rec.Last(), rec.BodyLen, rec.BodyCRC}
	}
	// The copy first: what is missing in it must be missing in the source by then.
	for rec, err := range s.h.ReadBodies(ctx, first) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrVerify, err)
		}
		add(copied, rec)
	}
	if err := s.eachBody(ctx, first, func(rec *journal.Record) { add(source, rec) }); err != nil {
		return err
	}
	for _, seq := range first {
		want, inSource := source[seq]
		got, inCopy := copied[seq]
		switch {
		case inSource && !inCopy:
			s.absent = append(s.absent, seq)
		case inSource && got != want:
			return fmt.Errorf("%w: the body of the record at seq %d is another one", ErrVerify, seq)
		case inCopy && !inSource && !s.damaged[seq]:
			s.dead = append(s.dead, journal.Range{From: seq, To: got.last})
		}
	}
	return nil
}

// whole refuses a copy that lacks bodies which the source has, unless no message of the copied queue needs them: a source that has discarded a body may
// still show it, for a while (a replica that lags behind) or until it discards it again (after a crash).
func (s *stream) whole(ctx context.Context) error {
	if len(s.absent) == 0 {
		return nil
	}
	if s.o.Live != nil {
		needed, err := s.o.Live(ctx, s.dst, s.name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrVerify, err)
		}
		if needed != nil {
			s.absent = slices.DeleteFunc(s.absent, func(seq uint64) bool {
				_, ok := slices.BinarySearch(needed, seq)
				return !ok
			})
		}
	}
	if len(s.absent) == 0 {
		return nil
	}
	seq := s.absent[0]
	return fmt.Errorf("%w: the bodies of %d records are missing, that at seq %d is the first; copy into an empty store%s", ErrVerify, len(s.absent), seq, s.lookAgain(ctx, seq))
}

// lookAgain tells what there is to know of a body that is missing in the copy, for whoever has to find out why: whether this run has copied it, and whether
// another reader finds it.
func (s *stream) lookAgain(ctx context.Context, seq uint64) string {
	text := ""
	if seq >= s.began {
		text = "; it was copied by this run"
	}
	r, err := s.dst.Open(ctx, s.name)
	if err != nil {
		return text
	}
	if info, err := r.Info(ctx); err == nil {
		text += fmt.Sprintf("; the copy has epoch %d, seqs %d to %d", info.Epoch, info.Low, info.End)
	}
	for _, err := range r.ReadBodies(ctx, []uint64{seq}) {
		if err != nil {
			return fmt.Sprintf("%s; read again: %v", text, err)
		}
		return text + "; read again, it is there"
	}
	return text + "; read again, it is missing, too"
}

// discardDead discards what the source has discarded since it was copied, if that is because of what the copy has, too:
// otherwise its messages are still in the copied queue. What messages of the source need stays, whether the source finds it or not.
func (s *stream) discardDead(ctx context.Context) error {
	if len(s.dead) == 0 {
		return nil
	}
	live, err := s.live(ctx, 0, math.MaxUint64)
	if err != nil {
		return err
	}
	s.dead = slices.DeleteFunc(s.dead, func(r journal.Range) bool {
		_, ok := slices.BinarySearch(live, r.From)
		return ok
	})
	info, err := s.info(ctx)
	if err != nil || info.End != s.at.end {
		return err
	}
	return s.settle(ctx, func(ctx context.Context) error { return s.h.DiscardBodies(ctx, s.dead) })
}
