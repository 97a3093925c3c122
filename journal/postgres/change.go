package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// number makes a seq of what the database can hold.
func number(seq uint64) int64 { return int64(min(seq, math.MaxInt64)) }

// DiscardBodies deletes the rows of bodies. What is dead vanishes with its table.
func (h *hold) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	err := h.check(ctx)
	if err == nil {
		err = h.discardBodies(ctx, ranges)
	}
	if err != nil {
		return h.fail("discard bodies of", err)
	}
	return nil
}

func (h *hold) discardBodies(ctx context.Context, ranges []journal.Range) error {
	low, high := uint64(math.MaxUint64), uint64(0)
	for _, r := range ranges {
		if r.From <= r.To {
			low, high = min(low, r.From), max(high, r.To)
		}
	}
	if low > high {
		return h.exec(ctx, "discard bodies", owned(async)+" SELECT 1 FROM s")
	}
	for range maxGone {
		var extents []extent
		err := h.j.reading(ctx, func(ctx context.Context) (err error) {
			extents, err = findExtents(ctx, h.j.pool, h.life, kindBody, uint64(number(low)), uint64(number(high)))
			return err
		})
		if err != nil {
			return err
		}
		if len(extents) == 0 {
			return h.exec(ctx, "discard bodies", owned(async)+" SELECT 1 FROM s")
		}
		again := false
		for _, x := range extents {
			err := h.discardIn(ctx, x, ranges)
			if isGone(err) {
				again = true // its living rows have another table now
				continue
			}
			if err != nil {
				return err
			}
		}
		if !again {
			return nil
		}
	}
	return unknown(errors.New("the tables have gone each time"))
}

// maxRanges bounds the ranges of one statement.
const maxRanges = 1000

// discardIn discards what the extent has of ranges.
func (h *hold) discardIn(ctx context.Context, x extent, ranges []journal.Range) error {
	var from, to []int64
	flush := func() error {
		if len(from) == 0 {
			return nil
		}
		err := h.exec(ctx, "discard bodies", owned(async)+`,
			d AS (DELETE FROM `+tableName(kindBody, x.no)+` b USING s, unnest($4::bigint[], $5::bigint[]) AS r(f, t)
				WHERE b.stream = $3 AND b.first BETWEEN r.f AND r.t AND b.last <= r.t)
			SELECT 1 FROM s`, from, to)
		h.j.garbage.add()
		from, to = from[:0], to[:0]
		return err
	}
	for _, r := range ranges {
		// Below first, nothing of the extent is; and parts are below 1.
		f, t := max(r.From, x.first, 1), r.To
		if x.next > 0 {
			t = min(t, x.next-1)
		}
		if f > t || r.From > r.To {
			continue
		}
		from, to = append(from, number(f)), append(to, number(t))
		if len(from) == maxRanges {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// DiscardMeta raises the lowest seq that is kept. No row is deleted.
func (h *hold) DiscardMeta(ctx context.Context, low uint64) error {
	err := h.check(ctx)
	if err == nil {
		err = h.discardMeta(ctx, low)
	}
	if err != nil {
		return h.fail(fmt.Sprintf("discard metas below seq %d of", low), err)
	}
	return nil
}

func (h *hold) discardMeta(ctx context.Context, low uint64) error {
	var kept uint64
	err := h.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s, err := readState(ctx, tx, h.name)
		if err != nil {
			return err
		}
		kept, err = s.firstKept(ctx, tx, low)
		return err
	})
	if err != nil {
		return err
	}
	defer h.j.garbage.add()
	return h.exec(ctx, "discard metas", `WITH s AS (SELECT id, low, set_config('synchronous_commit', `+async+`, true) FROM stream
			WHERE id = $1 AND epoch = $2 AND life = $3 AND NOT dropped FOR NO KEY UPDATE),
		u AS (UPDATE stream t SET low = $4 FROM s WHERE t.id = s.id AND s.low < $4)
		SELECT 1 FROM s`, number(kept))
}

// firstKept returns the first seq of the record that is kept when all that end before low are not.
func (s *state) firstKept(ctx context.Context, q querier, low uint64) (uint64, error) {
	if low > s.info.End {
		return s.info.End + 1, nil
	}
	if low <= s.info.Low {
		return s.info.Low, nil
	}
	x, ok, err := findExtent(ctx, q, s.life, kindRecord, low)
	if err != nil || !ok {
		return s.info.Low, err
	}
	var first, last uint64
	err = q.QueryRow(ctx, "SELECT first, last FROM "+tableName(kindRecord, x.no)+" WHERE stream = $1 AND first <= $2 ORDER BY stream DESC, first DESC LIMIT 1",
		s.life, number(low)).Scan(&first, &last)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.info.Low, nil
	case err == nil && last < low:
		return last + 1, nil
	}
	return first, err
}

