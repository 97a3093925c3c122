package broker

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
)

// Histogram is counts of observations by upper bound. Counts are not cumulative; the last one is of what
// is above all bounds.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// histogram counts observations in buckets whose bounds double. Its methods may be called concurrently.
type histogram struct {
	counts [histogramBuckets]atomic.Uint64
	sum    atomic.Uint64 // bits of a float64
}

const histogramBuckets = 24

// bucket 0 is up to unit, each further one up to twice that of the one before.
func (h *histogram) observe(v, unit float64) {
	i := 0
	if v > unit {
		i = min(int(math.Ceil(math.Log2(v/unit))), histogramBuckets-1)
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) read(unit float64) Histogram {
	out := Histogram{Counts: make([]uint64, histogramBuckets), Sum: math.Float64frombits(h.sum.Load())}
	for i := range histogramBuckets {
		out.Counts[i] = h.counts[i].Load()
		if i < histogramBuckets-1 {
			out.Bounds = append(out.Bounds, unit*float64(uint64(1)<<i))
		}
	}
	return out
}

// The units of the histograms: the upper bound of their first bucket.
const (
	latencyUnit = 50e-6 // seconds
	batchUnit   = 1     // events
)

// QueueMetrics is what a broker knows of one queue.
type QueueMetrics struct {
	holdfast.QueueInfo
	// AppendedRecords and AppendedBytes are what was stored since the recovery, and AppendSeconds how long that took in all.
	AppendedRecords, AppendedBytes uint64
	AppendSeconds                  float64
	// RecoveredTo and RecoveryEnd are seqs: how far the recovery of a queue that is not ready has come.
	RecoveredTo, RecoveryEnd uint64
}

// Metrics is what a broker knows of itself and its open queues.
type Metrics struct {
	Queues          []QueueMetrics
	CacheBytes      int64 // frames kept in memory
	SendWindowBytes int64 // credit that senders have been given
	// AppendSeconds is how long the records of all queues took to be stored, and AppendEvents how many seqs they had. They are not kept for each
	// queue: a broker may have many.
	AppendSeconds, AppendEvents Histogram
	Ready, Opening, Failed      int // queues
}

// Metrics collects the metrics of all queues that are open or opening, without waiting for recoveries.
func (b *Broker) Metrics(ctx context.Context) Metrics {
	var m Metrics
	m.Ready, m.Opening, m.Failed = b.Ready()
	m.SendWindowBytes = b.granted.Load()
	m.AppendSeconds, m.AppendEvents = b.latency.read(latencyUnit), b.batch.read(batchUnit)
	b.cache.mu.Lock()
	m.CacheBytes = b.cache.used
	b.cache.mu.Unlock()
	for _, h := range b.reg.list() {
		qm := QueueMetrics{QueueInfo: admin{b}.info(ctx, h.name)}
		h.mu.Lock()
		qm.RecoveredTo, qm.RecoveryEnd = h.progress[0], h.progress[1]
		h.mu.Unlock()
		if qm.Ready {
			om := &h.owner.metrics
			qm.AppendedRecords, qm.AppendedBytes = om.appendedRecords.Load(), om.appendedBytes.Load()
			qm.AppendSeconds = time.Duration(om.appendTime.Load()).Seconds()
		}
		m.Queues = append(m.Queues, qm)
	}
	return m
}

// list returns the handles by name.
func (r *registry) list() []*handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*handle, 0, len(r.handles))
	for _, name := range slices.Sorted(maps.Keys(r.handles)) {
		out = append(out, r.handles[name])
	}
	return out
}
