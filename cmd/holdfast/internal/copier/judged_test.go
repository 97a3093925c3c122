package copier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/copier"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/proc"
	"github.com/holdfastmq/holdfast/journal"
)

// Issue 5, "Copy": Pebble → PostgreSQL → JetStream → Pebble → segment log of a queue with delayed, leased, retried and dead-lettered messages, while
// senders write to the source and receivers empty it. The copying process is ended 20 times, by SIGKILL and by Ctrl-C in turn, and
// begun again. In the end ids, order, counts, headers and bodies are identical.
func TestJudged(t *testing.T) {
	began := time.Now()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	times, rounds, backlog := 2, 1, 300
	if soak > 1 {
		times, rounds, backlog = 20, 5, 10_000
	}
	dir := t.TempDir()
	legs := []string{
		"pebble:" + filepath.Join(dir, "first"),
		fmt.Sprintf("%s?schema=judged_%d", server.URL(), time.Now().UnixNano()),
		jetStreamURL(),
		"pebble:" + filepath.Join(dir, "last"),
		"segment:" + filepath.Join(dir, "segments"),
	}
	j := openURL(t, legs[0])
	b := openBrokerWith(t, j, 2000)
	for i := range rounds {
		fill(t, b, i)
	}
	q := b.Queue("orders")
	for i := 0; i < backlog; i += 5 {
		_, err := q.SendBatch(t.Context(), []holdfast.Message{live(i), live(i + 1), live(i + 2), live(i + 3), live(i + 4)})
		mustBe(t, err)
	}
	shut(t, b)
	mustBe(t, j.Close())
	for i := range len(legs) - 1 {
		l := &leg{t: t, src: legs[i], dst: legs[i+1], rng: rng, log: &clitest.Buffer{}, may: make(quota, beside)}
		l.run(times)
	}
	t.Logf("%d interruptions on each of %d legs, in %v", times, len(legs)-1, time.Since(began).Round(time.Second))
}

// live is a message as senders write it.
func live(i int) holdfast.Message {
	m := holdfast.Message{
		Body: fmt.Appendf(nil, "live %d %s", i, make([]byte, i*37%1500)), Priority: i % 3,
		Headers: []holdfast.Header{{Name: "n", Value: fmt.Sprint(i)}},
	}
	if i%10 == 0 {
		m.Delay = time.Hour
	}
	if i%7 == 0 {
		m.Key = fmt.Sprintf("key %d", i%3)
	}
	return m
}

// beside is how many messages are sent beside each copy at most.
const beside = 300

