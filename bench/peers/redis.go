package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redises are Redis streams with a sync before each answer, and with one a second.
func redises() (all []*peer) {
	for _, fsync := range []string{"always", "everysec"} {
		all = append(all, &peer{
			name: "redis-" + fsync, about: "streams, appendfsync " + fsync + "; 4 connections; XACK and XDEL naming all ids of a read", synced: fsync == "always",
			start:   func(ctx context.Context, e *env, dir string) (*server, error) { return startRedis(ctx, e, dir, fsync) },
			version: redisVersion,
			connect: func(_ context.Context, addr string) (conn, error) {
				return &redisConn{redis.NewClient(&redis.Options{Network: "tcp", Addr: addr, PoolSize: 8, MaxRetries: -1})}, nil
			},
		})
	}
	return all
}

func redisVersion(ctx context.Context, _ *env) string {
	// What comes after the number tells how it was built.
	version, _, _ := strings.Cut(said(ctx, "redis-server", "--version"), " sha=")
	return version
}

func startRedis(ctx context.Context, e *env, dir, fsync string) (*server, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s, err := e.serve(dir, addr, "redis-server", "--port", fmt.Sprint(ports[0]), "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes",
		"--appendfsync", fsync, "--save", "", "--logfile", filepath.Join(dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, func(ctx context.Context) error {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = c.Close() }() // it was only to see whether it answers
		return c.Ping(ctx).Err()
	})
}

type redisConn struct{ c *redis.Client }

func (r *redisConn) close() { _ = r.c.Close() } // there is nobody left to tell

const redisGroup = "group"

func (r *redisConn) create(ctx context.Context, queue string) error {
	return r.c.XGroupCreateMkStream(ctx, queue, redisGroup, "0").Err()
}

func (r *redisConn) sender(_ context.Context, queue string, window int) (sender, error) {
	return newBatcher(4, window, window/4, func(ctx context.Context, bodies [][]byte) error {
		p := r.c.Pipeline()
		for _, b := range bodies {
			p.XAdd(ctx, &redis.XAddArgs{Stream: queue, Values: []any{"b", b}})
		}
		_, err := p.Exec(ctx)
		return err
	}), nil
}

func (r *redisConn) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := r.receiveOnce(ctx, queue, fmt.Sprint("c", i), got, done); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *redisConn) receiveOnce(ctx context.Context, queue, name string, got func([]byte), done func(int)) error {
	read, err := r.c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: redisGroup, Consumer: name, Streams: []string{queue, ">"}, Count: 500, Block: time.Second}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read from Redis: %w", err)
	}
	for _, stream := range read {
		ids := make([]string, 0, len(stream.Messages))
		for _, m := range stream.Messages {
			body, _ := m.Values["b"].(string)
			got([]byte(body))
			ids = append(ids, m.ID)
		}
		p := r.c.Pipeline()
		p.XAck(ctx, queue, redisGroup, ids...)
		p.XDel(ctx, queue, ids...)
		if _, err := p.Exec(ctx); err != nil {
			return fmt.Errorf("acknowledge to Redis: %w", err)
		}
		done(len(ids))
	}
	return nil
}
