package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// §4: the contract, on the real server, with tables of the usual size and with ones that are rolled, compacted and
// dropped all the time.
func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"default":      {},
		"small tables": {RangeBytes: 1, every: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			journaltest.Run(t, journaltest.Config{
				NewStore: func(t testing.TB) journaltest.Store { return newStore(t, server, opts) },
				Shared:   true, Persistent: true, Hooks: true, Damages: true, Coordinates: true, Imports: true,
				Records: 60, Takeovers: 40,
			})
		})
	}
}

func newStore(t testing.TB, s *testserver.Server, opts Options) journaltest.Store {
	url := newSchema(t, s)
	opts = quiet(opts)
	return journaltest.Store{
		Open:    func(ctx context.Context) (journal.Journal, error) { return Open(ctx, url, opts) },
		SetHook: func(h journaltest.Hook) { opts.hook = h },
		Damage:  func(ctx context.Context, d journaltest.Damage) error { return damage(ctx, url, d) },
	}
}

// damage changes rows behind the journal's back.
func damage(ctx context.Context, url string, d journaltest.Damage) error {
	j, err := Open(ctx, url, quiet(Options{}))
	if err != nil {
		return err
	}
	defer j.Close() //nolint:errcheck // it was only a way to the tables
	return pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
		// A collector would move the rows meanwhile.
		if _, err := tx.Exec(ctx, advisoryLock("pg_advisory_xact_lock", j.opts.Schema, lockCollect)); err != nil {
			return err
		}
		s, err := readState(ctx, tx, d.Stream)
		if err != nil {
			return err
		}
		for kind, at := range map[int]map[journaltest.DamageKind]int{
			kindRecord: {journaltest.FlipHeader: 20, journaltest.FlipMeta: journal.HeaderSize, journaltest.NewerVersion: 0, journaltest.Remove: -1},
			kindBody:   {journaltest.FlipHeader: 20, journaltest.FlipBody: journal.HeaderSize, journaltest.NewerVersion: 0},
		} {
			pos, ok := at[d.Kind]
			x, found, err := findExtent(ctx, tx, s.life, kind, d.Seq)
			if err != nil || !found {
				return fmt.Errorf("no extent of kind %d for seq %d (%w)", kind, d.Seq, err)
			}
			where := " WHERE stream = $1 AND first = $2"
			switch {
			case !ok:
			case pos < 0:
				_, err = tx.Exec(ctx, "DELETE FROM "+tableName(kind, x.no)+where, s.life, int64(d.Seq))
			default:
				_, err = tx.Exec(ctx, "UPDATE "+tableName(kind, x.no)+" SET data = set_byte(data, $3, get_byte(data, $3) # 128)"+where, s.life, int64(d.Seq), pos)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
