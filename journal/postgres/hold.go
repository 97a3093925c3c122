package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// position is where a stream ends.
type position struct {
	end  uint64
	crc  uint32
	time int64
}

// hold is an owner's hold on a stream: a journal.Stream.
type hold struct {
	reader
	id, life int64
	imports  bool
	acquired journal.Info

	// What follows is of Append, and of the one call of it at a time.
	known   position
	pending *pending // an append whose outcome is unknown
	// recordTable and bodyTable are those that the newest extents of the stream name, 0 if that is not known.
	recordTable, bodyTable int64

	mu      sync.Mutex
	dropped bool // by this hold, or it tried to
}

var _ journal.Stream = (*hold)(nil)

// pending pins a record to the tables of its first try: there its repetition collides with itself.
type pending struct {
	position
	first        uint64
	record, body int64
}

// Acquired returns the stream's state at Acquire.
func (h *hold) Acquired() journal.Info { return h.acquired }

func (h *hold) fail(what string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, h.name, err)
}

// Append stores rec.
func (h *hold) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	check := journal.CheckAppend
	if h.imports {
		check = journal.CheckImported
	}
	err := check(h.acquired, h.j.Limits(), after, rec)
	if err == nil && rec.Last() > math.MaxInt64 {
		err = fmt.Errorf("record at seq %d: beyond what can be stored: %w", rec.First, journal.ErrInvalid)
	}
	if err == nil {
		err = h.check(ctx)
	}
	if err == nil {
		err = h.append(ctx, after, rec)
	}
	if err != nil {
		return h.fail(fmt.Sprintf("append after seq %d to", after), err)
	}
	return nil
}

func (h *hold) append(ctx context.Context, after uint64, rec *journal.Record) error {
	if p := h.pending; p != nil && p.first != rec.First && after == p.end {
		// The caller knows, or believes, that the one before is stored.
		if err := h.learn(ctx); err != nil {
			return err
		}
	}
	if after != h.known.end {
		return h.settled(rec, h.settle(ctx, after, rec))
	}
	if rec.PrevCRC != h.known.crc {
		return fmt.Errorf("%w: record follows CRC %08x, seq %d has CRC %08x", journal.ErrConflict, rec.PrevCRC, after, h.known.crc)
	}
	if rec.Time < h.known.time {
		return fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, after, h.known.time)
	}
	tried := h.pending != nil
	for range maxGone {
		err := h.insert(ctx, after, rec)
		full := errors.Is(err, journal.ErrFull)
		switch {
		case err == nil:
			return h.settled(rec, nil)
		case full && !tried:
			h.pending = nil
			return err
		case !full && !errors.Is(err, errRefused):
			return err
		}
		settled := h.settle(ctx, after, rec)
		switch {
		case !errors.Is(settled, errAgain):
			return h.settled(rec, settled)
		case full: // but an earlier try may still be on its way
			return unknown(err)
		}
		// The table has gone, and nothing of this record was in it: the next one.
		if err := h.j.reading(ctx, func(ctx context.Context) error { return h.j.tables.refresh(ctx, h.j.pool) }); err != nil {
			return unknown(err)
		}
		h.pending, tried = nil, false
	}
	return unknown(errAgain)
}

// settled takes over what is known of a record, and returns err.
func (h *hold) settled(rec *journal.Record, err error) error {
	switch {
	case errors.Is(err, errAgain):
		return unknown(err)
	case err == nil && rec.Last() > h.known.end:
		h.known = position{rec.Last(), rec.CRC, rec.Time}
	}
	if p := h.pending; p != nil && p.first == rec.First && !errors.Is(err, journal.ErrUnknown) {
		h.pending = nil
	}
	return err
}

// learn reads where the stream ends, if the owner still is one.
func (h *hold) learn(ctx context.Context) error {
	return h.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s, err := readState(ctx, tx, h.name)
		if err == nil && s.info.Epoch == h.acquired.Epoch && s.life == h.life && s.info.End == h.pending.end && s.info.EndCRC == h.pending.crc {
			h.known, h.pending = h.pending.position, nil
			h.recordTable, h.bodyTable = s.recordTable, s.bodyTable
		}
		return err
	})
}

// errRefused says that the server has refused an insert, for whatever reason.
var errRefused = errors.New("refused")

