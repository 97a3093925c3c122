package main

import (
	"context"
	"errors"
	"sync"
)

// batcher is a sender for peers that take many messages in one request: each of a few lanes takes what is waiting, up to a number.
type batcher struct {
	store func(ctx context.Context, bodies [][]byte) error
	most  int
	wg    sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	window  int
	open    int // without an answer
	bodies  [][]byte
	dones   []func(error)
	closed  bool
}

func newBatcher(lanes, window, most int, store func(ctx context.Context, bodies [][]byte) error) *batcher {
	b := &batcher{store: store, most: max(1, most), window: window}
	b.changed.L = &b.mu
	for range lanes {
		b.wg.Go(b.lane)
	}
	return b
}

func (b *batcher) send(_ context.Context, body []byte, done func(error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.open >= b.window && !b.closed {
		b.changed.Wait()
	}
	if b.closed {
		return errors.New("closed")
	}
	b.open++
	b.bodies, b.dones = append(b.bodies, body), append(b.dones, done)
	if len(b.bodies) == 1 {
		b.changed.Broadcast()
	}
	return nil
}

func (b *batcher) lane() {
	for {
		b.mu.Lock()
		for len(b.bodies) == 0 && !b.closed {
			b.changed.Wait()
		}
		if len(b.bodies) == 0 {
			b.mu.Unlock()
			return
		}
		n := min(b.most, len(b.bodies))
		bodies, dones := b.bodies[:n:n], b.dones[:n:n]
		b.bodies, b.dones = b.bodies[n:], b.dones[n:]
		b.mu.Unlock()
		err := b.store(context.Background(), bodies)
		for _, done := range dones {
			done(err)
		}
		b.mu.Lock()
		b.open -= n
		b.changed.Broadcast()
		b.mu.Unlock()
	}
}

func (b *batcher) flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { b.mu.Lock(); defer b.mu.Unlock(); b.changed.Broadcast() })
	defer stop()
	b.mu.Lock()
	for b.open > 0 && ctx.Err() == nil {
		b.changed.Wait()
	}
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	b.wg.Wait()
	return nil
}
