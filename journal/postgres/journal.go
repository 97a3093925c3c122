package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastmq/holdfast/journal"
)

// hook is the type of journaltest.Hook.
type hook = func(ctx context.Context, op, stream string, after bool) error

// Journal is an open journal: a journal.Journal, a journal.Coordinator and a journal.Importer. Any
// number of processes may have it open.
type Journal struct {
	opts           Options
	user, database string
	log            *slog.Logger
	pool           *pgxpool.Pool
	tables         tables
	garbage        garbage

	//holdfast:allow context: its end is that of the journal, for all calls under way
	life  context.Context
	end   context.CancelFunc
	once  sync.Once
	loops sync.WaitGroup
}

var (
	_ journal.Journal     = (*Journal)(nil)
	_ journal.Coordinator = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
)

// Limits returns what the options say.
func (j *Journal) Limits() journal.Limits { return j.opts.limits() }

// Close ends all use of the journal and its connections.
func (j *Journal) Close() error {
	j.once.Do(func() {
		j.end()
		j.loops.Wait()
		j.pool.Close()
	})
	return nil
}

// call runs f, which makes requests to the server, with a context that also ends with the
// journal, and by Options.Timeout.
func (j *Journal) call(ctx context.Context, f func(ctx context.Context) error) error {
	return j.callFor(ctx, j.opts.Timeout, f)
}

// callFor is call with another bound.
func (j *Journal) callFor(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	if j.life.Err() != nil {
		return journal.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	own, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(j.life, cancel)()
	err := f(own)
	switch {
	case err == nil:
		return nil
	case j.life.Err() != nil:
		return journal.ErrClosed
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the server has not answered for %v: %w", timeout, err)
	case isLost(err):
		// The others are most likely no better.
		j.pool.Reset()
	}
	return err
}

// change runs f, which makes one change in the store, between the calls of the hook. Its error is f's, or says
// that the outcome is unknown.
func (j *Journal) change(ctx context.Context, op, stream string, f func(ctx context.Context) error) error {
	if j.opts.ReadOnly {
		return ErrReadOnly
	}
	return j.call(ctx, func(ctx context.Context) error {
		if j.opts.hook != nil {
			if err := j.opts.hook(ctx, op, stream, false); err != nil {
				return unknown(err)
			}
		}
		err := f(ctx)
		if j.opts.hook != nil {
			if err := j.opts.hook(ctx, op, stream, true); err != nil {
				return unknown(err)
			}
		}
		return err
	})
}

// snapshot runs f, which reads, on one state of the database. f is run again when a table was
// dropped between its looking it up and its reading it.
func (j *Journal) snapshot(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return j.reading(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, j.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			return f(ctx, tx)
		})
	})
}

// maxGone bounds how often a reading begins anew because a table has gone.
const maxGone = 100

func (j *Journal) reading(ctx context.Context, f func(ctx context.Context) error) error {
	return j.call(ctx, func(ctx context.Context) error {
		for n := 1; ; n++ {
			err := f(ctx)
			if !isGone(err) || n == maxGone {
				return err
			}
		}
	})
}

// Acquire makes the caller the stream's owner. It writes no record.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	h := &hold{reader: reader{j: j, name: name}}
	var uid journal.UID
	rand.Read(uid[:]) // never fails
	err := j.change(ctx, "acquire", name, func(ctx context.Context) error {
		err := j.pool.QueryRow(ctx, `
			INSERT INTO stream AS s (name, life, uid, epoch, ended, crc, time, low, dropped)
			VALUES ($1, nextval('life'), $2, 1, 0, 0, 0, 1, false)
			ON CONFLICT (name) DO UPDATE SET epoch = s.epoch + 1, dropped = false,
				uid = CASE WHEN s.dropped THEN excluded.uid ELSE s.uid END,
				life = CASE WHEN s.dropped THEN excluded.life ELSE s.life END
			RETURNING id, life, uid, epoch`, name, uid[:]).Scan(&h.id, &h.life, bytesOf(&h.acquired.UID), &h.acquired.Epoch)
		if err != nil {
			return changeError(err)
		}
		return nil
	})
	if err == nil {
		err = j.takeOver(ctx, h)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, err)
	}
	return h, nil
}

