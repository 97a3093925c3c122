package copier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/internal/testserver"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/jetstream"
	"github.com/holdfastmq/holdfast/journal/pebble"
	"github.com/holdfastmq/holdfast/journal/postgres"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// The servers of these tests: PostgreSQL, and a NATS cluster.
var server, nats *testserver.Server

var soak = 1

func TestMain(m *testing.M) {
	if src := os.Getenv(childSrc); src != "" {
		os.Exit(child(src, os.Getenv(childDst)))
	}
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		soak = 20
	}
	var err error
	if server, err = testserver.Start("postgres"); err == nil {
		nats, err = testserver.Start("nats")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := errors.Join(server.Stop(), nats.Stop(), clitest.Clean()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func openPebble(t *testing.T) journal.Journal {
	t.Helper()
	j, err := pebble.Open(filepath.Join(t.TempDir(), "store"), pebble.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func openPostgres(t *testing.T) journal.Journal {
	t.Helper()
	schema := fmt.Sprintf("copy_%d_%d", os.Getpid(), time.Now().UnixNano())
	j, err := postgres.Open(t.Context(), server.URL()+"?schema="+schema, postgres.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// jetStreamURL is the URL of a journal that is not there yet.
func jetStreamURL() string {
	var hosts []string
	for _, u := range nats.URLs() {
		hosts = append(hosts, u[strings.LastIndex(u, "@")+1:])
	}
	return fmt.Sprintf("nats://holdfast:holdfast@%s/copy%d?sync=always", strings.Join(hosts, ","), time.Now().UnixNano())
}

func openJetStream(t *testing.T) journal.Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := jetstream.Open(ctx, jetStreamURL(), jetstream.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// openBroker opens a broker that makes snapshots often. The caller closes it.
func openBroker(t *testing.T, j journal.Journal) *broker.Broker {
	t.Helper()
	return openBrokerWith(t, j, 60)
}

func openBrokerWith(t *testing.T, j journal.Journal, snapshotEvents int64) *broker.Broker {
	t.Helper()
	b, err := openLive(j, snapshotEvents)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openLive(j journal.Journal, snapshotEvents int64) (*broker.Broker, error) {
	return broker.Open(context.Background(), j, broker.Options{Logger: quiet, Persistent: persistent.Options{SnapshotEvents: snapshotEvents, SnapshotBytes: persistent.Never}})
}

func shut(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// copyAll copies everything, and requires that it is complete.
func copyAll(t *testing.T, src, dst journal.Journal) map[string]copier.Result {
	t.Helper()
	results, err := copier.Copy(t.Context(), src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]copier.Result{}
	for _, r := range results {
		all[r.Stream] = r
	}
	return all
}

// fill makes the queues of a broker interesting: delayed, leased, retried, dead-lettered, parked, keyed and
// acknowledged messages, one round of each.
func fill(t *testing.T, b *broker.Broker, round int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	mustBe(t, b.Queue("dead").Create(ctx, queue.Config{}))
	mustBe(t, b.Queue("orders").Create(ctx, queue.Config{RetryFirst: time.Hour, RetryCap: time.Hour, VisibilityTimeout: time.Hour}))
	mustBe(t, b.Queue("strict").Create(ctx, queue.Config{MaxDeliveries: 1, DeadLetter: "dead", VisibilityTimeout: time.Hour}))
	mustBe(t, b.Queue("parked").Create(ctx, queue.Config{MaxDeliveries: 1, VisibilityTimeout: time.Hour}))
	for _, name := range []string{"orders", "strict", "parked"} {
		q := b.Queue(name)
		var batch []holdfast.Message
		for i := range 40 {
			m := holdfast.Message{
				Body:     fmt.Appendf(nil, "%s %d/%d %s", name, round, i, make([]byte, 10*i)),
				Headers:  []holdfast.Header{{Name: "n", Value: fmt.Sprint(i)}, {Name: "round", Value: fmt.Sprint(round)}},
				Priority: i % 3,
			}
			if i%7 == 0 {
				m.Key = fmt.Sprintf("key %d", i%2)
			}
			if i%11 == 5 {
				m.Delay = time.Hour
			}
			batch = append(batch, m)
		}
		for i := 0; i < len(batch); i += 5 {
			_, err := q.SendBatch(ctx, batch[i:i+5])
			mustBe(t, err)
		}
		r, err := q.NewReceiver(holdfast.ReceiverOptions{Unbound: true, Visibility: time.Hour})
		mustBe(t, err)
		var got []*holdfast.Delivery
		for len(got) < 18 {
			ds, err := r.Receive(ctx, 18-len(got))
			mustBe(t, err)
			got = append(got, ds...)
		}
		for i, d := range got {
			switch i % 3 {
			case 0:
				mustBe(t, d.Ack(ctx))
			case 1:
				mustBe(t, d.Nack(ctx, 0))
			} // the others stay leased
		}
		mustBe(t, r.Close(ctx))
		mustBe(t, q.Close(ctx))
	}
	for moving := uint64(1); moving > 0; { // until the dead letters have arrived
		d, err := b.Queue("strict").Describe(ctx)
		mustBe(t, err)
		moving = d.Stats.Moving
	}
}

func mustBe(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, holdfast.ErrQueueExists) {
		t.Fatal(err)
	}
}

// contents is everything that can be seen of the queues, as text, by queue.
func contents(t *testing.T, b *broker.Broker) map[string]string {
	t.Helper()
	infos, err := b.Admin().List(t.Context())
	mustBe(t, err)
	all := map[string]string{}
	for _, info := range infos {
		var text []byte
		from := uint64(0)
		for {
			page, err := b.Queue(info.Name).Peek(t.Context(), holdfast.PeekOptions{From: from, Limit: 500, Bodies: true})
			mustBe(t, err)
			if len(page) == 0 {
				break
			}
			for _, m := range page {
				from = m.Seq + 1
				line, err := json.Marshal(struct {
					ID         string
					State      queue.State
					Deliveries int
					Message    holdfast.Message
					Hops       []message.Hop
				}{m.ID.String(), m.State, m.Deliveries, m.Message, m.Hops})
				mustBe(t, err)
				text = append(append(text, line...), '\n')
			}
		}
		d, err := b.Queue(info.Name).Describe(t.Context())
		mustBe(t, err)
		all[info.Name] = fmt.Sprintf("%+v\n%d in it\n%s", d.Config, d.Stats.Depth, text)
	}
	return all
}

// settled waits until what was on its way to other queues, as dead letters, has arrived: a broker goes on with that when it is opened.
func settled(t *testing.T, b *broker.Broker) {
	t.Helper()
	deadline := time.After(clitest.Patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		infos, err := b.Admin().List(t.Context())
		mustBe(t, err)
		moving := uint64(0)
		for _, info := range infos {
			moving += info.Stats.Moving
		}
		if moving == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d messages are still on their way to other queues", moving)
		}
	}
}

// wantSame requires that brokers on two journals serve the same queues. It closes them.
func wantSame(t *testing.T, a, b journal.Journal) {
	t.Helper()
	var both [2]map[string]string
	for i, j := range []journal.Journal{a, b} {
		br := openBroker(t, j)
		settled(t, br)
		both[i] = contents(t, br)
		shut(t, br)
	}
	if len(both[0]) != len(both[1]) {
		t.Fatalf("%d queues in the source, %d in the copy", len(both[0]), len(both[1]))
	}
	for name, want := range both[0] {
		if got := both[1][name]; got != want {
			t.Errorf("queue %q: the source has\n%s\nthe copy\n%s", name, clip(want), clip(got))
		}
	}
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:3000] + "…"
	}
	return s
}
