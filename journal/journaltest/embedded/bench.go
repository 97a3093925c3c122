package embedded

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/journal"
)

// OpenFunc opens a store that syncs in a directory, which is made if it does not exist.
type OpenFunc func(dir string) (journal.Journal, error)

// benchQueue opens a queue in process, as a program with an embedded queue would.
func benchQueue(b *testing.B, open OpenFunc) *holdfast.Queue {
	b.Helper()
	j, err := open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	br, err := broker.Open(b.Context(), j, broker.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := br.Close(context.Background()); err != nil {
			b.Error(err)
		}
		if err := j.Close(); err != nil {
			b.Error(err)
		}
	})
	return br.Queue("bench")
}

// BenchmarkSend is synced sends of 100 bytes by 1,024 callers that each wait for their acknowledgement.
func BenchmarkSend(b *testing.B, open OpenFunc) {
	q := benchQueue(b, open)
	body := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	var n atomic.Int64
	for range 1024 {
		wg.Go(func() {
			for n.Add(1) <= int64(b.N) {
				if _, err := q.Send(b.Context(), holdfast.Message{Body: body}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkSendAsync is the same by one caller who does not wait.
func BenchmarkSendAsync(b *testing.B, open OpenFunc) {
	q := benchQueue(b, open)
	s, err := q.NewSender(holdfast.SenderOptions{MaxInFlight: 10000})
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := s.SendAsync(b.Context(), holdfast.Message{Body: body}, func(holdfast.ID, error) {}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPipeline is send, receive and acknowledge at once, everything synced.
func BenchmarkPipeline(b *testing.B, open OpenFunc) {
	q := benchQueue(b, open)
	s, err := q.NewSender(holdfast.SenderOptions{MaxInFlight: 10000})
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	ctx, cancel := context.WithCancel(b.Context())
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, 1)
	go func() {
		done <- q.Consume(ctx, func(context.Context, *holdfast.Delivery) error {
			if left.Add(-1) == 0 {
				cancel()
			}
			return nil
		}, holdfast.ConsumeOptions{Workers: 2})
	}()
	for range b.N {
		if err := s.SendAsync(b.Context(), holdfast.Message{Body: body}, func(holdfast.ID, error) {}); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Log(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSingle is one sender that waits for each acknowledgement, beside one 4-KiB append and fdatasync on a growing file
// in the same folder, in turns, so that both see the same disk. It reports both medians and their ratio.
func BenchmarkSingle(b *testing.B, open OpenFunc, fdatasync func(*os.File) error) {
	q := benchQueue(b, open)
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 4096)
	var raw, sent []float64
	for b.Loop() {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
		if err := fdatasync(f); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := q.Send(b.Context(), holdfast.Message{Body: block[:100]}); err != nil {
			b.Fatal(err)
		}
		raw = append(raw, middle.Sub(begin).Seconds())
		sent = append(sent, time.Since(middle).Seconds())
	}
	slices.Sort(raw)
	slices.Sort(sent)
	r, s := raw[len(raw)/2], sent[len(sent)/2]
	b.ReportMetric(1e6*r, "raw-µs")
	b.ReportMetric(1e6*s, "send-µs")
	b.ReportMetric(s/r, "ratio")
}
