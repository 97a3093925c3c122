package segment

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastmq/holdfast/journal"
)

// written returns how many bytes this process has had written to storage.
func written(b *testing.B) int64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0
	}
	var n int64
	for line := range splitLines(data) {
		if _, err := fmt.Sscanf(line, "write_bytes: %d", &n); err == nil {
			return n
		}
	}
	return n
}

func splitLines(b []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for len(b) > 0 {
			i := 0
			for i < len(b) && b[i] != '\n' {
				i++
			}
			if !yield(string(b[:i])) {
				return
			}
			b = b[min(i+1, len(b)):]
		}
	}
}

// BenchmarkAppend is one owner that appends records of so many messages of 1 KiB, one after the other: growing, and keeping up (each
// record is discarded when it was stored). An iteration is a message. Beside it the same writes to a plain file.
func BenchmarkAppend(b *testing.B) {
	for _, k := range []int{64, 256, 1000} {
		for _, keepUp := range []bool{false, true} {
			name := map[bool]string{false: "growing", true: "keeping up"}[keepUp]
			b.Run(fmt.Sprintf("%s/%d", name, k), func(b *testing.B) { benchAppend(b, k, keepUp) })
		}
		for _, prewritten := range []bool{false, true} {
			name := map[bool]string{false: "raw growing", true: "raw prewritten"}[prewritten]
			b.Run(fmt.Sprintf("%s/%d", name, k), func(b *testing.B) { benchRaw(b, k<<10, float64(k), prewritten) })
		}
	}
}

func benchAppend(b *testing.B, k int, keepUp bool) {
	j := mustOpen(b, b.TempDir(), Options{})
	w := acquire(b, j, "q")
	body := random(k << 10)
	meta := random(30)
	before := written(b)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += k {
		r := w.add(uint64(k), meta, body)
		if !keepUp {
			continue
		}
		if err := w.s.DiscardBodies(b.Context(), []journal.Range{{From: r.First, To: r.Last()}}); err != nil {
			b.Fatal(err)
		}
		if n/k%100 == 99 {
			if err := w.s.DiscardMeta(b.Context(), r.First); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	rounded := math.Ceil(float64(b.N)/float64(k)) * float64(k)
	b.ReportMetric(rounded/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(written(b)-before)/(rounded*1024), "written/user")
}

// benchRaw writes and syncs so many bytes at a time.
func benchRaw(b *testing.B, size int, messages float64, prewritten bool) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only measured
	const most = 256 << 20
	if prewritten {
		zero := make([]byte, 1<<20)
		for range most >> 20 {
			if _, err := f.Write(zero); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	data := random(size)
	var off int64
	b.ResetTimer()
	n := 0
	for ; float64(n)*messages < float64(b.N); n++ {
		if prewritten && off+int64(size) > most {
			off = 0
		}
		if _, err := f.WriteAt(data, off); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		off += int64(size)
	}
	b.ReportMetric(float64(n)*messages/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkLone is one owner that appends 4 KiB and waits, beside one 4-KiB write and fdatasync on a growing and on a prewritten file, in turns, so
// that all see the same disk. It reports the medians.
func BenchmarkLone(b *testing.B) {
	dir := b.TempDir()
	j := mustOpen(b, filepath.Join(dir, "store"), Options{})
	w := acquire(b, j, "q")
	body := random(3800)
	grow, err := os.Create(filepath.Join(dir, "grow"))
	if err != nil {
		b.Fatal(err)
	}
	pre, err := os.Create(filepath.Join(dir, "pre"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := pre.Write(make([]byte, 64<<20)); err != nil {
		b.Fatal(err)
	}
	if err := pre.Sync(); err != nil {
		b.Fatal(err)
	}
	block := random(4096)
	var times [3][]float64
	off := int64(0)
	for b.Loop() {
		for i, f := range []*os.File{grow, pre} {
			begin := time.Now()
			if _, err := f.WriteAt(block, off); err != nil {
				b.Fatal(err)
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(begin).Seconds())
		}
		off = (off + 4096) % (64 << 20)
		begin := time.Now()
		w.add(1, nil, body)
		times[2] = append(times[2], time.Since(begin).Seconds())
	}
	for i, name := range []string{"growing-µs", "prewritten-µs", "append-µs"} {
		b.ReportMetric(1e6*median(times[i]), name)
	}
}
