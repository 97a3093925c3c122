package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// ownPeer is Holdfast in its default configuration, measured by its own bench.
func ownPeer(binary string) *peer {
	return &peer{name: own, about: "its default configuration, by \"holdfast bench\"; each message acknowledged, confirmed", synced: true,
		version: func(ctx context.Context, _ *env) string { return said(ctx, binary, "version") }}
}

// ceilingPeer stands in the table for what bench measures beside Holdfast.
func ceilingPeer() *peer {
	return &peer{name: ceiling, about: "no queue: a bare framed connection into one synced log; latency: raw append and fdatasync of 4 KiB", synced: true}
}

// measureOwn is one turn of Holdfast.
func (b *bench) measureOwn(ctx context.Context, p *peer, tell found, synced func(*peer, int, error)) error {
	if synced != nil {
		n, err := sendSinglyOwn(ctx, b.env, b.binary, b.parent)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		synced(p, n, err)
	}
	for _, l := range b.loads {
		f, raw, err := measureHoldfast(ctx, b.binary, l, b.parent, b.more)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			b.table.add(l, ceilingPeer(), raw)
		}
		tell(p, l, f, err)
	}
	return nil
}

// sendSinglyOwn sends a hundred messages to a broker, each by a command of its own, and counts the syncs.
func sendSinglyOwn(ctx context.Context, e *env, binary, parent string) (n int, err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return 0, err
	}
	dir, err := e.newDir(parent, own)
	if err != nil {
		return 0, err
	}
	defer func() {
		if gone := e.removeDir(dir); err == nil {
			err = gone
		}
	}()
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return 0, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s, err := e.serve(dir, addr, binary, "serve", "--listen", addr, "--http", "")
	if err != nil {
		return 0, err
	}
	defer func() {
		if ended := s.end(); err == nil {
			err = ended
		}
	}()
	send := func(ctx context.Context) error { return e.run(ctx, dir, binary, "send", "single", "x", "--addr", addr) }
	if err := s.await(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return e.run(ctx, dir, binary, "queue", "list", "--addr", addr)
	}); err != nil {
		return 0, err
	}
	if err := e.run(ctx, dir, binary, "queue", "create", "single", "--addr", addr); err != nil {
		return 0, err
	}
	if err := send(ctx); err != nil {
		return 0, err
	}
	return countSyncs(ctx, dir, 0, func() error {
		for range loneSends {
			if err := send(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