// WritePart stores data as a row of a body table, under a number of its own, and then the name
// for that number. What the name stood for before is garbage.
func (h *hold) WritePart(ctx context.Context, name string, data []byte) error {
	err := journal.CheckPart(h.j.Limits(), name, data)
	if err == nil {
		err = h.check(ctx)
	}
	for n := 0; err == nil && n < maxGone; n++ {
		no := h.j.tables.now(kindBody)
		sealed := sealPart(data)
		err = h.exec(ctx, "write part", owned(synced)+`,
			d AS (INSERT INTO `+tableName(kindBody, no)+` SELECT $3::bigint, -nextval('piece'), 0, $5::bytea FROM s RETURNING first),
			p AS (INSERT INTO part SELECT $3::bigint, $4::text, $6::bigint, -first FROM d
				ON CONFLICT (life, name) DO UPDATE SET no = excluded.no, id = excluded.id)
			SELECT 1 FROM s`, name, sealed, no)
		if err == nil {
			h.j.tables.wrote(kindBody, len(sealed))
			h.j.garbage.add()
			return nil
		}
		if isGone(err) {
			err = h.j.reading(ctx, func(ctx context.Context) error { return h.j.tables.refresh(ctx, h.j.pool) })
		}
	}
	return h.fail(fmt.Sprintf("write part %q of", name), err)
}

// DeleteParts deletes names. The data is garbage from then on.
func (h *hold) DeleteParts(ctx context.Context, names []string) error {
	if names == nil {
		names = []string{}
	}
	err := h.exec(ctx, "delete parts", owned(synced)+", d AS (DELETE FROM part USING s WHERE life = $3 AND name = ANY($4::text[])) SELECT 1 FROM s", names)
	if err != nil {
		return h.fail("delete parts of", err)
	}
	h.j.garbage.add()
	return nil
}

// Drop marks the stream's row. The rows of its life are garbage from then on.
func (h *hold) Drop(ctx context.Context) error {
	h.mu.Lock()
	tried := h.dropped
	h.dropped = true
	h.mu.Unlock()
	if h.released.Load() && !tried {
		return h.fail("drop", journal.ErrClosed)
	}
	err := h.j.change(ctx, "drop", h.name, h.drop)
	if errors.Is(err, errRefused) {
		err = h.dropRefused(ctx, tried)
	}
	if err != nil {
		return h.fail("drop", err)
	}
	h.released.Store(true)
	h.j.garbage.add()
	return nil
}

func (h *hold) drop(ctx context.Context) error {
	return pgx.BeginFunc(ctx, h.j.pool, func(tx pgx.Tx) error {
		var one int
		err := tx.QueryRow(ctx, "SELECT 1 FROM stream WHERE id = $1 AND epoch = $2 AND life = $3 AND NOT dropped FOR UPDATE", h.id, int64(h.acquired.Epoch), h.life).Scan(&one)
		if errors.Is(err, pgx.ErrNoRows) {
			return errRefused
		}
		if err != nil {
			return changeError(err)
		}
		// No append is under way now: each holds the row.
		s, err := readState(ctx, tx, h.name)
		if err != nil {
			return changeError(err)
		}
		_, err = tx.Exec(ctx, "UPDATE stream SET dropped = true, ended = $2, crc = $3, time = $4, low = $2::bigint + 1 WHERE id = $1",
			h.id, int64(s.info.End), int64(s.info.EndCRC), s.info.EndTime)
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM part WHERE life = $1", h.life)
		}
		if err != nil {
			return changeError(err)
		}
		return nil
	})
}

// dropRefused settles a Drop that found no stream to drop.
func (h *hold) dropRefused(ctx context.Context, tried bool) error {
	return h.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s, err := readState(ctx, tx, h.name)
		switch {
		case err != nil:
			return unknown(err)
		case tried && (s.life != h.life || s.info.Dropped):
			return nil
		}
		return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, s.info.Epoch)
	})
}

// Release ends the hold.
func (h *hold) Release() error {
	h.released.Store(true)
	return nil
}
