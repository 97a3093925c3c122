package mongodb

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// measure calls each of f, one goroutine for each, b.N times in all, and reports how long one call took and how many there were a second.
func measure(b *testing.B, fs []func(n int) error) {
	took := make([][]time.Duration, len(fs))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, f := range fs {
		times := b.N / len(fs)
		if i < b.N%len(fs) {
			times++
		}
		wg.Go(func() {
			for n := range times {
				begin := time.Now()
				if err := f(n); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(begin))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

var benchCases = []struct{ streams, size int }{{1, 128}, {1, 16 << 10}, {8, 16 << 10}}

// BenchmarkAppend appends records with a body to some streams, one owner each.
func BenchmarkAppend(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("streams=%d/size=%d", c.streams, c.size), func(b *testing.B) {
			j := mustOpen(b, newURL(b, server, ""), quiet())
			body := make([]byte, c.size)
			rand.Read(body)
			var fs []func(int) error
			for i := range c.streams {
				w := acquire(b, j, fmt.Sprint("q", i))
				fs = append(fs, func(int) error { return w.append(b.Context(), w.next(16, body)) })
			}
			measure(b, fs)
		})
	}
}

// BenchmarkBare inserts the same bytes as documents, with the same write concern, by the client alone.
func BenchmarkBare(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("streams=%d/size=%d", c.streams, c.size), func(b *testing.B) {
			j := mustOpen(b, newURL(b, server, ""), quiet())
			bare := j.records.Database().Collection("bare")
			body := make([]byte, c.size)
			rand.Read(body)
			var fs []func(int) error
			for i := range c.streams {
				fs = append(fs, func(n int) error {
					_, err := bare.InsertOne(b.Context(), bson.D{{Key: "_id", Value: fmt.Sprintf("q%d\t%016x", i, n)}, {Key: "b", Value: body}})
					return err
				})
			}
			measure(b, fs)
		})
	}
}