// takeOver reads where the stream ends that h has just acquired or imported, and notes it for owners
// before: see fence in settle.go.
func (j *Journal) takeOver(ctx context.Context, h *hold) error {
	var s state
	err := j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		s, err = readState(ctx, tx, h.name)
		return err
	})
	if err != nil {
		return err
	}
	own := h.acquired
	h.acquired = s.info
	h.acquired.Epoch, h.acquired.UID, h.acquired.Dropped = own.Epoch, own.UID, false
	h.known = position{s.info.End, s.info.EndCRC, s.info.EndTime}
	h.recordTable, h.bodyTable = s.recordTable, s.bodyTable
	if s.info.Epoch != own.Epoch {
		return nil // fenced already: it can store nothing, and has no end of its own to note
	}
	return j.change(ctx, "note end", h.name, func(ctx context.Context) error {
		// Not synchronous: whatever this owner stores is synced behind it.
		_, err := j.pool.Exec(ctx, `
			WITH async AS (SELECT set_config('synchronous_commit', 'off', true) AS x),
			old AS (DELETE FROM fence WHERE stream = $1 AND epoch <= $2::bigint - $5::bigint)
			INSERT INTO fence (stream, epoch, ended, crc) SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint FROM async WHERE x IS NOT NULL ON CONFLICT DO NOTHING`,
			h.id, int64(own.Epoch), int64(s.info.End), int64(s.info.EndCRC), int64(maxFences))
		if err != nil {
			return changeError(err)
		}
		return nil
	})
}

// maxFences bounds how many epochs a stream remembers the ends of. An owner that is more takeovers late than
// that is told ErrUnknown where it could be told more.
const maxFences = 256

// Import makes the caller the owner of a copy.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	if from.End > math.MaxInt64 || from.Epoch > math.MaxInt64 {
		return nil, fmt.Errorf("import stream %q: end %d, epoch %d: %w", name, from.End, from.Epoch, journal.ErrInvalid)
	}
	h := &hold{reader: reader{j: j, name: name}, imports: true}
	err := j.change(ctx, "import", name, func(ctx context.Context) error {
		// Another uid, or a dropped stream, matches no row.
		err := j.pool.QueryRow(ctx, `
			INSERT INTO stream AS s (name, life, uid, epoch, ended, crc, time, low, dropped)
			VALUES ($1, nextval('life'), $2, $3, $4, $5, $6, $4::bigint + 1, false)
			ON CONFLICT (name) DO UPDATE SET epoch = GREATEST(s.epoch + 1, excluded.epoch)
				WHERE s.uid = excluded.uid AND NOT s.dropped
			RETURNING id, life, uid, epoch`,
			name, from.UID[:], int64(from.Epoch), int64(from.End), int64(from.EndCRC), from.EndTime,
		).Scan(&h.id, &h.life, bytesOf(&h.acquired.UID), &h.acquired.Epoch)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("there is another stream of that name, or it was dropped: %w", journal.ErrConflict)
		case err != nil:
			return changeError(err)
		}
		return nil
	})
	if err == nil {
		err = j.takeOver(ctx, h)
	}
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	return h, nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.call(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, fmt.Errorf("open stream %q: %w", name, err)
	}
	return &reader{j: j, name: name}, nil
}

// streamPage is how many streams are listed at once.
const streamPage = 200

// Streams lists the streams by name.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		last := ""
		for {
			var infos []journal.Info
			err := j.snapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
				infos = infos[:0]
				states, err := readStates(ctx, tx, "s.name > $1 ORDER BY s.name LIMIT $2", last, streamPage)
				for _, s := range states {
					infos = append(infos, s.info)
				}
				return err
			})
			if err != nil {
				yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
				last = info.Name
			}
			if len(infos) < streamPage {
				return
			}
		}
	}
}

// bytesOf makes a uid a target of Scan.
func bytesOf(uid *journal.UID) *uidScanner { return (*uidScanner)(uid) }

type uidScanner journal.UID

// ScanBytes takes over a bytea.
func (u *uidScanner) ScanBytes(v []byte) error {
	if len(v) != len(u) {
		return fmt.Errorf("stream uid of %d bytes: %w", len(v), journal.ErrCorrupt)
	}
	copy(u[:], v)
	return nil
}
