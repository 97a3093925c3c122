package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast/journal"
)

// writer appends records, and knows where its stream ends.
type writer struct {
	t    testing.TB
	s    journal.Stream
	last journal.Header
}

func newWriter(t testing.TB, j journal.Journal, name string) *writer {
	t.Helper()
	s, err := j.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	at := s.Acquired()
	return &writer{t, s, journal.Header{UID: at.UID, Epoch: at.Epoch, First: at.End, Count: 1, CRC: at.EndCRC, Time: at.EndTime}}
}

// next makes the next record, of one event.
func (w *writer) next(meta, body int) *journal.Record {
	w.t.Helper()
	r := &journal.Record{
		Header: journal.Header{UID: w.last.UID, Epoch: w.last.Epoch, First: w.last.Last() + 1, Count: 1, Kind: journal.KindEvents, Time: w.last.Time + 1},
		Meta:   make([]byte, meta),
	}
	if body > 0 {
		r.Body = [][]byte{make([]byte, body)}
		r.Body[0][0] = byte(r.First)
	}
	if err := r.Seal(w.last.CRC); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// try appends a record once.
func (w *writer) try(ctx context.Context, r *journal.Record) error {
	err := w.s.Append(ctx, r.First-1, r)
	if err == nil {
		w.last = r.Header
	}
	return err
}

// put appends a new record, which must succeed at once.
func (w *writer) put(meta, body int) {
	w.t.Helper()
	if err := w.try(w.t.Context(), w.next(meta, body)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) discard(from, to uint64) {
	w.t.Helper()
	if err := w.s.DiscardBodies(w.t.Context(), []journal.Range{{From: from, To: to}}); err != nil {
		w.t.Fatal(err)
	}
}

// connect opens a connection of the test's own.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// usage returns what the journal's tables take on disk, and their number.
func usage(t testing.TB, j *Journal) (bytes int64, tables int) {
	t.Helper()
	err := j.pool.QueryRow(t.Context(), `SELECT COALESCE(sum(pg_total_relation_size(oid)), 0)::bigint, count(*) FROM pg_class
		WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`).Scan(&bytes, &tables)
	if err != nil {
		t.Fatal(err)
	}
	return bytes, tables
}

// until waits for a condition that becomes true by itself.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within a minute: %s", what)
		}
	}
}

