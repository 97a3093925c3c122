package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// body and meta of the records that are measured: about what a batch of one message of 100 bytes has.
const (
	benchMeta = 40
	benchBody = 140
)

// benchmark runs put until b.N calls were made, by so many at once.
func benchmark(b *testing.B, workers int, put func(worker int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := put(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
}

// §11: appends, by one owner and by several at once.
func BenchmarkAppend(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("owners=%d", workers), func(b *testing.B) {
			j := openTest(b, newSchema(b, server), Options{})
			writers := make([]*writer, workers)
			for i := range writers {
				writers[i] = newWriter(b, j, fmt.Sprintf("orders %d", i))
			}
			benchmark(b, workers, func(i int) error { return writers[i].try(context.Background(), writers[i].next(benchMeta, benchBody)) })
		})
	}
}

// The store's own speed, beside: one row of the same size inserted and committed, by its primary key.
func BenchmarkBareInsert(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("connections=%d", workers), func(b *testing.B) {
			ctx := context.Background()
			cfg, err := pgxpool.ParseConfig(server.URL())
			if err != nil {
				b.Fatal(err)
			}
			cfg.MaxConns = 16
			pool, err := pgxpool.NewWithConfig(ctx, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			if _, err := pool.Exec(ctx, "DROP TABLE IF EXISTS bare; CREATE TABLE bare (stream bigint, seq bigint, data bytea, PRIMARY KEY (stream, seq))"); err != nil {
				b.Fatal(err)
			}
			seqs := make([]int64, workers)
			data := make([]byte, benchMeta+benchBody+2*76)
			benchmark(b, workers, func(i int) error {
				seqs[i]++
				_, err := pool.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", int64(i), seqs[i], data)
				return err
			})
		})
	}
}
