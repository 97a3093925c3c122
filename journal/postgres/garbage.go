package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// garbage is what the collector of this process knows.
type garbage struct {
	made atomic.Bool // by this process, since it last collected

	// What follows is the collector's alone.
	marks map[int64]string // of tables, when they were last measured
	last  time.Time        // when it last looked
}

func (g *garbage) add() { g.made.Store(true) }

const (
	// collectEvery is how often garbage is looked for, in ticks, where this process has made some.
	collectEvery = 5
	// collectIdle is how often it is looked for where it has not.
	collectIdle = time.Minute
	// lockPatience bounds how long a table is waited for that somebody reads. Whoever comes to it meanwhile waits too.
	lockPatience = 50 * time.Millisecond
	// smallGain is the part of a range that one table has to give back to be worth a copy.
	smallGain = 16
	// collectTimeout bounds the copying of one group of tables.
	collectTimeout = 5 * time.Minute
	// maxMeasured bounds the tables that are measured in one pass.
	maxMeasured = 32
)

// maintain looks after the tables until the journal is closed.
func (j *Journal) maintain() {
	tick := time.NewTicker(j.opts.every)
	defer tick.Stop()
	warn := func(what string, err error) {
		if err != nil && j.life.Err() == nil {
			j.log.Warn("postgres journal: "+what+"; it is tried again", "error", err)
		}
	}
	j.garbage.marks = map[int64]string{}
	j.garbage.last = time.Now()
	for n := 1; ; n++ {
		select {
		case <-j.life.Done():
			return
		case <-tick.C:
		}
		for kind := range kindNames {
			warn("a new table could not be opened", j.roll(j.life, kind))
		}
		if n%collectEvery == 0 && j.garbage.made.Swap(false) || time.Since(j.garbage.last) > collectIdle {
			j.garbage.last = time.Now()
			again, err := j.collect(j.life)
			warn("garbage could not be collected", err)
			if again || err != nil {
				j.garbage.add()
			}
		}
	}
}

// candidate is a closed table that something may be dead in.
type candidate struct {
	no   int64
	kind int
	mark string // changes when something in it dies
	live int64  // bytes
	size int64  // bytes on disk
}

// collect drops the tables in which everything is dead, and copies what is alive in tables that are mostly dead. It tells
// whether there was more than it has done. One process does it at a time.
func (j *Journal) collect(ctx context.Context) (again bool, err error) {
	found, err := j.candidates(ctx)
	if err != nil {
		return false, err
	}
	seen := map[int64]string{}
	measured := 0
	thin := map[int][]candidate{}
	for _, c := range found {
		if j.garbage.marks[c.no] == c.mark {
			seen[c.no] = c.mark
			continue
		}
		if measured++; measured > maxMeasured {
			again = true
			break
		}
		if err := j.measure(ctx, &c); err != nil {
			if isGone(err) {
				continue // another process was faster
			}
			return false, err
		}
		if c.live*2 < c.size {
			thin[c.kind] = append(thin[c.kind], c)
			continue // without a mark: it is measured again if it is still there
		}
		seen[c.no] = c.mark
	}
	j.garbage.marks = seen
	for kind, list := range thin {
		for _, group := range groups(list, j.opts.RangeBytes) {
			if c := group[0]; len(group) == 1 && c.live > 0 && c.size-c.live < j.opts.RangeBytes/smallGain {
				seen[c.no] = c.mark // a table has some pages however little is in it
				continue
			}
			done, err := j.compact(ctx, kind, group)
			if err != nil {
				return true, err
			}
			again = again || !done
		}
	}
	return again, nil
}

// groups puts tables together whose living rows fill one table. Those without any are each alone: they are
// dropped, which needs no copy.
func groups(list []candidate, size int64) [][]candidate {
	var out [][]candidate
	var open []candidate
	sum := int64(0)
	for _, c := range list {
		if c.live == 0 {
			out = append(out, []candidate{c})
			continue
		}
		if len(open) > 0 && sum+c.live > size {
			out, open, sum = append(out, open), nil, 0
		}
		open, sum = append(open, c), sum+c.live
	}
	if len(open) > 0 {
		out = append(out, open)
	}
	return out
}