// §4: space comes back, little and often, and neither it nor the speed of appends and reads depends on a transaction that
// somebody keeps open elsewhere in the database.
func TestLongTransactionElsewhere(t *testing.T) {
	j := openTest(t, newSchema(t, server), Options{RangeBytes: 1 << 20, every: 50 * time.Millisecond})
	other := connect(t, server.URL())
	if _, err := other.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS elsewhere (x int)"); err != nil {
		t.Fatal(err)
	}
	tx, err := other.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM elsewhere").Scan(&n); err != nil {
		t.Fatal(err)
	}

	const depth = 100
	records := 5000 * soak
	w := newWriter(t, j, "orders")
	w.put(10, 300) // never discarded
	took := make([]time.Duration, 0, records)
	most := int64(0)
	for i := range records {
		start := time.Now()
		w.put(40, 400)
		took = append(took, time.Since(start))
		if end := w.last.First; i%10 == 9 && end > depth {
			w.discard(2, end-depth)
			if i%500 == 499 {
				if err := w.s.DiscardMeta(t.Context(), end-depth); err != nil {
					t.Fatal(err)
				}
				size, _ := usage(t, j)
				most = max(most, size)
			}
		}
	}
	if limit := int64(12 << 20); most > limit {
		t.Errorf("the tables took up to %d bytes while %d records passed, want at most %d", most, records, limit)
	}
	tenth := records / 10
	first, last := median(took[:tenth]), median(took[records-tenth:])
	t.Logf("%d records: append took %v at first, %v at last; the tables took up to %d KiB", records, first, last, most>>10)
	if last > 2*first+2*time.Millisecond {
		t.Errorf("an append took %v at first and %v at last", first, last)
	}
	until(t, "the dead tables gone", func() bool {
		j.garbage.add()
		_, tables := usage(t, j)
		return tables < 8+8
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.wantAlive(w.last.First-depth+1, append([]uint64{1}, seqs(w.last.First-depth+1, w.last.First)...))
}

// wantAlive requires that metas are kept from low on, and bodies of exactly these records.
func (w *writer) wantAlive(low uint64, bodies []uint64) {
	w.t.Helper()
	next := low
	for rec, err := range w.s.ReadMeta(w.t.Context(), low, w.last.First) {
		if err != nil {
			w.t.Fatal(err)
		}
		if rec.First != next {
			w.t.Fatalf("seq %d, want %d", rec.First, next)
		}
		next++
	}
	if next != w.last.First+1 {
		w.t.Fatalf("metas end before seq %d, want up to %d", next, w.last.First)
	}
	var got []uint64
	for rec, err := range w.s.ReadBodies(w.t.Context(), seqs(1, w.last.First)) {
		if err != nil {
			w.t.Fatal(err)
		}
		got = append(got, rec.First)
	}
	if !slices.Equal(got, bodies) {
		w.t.Fatalf("%d bodies are there, want %d: %v", len(got), len(bodies), got)
	}
}

func seqs(from, to uint64) []uint64 {
	var all []uint64
	for s := from; s <= to; s++ {
		all = append(all, s)
	}
	return all
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

// §4: one old message cannot pin a table, nor can one idle stream: what is alive in tables that are mostly
// dead is copied, and found where it is then, by other handles too.
func TestThinTablesAreCompacted(t *testing.T) {
	url := newSchema(t, server)
	j := openTest(t, url, Options{RangeBytes: 256 << 10, every: 10 * time.Millisecond})
	other := openTest(t, url, Options{every: time.Hour})
	idle := newWriter(t, j, "idle")
	w := newWriter(t, j, "orders")
	const records = 3000
	var kept []uint64
	for i := range records {
		if i%300 == 0 {
			idle.put(50, 100)
			if err := idle.s.WritePart(t.Context(), fmt.Sprintf("part %d", i/900), fmt.Appendf(nil, "part of %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		w.put(60, 700)
	}
	from := uint64(1)
	for s := uint64(50); s <= records; s += 50 {
		w.discard(from, s-1)
		kept, from = append(kept, s), s+1
	}
	low := uint64(records - 10)
	if err := w.s.DiscardMeta(t.Context(), low); err != nil {
		t.Fatal(err)
	}
	// Alive are 60 bodies of 700 bytes, 10 of idle, and few metas: one table of each kind beside the current ones.
	until(t, "the tables compacted", func() bool {
		j.garbage.add()
		size, tables := usage(t, j)
		return tables <= 7+2+3 && size < 1<<20
	})
	w.wantAlive(low, kept)
	idle.wantAlive(1, seqs(1, 10))
	for i, want := range []int{600, 1500, 2400, 2700} {
		r, err := other.Open(t.Context(), "idle")
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.ReadPart(t.Context(), fmt.Sprintf("part %d", i))
		if err != nil || string(got) != fmt.Sprintf("part of %d", want) {
			t.Fatalf("part %d: %q, %v", i, got, err)
		}
	}
	// Owners before and after go on.
	w.put(10, 10)
	n := newWriter(t, other, "idle")
	n.put(10, 10)
	n.wantAlive(1, seqs(1, 11))
}

// §4: the end of a stream survives its tables, and a dropped stream leaves nothing behind.
func TestEverythingDead(t *testing.T) {
	url := newSchema(t, server)
	j := openTest(t, url, Options{RangeBytes: 64 << 10, every: 10 * time.Millisecond})
	w, gone, busy := newWriter(t, j, "orders"), newWriter(t, j, "gone"), newWriter(t, j, "busy")
	for range 300 {
		w.put(100, 300)
		gone.put(100, 300)
	}
	if err := gone.s.WritePart(t.Context(), "p", make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	if err := gone.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.discard(1, w.last.First)
	if err := w.s.DiscardMeta(t.Context(), w.last.First+1); err != nil {
		t.Fatal(err)
	}
	before, err := w.s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The tables that they are in are closed, and then have nothing alive.
	record, body := j.tables.now(kindRecord), j.tables.now(kindBody)
	for j.tables.now(kindRecord) == record || j.tables.now(kindBody) == body {
		busy.put(100, 300)
	}
	if err := busy.s.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "their extents gone", func() bool {
		j.garbage.add()
		var n int
		if err := j.pool.QueryRow(t.Context(), "SELECT count(*) FROM extent x JOIN stream s ON s.life = x.life WHERE s.name = 'orders'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	if after, err := w.s.Info(t.Context()); err != nil || after != before {
		t.Fatalf("the info was\n%+v and is\n%+v (%v)", before, after, err)
	}
	if err := w.try(t.Context(), w.next(10, 10)); err != nil {
		t.Fatal(err)
	}
	w.wantAlive(w.last.First, []uint64{w.last.First})
	again := newWriter(t, j, "gone")
	if at := again.s.Acquired(); at.End != 300 || at.UID == gone.last.UID {
		t.Fatalf("dropped at end 300, acquired %+v", at)
	}
}
