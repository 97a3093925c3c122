package copier

import (
	"context"
	"fmt"
	"iter"
	"math"

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
	read := func(records iter.Seq2[*journal.Record, error]) (map[uint64]sum, error) {
		have := map[uint64]sum{}
		for rec, err := range records {
			if err != nil {
				return nil, err
			}
			have[rec.First] = sum{rec.Last(), rec.BodyLen, rec.BodyCRC}
		}
		return have, nil
	}
	// The copy first: what is missing in it must be missing in the source by then.
	copied, err := read(s.h.ReadBodies(ctx, first))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVerify, err)
	}
	source, err := read(s.bodies(ctx, first))
	if err != nil {
		return err
	}
	for _, seq := range first {
		want, inSource := source[seq]
		got, inCopy := copied[seq]
		switch {
		case inSource && !inCopy:
			return fmt.Errorf("%w: the body of the record at seq %d is missing%s", ErrVerify, seq, s.lookAgain(ctx, seq, len(copied), len(first)))
		case inSource && got != want:
			return fmt.Errorf("%w: the body of the record at seq %d is another one", ErrVerify, seq)
		case inCopy && !inSource && !s.damaged[seq]:
			s.dead = append(s.dead, journal.Range{From: seq, To: got.last})
		}
	}
	return nil
}

// lookAgain tells what there is to know of a body that is missing in the copy, for whoever has to find out why: how many others were there, whether
// this run has copied it, and whether another reader finds it.
func (s *stream) lookAgain(ctx context.Context, seq uint64, found, asked int) string {
	text := fmt.Sprintf("; %d of %d were found", found, asked)
	if seq >= s.began {
		text += ", it was copied by this run"
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
// otherwise its messages are still in the copied queue.
func (s *stream) discardDead(ctx context.Context) error {
	if len(s.dead) == 0 {
		return nil
	}
	info, err := s.info(ctx)
	if err != nil || info.End != s.at.end {
		return err
	}
	return s.settle(ctx, func(ctx context.Context) error { return s.h.DiscardBodies(ctx, s.dead) })
}
