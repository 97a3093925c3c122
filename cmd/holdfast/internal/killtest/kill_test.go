package killtest_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
	"github.com/holdfastmq/holdfast/queue"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random choices; 0 draws one")

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerEnv); addr != "" {
		poisonedWorker(addr)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	}))
}

// seed draws a seed and prints it.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed %d)", s, s)
	return s
}

// await waits until ok says so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come", what)
		}
	}
}

// pause lets some time pass in which the load goes on.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// The broker is killed and started again, round after round, under a load of senders and receivers on three queues: one plain, one with
// ordering keys, one whose messages become dead letters. What is acknowledged is received (G1, G2), once stored (G3), in
// order (G6); nothing comes that was not sent, nothing that was deleted for good; delivery counts never fall (§7).
func TestKills(t *testing.T) {
	rounds := 5
	if clitest.Soak() {
		rounds = 100
	}
	testKills(t, rounds)
}

// The same on Pebble, which the default was before.
func TestKillsOnPebble(t *testing.T) {
	t.Setenv(clitest.JournalEnv, "pebble")
	rounds := 2
	if clitest.Soak() {
		rounds = 20
	}
	testKills(t, rounds)
}

func testKills(t *testing.T, rounds int) {
	seed := seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	b := killtest.NewBroker(t)
	c, err := client.Dial(t.Context(), client.Options{Addrs: []string{b.Addr}, MaxBackoff: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Leases that a dying broker had stored and not handed over end by this timeout.
	const visibility = 5 * time.Second
	configs := map[string]queue.Config{
		"plain": {VisibilityTimeout: visibility, RetryFirst: queue.Unlimited},
		"keyed": {VisibilityTimeout: visibility, RetryFirst: 20 * time.Millisecond, RetryCap: 100 * time.Millisecond},
		"work":  {VisibilityTimeout: visibility, RetryFirst: queue.Unlimited, MaxDeliveries: 2, DeadLetter: "dead"},
		"dead":  {VisibilityTimeout: visibility},
	}
	for name, cfg := range configs {
		if err := c.Queue(name).Create(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	h := killtest.NewHistory()
	l := killtest.NewLoad(t, b.Addr, h)
	for i := range uint64(3) {
		l.Send(killtest.Sender{Queue: "plain", Name: fmt.Sprint("p", i), Every: 5 * time.Millisecond, Seed: seed + i})
		l.Receive(killtest.Receiver{Queue: "plain", Consume: i != 1, Fail: 2, Release: 2, Work: time.Millisecond, Seed: seed + i})
		l.Receive(killtest.Receiver{Queue: "keyed", Consume: i != 1, Fail: 5, Release: 2, Work: time.Millisecond, Seed: seed + 10 + i})
	}
	for i := range uint64(2) {
		l.Send(killtest.Sender{Queue: "keyed", Name: fmt.Sprint("k", i), Keys: 20, Every: 10 * time.Millisecond, Seed: seed + 20 + i})
		l.Send(killtest.Sender{Queue: "work", Name: fmt.Sprint("w", i), Every: 20 * time.Millisecond, Seed: seed + 30 + i})
		l.Receive(killtest.Receiver{Queue: "work", Consume: i == 0, Fail: 20, Work: time.Millisecond, Seed: seed + 40 + i})
	}
	l.Receive(killtest.Receiver{Queue: "dead", From: "work", Work: time.Millisecond, Seed: seed + 50})

	for round := range rounds {
		stored, received := h.Progress()
		await(t, "progress", func() bool {
			s, r := h.Progress()
			return s >= stored+100 && r >= received+100 || h.Faulty()
		})
		if h.Faulty() {
			break
		}
		pause(time.Duration(r.Int64N(int64(400 * time.Millisecond))))
		if err := b.Kill(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		pause(time.Duration(r.Int64N(int64(100 * time.Millisecond))))
		b.Start()
	}
	l.StopSending()
	// Everything is received, and the queues are empty: nothing is kept back.
	for last := -1; ; {
		_, received := h.Progress()
		if received == last {
			break // nothing comes any more; the check tells whether something should
		}
		last = received
		pause(visibility + time.Second)
	}
	l.StopReceiving()
	for name := range configs {
		info, err := c.Queue(name).Describe(t.Context())
		if err != nil || info.Stats.Depth > 0 {
			t.Errorf("queue %s is not empty at the end: %+v %v", name, info.Stats, err)
		}
	}
	for _, fault := range h.Check() {
		t.Error(fault)
	}
	t.Logf("%d kills: %s", rounds, h.Summary())
}
