package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
	"github.com/holdfastmq/holdfast/queue"
)

// G4: a sender to a full queue says so within 2 s, in all ways; from then on neither it nor the broker grows; and another queue is as fast as
// without it.
func TestFullQueue(t *testing.T) {
	s := serve(t)
	c := s.dial()
	full, other := c.Queue("full"), c.Queue("other")
	const most = 10_000
	if err := errors.Join(full.Create(t.Context(), queue.Config{MaxMessages: most}), other.Create(t.Context(), queue.Config{})); err != nil {
		t.Fatal(err)
	}
	n := counts(50_000, 400_000)
	cycleRate(t, other, n/4) // warm
	alone := max(cycleRate(t, other, n), cycleRate(t, other, n), cycleRate(t, other, n))

	// A million lines of 100 bytes.
	dir := clitest.Dir(t)
	in := filepath.Join(dir, "lines")
	if err := os.WriteFile(in, bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 1_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	var said clitest.Buffer
	sender, err := proc.Start("/bin/sh", []string{"-c", `exec "$0" send full --lines --addr "$1" --log-level warn <"$2"`, clitest.Binary(t), s.addr(), in}, &said)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Kill() })
	within(t, 30*time.Second, "the queue is full", func() bool { return describe(t, full).Stats.Depth == most })
	told := within(t, 2*time.Second, "the sender says that it waits", func() bool {
		text := said.String()
		return strings.Contains(text, "queue full: waiting to send: full") && strings.Contains(text, "sender waits") &&
			s.metric(t, `holdfast_queue_waiting_senders{queue="full"}`) == 1
	})
	broker, client := s.rss(), status(t, sender.PID(), "VmRSS")
	grown := map[string]int64{
		"broker": s.most(t, s.PID(), time.Duration(counts(3, 10))*time.Second) - broker,
		"sender": s.most(t, sender.PID(), time.Duration(counts(3, 10))*time.Second) - client,
	}
	peak := s.peak()
	beside := 0.0
	for i := 0; i < 8 && (i < 3 || beside < 0.8*alone); i++ { // the machine may be busy with other tests
		beside = max(beside, cycleRate(t, other, n))
	}
	grown["broker, with work on another queue, above what it had with that alone,"] = s.peak() - peak
	if beside < 0.8*alone { // the machine may have more to do than when it was alone
		if err := sender.Kill(); err != nil {
			t.Fatal(err)
		}
		alone = min(alone, max(cycleRate(t, other, n), cycleRate(t, other, n), cycleRate(t, other, n)))
	}
	t.Logf("told after %v; another queue: %.0f messages/s alone, %.0f beside it; broker %d MiB, sender %d MiB; more in bytes: %v",
		told.Round(time.Millisecond), alone, beside, broker/mib, client/mib, grown)
	if beside < 0.8*alone {
		t.Errorf("another queue has %.0f messages/s beside a full one, and %.0f alone", beside, alone)
	}
	for what, n := range grown {
		if n > 16*mib {
			t.Errorf("the %s grew by %d MiB after the queue was full", what, n/mib)
		}
	}
	if d := describe(t, full).Stats.Depth; d != most {
		t.Errorf("%d messages in a queue of at most %d", d, most)
	}
}

// most returns the most memory that a process has within some time.
func (s *server) most(t *testing.T, pid int, d time.Duration) int64 {
	t.Helper()
	most := int64(0)
	end := time.After(d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		most = max(most, status(t, pid, "VmRSS"))
		select {
		case <-tick.C:
		case <-end:
			return most
		}
	}
}

// cycleRate sends, receives and acknowledges n messages of 100 bytes, and returns how many that were in a second.
func cycleRate(t *testing.T, q *holdfast.Queue, n int) float64 {
	t.Helper()
	began := time.Now()
	cycle(t, q, n, 100)
	return float64(n) / time.Since(began).Seconds()
}

// metric returns a sample of the broker's metrics, -1 if there is none of that name.
func (s *server) metric(t *testing.T, name string) float64 {
	t.Helper()
	text, err := s.read("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, name+" "); ok {
			var v float64
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// G4: a receiver never holds more than it asked for, whatever it does not acknowledge.
func TestReceiverCredit(t *testing.T) {
	s := serve(t)
	q := s.dial().Queue("q")
	fill(t, q, 1000, plain(100))
	r, err := q.NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeReceiver(t, r)
	var held []*holdfast.Delivery
	for range 20 {
		for len(held) < 10 {
			ds, err := r.Receive(t.Context(), 10-len(held))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, ds...)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		<-ctx.Done()
		cancel()
		if st := describe(t, q).Stats; st.InFlight != 10 || st.CreditOutstanding != 0 {
			t.Fatalf("%d messages in flight, credit for %d more; the receiver asked for 10", st.InFlight, st.CreditOutstanding)
		}
		if err := r.Ack(t.Context(), held[:3]...); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		held = held[3:]
	}
}
