package acceptance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// backlog is a load of messages that wait.
type backlog struct {
	limit   int64         // bytes of memory for ten million
	first   time.Duration // until the first message is received
	message func(i int) holdfast.Message
}

// G7, G8: ten million waiting messages cost megabytes, while they come, after SIGKILL and after a stop in good order; and a broker
// with them is there at once.
func TestBacklogIsCheap(t *testing.T) {
	body := make([]byte, 100)
	for i := range body {
		body[i] = byte(i)
	}
	t.Run("plain", func(t *testing.T) {
		testBacklog(t, &backlog{200 * mib, time.Second, func(int) holdfast.Message { return holdfast.Message{Body: body} }}, counts(300_000, 10_000_000))
	})
	t.Run("special", func(t *testing.T) {
		testBacklog(t, &backlog{600 * mib, time.Second, func(i int) holdfast.Message {
			m := holdfast.Message{Body: body, Key: fmt.Sprintf("key-%d", i), TTL: 48*time.Hour + time.Duration(i%1_000_003)*time.Millisecond}
			if i > 0 { // there must be one to receive
				m.Delay = time.Hour + time.Duration(i*7919%86_400_000)*time.Millisecond
			}
			return m
		}}, counts(300_000, 10_000_000))
	})
}

func testBacklog(t *testing.T, load *backlog, n int) {
	s := serve(t)
	began := time.Now()
	fill(t, s.dial().Queue("q"), n, load.message)
	t.Logf("%d messages sent in %v; resident at most %d MiB, %d MiB on disk", n, time.Since(began).Round(time.Millisecond), s.peak()/mib, du(t, s.data)/mib)
	if s.peak() > load.limit {
		t.Errorf("G8: %d MiB resident while the backlog grows, more than %d", s.peak()/mib, load.limit/mib)
	}
	base := empty(t)
	for _, end := range []struct {
		name string
		end  func()
	}{{"SIGKILL", s.kill}, {"stop", s.stop}} {
		// The best of three: the machine may be busy with other tests.
		live, first := time.Hour, time.Hour
		for range 3 {
			end.end()
			l, f := s.startAndReceive("q")
			live, first = min(live, l), min(first, f)
		}
		t.Logf("after %s: alive in %v, first message in %v, %d MiB resident", end.name, live.Round(time.Millisecond), first.Round(time.Millisecond), s.peak()/mib)
		if live > 200*time.Millisecond {
			t.Errorf("alive only %v after %s", live, end.name)
		}
		if first > load.first {
			t.Errorf("G7: first message only %v after %s", first, end.name)
		}
		// What the backlog adds is held against its share.
		if most := base + 24*mib + load.limit*int64(n)/10_000_000; s.peak() > min(most, load.limit) {
			t.Errorf("G8: %d MiB resident after %s, more than %d; an empty broker has %d", s.peak()/mib, end.name, min(most, load.limit)/mib, base/mib)
		}
	}
}

// empty returns the memory of a broker that has nothing.
func empty(t *testing.T) int64 {
	t.Helper()
	s := serve(t)
	if err := s.get("/metrics"); err != nil {
		t.Fatal(err)
	}
	return s.rss()
}

// fill sends n messages.
func fill(t *testing.T, q *holdfast.Queue, n int, message func(i int) holdfast.Message) {
	t.Helper()
	snd, err := q.NewSender(holdfast.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := snd.SendAsync(t.Context(), message(i), func(_ holdfast.ID, err error) {
			if err != nil {
				t.Errorf("send %d: %v", i, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := snd.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if depth := describe(t, q).Stats.Depth; depth != uint64(n) {
		t.Fatalf("%d messages in the queue, want %d", depth, n)
	}
}

// startAndReceive starts the broker again, and returns how long it took until it said that it lives, and until a message was received, which
// is given back.
func (s *server) startAndReceive(name string) (live, first time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	began := time.Now()
	s.start()
	alive := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil && s.get("/healthz") != nil {
			<-tick.C
		}
		alive <- time.Since(began)
	}()
	s.await()
	c, err := client.Dial(ctx, client.Options{Addrs: []string{s.addr()}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Queue(name).NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	ds, err := r.Receive(ctx, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	first = time.Since(began)
	if err := r.Release(ctx, ds...); err != nil {
		s.t.Fatal(err)
	}
	if err := r.Close(ctx); err != nil {
		s.t.Fatal(err)
	}
	return <-alive, first
}
