package pebble

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// report reports what n records of k messages of size bytes did, and how long one took.
func report(b *testing.B, n, k, size int, took []time.Duration) {
	sec := b.Elapsed().Seconds()
	b.ReportMetric(float64(n)/sec, "records/s")
	b.ReportMetric(float64(n*k)/sec, "messages/s")
	b.ReportMetric(float64(n*k*size)/sec/1e6, "MB/s")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// rawFile appends and syncs, as the simplest log does.
type rawFile struct{ *os.File }

func newRawFile(tb testing.TB, dir string) rawFile {
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return rawFile{f}
}

func (f rawFile) append(tb testing.TB, p []byte) time.Duration {
	begin := time.Now()
	if _, err := f.Write(p); err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Fdatasync(int(f.Fd())); err != nil {
		tb.Fatal(err)
	}
	return time.Since(begin)
}

var benchSizes = []struct{ k, size int }{
	{1, 100}, {128, 100}, {1024, 100}, {1, 1024}, {128, 1024}, {1024, 1024},
}

func random(n int) []byte {
	p := make([]byte, n)
	rand.Read(p)
	return p
}

// BenchmarkRaw is the ceiling: the same bytes appended to a growing file and synced, one
// record after the other.
func BenchmarkRaw(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(fmt.Sprintf("K=%d/size=%d", c.k, c.size), func(b *testing.B) {
			f, p := newRawFile(b, b.TempDir()), random(c.k*c.size)
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				took = append(took, f.append(b, p))
			}
			report(b, len(took), c.k, c.size, took)
		})
	}
}

// BenchmarkAppend appends records with a body to streams, one owner each, and discards each
// body a few records later.
func BenchmarkAppend(b *testing.B) {
	for _, streams := range []int{1, 8, 64} {
		for _, c := range benchSizes {
			b.Run(fmt.Sprintf("streams=%d/K=%d/size=%d", streams, c.k, c.size), func(b *testing.B) {
				benchmarkAppend(b, streams, c.k, c.size)
			})
		}
	}
}

func benchmarkAppend(b *testing.B, streams, k, size int) {
	j := mustOpen(b, b.TempDir(), Options{})
	body := random(k * size)
	owners := make([]*writer, streams)
	for i := range owners {
		owners[i] = acquire(b, j, fmt.Sprint("q", i))
	}
	took := make([][]time.Duration, streams)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, w := range owners {
		n := b.N / streams
		if i < b.N%streams {
			n++
		}
		wg.Go(func() {
			for range n {
				begin := time.Now()
				w.add(uint64(k), body[:min(32, len(body))], body)
				took[i] = append(took[i], time.Since(begin))
				if first := int64(w.at.End) - int64(5*k); first > 0 {
					if err := w.s.DiscardBodies(b.Context(), []journal.Range{{From: uint64(first) + 1, To: uint64(first) + uint64(k)}}); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	report(b, b.N, k, size, slices.Concat(took...))
	m := j.Metrics()
	b.ReportMetric(float64(m.DiskBytes)/1e6, "disk-MB")
	b.ReportMetric(float64(m.Bytes)/float64(b.N*k*size), "log-bytes/byte")
	b.ReportMetric(float64(b.N)/float64(m.Commits), "records/sync")
}

// BenchmarkIdle appends small records one by one and, in turn with them, 4 KiB to a
// growing file: what a single waiting sender sees beside what the disk allows.
func BenchmarkIdle(b *testing.B) {
	dir := b.TempDir()
	j := mustOpen(b, filepath.Join(dir, "store"), Options{})
	w := acquire(b, j, "q")
	f, p := newRawFile(b, dir), random(4096)
	var raw, ours []time.Duration
	for b.Loop() {
		raw = append(raw, f.append(b, p))
		begin := time.Now()
		w.add(1, p[:16], p[:100])
		ours = append(ours, time.Since(begin))
	}
	slices.Sort(raw)
	slices.Sort(ours)
	b.ReportMetric(float64(raw[len(raw)/2].Microseconds()), "raw-p50-µs")
	b.ReportMetric(float64(ours[len(ours)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(ours[len(ours)/2])/float64(raw[len(raw)/2]), "ratio")
}
