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

// BenchmarkAppend measures the driver's append, and in turn with it the client's own call that it comes down to, a check-and-mutate with the
// same bytes: so whatever else the machine does meets both. One call is in flight a stream. The metrics are medians, 99th
// percentiles, and calls a second, which are the streams by the mean.
//
//	go test -run '^$' -bench . -benchtime 5s ./journal/hbase
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 256 << 10} {
		for _, streams := range []int{1, 16} {
			b.Run(fmt.Sprintf("%dB/%d", size, streams), func(b *testing.B) { benchmarkAppend(b, size, streams) })
		}
	}
}

func benchmarkAppend(b *testing.B, size, streams int) {
	j := mustOpen(b, testOptions(b, server))
	body := make([]byte, size)
	rand.Read(body) // never fails
	took := map[string][]time.Duration{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	bare := make([]*bareStream, streams)
	writers := make([]*writer, streams)
	for i := range streams {
		writers[i] = acquire(b, j, fmt.Sprintf("orders %d", i))
		bare[i] = &bareStream{j: j, base: fmt.Sprintf("%s%d/", j.opts.prefix, i)}
		writers[i].add(body)
		if err := bare[i].add(b.Context(), body); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range streams {
		n := b.N / streams
		if i < b.N%streams {
			n++
		}
		wg.Go(func() {
			var driver, client []time.Duration
			for range n {
				start := time.Now()
				writers[i].add(body)
				driver = append(driver, time.Since(start))
				start = time.Now()
				if err := bare[i].add(b.Context(), body); err != nil {
					b.Error(err)
				}
				client = append(client, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			took["driver"] = append(took["driver"], driver...)
			took["bare"] = append(took["bare"], client...)
		})
	}
	wg.Wait()
	b.StopTimer()
	for name, all := range took {
		slices.Sort(all)
		sum := time.Duration(0)
		for _, d := range all {
			sum += d
		}
		at := func(part float64) float64 { return float64(all[int(part*float64(len(all)-1))]) / 1e6 }
		b.ReportMetric(at(0.5), name+"-p50-ms")
		b.ReportMetric(at(0.99), name+"-p99-ms")
		b.ReportMetric(float64(streams)*float64(len(all))/sum.Seconds(), name+"/s")
	}
}

// bareStream is rows of heads, metas and bodies without anything that a journal does about them.
type bareStream struct {
	j    *Journal
	base string
	n    int
}

func (s *bareStream) add(ctx context.Context, body []byte) error {
	key := fmt.Appendf(nil, "%s%08d", s.base, s.n/DefaultBucketRecords)
	var want []byte
	if s.n%DefaultBucketRecords > 0 {
		want = fmt.Appendf(nil, "%0122d", s.n)
	}
	s.n++
	q := []byte(hex(uint64(s.n)))
	m := &thrift2.TRowMutations{Row: key, Mutations: []*thrift2.TMutation{{Put: &thrift2.TPut{
		Row: key, Durability: &synced, ColumnValues: []*thrift2.TColumnValue{
			{Family: []byte(familyHeads), Qualifier: []byte("h"), Value: fmt.Appendf(nil, "%0122d", s.n)},
			{Family: []byte(familyMetas), Qualifier: q, Value: body[:85]},
			{Family: []byte(familyBodies), Qualifier: q, Value: body},
		},
	}}}}
	return s.j.pool.do(ctx, func(ctx context.Context, c client) error {
		ok, err := c.CheckAndMutate(ctx, s.j.table, key, []byte(familyHeads), []byte("h"), thrift2.TCompareOperator_EQUAL, want, m)
		if err == nil && !ok {
			err = fmt.Errorf("refused behind %q", want)
		}
		return err
	})
}