// insert makes one try of an append: one statement, which checks epoch, life and end on the stream's row, and holds that
// row against an Acquire until it is durable.
func (h *hold) insert(ctx context.Context, after uint64, rec *journal.Record) error {
	p := h.pending
	if p == nil {
		p = &pending{
			position: position{rec.Last(), rec.CRC, rec.Time}, first: rec.First,
			record: h.j.tables.now(kindRecord), body: h.j.tables.now(kindBody),
		}
	}
	header := journal.AppendHeader(make([]byte, 0, journal.HeaderSize+len(rec.Meta)), &rec.Header)
	meta := append(header, rec.Meta...)
	args := []any{h.id, int64(h.acquired.Epoch), h.life, int64(after), int64(rec.First), int64(rec.Last()), meta}
	hasBody := len(rec.Body) > 0 && rec.BodyLen > 0
	size := 0
	if hasBody {
		body := slices.Grow(slices.Clip(header), int(rec.BodyLen))
		for _, c := range rec.Body {
			body = append(body, c...)
		}
		args = append(args, body)
		size = len(body)
	}
	sql := appendSQL(p, hasBody, rec.Buffered, p.record != h.recordTable, hasBody && p.body != h.bodyTable)
	h.pending = p
	// Unless its answer comes, it is not known which tables the newest extents name. The next record notes them again then: one that goes
	// without a note to another table than they name is not found.
	h.recordTable = 0
	if hasBody {
		h.bodyTable = 0
	}
	stored := false
	err := h.j.change(ctx, "append", h.name, func(ctx context.Context) error {
		var one int
		err := h.j.pool.QueryRow(ctx, sql, args...).Scan(&one)
		switch {
		case errors.Is(err, pgx.ErrNoRows), code(err) == codeUniqueViolation, isGone(err):
			return errRefused
		case err != nil:
			return changeError(err)
		}
		stored = true
		return nil
	})
	if stored {
		// Also if the hook makes as if the answer was lost: tables are rolled by what was written.
		h.j.tables.wrote(kindRecord, len(meta))
		h.j.tables.wrote(kindBody, size)
	}
	if err == nil {
		h.recordTable = p.record
		if hasBody {
			h.bodyTable = p.body
		}
	}
	return err
}

// appendSQL is the statement of an append. All its parts see the same row of the stream, as it is once the lock
// on it is had.
func appendSQL(p *pending, hasBody, buffered, newRecord, newBody bool) string {
	async := "true"
	if buffered {
		async = "set_config('synchronous_commit', 'off', true) IS NOT NULL"
	}
	sql := "WITH s AS (SELECT " + async + ` FROM stream WHERE id = $1 AND epoch = $2 AND life = $3 AND NOT dropped AND ended <= $4 FOR SHARE),
		r AS (INSERT INTO ` + tableName(kindRecord, p.record) + " SELECT $3::bigint, $5::bigint, $6::bigint, $7::bytea FROM s RETURNING 1)"
	if hasBody {
		sql += ", b AS (INSERT INTO " + tableName(kindBody, p.body) + " SELECT $3::bigint, $5::bigint, $6::bigint, $8::bytea FROM s)"
	}
	if newRecord {
		sql += fmt.Sprintf(", xr AS (INSERT INTO extent SELECT $3::bigint, %d, $5::bigint, %d FROM s ON CONFLICT DO NOTHING)", kindRecord, p.record)
	}
	if newBody {
		sql += fmt.Sprintf(", xb AS (INSERT INTO extent SELECT $3::bigint, %d, $5::bigint, %d FROM s ON CONFLICT DO NOTHING)", kindBody, p.body)
	}
	return sql + " SELECT 1 FROM r"
}

// refusal says why a change under this hold's epoch matched no row.
func (h *hold) refusal(ctx context.Context) error {
	return h.j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		s, err := readState(ctx, tx, h.name)
		switch {
		case err != nil:
			return unknown(err)
		case s.info.Dropped && s.info.Epoch == h.acquired.Epoch:
			return fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)
		case s.info.Epoch != h.acquired.Epoch || s.life != h.life:
			return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, h.acquired.Epoch, s.info.Epoch)
		}
		return unknown(errors.New("the statement changed nothing"))
	})
}

// owned begins every other change: s has a row if the hold is still the owner's. $1…$3 are of it.
func owned(commit string) string {
	return "WITH s AS (SELECT set_config('synchronous_commit', " + commit + ", true) AS x FROM stream WHERE id = $1 AND epoch = $2 AND life = $3 AND NOT dropped FOR SHARE)"
}

// async is for changes that may be lost by a crash; synced keeps the server's setting.
const (
	async  = `'off'`
	synced = `current_setting('synchronous_commit')`
)

// exec makes a change by a statement that yields a row if the hold is still the owner's.
func (h *hold) exec(ctx context.Context, op, sql string, args ...any) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	args = append([]any{h.id, int64(h.acquired.Epoch), h.life}, args...)
	err := h.j.change(ctx, op, h.name, func(ctx context.Context) error {
		var one int
		err := h.j.pool.QueryRow(ctx, sql, args...).Scan(&one)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return errRefused
		case isGone(err):
			return err
		case err != nil:
			return changeError(err)
		}
		return nil
	})
	if errors.Is(err, errRefused) {
		return h.refusal(ctx)
	}
	return err
}
