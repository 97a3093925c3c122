package holdfast_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastmq/holdfast"
)

// The benchmarks measure this side of a link: the other end is the naive broker, which syncs a page of a file for what has
// come in together.
func newSynced(b *testing.B) *naive {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	page := make([]byte, 4096)
	return newNaive(b, &naiveOptions{sync: func() {
		if _, err := f.WriteAt(page, 0); err != nil {
			b.Error(err)
		}
		if err := f.Sync(); err != nil {
			b.Error(err)
		}
	}})
}

func BenchmarkSend(b *testing.B) {
	for _, waiting := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			n := newSynced(b)
			q := newQueue(n)
			defer closeQueue(b, q)
			m := holdfast.Message{Body: make([]byte, 100)}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			for range waiting {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := q.Send(context.Background(), m); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			b.ReportMetric(float64(b.N)/float64(q.SenderStats().Frames), "msgs/frame")
		})
	}
}

func BenchmarkSendAsync(b *testing.B) {
	for _, window := range []int{1000, 10_000, 65_536} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			n := newSynced(b)
			s := newSender(b, n, holdfast.SenderOptions{MaxInFlight: window})
			m := holdfast.Message{Body: make([]byte, 100)}
			done := func(_ holdfast.ID, err error) {
				if err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := s.SendAsync(context.Background(), m, done); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			b.ReportMetric(float64(b.N)/float64(s.Stats().Frames), "msgs/frame")
		})
	}
}

// BenchmarkPipeline sends, receives and acknowledges at once.
func BenchmarkPipeline(b *testing.B) {
	for _, workers := range []int{1, 2, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			n := newSynced(b)
			s := newSender(b, n, holdfast.SenderOptions{})
			q := newQueue(n)
			m := holdfast.Message{Body: make([]byte, 100)}
			ctx, cancel := context.WithCancel(context.Background())
			var got atomic.Int64
			ended := make(chan error, 1)
			go func() {
				ended <- q.Consume(ctx, func(context.Context, *holdfast.Delivery) error {
					if got.Add(1) == int64(b.N) {
						cancel()
					}
					return nil
				}, holdfast.ConsumeOptions{Workers: workers})
			}()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := s.SendAsync(context.Background(), m, func(holdfast.ID, error) {}); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}
