package killtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/killtest"
)

// poisoned is a queue of good messages with a poisoned one among them, and the dead-letter queue behind it.
func poisoned(t *testing.T, b *killtest.Broker, limit int) (in []string) {
	t.Helper()
	for _, args := range [][]string{{"dead"}, {"work", "--max-deliveries", fmt.Sprint(limit), "--dead-letter", "dead", "--visibility", "1s", "--retry-first", "0s"}} {
		clitest.Run(t, append(append([]string{"queue", "create"}, args...), "--addr", b.Addr)...).Want(t, 0)
	}
	for i := range 100 {
		in = append(in, fmt.Sprint("good ", i))
	}
	in[50] = "poison"
	clitest.RunIn(t, strings.Join(in, "\n"), "send", "work", "--lines", "--addr", b.Addr).Want(t, 0)
	return in
}

// onlyPoison checks that exactly the poisoned message is in the dead-letter queue, with its reason, origin and count, and that every other one was
// worked on.
func onlyPoison(t *testing.T, b *killtest.Broker, limit, kills int, in []string, worked map[string]int) {
	t.Helper()
	r := clitest.Run(t, "receive", "dead", "--count", "2", "--wait", "200ms", "--output", "json", "--addr", b.Addr).Want(t, 1)
	hop := fmt.Sprintf(`"hops":[{"queue":"work","reason":"max-deliveries","deliveries":%d`, limit)
	if strings.Count(r.Out, "\n") != 1 || !strings.Contains(r.Out, `"body":"poison"`) || !strings.Contains(r.Out, hop) {
		t.Errorf("dead letters: %s", r.Out)
	}
	for _, l := range in {
		if l != "poison" && worked[l] == 0 {
			t.Errorf("%s was not worked on", l)
		}
	}
	// A first start may not have been heard, when the process ended within microseconds.
	if kills < limit || kills > limit+1 {
		t.Errorf("the receiver died %d times, with a limit of %d deliveries", kills, limit)
	}
}

// A command that kills the receiver that runs it, and with it one message among good ones, others in progress beside it: exactly that message
// ends in the dead-letter queue (G2, §7 Delivery counts).
func TestPoisonKillsReceiver(t *testing.T) {
	b := killtest.NewBroker(t)
	in := poisoned(t, b, 3)
	// The good ones take long enough to be in progress when the poisoned one comes.
	const handle = `b=$(cat); case $b in poison) sleep 0.02; kill -9 $PPID;; *) sleep 0.03; echo "$b" >>"$OUT.log";; esac`
	out := filepath.Join(clitest.Dir(t), "out")
	kills := 0
	ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
	defer cancel()
	for ctx.Err() == nil {
		c := start(t, "", "", []string{"OUT=" + out}, "receive", "work", "--addr", b.Addr, "--workers", "4", "--wait", "8s", "--exec", handle)
		if c.Wait() == nil {
			break
		}
		kills++
	}
	onlyPoison(t, b, 3, kills, in, written(t, out))
}

// workerEnv is the address of the broker whose queue a process of this test works on.
const workerEnv = "HOLDFAST_TEST_WORKER"

// inProgress is how many messages a worker has in progress when it dies, if there are as many.
const inProgress = 10

// poisonedWorker is the program of a user: it writes each message to standard output, and exits in the middle of the poisoned one, once
// its other handlers are busy. It does not return.
func poisonedWorker(addr string) {
	l, err := client.Dial(context.Background(), client.Options{Addrs: []string{addr}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var busy atomic.Int64
	err = l.Queue("work").Consume(context.Background(), func(ctx context.Context, d *holdfast.Delivery) error {
		busy.Add(1)
		defer busy.Add(-1)
		if string(d.Body) == "poison" {
			end := time.After(300 * time.Millisecond)
			tick := time.NewTicker(time.Millisecond)
			for n := busy.Load(); n < inProgress; n = busy.Load() {
				select {
				case <-tick.C:
					continue
				case <-end: // it is alone
				}
				break
			}
			os.Exit(100 + int(busy.Load()))
		}
		<-time.After(10 * time.Millisecond)
		fmt.Println(string(d.Body))
		return nil
	}, holdfast.ConsumeOptions{Workers: inProgress, Prefetch: 100})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A worker program whose handler calls os.Exit on one message among good ones, ten of them in progress: exactly that message ends in the
// dead-letter queue, at a limit of two deliveries and of three (G2, §7 Delivery counts).
func TestPoisonExitsWorker(t *testing.T) {
	for _, limit := range []int{2, 3} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			b := killtest.NewBroker(t)
			in := poisoned(t, b, limit)
			ctx, cancel := context.WithTimeout(t.Context(), clitest.Patience)
			defer cancel()
			worked := map[string]int{}
			var busy []int // messages in progress at each death
			for {
				out, code := work(ctx, t, b)
				for l := range strings.Lines(out) {
					worked[strings.TrimSpace(l)]++
				}
				if code == 0 {
					break
				}
				busy = append(busy, code-100)
			}
			onlyPoison(t, b, limit, len(busy), in, worked)
			if slices.Max(busy) < inProgress || busy[len(busy)-1] != 1 {
				t.Errorf("messages in progress at the deaths: %v; want %d at first, and 1 at last", busy, inProgress)
			}
		})
	}
}

// work runs a worker until it dies, or until the queue is empty. It returns what the worker has written, and its exit code, 0 if the queue is empty.
func work(ctx context.Context, t *testing.T, b *killtest.Broker) (string, int) {
	t.Helper()
	var out strings.Builder
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), workerEnv+"="+b.Addr)
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	idle, stop := context.WithCancel(ctx)
	defer stop()
	empty := make(chan bool, 1)
	go func() { empty <- awaitEmpty(idle, b) }()
	dead := make(chan error, 1)
	go func() { dead <- c.Wait() }()
	select {
	case err := <-dead:
		stop()
		<-empty
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() < 100 {
			t.Fatalf("the worker: %v", err)
		}
		return out.String(), exit.ExitCode()
	case ok := <-empty:
		_ = c.Process.Kill()
		t.Logf("the worker, killed: %v", <-dead)
		if !ok {
			t.Fatal("the queue does not become empty")
		}
		return out.String(), 0
	}
}

// awaitEmpty waits until the queue that is worked on has no message left.
func awaitEmpty(ctx context.Context, b *killtest.Broker) bool {
	l, err := client.Dial(ctx, client.Options{Addrs: []string{b.Addr}})
	if err != nil {
		return false
	}
	defer l.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := l.Queue("work").Describe(ctx)
		if err == nil && info.Stats.Depth == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