// candidates lists the closed tables, each with a mark that is made of what dying rows change: the deletions
// that the server has counted, the names of parts that point to it, and the streams whose records it has with
// the lowest seq that each keeps.
func (j *Journal) candidates(ctx context.Context) (found []candidate, err error) {
	err = j.call(ctx, func(ctx context.Context) error {
		rows, err := j.pool.Query(ctx, `
			WITH live AS (
				SELECT x.no, sum(hashtextextended(x.life || ' ' || x.first || ' ' || CASE WHEN x.kind = 1 THEN LEAST(s.low, COALESCE(x.next, s.low)) ELSE 0 END, 0)) AS mark
				FROM (SELECT no, life, kind, first, lead(first) OVER (PARTITION BY life, kind ORDER BY first) AS next FROM extent) x
				JOIN stream s ON s.life = x.life AND NOT s.dropped
				GROUP BY x.no),
			parts AS (SELECT no, count(*) AS n, sum(id) AS ids FROM part GROUP BY no)
			SELECT r.no, r.kind, concat_ws(' ', pg_stat_get_tuples_deleted(c.oid), live.mark, parts.n, parts.ids)
			FROM range r
			JOIN pg_class c ON c.relnamespace = current_schema()::regnamespace
				AND c.relname = (CASE r.kind WHEN 1 THEN 'record_' ELSE 'body_' END) || r.no
			LEFT JOIN live ON live.no = r.no
			LEFT JOIN parts ON parts.no = r.no
			WHERE r.closed ORDER BY r.no`)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
			err = row.Scan(&c.no, &c.kind, &c.mark)
			return c, err
		})
		return err
	})
	return found, err
}

// liveSQL is the condition for a row r of table no to be alive.
func liveSQL(kind int, no int64) string {
	if kind == kindRecord {
		return "EXISTS (SELECT 1 FROM stream s WHERE s.life = r.stream AND NOT s.dropped AND r.last >= s.low)"
	}
	return fmt.Sprintf(`CASE WHEN r.first > 0 THEN EXISTS (SELECT 1 FROM stream s WHERE s.life = r.stream AND NOT s.dropped)
		ELSE EXISTS (SELECT 1 FROM part p WHERE p.life = r.stream AND p.no = %d AND p.id = -r.first) END`, no)
}

// rowBytes is what a row takes beside its data.
const rowBytes = 120

func (j *Journal) measure(ctx context.Context, c *candidate) error {
	return j.callFor(ctx, collectTimeout, func(ctx context.Context) error {
		name := tableName(c.kind, c.no)
		// Not exact: the file has pages that are not full.
		return j.pool.QueryRow(ctx, fmt.Sprintf(`SELECT COALESCE(sum(octet_length(r.data) + %d) FILTER (WHERE %s), 0)::bigint, pg_total_relation_size('%s'::regclass) FROM %s r`,
			rowBytes, liveSQL(c.kind, c.no), name, name)).Scan(&c.live, &c.size)
	})
}

// errBusy says that another process is at it, or that somebody uses the table.
var errBusy = errors.New("busy")

// compact puts the living rows of tables into a new one, if there are any, and drops the tables. It tells whether it
// could: somebody who reads one of them, for longer than a moment, holds it up.
func (j *Journal) compact(ctx context.Context, kind int, group []candidate) (done bool, err error) {
	err = j.callFor(ctx, collectTimeout, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error { return j.compactIn(ctx, tx, kind, group) })
	})
	if errors.Is(err, errBusy) || code(err) == codeLockTimeout || code(err) == codeDeadlock || isGone(err) {
		return false, nil
	}
	return err == nil, err
}

