package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/linktest"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
)

var quiet = slog.New(slog.DiscardHandler)

// served is a broker with its server.
type served struct {
	t      *testing.T
	broker *broker.Broker
	server *rpc.Server
	net    *pipeListener
	done   chan error
}

func serveBroker(t *testing.T, o rpc.Options) *served {
	t.Helper()
	b, err := broker.Open(context.Background(), memory.New(), broker.Options{Logger: quiet})
	check(t, err)
	o.Insecure, o.Logger = true, quiet
	s := &served{t: t, broker: b, net: newPipeListener(), done: make(chan error, 1)}
	s.server, err = rpc.NewServer(b, o)
	check(t, err)
	go func() { s.done <- s.server.Serve(s.net) }()
	return s
}

// stop ends the broker gracefully, as a program does.
func (s *served) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- s.server.Shutdown(ctx) }()
	check(s.t, s.broker.Close(ctx))
	check(s.t, <-down)
	if err := <-s.done; !errors.Is(err, holdfast.ErrClosed) {
		s.t.Errorf("Serve returned %v", err)
	}
}

// chaos is a dialer whose connections are cut or fall silent, by seed.
type chaos struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	life time.Duration

	mu  sync.Mutex
	rng *rand.Rand
	off bool
}

func (c *chaos) connect(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &stallConn{Conn: nc, stuck: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return s, nil
	}
	end := func() { _ = s.Close() }
	if c.rng.IntN(4) == 0 {
		end = s.stall
	}
	time.AfterFunc(time.Duration(c.rng.Int64N(2*int64(c.life))), end)
	return s, nil
}

func (c *chaos) heal() {
	c.mu.Lock()
	c.off = true
	c.mu.Unlock()
}

// G1, G2, G3, G6, G9, G10 over connections that are cut and fall silent at any time.
func TestRandomCuts(t *testing.T) {
	base, rounds := uint64(time.Now().UnixNano()), 6
	if os.Getenv("HOLDFAST_SOAK") != "" {
		rounds = 600
	}
	for k := range rounds {
		seed := base + uint64(k)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 9))
				s := serveBroker(t, rpc.Options{})
				cfg := queue.Config{RetryFirst: 100 * time.Millisecond, RetryCap: time.Second, MaxMessages: rng.Int64N(2) * 200}
				check(t, s.broker.Admin().Create(t.Context(), "run", cfg))
				ch := &chaos{dial: s.net.dial, life: 100*time.Millisecond + time.Duration(rng.IntN(2000))*time.Millisecond, rng: rng}
				c, err := client.Dial(t.Context(), client.Options{Dialer: ch.connect, Lazy: true, Logger: quiet})
				check(t, err)
				o := linktest.Options{Seed: seed, Heal: ch.heal}
				if rng.IntN(3) == 0 { // streams that break by themselves too
					o.Life, o.Lag = time.Second, 5*time.Millisecond
				}
				linktest.Run(t, &reliableAdmin{c, s.broker}, o)
				<-time.After(time.Minute) // for stragglers on the way
				c.Close()
				s.stop()
			})
		})
	}
}

// reliableAdmin asks the broker itself for its numbers.
type reliableAdmin struct {
	holdfast.Link
	broker *broker.Broker
}

func (r *reliableAdmin) Admin() holdfast.Admin { return r.broker.Admin() }

// A user's program, over a connection, and then over the next one: what the README shows.
func TestQueueOverConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveBroker(t, rpc.Options{})
		var conns []net.Conn
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := s.net.dial(ctx, network, address)
			conns = append(conns, nc)
			return nc, err
		}
		c, err := client.Dial(t.Context(), client.Options{Dialer: dial, Logger: quiet})
		check(t, err)
		q := c.Queue("orders")
		got := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		consumed := make(chan error, 1)
		go func() {
			consumed <- q.Consume(ctx, func(_ context.Context, d *holdfast.Delivery) error {
				got <- string(d.Body)
				return nil
			}, holdfast.ConsumeOptions{Workers: 1})
		}()
		for i := range 30 {
			if i%10 == 5 {
				conns[len(conns)-1].Close()
			}
			id, err := q.Send(t.Context(), holdfast.Message{Body: fmt.Append(nil, i)})
			if err != nil || id.Seq == 0 {
				t.Errorf("send %d: %v %v", i, id, err)
			}
			m := <-got
			for i > 0 && m == fmt.Sprint(i-1) { // what was handed over when its connection was lost may come again
				m = <-got
			}
			if m != fmt.Sprint(i) {
				t.Errorf("received %s, want %d", m, i)
			}
		}
		cancel()
		check(t, <-consumed)
		check(t, q.Close(t.Context()))
		info, err := q.Describe(t.Context())
		if err != nil || info.Stats.Depth != 0 || info.Stats.Acked != 30 || info.Stats.Sent != 30 {
			t.Errorf("%+v %v", info.Stats, err)
		}
		c.Close()
		s.stop()
	})
}
