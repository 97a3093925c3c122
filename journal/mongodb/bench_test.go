package mongodb

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// measure calls f b.N times, and reports how long one call took and how many there were a second.
func measure(b *testing.B, f func(n int) error) {
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		begin := time.Now()
		if err := f(n); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "batches/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

var benchSizes = []int{128, 16 << 10}

// BenchmarkAppend appends records with a body to one stream.
func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w := acquire(b, mustOpen(b, newURL(b, server, ""), quiet()), "orders")
			body := make([]byte, size)
			rand.Read(body)
			measure(b, func(int) error { return w.append(b.Context(), w.next(16, body)) })
		})
	}
}

// BenchmarkBare inserts the same bytes as documents, with the same write concern, by the client alone.
func BenchmarkBare(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			j := mustOpen(b, newURL(b, server, ""), quiet())
			bare := j.records.Database().Collection("bare")
			body := make([]byte, size)
			rand.Read(body)
			measure(b, func(n int) error {
				_, err := bare.InsertOne(b.Context(), bson.D{{Key: "_id", Value: fmt.Sprintf("orders\t%016x", n)}, {Key: "b", Value: body}})
				return err
			})
		})
	}
}
