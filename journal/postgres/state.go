package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// state is what the store has of a stream.
type state struct {
	id, life int64
	info     journal.Info
	// recordTable and bodyTable are the tables that the newest of either went to, 0 for none.
	recordTable, bodyTable int64
}

// readState reads a stream's state on one snapshot. One that does not exist has id 0.
func readState(ctx context.Context, q querier, name string) (state, error) {
	states, err := readStates(ctx, q, "s.name = $1", name)
	if err != nil || len(states) == 0 {
		return state{info: journal.Info{Name: name, Low: 1}}, err
	}
	return states[0], nil
}

// readStates reads the states of the streams that where selects, on one snapshot.
func readStates(ctx context.Context, q querier, where string, args ...any) ([]state, error) {
	rows, err := q.Query(ctx, `
		SELECT s.id, s.life, s.name, s.uid, s.epoch, s.ended, s.crc, s.time, s.low, s.dropped,
			COALESCE((SELECT no FROM extent e WHERE e.life = s.life AND kind = 1 ORDER BY first DESC LIMIT 1), 0),
			COALESCE((SELECT no FROM extent e WHERE e.life = s.life AND kind = 2 ORDER BY first DESC LIMIT 1), 0)
		FROM stream s WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (state, error) {
		var s state
		i := &s.info
		err := row.Scan(&s.id, &s.life, &i.Name, bytesOf(&i.UID), &i.Epoch, &i.End, &i.EndCRC, &i.EndTime, &i.Low, &i.Dropped, &s.recordTable, &s.bodyTable)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	for i := range states {
		if s := &states[i]; !s.info.Dropped {
			if err := s.findEnd(ctx, q); err != nil {
				return nil, err
			}
		}
	}
	return states, nil
}

// findEnd sets the end to the stream's newest record. The row of the stream itself has an end too, which is behind, and
// counts only where the newest record's table has gone.
func (s *state) findEnd(ctx context.Context, q querier) error {
	i := &s.info
	if s.recordTable != 0 {
		err := s.newest(ctx, q, "SELECT last, substring(data FROM 1 FOR 76) FROM "+tableName(kindRecord, s.recordTable)+
			" WHERE stream = $1 AND last > $2 ORDER BY stream DESC, first DESC LIMIT 1")
		if err != nil {
			return err
		}
	}
	if s.bodyTable != 0 {
		// A body behind the end is there only if its record's row was lost. Then the end is the body's, and whoever reads
		// up to it finds the damage.
		err := s.newest(ctx, q, "SELECT last, substring(data FROM 1 FOR 76) FROM "+tableName(kindBody, s.bodyTable)+
			" WHERE stream = $1 AND first > $2 ORDER BY stream DESC, first DESC LIMIT 1")
		if err != nil {
			return err
		}
	}
	if i.Low > i.End+1 {
		return &journal.CorruptError{Stream: i.Name, Seq: i.End + 1, What: fmt.Sprintf("everything below seq %d is discarded, but the stream ends at %d", i.Low, i.End)}
	}
	return nil
}

// newest takes over the end from the row that sql finds behind the end known so far.
func (s *state) newest(ctx context.Context, q querier, sql string) error {
	var last uint64
	var header []byte
	err := q.QueryRow(ctx, sql, s.life, int64(s.info.End)).Scan(&last, &header)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	s.info.End = last
	// Not verified here: who reads the record finds the damage, and can name it.
	if len(header) == journal.HeaderSize {
		s.info.EndCRC = binary.LittleEndian.Uint32(header[72:])
		s.info.EndTime = int64(binary.LittleEndian.Uint64(header[44:]))
	}
	return nil
}

// extent says that the records, or bodies, of a life from seq first to before seq next are in table no.
type extent struct {
	no          int64
	first, next uint64 // next is 0 for the newest
}

// findExtent returns the extent that seq is in, and false if there is none.
func findExtent(ctx context.Context, q querier, life int64, kind int, seq uint64) (extent, bool, error) {
	var x extent
	err := q.QueryRow(ctx, `
		SELECT e.no, e.first, COALESCE((SELECT n.first FROM extent n WHERE n.life = e.life AND n.kind = e.kind AND n.first > e.first
			ORDER BY n.life, n.kind, n.first LIMIT 1), 0)
		FROM extent e WHERE e.life = $1 AND e.kind = $2 AND e.first <= $3 ORDER BY e.life DESC, e.kind DESC, e.first DESC LIMIT 1`,
		life, kind, int64(seq)).Scan(&x.no, &x.first, &x.next)
	if errors.Is(err, pgx.ErrNoRows) {
		return x, false, nil
	}
	return x, err == nil, err
}

// findExtents returns the extents that any of the seqs from…to may be in, in order.
func findExtents(ctx context.Context, q querier, life int64, kind int, from, to uint64) ([]extent, error) {
	rows, err := q.Query(ctx, `
		SELECT no, first FROM extent WHERE life = $1 AND kind = $2 AND first <= $4 AND first >= COALESCE(
			(SELECT first FROM extent WHERE life = $1 AND kind = $2 AND first <= $3 ORDER BY life DESC, kind DESC, first DESC LIMIT 1), 0)
		ORDER BY first`, life, kind, int64(from), int64(to))
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x extent, err error) {
		err = row.Scan(&x.no, &x.first)
		return x, err
	})
	for i := range found[:max(len(found), 1)-1] {
		found[i].next = found[i+1].first
	}
	return found, err
}
