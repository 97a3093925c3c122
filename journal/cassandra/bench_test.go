package cassandra

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/internal/testserver"
)

// BenchmarkAppend measures appends of one owner, one after the other, and of several streams at once, beside the bare client's own conditional update of the
// same bytes in one row a partition: on one node, or on three with HOLDFAST_BENCH_NODES=3.
func BenchmarkAppend(b *testing.B) {
	url := server.URL()
	if os.Getenv("HOLDFAST_BENCH_NODES") == "3" {
		s, err := testserver.StartOwn("cassandra", "CASSANDRA_NODES=3")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := s.Stop(); err != nil {
				b.Error(err)
			}
		})
		url = s.URL()
	}
	for _, size := range []int{100, 4 << 10, 256 << 10} {
		for _, streams := range []int{1, 16} {
			b.Run(fmt.Sprintf("driver/%dB/%d", size, streams), func(b *testing.B) { benchDriver(b, url, size, streams) })
			b.Run(fmt.Sprintf("client/%dB/%d", size, streams), func(b *testing.B) { benchClient(b, url, size, streams) })
		}
	}
}

// measure makes b.N appends, shared by as many goroutines as there are streams.
func measure(b *testing.B, streams int, f func(stream, n int)) {
	b.ResetTimer()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			for n := i; n < b.N; n += streams {
				f(i, n)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "appends/s")
	b.ReportMetric(float64(time.Since(began).Microseconds())*float64(streams)/float64(b.N)/1000, "ms/append")
	b.StopTimer()
}

func benchDriver(b *testing.B, url string, size, streams int) {
	j := open(b, options(b, url))
	var writers []*writer
	for i := range streams {
		w := newWriter(b, j, "orders "+strconv.Itoa(i))
		w.append(1, size)
		writers = append(writers, w)
	}
	measure(b, streams, func(stream, _ int) {
		w := writers[stream]
		if err := w.put(context.Background(), w.next(1, size)); err != nil {
			b.Error(err)
		}
	})
}

// benchClient makes bare conditional updates, as an append has to at least: the end in a static, the bytes in a row.
func benchClient(b *testing.B, url string, size, streams int) {
	o := options(b, url)
	open(b, o)
	s := raw(b, o)
	if err := s.Query("CREATE TABLE IF NOT EXISTS bare (p text, n bigint, at bigint STATIC, data blob, PRIMARY KEY (p, n))").Exec(); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, size)
	parts := make([]string, streams)
	ends := make([]int64, streams)
	for i := range streams {
		parts[i] = o.prefix + strconv.Itoa(i)
		if err := s.Query("INSERT INTO bare (p, n, at) VALUES (?, 0, 0)", parts[i]).Exec(); err != nil {
			b.Fatal(err)
		}
	}
	measure(b, streams, func(i, _ int) {
		for {
			at := row{}
			applied, err := s.Query("UPDATE bare SET at = ?, data = ? WHERE p = ? AND n = ? IF at = ?", ends[i]+1, data, parts[i], ends[i]+1, ends[i]).
				SerialConsistency(gocql.Serial).MapScanCAS(at)
			if applied || err == nil && at.int("at") == ends[i]+1 {
				break
			}
			if err == nil {
				b.Errorf("the end is %v, want %d", at, ends[i])
				break
			}
		}
		ends[i]++
	})
}