func (j *Journal) compactIn(ctx context.Context, tx pgx.Tx, kind int, group []candidate) error {
	var mine bool
	if err := tx.QueryRow(ctx, advisoryLock("pg_try_advisory_xact_lock", j.opts.Schema, lockCollect)).Scan(&mine); err != nil {
		return err
	}
	if !mine {
		return errBusy
	}
	exec := func(sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	live := int64(0)
	var names []string
	var nos []int64
	for _, c := range group {
		live += c.live
		names, nos = append(names, tableName(c.kind, c.no)), append(nos, c.no)
	}
	list := strings.Join(names, ", ")
	if err := exec(fmt.Sprintf("SET LOCAL lock_timeout = %d", lockPatience.Milliseconds())); err != nil {
		return err
	}
	// From here on nobody changes them. A process that holds them for current, or repeats an old append, meets a table that is no more.
	mode := "EXCLUSIVE"
	if live == 0 {
		mode = "ACCESS EXCLUSIVE"
	}
	if err := exec("LOCK TABLE " + list + " IN " + mode + " MODE"); err != nil {
		return err
	}
	if live > 0 {
		to, err := makeTable(ctx, tx, kind, false)
		if err != nil {
			return err
		}
		if err := moveRows(ctx, tx, kind, nos, to); err != nil {
			return err
		}
	} else if err := stillDead(ctx, tx, kind, nos); err != nil {
		return err
	}
	if kind == kindRecord {
		if err := keepEnds(ctx, tx, nos); err != nil {
			return err
		}
	}
	if err := exec("DELETE FROM extent WHERE no = ANY($1)", nos); err != nil {
		return err
	}
	if err := exec("DELETE FROM range WHERE no = ANY($1)", nos); err != nil {
		return err
	}
	return exec("DROP TABLE " + list)
}

// moveRows copies what is alive to another table, and makes extents and parts name that one.
func moveRows(ctx context.Context, tx pgx.Tx, kind int, nos []int64, to int64) error {
	for _, no := range nos {
		sql := fmt.Sprintf("INSERT INTO %s SELECT r.* FROM %s r WHERE %s", tableName(kind, to), tableName(kind, no), liveSQL(kind, no))
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if kind == kindBody {
		if _, err := tx.Exec(ctx, "UPDATE part SET no = $2 WHERE no = ANY($1)", nos, to); err != nil {
			return err
		}
	}
	// Of a stream of which nothing is left in them, no extent has to tell.
	_, err := tx.Exec(ctx, "UPDATE extent x SET no = $2 WHERE no = ANY($1) AND EXISTS (SELECT 1 FROM "+tableName(kind, to)+" r WHERE r.stream = x.life AND r.first >= x.first)", nos, to)
	return err
}

// stillDead verifies that nothing has become alive since it was measured.
func stillDead(ctx context.Context, tx pgx.Tx, kind int, nos []int64) error {
	for _, no := range nos {
		var alive bool
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s r WHERE %s)", tableName(kind, no), liveSQL(kind, no))).Scan(&alive); err != nil {
			return err
		}
		if alive {
			return errBusy
		}
	}
	return nil
}

// keepEnds writes the ends of streams whose newest records are dead into their own rows.
func keepEnds(ctx context.Context, tx pgx.Tx, nos []int64) error {
	for _, no := range slices.Sorted(slices.Values(nos)) {
		_, err := tx.Exec(ctx, `
			UPDATE stream s SET ended = x.last, crc = `+littleEndian("x.data", 72, 4)+", time = "+littleEndian("x.data", 44, 8)+` FROM (
				SELECT DISTINCT ON (r.stream) r.stream, r.last, r.data FROM `+tableName(kindRecord, no)+` r ORDER BY r.stream, r.first DESC) x
			WHERE s.life = x.stream AND s.ended < x.last AND x.last < s.low AND NOT s.dropped`)
		if err != nil {
			return err
		}
	}
	return nil
}

// littleEndian is an expression for a number inside a bytea.
func littleEndian(data string, at, length int) string {
	var parts []string
	for i := range length {
		parts = append(parts, fmt.Sprintf("(get_byte(%s, %d)::bigint << %d)", data, at+i, 8*i))
	}
	return "(" + strings.Join(parts, " | ") + ")"
}
