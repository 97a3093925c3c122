package failovertest

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/queue"
)

var cyclesFlag = flag.Int("cycles", 0, "cycles of the tests of decay; 0 means 4000, and a million at full counts")

const (
	decayDepth = 100
	decayBody  = 1000
	// maxDead is what the disk may hold beside twice what is alive.
	maxDead = 256 << 20
)

// §4: a queue that lives at a constant depth of a hundred messages for a million of them costs at the end what it cost at the beginning, opens at
// once, and leaves no more on disk than the maintenance that the documentation names lets it. On PostgreSQL somebody keeps a transaction open elsewhere
// in the database all the while. Times are judged at full counts only, where the machine has nothing else to do.
func TestDecayPostgres(t *testing.T) {
	server := onPostgres.own(t)
	idle, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close(context.Background()) //nolint:errcheck // nothing is lost with it
	if _, err := idle.Exec(t.Context(), "CREATE TABLE elsewhere (x int)"); err != nil {
		t.Fatal(err)
	}
	tx, err := idle.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO elsewhere VALUES (1)"); err != nil { // it has a snapshot and a number from here on
		t.Fatal(err)
	}
	decay(t, onPostgres.url(server), 16)
	sizes := func() (tables, log int64) {
		t.Helper()
		if err := tx.QueryRow(t.Context(), "SELECT pg_database_size(current_database()), (SELECT sum(size)::bigint FROM pg_ls_waldir())").Scan(&tables, &log); err != nil {
			t.Fatal(err)
		}
		return tables, log
	}
	tables, log := sizes()
	t.Logf("the database takes %d MiB; the server's own log %d MiB", tables>>20, log>>20)
	// The tables need no maintenance, although nothing can be vacuumed. The log keeps what it may.
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background()) //nolint:errcheck // nothing is lost with it
	for _, do := range []string{"ALTER SYSTEM SET max_wal_size = '128MB'", "SELECT pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the setting", func() bool {
		var size string
		err := admin.QueryRow(t.Context(), "SHOW max_wal_size").Scan(&size)
		return err == nil && size == "128MB"
	})
	// A checkpoint gives back what is behind it, and not the files that were made ready for what is to come: they go as the log passes them.
	rounds := 0
	for most := int64(2*decayDepth*decayBody + maxDead); rounds == 0 || tables+log > most && rounds < 64; rounds++ {
		for _, do := range []string{"CHECKPOINT", "SELECT pg_switch_wal()"} {
			if _, err := admin.Exec(t.Context(), do); err != nil {
				t.Fatal(err)
			}
		}
		tables, log = sizes()
	}
	t.Logf("after %d checkpoints the database takes %d MiB; the server's own log %d MiB", rounds, tables>>20, log>>20)
	if tables+log > 2*decayDepth*decayBody+maxDead {
		t.Errorf("the disk holds %d MiB", (tables+log)>>20)
	}
}

// See TestDecayPostgres. The maintenance is nodetool flush and compact.
func TestDecayCassandra(t *testing.T) {
	if !clitest.Soak() {
		return // the node takes half a minute to start, and two cores are not enough for it and the others of a run
	}
	server, err := testserver.StartOwn("cassandra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })
	decay(t, server.URL(), 64)
	for _, what := range []string{"flush", "compact"} {
		if _, err := server.Run(t.Context(), "nodetool", "n1", what); err != nil {
			t.Fatal(err)
		}
	}
	data, log := du(t, filepath.Join(server.Dir(), "n1", "data")), du(t, filepath.Join(server.Dir(), "n1", "commitlog"))
	t.Logf("the data takes %d MiB, the commit log %d MiB", data>>20, log>>20)
	if data+log > 2*decayDepth*decayBody+maxDead {
		t.Errorf("the disk holds %d MiB", (data+log)>>20)
	}
}

// du returns what a folder takes on disk.
func du(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // it was deleted meanwhile
			}
			return err
		}
		if st, err := e.Info(); err == nil {
			bytes += st.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// embedded opens a broker in this process.
func embedded(t *testing.T, url string) (b *broker.Broker, closed func()) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	j, err := journals.Open(t.Context(), url, journals.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = broker.Open(t.Context(), j, broker.Options{Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	return b, func() {
		ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// decay runs cycles of a send, a receive and an acknowledgement, in several workers, on a queue of constant depth.
func decay(t *testing.T, url string, workers int) {
	t.Helper()
	cycles := 4000
	if clitest.Soak() {
		cycles = 1_000_000
	}
	cycles = cmp.Or(*cyclesFlag, cycles)
	b, closed := embedded(t, url)
	q := b.Queue("decay")
	if err := q.Create(t.Context(), queue.Config{}); err != nil {
		t.Fatal(err)
	}
	s, err := q.NewSender(holdfast.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, decayBody)
	for range decayDepth {
		if _, err := s.Send(t.Context(), holdfast.Message{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	took := make([]time.Duration, cycles)
	var next atomic.Int64
	var work sync.WaitGroup
	began := time.Now()
	for range workers {
		work.Go(func() {
			for n := next.Add(1) - 1; n < int64(cycles) && !t.Failed(); n = next.Add(1) - 1 {
				start := time.Now()
				if err := cycle(t.Context(), s, r, body); err != nil {
					t.Errorf("cycle %d: %v", n, err)
				}
				took[n] = time.Since(start)
			}
		})
	}
	work.Wait()
	whole := time.Since(began)
	info, err := q.Describe(t.Context())
	if err != nil || info.Stats.Depth != decayDepth {
		t.Fatalf("the depth is %d, %v", info.Stats.Depth, err)
	}
	for _, c := range []func(context.Context) error{s.Close, r.Close} {
		if err := c(t.Context()); err != nil {
			t.Error(err)
		}
	}
	closed()

	var tenths []string
	median := make([]time.Duration, 10)
	for i := range median {
		part := took[i*cycles/10 : (i+1)*cycles/10]
		slices.Sort(part)
		median[i] = part[len(part)/2]
		tenths = append(tenths, fmt.Sprintf("%.1f/%.1f", median[i].Seconds()*1e3, part[len(part)*99/100].Seconds()*1e3))
	}
	opening := time.Now()
	b, closed = embedded(t, url)
	defer closed()
	if info, err = b.Queue("decay").Describe(t.Context()); err != nil || !info.Ready || info.Stats.Depth != decayDepth {
		t.Fatalf("opened again: %+v, %v", info, err)
	}
	opened := time.Since(opening)
	t.Logf("%d cycles by %d workers in %v; median and 99th percentile of a cycle, by tenths, in ms: %v; opened again in %v", cycles, workers, whole, tenths, opened)
	if clitest.Soak() && (median[9] > 2*median[0] || opened > 2*time.Second) {
		t.Errorf("a cycle takes %v at the end, %v at the beginning; opening takes %v", median[9], median[0], opened)
	}
}

func cycle(ctx context.Context, s *holdfast.Sender, r *holdfast.Receiver, body []byte) error {
	if _, err := s.Send(ctx, holdfast.Message{Body: body}); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	ds, err := r.Receive(ctx, 1)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if err := r.Ack(ctx, ds...); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}
