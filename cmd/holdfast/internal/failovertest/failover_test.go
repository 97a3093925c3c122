package failovertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
	"github.com/holdfastmq/holdfast/queue"
)

// maxGap is how long a queue may be without its broker (heartbeat 1 s, expiry 3 s).
const maxGap = 5 * time.Second

// load is senders and receivers on two queues, one of them with ordering keys.
func load(t *testing.T, b *brokers, on store, seed uint64) (*killtest.History, *killtest.Load) {
	t.Helper()
	// Longer than the pause that is allowed: what a dying broker had leased and not handed over may not wait for this to end.
	const visibility = 30 * time.Second
	for name, cfg := range map[string]queue.Config{
		"plain": {VisibilityTimeout: visibility, RetryFirst: queue.Unlimited},
		"keyed": {VisibilityTimeout: visibility, RetryFirst: 20 * time.Millisecond, RetryCap: 100 * time.Millisecond},
	} {
		// Brokers that have just met may not agree yet on who has it.
		await(t, "queue "+name, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
			defer cancel()
			err := b.c.Queue(name).Create(ctx, cfg)
			if err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrFenced) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	h := killtest.NewHistory()
	l := killtest.NewLoad(t, b.addrs(), h)
	every := cmp.Or(on.pace, 20*time.Millisecond)
	if !clitest.Soak() {
		every = max(every, 50*time.Millisecond)
	}
	for i := range uint64(2) {
		l.Send(killtest.Sender{Queue: "plain", Name: fmt.Sprint("p", i), Every: every, Seed: seed + i})
		l.Send(killtest.Sender{Queue: "keyed", Name: fmt.Sprint("k", i), Keys: 20, Every: every, Seed: seed + 20 + i})
		l.Receive(killtest.Receiver{Queue: "plain", Consume: i == 0, Fail: 2, Release: 2, Work: time.Millisecond, Seed: seed + 30 + i})
		l.Receive(killtest.Receiver{Queue: "keyed", Consume: i == 0, Fail: 2, Release: 2, Work: time.Millisecond, Seed: seed + 40 + i})
	}
	b.settle("plain", "keyed")
	pause(2 * time.Second)
	h.Gaps()
	return h, l
}

// The owning broker is killed, and later one is stopped for longer than the expiry and goes on: each acknowledged message is received (G1, G2),
// none is stored twice (G3), order holds (G6), the pause is short (§8), and the one that was replaced says so within a second (G5).
func TestOwnerKilledAndPaused(t *testing.T) { each(t, ownerKilledAndPaused) }

func ownerKilledAndPaused(t *testing.T, on store) {
	rounds, queues := 1, []string{"plain"}
	if clitest.Soak() {
		rounds, queues = cmp.Or(*roundsFlag, on.rounds), []string{"plain", "keyed"}
	}
	b := start(t, on.journal(t), 3)
	h, l := load(t, b, on, seed(t))
	for round := range rounds {
		for _, q := range queues {
			dead := b.owner(q)
			b.kill(dead)
			pause(7 * time.Second)
			b.gaps(h, fmt.Sprintf("round %d: owner of %s killed", round, q), maxGap)
			b.start(dead.addr)
			b.settle(queues...)
			pause(time.Second)
			b.gaps(h, "it is back", time.Second)

			m := b.owner(q)
			told := replaced(m)
			b.signal(m, syscall.SIGSTOP)
			pause(7 * time.Second)
			b.gaps(h, fmt.Sprintf("round %d: owner of %s paused", round, q), maxGap)
			await(t, "another owner of "+q, func() bool { return b.describe(q).Owner != m.addr })
			b.signal(m, syscall.SIGCONT)
			took := await(t, "word of being replaced", func() bool { return replaced(m) > told })
			t.Logf("it said that it was fenced after %v", took)
			if took > within(time.Second) {
				t.Errorf("it said that it was fenced after %v", took)
			}
			b.settle(queues...)
			pause(time.Second)
			b.gaps(h, "it goes on", time.Second)
		}
		if h.Faulty() {
			break
		}
	}
	b.finish(h, l, "plain", "keyed")
}

// replaced returns how often a broker has said that it was fenced. On a machine that is too busy for the store to answer at once it says first that it
// has to suppose so.
func replaced(m *member) int {
	text := m.log.String()
	n := strings.Count(text, "fenced: another broker owns the queue")
	if !clitest.Soak() {
		n += strings.Count(text, "this broker stops serving")
	}
	return n
}

// depth fills a queue with messages that nobody receives.
func depth(t *testing.T, b *brokers, name string, n int) {
	t.Helper()
	s, err := b.c.Queue(name).NewSender(holdfast.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 100)
	for range n {
		if err := s.SendAsync(t.Context(), holdfast.Message{Body: body}, func(_ holdfast.ID, err error) {
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A broker that joins takes over its part of the queues, and one that leaves hands them over, with a pause of at most a second a queue at a
// depth of 100,000 messages (§8).
func TestJoinAndLeaveDeep(t *testing.T) {
	deep := 100_000
	b := start(t, onPostgres.journal(t), 1)
	names := []string{"d0", "d1", "d2", "d3"}
	for _, name := range names {
		depth(t, b, name, deep)
	}
	seed := seed(t)
	h := killtest.NewHistory()
	l := killtest.NewLoad(t, b.addrs(), h)
	for i, name := range names {
		l.Send(killtest.Sender{Queue: name, Name: "s-" + name, Every: 20 * time.Millisecond, Seed: seed + uint64(i)})
		l.Receive(killtest.Receiver{Queue: name, Work: 20 * time.Millisecond, Seed: seed + 10 + uint64(i)}) // more slowly than is sent
	}
	pause(2 * time.Second)
	h.Gaps()
	for _, what := range []string{"joins", "leaves"} {
		before := map[string]uint64{}
		for _, name := range names {
			before[name] = b.describe(name).Epoch
		}
		if what == "joins" {
			b.start(b.address(1))
			b.start(b.address(2))
		} else {
			for _, addr := range []string{b.address(1), b.address(2)} {
				m := b.all[addr]
				b.signal(m, syscall.SIGTERM)
				ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
				if code, err := m.p.Wait(ctx); err != nil || code != 0 {
					t.Errorf("the broker that left ended with %d, %v", code, err)
				}
				cancel()
				m.p = nil
			}
		}
		pause(10 * time.Second)
		b.gaps(h, "brokers "+what[:len(what)-1], time.Second)
		moved := 0
		for _, name := range names {
			info := b.describe(name)
			most := uint64(2)
			if !clitest.Soak() {
				most = 6 // on a busy machine brokers are late with their heartbeats
			}
			switch n := info.Epoch - before[name]; {
			case n > most:
				t.Errorf("queue %s was acquired %d times while two brokers %s", name, n, what)
			case n > 0:
				moved++
			}
			if info.Stats.Depth < uint64(deep) {
				t.Errorf("queue %s has %d messages", name, info.Stats.Depth)
			}
		}
		t.Logf("%d queues moved", moved)
		if moved == 0 {
			t.Error("no queue moved")
		}
	}
	l.StopSending()
}

// A command that works on the journal directly does not take the queues from brokers that serve it: it says where they are. A broker
// that others could not reach is refused.
func TestServedJournal(t *testing.T) {
	b := start(t, onPostgres.journal(t), 1)
	clitest.Run(t, "send", "q", "x", "--addr", b.addrs()).Want(t, 0)
	clitest.Run(t, "queue", "list", "--journal", b.url).WantErr(t, 2, "use --addr "+b.addrs()+" instead of --journal")
	if info := b.describe("q"); info.Epoch != 1 {
		t.Errorf("the epoch is %d", info.Epoch)
	}
	clitest.Run(t, "serve", "--journal", b.url, "--listen", "0.0.0.0:0", "--insecure", "--http", "").WantErr(t, 2, "--advertise")
}

// maxNodeGap is how long a queue may be without a node of its database.
const maxNodeGap = 15 * time.Second

// A node of the database is killed, with a broker beside it: each acknowledged message is received (G1, G2), none is stored twice (G3), order
// holds (G6), and the pause is short.
func TestDatabaseNodeKilled(t *testing.T) {
	each(t, func(t *testing.T, on store) {
		if !on.replicated {
			return // that is TestDatabaseAway
		}
		server := on.own(t)
		b := start(t, on.url(server), 2)
		h, l := load(t, b, on, seed(t))
		for _, node := range server.Nodes() {
			if err := server.Kill(node); err != nil {
				t.Fatal(err)
			}
			pause(maxNodeGap)
			b.gaps(h, "node "+node+" killed", maxNodeGap)
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			pause(3 * time.Second)
			h.Gaps()
			if !clitest.Soak() {
				break
			}
		}
		b.finish(h, l, "plain", "keyed")
	})
}
