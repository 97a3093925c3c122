package jetstream

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	njs "github.com/nats-io/nats.go/jetstream"
)

var benchCases = []struct{ replicas, streams, size int }{
	{1, 1, 128}, {1, 1, 16 << 10}, {1, 8, 16 << 10}, {3, 1, 128}, {3, 1, 16 << 10}, {3, 8, 16 << 10},
}

// measure calls each of f, one goroutine for each, b.N times in all, and reports how long one call took and how many there were a second.
func measure(b *testing.B, fs []func() error) {
	took := make([][]time.Duration, len(fs))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, f := range fs {
		n := b.N / len(fs)
		if i < b.N%len(fs) {
			n++
		}
		wg.Go(func() {
			for range n {
				begin := time.Now()
				if err := f(); err != nil {
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

// BenchmarkAppend appends records with a body to some streams, one owner each.
func BenchmarkAppend(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("R%d/streams=%d/size=%d", c.replicas, c.streams, c.size), func(b *testing.B) {
			j := mustOpen(b, streamURL(server, newStream(b, server), fmt.Sprintf("sync=always&replicas=%d", c.replicas)), quiet())
			body := make([]byte, c.size)
			rand.Read(body)
			var fs []func() error
			for i := range c.streams {
				w := acquire(b, j, fmt.Sprint("q", i))
				fs = append(fs, func() error { return w.append(b.Context(), w.next(16, body)) })
			}
			measure(b, fs)
		})
	}
}

// BenchmarkBare publishes the same bytes as one message to some subjects by the client alone, each conditional on the one before.
func BenchmarkBare(b *testing.B) {
	for _, c := range benchCases {
		b.Run(fmt.Sprintf("R%d/streams=%d/size=%d", c.replicas, c.streams, c.size), func(b *testing.B) {
			j := mustOpen(b, streamURL(server, newStream(b, server), fmt.Sprintf("sync=always&replicas=%d", c.replicas)), quiet())
			body := make([]byte, c.size)
			rand.Read(body)
			var fs []func() error
			for i := range c.streams {
				last, subject := uint64(0), fmt.Sprintf("%s.bare.%d", j.c.stream, i)
				fs = append(fs, func() error {
					ack, err := j.c.js.PublishMsg(b.Context(), &nats.Msg{Subject: subject, Data: body}, njs.WithExpectLastSequencePerSubject(last))
					if err == nil {
						last = ack.Sequence
					}
					return err
				})
			}
			measure(b, fs)
		})
	}
}
