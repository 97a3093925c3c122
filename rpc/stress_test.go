package rpc_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
)

// Streams are opened, used and closed from many goroutines while connections are cut under them: every call
// returns, every answer comes once, and nothing is left behind (G9).
func TestManyStreams(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := start(t, rpc.Options{}, nil)
	proxy := newProxy(t, e.addr)
	c := e.client(client.Options{Addrs: []string{proxy.addr}, MaxBackoff: 5 * time.Millisecond})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		tick := time.NewTicker(7 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				proxy.cut()
			case <-ctx.Done():
				return
			}
		}
	})
	var work sync.WaitGroup
	for who := range 8 {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(who)))
			for range 60 {
				if who%2 == 0 {
					useSender(t, c, rng)
				} else {
					useReceiver(t, c, rng)
				}
			}
		})
	}
	work.Wait()
	cancel()
	wg.Wait()
	c.Close()
	waitFor(t, func() bool { return e.link.Streams() == 0 && e.server.Metrics().Connections == 0 })
}

func useSender(t *testing.T, c *client.Client, rng *rand.Rand) {
	log := newSenderLog()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Microsecond)
	defer cancel()
	s, _, err := c.OpenSender(ctx, "q", holdfast.SenderConfig{}, log)
	if err != nil {
		return
	}
	for i := range uint64(rng.IntN(5)) {
		if s.Send(i+1, frameOf("x")) != nil {
			break
		}
		if rng.IntN(2) == 0 {
			<-log.events // an answer, or that the stream is broken
		}
	}
	s.Close(rng.IntN(2) == 0)
}

func useReceiver(t *testing.T, c *client.Client, rng *rand.Rand) {
	log := newReceiverLog()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Microsecond)
	defer cancel()
	r, _, err := c.OpenReceiver(ctx, "q", holdfast.ReceiverConfig{}, log)
	if err != nil {
		return
	}
	r.Credit(uint64(rng.IntN(5)), 100)
	replies := make(chan error, 20)
	n := rng.IntN(5)
	for i := range n {
		r.Ack([]queue.LeaseSpan{{Lease: uint64(i + 1), Seq: uint64(i + 1), Count: 1}}, func(_ []queue.Outcome, err error) { replies <- err })
	}
	if rng.IntN(2) == 0 {
		r.Close(true)
	}
	for range n {
		<-replies //nolint:errcheck // that it comes is all that is asked
	}
	r.Close(true)
	if len(replies) != 0 {
		t.Error("a command was answered twice")
	}
}
