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
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/journal/memory"
	"github.com/holdfastmq/holdfast/linktest"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
)

// fleet is some brokers on one store, each with a server, in virtual time.
type fleet struct {
	t     *testing.T
	store *memory.Store

	mu    sync.Mutex
	nodes map[string]*fleetNode // by address
}

type fleetNode struct {
	node   *cluster.Node
	server *rpc.Server
	l      *pipeListener
	served chan error
}

func (f *fleet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	n := f.nodes[address]
	f.mu.Unlock()
	if n == nil {
		return nil, errors.New("connection refused")
	}
	return n.l.dial(ctx, network, address)
}

func (f *fleet) start(addr string) {
	f.t.Helper()
	j := f.store.Open()
	quiet := slog.New(slog.DiscardHandler)
	secret := addr + "-0123456789abcdef0123456789abcdef"
	node, err := cluster.Open(f.t.Context(), j, j, cluster.Options{
		Address: addr, Secret: secret, Broker: broker.Options{Logger: quiet},
		Dial: func(ctx context.Context, p cluster.Peer) (cluster.PeerLink, error) {
			return client.Dial(ctx, client.Options{Addrs: []string{p.Address}, Token: p.Secret, Lazy: true, NoRedirect: true, Dialer: f.dial, Logger: quiet})
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	server, err := rpc.NewServer(node.Door(), rpc.Options{
		PeerToken: secret, PeerLink: node.Broker(), Advertise: addr, Insecure: true, Logger: quiet,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	n := &fleetNode{node, server, newPipeListener(), make(chan error, 1)}
	go func() { n.served <- server.Serve(n.l) }()
	f.mu.Lock()
	f.nodes[addr] = n
	f.mu.Unlock()
}

// stop ends a broker gracefully, or leaves its queues as they are.
func (f *fleet) stop(addr string, graceful bool) {
	f.mu.Lock()
	n := f.nodes[addr]
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if graceful {
		n.node.Leave(ctx)
	} else {
		cancel()
	}
	f.mu.Lock()
	delete(f.nodes, addr)
	f.mu.Unlock()
	n.server.Close()
	if err := n.node.Close(ctx); err != nil && graceful {
		f.t.Error(err)
	}
	if err := <-n.served; !errors.Is(err, holdfast.ErrClosed) {
		f.t.Errorf("Serve returned %v", err)
	}
}

// G1, G2, G3, G6, G9, G10 across brokers: senders and consumers of a client that knows three addresses, while brokers leave, stop
// without a word, and come back, and streams break.
func TestRandomFleet(t *testing.T) {
	base, rounds := uint64(time.Now().UnixNano()), 4
	if os.Getenv("HOLDFAST_SOAK") != "" {
		rounds = 300
	}
	for k := range rounds {
		seed := base + uint64(k)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 11))
				store, err := memory.NewStore(memory.Options{EpochRecords: rng.IntN(2) == 0})
				if err != nil {
					t.Fatal(err)
				}
				f := &fleet{t: t, store: store, nodes: map[string]*fleetNode{}}
				addrs := []string{"a:1", "b:1", "c:1"}
				for _, addr := range addrs {
					f.start(addr)
				}
				c, err := client.Dial(t.Context(), client.Options{Addrs: addrs, Lazy: true, Dialer: f.dial, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				for c.Admin().Create(t.Context(), "run", queue.Config{RetryFirst: 100 * time.Millisecond, RetryCap: time.Second}) != nil {
					<-time.After(100 * time.Millisecond)
				}
				done := make(chan struct{})
				began, stops := time.Now(), 0
				var chaos sync.WaitGroup
				chaos.Go(func() {
					for {
						select {
						case <-done:
							return
						case <-time.After(time.Duration(rng.IntN(8000)) * time.Millisecond):
						}
						stops++
						addr := addrs[rng.IntN(len(addrs))]
						f.stop(addr, rng.IntN(2) == 0)
						<-time.After(time.Duration(rng.IntN(6000)) * time.Millisecond)
						f.start(addr)
					}
				})
				linktest.Run(t, c, linktest.Options{Seed: seed, Life: 3 * time.Second, Lag: time.Millisecond, Messages: 1000})
				close(done)
				chaos.Wait()
				t.Logf("%d brokers stopped in %v", stops, time.Since(began))
				c.Close()
				for _, addr := range addrs {
					f.stop(addr, true)
				}
			})
		})
	}
}
