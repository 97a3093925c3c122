package hbase

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// BenchmarkAppend measures the driver, and BenchmarkBareCheckAndMutate the client's own call that an append comes down to, with the
// same number of bytes: one in flight a stream, on the server of the tests. For figures, on a machine that does nothing else:
//
//	go test -run '^$' -bench . -benchtime 5s ./journal/hbase
func BenchmarkAppend(b *testing.B) {
	eachLoad(b, func(b *testing.B, size, streams int) {
		j := mustOpen(b, testOptions(b, server))
		body := make([]byte, size)
		rand.Read(body) // never fails
		writers := make([]*writer, streams)
		for i := range writers {
			writers[i] = acquire(b, j, fmt.Sprintf("orders %d", i))
		}
		measure(b, streams, func(i int) { writers[i].add(body) })
	})
}

// BenchmarkBareCheckAndMutate is what BenchmarkAppend is compared with.
func BenchmarkBareCheckAndMutate(b *testing.B) {
	eachLoad(b, func(b *testing.B, size, streams int) {
		j := mustOpen(b, testOptions(b, server))
		body := make([]byte, size)
		rand.Read(body) // never fails
		heads := make([]int, streams)
		measure(b, streams, func(i int) {
			key := []byte(fmt.Sprintf("%s%d/%08d", j.opts.prefix, i, heads[i]/DefaultBucketRecords))
			var want []byte
			if heads[i]%DefaultBucketRecords > 0 {
				want = fmt.Appendf(nil, "head %d", heads[i])
			}
			heads[i]++
			m := &thrift2.TRowMutations{Row: key, Mutations: []*thrift2.TMutation{{Put: &thrift2.TPut{
				Row: key, Durability: &synced, ColumnValues: []*thrift2.TColumnValue{
					{Family: []byte(familyHeads), Qualifier: []byte("h"), Value: fmt.Appendf(nil, "head %d", heads[i])},
					{Family: []byte(familyMetas), Qualifier: []byte(hex(uint64(heads[i]))), Value: body[:100]},
					{Family: []byte(familyBodies), Qualifier: []byte(hex(uint64(heads[i]))), Value: body},
				},
			}}}}
			err := j.pool.do(b.Context(), func(ctx context.Context, c client) error {
				ok, err := c.CheckAndMutate(ctx, j.table, key, []byte(familyHeads), []byte("h"), thrift2.TCompareOperator_EQUAL, want, m)
				if err == nil && !ok {
					err = fmt.Errorf("refused behind %q", want)
				}
				return err
			})
			if err != nil {
				b.Error(err)
			}
		})
	})
}

func eachLoad(b *testing.B, f func(b *testing.B, size, streams int)) {
	for _, size := range []int{4 << 10, 256 << 10} {
		for _, streams := range []int{1, 16} {
			b.Run(fmt.Sprintf("%dKiB/%d", size>>10, streams), func(b *testing.B) { f(b, size, streams) })
		}
	}
}

// measure makes b.N calls, one at a time a stream, and reports their latencies.
func measure(b *testing.B, streams int, f func(i int)) {
	b.Helper()
	took := make([][]time.Duration, streams)
	for i := range streams {
		f(i) // connections, the first bucket
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range streams {
		n := b.N / streams
		if i < b.N%streams {
			n++
		}
		wg.Go(func() {
			for range n {
				start := time.Now()
				f(i)
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	ms := func(part float64) float64 { return float64(all[int(part*float64(len(all)-1))]) / 1e6 }
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
}
