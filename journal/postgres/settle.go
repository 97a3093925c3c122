package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// errAgain says that a record is not stored, and that its append can be made again.
var errAgain = errors.New("not stored yet")

// settle says of a record whose append was refused, or could not be made, what has become of it: nil if it is
// stored, be it by an earlier try; errAgain if it is not, and its place is free.
//
// Each Acquire notes in the table fence where the stream ended when its epoch began. So it can be told of a
// fenced owner's record whether it came before that, also where its place is discarded by now.
func (h *hold) settle(ctx context.Context, after uint64, rec *journal.Record) error {
	var verdict error
	err := h.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s, err := readState(ctx, tx, h.name)
		if err != nil {
			return err
		}
		stored, taken, err := h.atPlace(ctx, tx, &s, rec)
		if err != nil {
			return err
		}
		switch fenced := s.info.Epoch != h.acquired.Epoch || s.life != h.life || s.info.Dropped; {
		case stored:
			verdict = nil
		case fenced:
			verdict, err = h.settleFenced(ctx, tx, &s, rec, taken)
		default:
			verdict = settleOwn(&s, after, rec, taken)
		}
		return err
	})
	if err != nil {
		return unknown(fmt.Errorf("look up what was stored: %w", err))
	}
	return verdict
}

// atPlace tells whether the record itself stands at its place, or another one.
func (h *hold) atPlace(ctx context.Context, q querier, s *state, rec *journal.Record) (stored, taken bool, err error) {
	if s.life != h.life || s.info.Dropped {
		return false, false, nil
	}
	x, ok, err := findExtent(ctx, q, h.life, kindRecord, rec.First)
	if err != nil || !ok {
		return false, false, err
	}
	var header []byte
	err = q.QueryRow(ctx, "SELECT substring(data FROM 1 FOR 76) FROM "+tableName(kindRecord, x.no)+" WHERE stream = $1 AND first = $2",
		h.life, int64(rec.First)).Scan(&header)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	at, err := journal.ParseHeader(header)
	return err == nil && at == rec.Header, true, nil
}

// settleOwn is settle for an owner that is not fenced.
func settleOwn(s *state, after uint64, rec *journal.Record, taken bool) error {
	end := s.info.End
	switch {
	case taken:
		return fmt.Errorf("%w: another record is there, it ends at %d", journal.ErrConflict, end)
	case rec.Last() == end && rec.CRC == s.info.EndCRC:
		return nil // and discarded since
	case rec.Last() < s.info.Low && rec.Last() < end:
		return fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, rec.First, rec.Last())
	case after != end:
		return fmt.Errorf("%w: it ends at %d", journal.ErrConflict, end)
	}
	return errAgain
}

// settleFenced is settle for an owner that is fenced, or whose stream was dropped.
func (h *hold) settleFenced(ctx context.Context, q querier, s *state, rec *journal.Record, taken bool) (verdict, err error) {
	if s.info.Dropped && s.info.Epoch == h.acquired.Epoch {
		return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed), nil
	}
	// Without a note, the owner of the newer epoch has not stored anything yet: the end is where this one's was.
	end, crc := s.info.End, s.info.EndCRC
	err = q.QueryRow(ctx, "SELECT ended, crc FROM fence WHERE stream = $1 AND epoch > $2 ORDER BY stream, epoch LIMIT 1", s.id, int64(h.acquired.Epoch)).Scan(&end, &crc)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	switch {
	case taken || rec.Last() > end || rec.Last() == end && rec.CRC != crc:
		return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, s.info.Epoch), nil
	case rec.Last() == end:
		return nil, nil // stored, and discarded since
	}
	return fmt.Errorf("%w: seqs %d…%d were written and are discarded, and the owner is fenced", journal.ErrUnknown, rec.First, rec.Last()), nil
}
