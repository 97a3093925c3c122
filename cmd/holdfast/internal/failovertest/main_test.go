package failovertest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker/placement"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
	"github.com/holdfastmq/holdfast/journal"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random choices; 0 draws one")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := errors.Join(stopServers(), clitest.Clean()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d (repeat with -args -seed %d)", s, s)
	return s
}

// pause lets some time pass in which the load goes on.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// await waits until ok says so, and returns how long that took.
func await(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > clitest.Patience {
			t.Fatalf("%s did not come", what)
		}
		pause(10 * time.Millisecond)
	}
	return time.Since(began)
}

// openJournal opens a journal. A server that has just started may take longer for its first answers than a driver waits.
func openJournal(t *testing.T, url string) (j journal.Journal) {
	t.Helper()
	await(t, "a journal at "+url, func() bool {
		var err error
		if j, err = journals.Open(t.Context(), url, journals.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Logf("open %s: %v", url, err)
		}
		return err == nil
	})
	return j
}

// member is a broker process.
type member struct {
	addr string
	log  *clitest.Buffer
	p    *proc.Process
}

// brokers are broker processes on one journal.
type brokers struct {
	t   *testing.T
	url string
	dir string
	all map[string]*member // by address
	c   *client.Client
}

// start starts n brokers on a journal, and waits until they know each other.
func start(t *testing.T, url string, n int) *brokers {
	t.Helper()
	b := &brokers{t: t, url: url, dir: clitest.Dir(t), all: map[string]*member{}}
	t.Cleanup(func() {
		for _, m := range b.all {
			if m.p != nil {
				_ = m.p.Signal(syscall.SIGCONT)
				if err := m.p.Kill(); err != nil {
					t.Error(err)
				}
			}
			if t.Failed() {
				text := m.log.String()
				t.Logf("the log of %s:\n%s", m.addr, text[max(0, len(text)-6000):])
			}
		}
	})
	if err := openJournal(t, url).Close(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b.start(b.address(i))
	}
	var err error
	b.c, err = client.Dial(t.Context(), client.Options{Addrs: strings.Split(b.addrs(), ","), Lazy: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.c.Close)
	for _, m := range b.all {
		m.log.AwaitText(t, "broker ready")
	}
	b.meet()
	return b
}

// meet waits until all brokers that run see one another. One that has just joined may still take queues after that; see settle.
func (b *brokers) meet() {
	b.t.Helper()
	want := fmt.Sprintf("\nholdfast_cluster_members{state=\"live\"} %d\n", len(b.running()))
	for _, m := range b.running() {
		await(b.t, "brokers that see one another", func() bool {
			_, text := get(b.t, m, "/metrics")
			return strings.Contains(text, want)
		})
	}
}

// settle waits until each queue is where it is to be for as long as the same brokers run: at the one with the highest hash.
func (b *brokers) settle(queues ...string) {
	b.t.Helper()
	for _, q := range queues {
		home := slices.MaxFunc(b.running(), func(x, y *member) int {
			return cmp.Compare(placement.Score(x.addr, q), placement.Score(y.addr, q))
		})
		await(b.t, "queue "+q+" at "+home.addr, func() bool { return b.describe(q).Owner == home.addr })
	}
}

// running returns the brokers that were not killed.
func (b *brokers) running() (all []*member) {
	for _, m := range b.all {
		if m.p != nil {
			all = append(all, m)
		}
	}
	return all
}

func (b *brokers) address(i int) string {
	return "unix:" + filepath.Join(b.dir, fmt.Sprintf("s%d", i))
}

// addrs returns the addresses of all brokers that there ever were.
func (b *brokers) addrs() string {
	return strings.Join(slices.Sorted(maps.Keys(b.all)), ",")
}

// start starts a broker at an address.
func (b *brokers) start(addr string) *member {
	b.t.Helper()
	m := &member{addr: addr, log: &clitest.Buffer{}}
	var err error
	if m.p, err = proc.Start(clitest.Binary(b.t), []string{"serve", "--listen", addr, "--http", addr + "h", "--journal", b.url}, m.log); err != nil {
		b.t.Fatal(err)
	}
	b.all[addr] = m
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	if err := m.p.AwaitBroker(ctx, addr); err != nil {
		b.t.Fatalf("%v\n%s", err, m.log.String())
	}
	return m
}

// kill ends a broker with SIGKILL.
func (b *brokers) kill(m *member) {
	b.t.Helper()
	if err := m.p.Kill(); err != nil {
		b.t.Error(err)
	}
	m.p = nil
}

func (b *brokers) signal(m *member, s syscall.Signal) {
	b.t.Helper()
	if err := m.p.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

// describe asks any broker about a queue.
func (b *brokers) describe(queue string) holdfast.QueueInfo {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	for {
		info, err := b.c.Queue(queue).Describe(ctx)
		if err == nil {
			return info
		}
		if ctx.Err() != nil {
			b.t.Fatalf("describe %s: %v", queue, err)
		}
		pause(20 * time.Millisecond)
	}
}

// owner returns the broker that has a queue.
func (b *brokers) owner(queue string) *member {
	b.t.Helper()
	info := b.describe(queue)
	m := b.all[info.Owner]
	if m == nil {
		b.t.Fatalf("queue %s is at %q", queue, info.Owner)
	}
	return m
}

// within is how long something may take that is to take d at most: what is said is judged at full counts, when nothing else runs on the machine.
func within(d time.Duration) time.Duration {
	if clitest.Soak() {
		return d
	}
	return 6 * d
}

// gaps checks that no send and no hand-over of a queue had to wait for longer than limit, see within, since the last call.
func (b *brokers) gaps(h *killtest.History, what string, limit time.Duration) {
	b.t.Helper()
	stored, received := h.Gaps()
	b.t.Logf("%s: longest time without an acknowledged send %v, without a hand-over %v", what, stored, received)
	for kind, all := range map[string]map[string]time.Duration{"acknowledged send": stored, "hand-over": received} {
		for queue, d := range all {
			if d > within(limit) {
				b.t.Errorf("%s: queue %s was without %s for %v", what, queue, kind, d)
			}
		}
	}
}

// finish ends the load and judges it.
func (b *brokers) finish(h *killtest.History, l *killtest.Load, queues ...string) {
	b.t.Helper()
	for _, m := range b.running() {
		select {
		case <-m.p.Done():
			b.t.Errorf("broker %s has ended", m.addr)
		default:
		}
	}
	l.StopSending()
	for _, q := range queues {
		b.empty(q)
	}
	l.StopReceiving()
	for _, fault := range h.Check() {
		b.t.Error(fault)
	}
	b.t.Log(h.Summary())
}

// empty waits until a queue is empty, for as long as it goes on: how fast that is says how busy the machine is.
func (b *brokers) empty(queue string) {
	b.t.Helper()
	least, since, told := uint64(math.MaxUint64), time.Now(), time.Now()
	for {
		info := b.describe(queue)
		switch {
		case info.Stats.Depth == 0:
			return
		case info.Stats.Depth < least:
			least, since = info.Stats.Depth, time.Now()
		case time.Since(since) > clitest.Patience:
			b.t.Fatalf("the end of queue %s did not come; at %s, epoch %d: %+v", queue, info.Owner, info.Epoch, info.Stats)
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.t.Logf("queue %s at %s, epoch %d: %+v", queue, info.Owner, info.Epoch, info.Stats)
		}
		pause(10 * time.Millisecond)
	}
}
