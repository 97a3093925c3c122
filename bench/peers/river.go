package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River, a job queue in PostgreSQL.
func riverPeer() *peer {
	return &peer{
		name: "river", about: "jobs in PostgreSQL; 4 connections insert what is waiting (InsertManyFast); up to 2,000 jobs at work; counted once their completion is stored", synced: true,
		start: startPostgres, shares: "postgres",
		version: func(context.Context, *env) string { return "River " + moduleVersion("github.com/riverqueue/river") },
		connect: func(ctx context.Context, addr string) (conn, error) {
			pool, err := postgresPool(ctx, addr)
			if err != nil {
				return nil, err
			}
			return &riverConn{pool}, nil
		},
	}
}

type riverConn struct{ pool *pgxpool.Pool }

func (r *riverConn) close() { r.pool.Close() }

// create makes River's tables; queues come by themselves.
func (r *riverConn) create(ctx context.Context, _ string) error {
	m, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// riverJob is a message.
type riverJob struct {
	Body []byte `json:"body"`
}

// Kind implements river.JobArgs.
func (riverJob) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	got func([]byte)
}

// Work implements river.Worker.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverJob]) error {
	w.got(job.Args.Body)
	return nil
}

func (r *riverConn) sender(_ context.Context, queue string, window int) (sender, error) {
	c, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	opts := &river.InsertOpts{Queue: queue}
	return newBatcher(postgresWorkers, window, window/postgresWorkers, func(ctx context.Context, bodies [][]byte) error {
		jobs := make([]river.InsertManyParams, len(bodies))
		for i, b := range bodies {
			jobs[i] = river.InsertManyParams{Args: riverJob{b}, InsertOpts: opts}
		}
		_, err := c.InsertManyFast(ctx, jobs)
		return err
	}), nil
}

func (r *riverConn) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{got: got})
	c, err := river.NewClient[pgx.Tx](riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{queue: {MaxWorkers: 2000}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	// What does not fit is lost, and would not be counted.
	events, cancel := c.SubscribeConfig(&river.SubscribeConfig{ChanSize: 1 << 18, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for going := true; going; {
		select {
		case <-events:
			done(1)
		case <-ctx.Done():
			going = false
		}
	}
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancelStop()
	if err := c.StopAndCancel(stop); err != nil {
		return fmt.Errorf("stop River: %w", err)
	}
	return nil
}