// traffic sends to a broker's queues, and acknowledges, leaves, delays and fails what is in them, until ctx ends.
func traffic(ctx context.Context, b *broker.Broker, may quota, tick time.Duration) error {
	var wg sync.WaitGroup
	var sent, received error
	wg.Go(func() {
		t := time.NewTicker(tick)
		defer t.Stop()
		orders, strict := b.Queue("orders"), b.Queue("strict")
		for i := 0; sent == nil && may.take(ctx); i++ {
			q := orders
			if i%20 == 3 {
				q = strict // where a message that fails once is a dead letter
			}
			_, sent = q.Send(ctx, live(i))
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		}
	})
	for _, name := range []string{"orders", "strict"} {
		wg.Go(func() {
			r, err := b.Queue(name).NewReceiver(holdfast.ReceiverOptions{Unbound: true, Visibility: time.Hour})
			if err == nil {
				defer func() { _ = r.Close(context.WithoutCancel(ctx)) }()
			}
			for i := 0; err == nil; i++ {
				var ds []*holdfast.Delivery
				if ds, err = r.Receive(ctx, 1); err != nil {
					break
				}
				switch {
				case name == "strict" && i%2 == 0 || i%10 == 7:
					err = ds[0].Nack(ctx, 0)
				case i%10 == 8: // stays leased
				default:
					err = ds[0].Ack(ctx)
				}
			}
			if ctx.Err() == nil {
				received = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() == nil {
		return errors.Join(sent, received)
	}
	return nil // whatever the end of ctx has made fail
}

// leg is one copy of the chain.
type leg struct {
	t        *testing.T
	src, dst string // URLs
	rng      *rand.Rand
	log      *clitest.Buffer
	may      quota         // of the senders, if they are in this process
	took     time.Duration // how long the last copy took that was not interrupted
}

// embedded tells whether only one process can have a journal.
func embedded(url string) bool { return !journals.Shared(url) }

// start begins the copying process. The store of an embedded source has one process: it is the broker's as well, with its
// senders and receivers. For the others it is the command.
func (l *leg) start() *proc.Process {
	l.t.Helper()
	l.may.refill()
	var p *proc.Process
	var err error
	if embedded(l.src) {
		p, err = proc.StartIn(append(os.Environ(), childSrc+"="+l.src, childDst+"="+l.dst), os.Args[0], nil, l.log)
	} else {
		p, err = proc.Start(clitest.Binary(l.t), []string{"journal", "copy", l.src, l.dst}, l.log)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// wait waits for a process until d is over, and tells whether it has ended by then, and well.
func (l *leg) wait(p *proc.Process, d time.Duration) bool {
	l.t.Helper()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-p.Done():
	}
	if code, err := p.Wait(l.t.Context()); code != 0 || err != nil {
		l.t.Fatalf("copying has ended with %d (%v):\n%s", code, err, l.log.String())
	}
	return true
}

// interrupted runs the copying process and ends it in the middle. It tells whether that has come before its end.
func (l *leg) interrupted(by syscall.Signal) bool {
	l.t.Helper()
	begun := time.Now()
	p := l.start()
	share := 0.1 + 0.8*l.rng.Float64()
	if l.wait(p, time.Duration(float64(l.took)*share)) {
		l.took = time.Since(begun)
		return false
	}
	if err := p.Signal(by); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), clitest.Patience)
	defer cancel()
	code, err := p.Wait(ctx)
	switch {
	case err != nil:
		_ = p.Kill()
		l.t.Fatal(err)
	case code == 0: // it was just done
		l.took = time.Since(begun)
		return false
	case by == syscall.SIGINT && code != 130 && code != -1: // -1: before it could have listened for that
		l.t.Fatalf("after Ctrl-C the exit code is %d:\n%s", code, l.log.String())
	}
	return true
}

func (l *leg) run(times int) {
	t := l.t
	began := time.Now()
	var src journal.Journal
	stop := func() {}
	if !embedded(l.src) {
		src = openURL(t, l.src)
		b := openBrokerWith(t, src, 2000)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- traffic(ctx, b, l.may, 5*time.Millisecond) }()
		stop = func() {
			cancel()
			mustBe(t, <-done)
			shut(t, b)
		}
	}
	if l.wait(l.start(), clitest.Patience) { // a whole one, so that it is known how long it takes
		l.took = time.Since(began)
	} else {
		t.Fatalf("copying has not ended:\n%s", l.log.String())
	}
	interrupted, complete := 0, 1
	for interrupted < times {
		if complete > 5*times {
			t.Fatalf("only %d of %d copies could be interrupted", interrupted, interrupted+complete)
		}
		if l.interrupted([]syscall.Signal{syscall.SIGKILL, syscall.SIGINT}[interrupted%2]) {
			interrupted++
		} else {
			complete++
		}
	}
	stop()
	// What was stored since is copied when nobody writes any more.
	last, err := proc.Start(clitest.Binary(t), []string{"journal", "copy", l.src, l.dst}, l.log)
	mustBe(t, err)
	if !l.wait(last, clitest.Patience) {
		_ = last.Kill()
		t.Fatalf("copying has not ended:\n%s", l.log.String())
	}
	if src == nil {
		src = openURL(t, l.src)
	}
	dst := openURL(t, l.dst)
	wantIdentical(t, src, dst)
	records, messages := uint64(0), uint64(0)
	for info, err := range dst.Streams(t.Context()) {
		mustBe(t, err)
		v, err := broker.Verify(t.Context(), dst, info.Name, nil)
		mustBe(t, err)
		if len(v.Faults) > 0 {
			t.Errorf("%s: %v", info.Name, v.Faults)
		}
		records += info.End
		messages += v.Messages
	}
	wantSame(t, src, dst)
	mustBe(t, errors.Join(src.Close(), dst.Close()))
	scheme := func(url string) string { return url[:strings.Index(url, ":")] }
	t.Logf("%s to %s: interrupted %d times, complete %d times; %d seqs, %d messages are in the queues, all the same; %v",
		scheme(l.src), scheme(l.dst), interrupted, complete, records, messages, time.Since(began).Round(100*time.Millisecond))
}

// childSrc and childDst make this program the copying process of an embedded source.
const childSrc, childDst = "HOLDFAST_COPY_SRC", "HOLDFAST_COPY_DST"

// child copies beside a broker with traffic, and returns the exit code: 0 if the copy is complete, 130 after Ctrl-C.
func child(from, to string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	err := copyBesideBroker(ctx, from, to)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 130
	}
	fmt.Println(err)
	return 1
}

func copyBesideBroker(ctx context.Context, from, to string) (err error) {
	src, err := journals.Open(ctx, from, journals.Options{Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	b, err := openLive(src, 2000)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.Background())) }()
	dst, err := journals.Open(ctx, to, journals.Options{Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	busy, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	may := make(quota, beside)
	may.refill()
	go func() { done <- traffic(busy, b, may, 5*time.Millisecond) }()
	_, err = copier.Copy(ctx, src, dst, copier.Options{Live: broker.LiveRecords, Logger: quiet})
	cancel()
	return errors.Join(err, <-done)
}

// openURL opens a journal as the command does.
func openURL(t *testing.T, url string) journal.Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	j, err := journals.Open(ctx, url, journals.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}
