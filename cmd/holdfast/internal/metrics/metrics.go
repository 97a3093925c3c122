// Package metrics turns what a broker knows of itself into Prometheus metrics, when it is asked for them.
package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/rpc"
)

// Source is what the metrics are of.
type Source interface {
	// Broker returns the broker's numbers, and false while there is no broker.
	Broker(ctx context.Context) (broker.Metrics, bool)
	// Server returns the numbers of its front door, and false while there is none.
	Server() (rpc.Metrics, bool)
	// Cluster returns the numbers of its membership, and false where it does not share its journal.
	Cluster() (cluster.Metrics, bool)
}

// Handler serves the metrics of a broker, of its journal (see Syncs), of the process and of the Go runtime.
func Handler(version string, src Source, syncs *Syncs) http.Handler {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	r.MustRegister(info, &collector{src}, syncs.seconds, syncs.calls,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Syncs counts the syncs of an embedded journal, which all of its queues share. It can be used concurrently.
type Syncs struct{ seconds, calls prometheus.Histogram }

// NewSyncs returns a count of none.
func NewSyncs() *Syncs {
	return &Syncs{
		prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_journal_sync_seconds", Help: "How long writes of the embedded journal took to be on stable storage.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}),
		prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_journal_sync_calls", Help: "How many changes, of all queues, shared a write of the embedded journal.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12)}),
	}
}

// Observe counts one sync.
func (s *Syncs) Observe(seconds float64, calls int) {
	s.seconds.Observe(seconds)
	s.calls.Observe(float64(calls))
}

// collectPatience bounds how long a scrape waits for a queue that is busy.
const collectPatience = 5 * time.Second

// collector asks the broker at each scrape.
type collector struct{ src Source }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range brokerDescs {
		ch <- d
	}
	describeCluster(ch)
	for _, m := range queueMetrics {
		ch <- m.desc
	}
	ch <- appendSeconds
	ch <- appendEvents
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectPatience)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if s, ok := c.src.Server(); ok {
		gauge(connsDesc, float64(s.Connections))
		gauge(streamsDesc, float64(s.Streams))
		for _, n := range []struct {
			desc *prometheus.Desc
			v    uint64
		}{{acceptedDesc, s.Accepted}, {unauthorizedDesc, s.Unauthorized}, {protocolDesc, s.ProtocolErrors}, {deadDesc, s.DeadConnections}} {
			ch <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, float64(n.v))
		}
	}
	c.collectCluster(ch)
	m, ok := c.src.Broker(ctx)
	if !ok {
		return
	}
	gauge(queuesDesc, float64(m.Ready), "ready")
	gauge(queuesDesc, float64(m.Opening), "opening")
	gauge(queuesDesc, float64(m.Failed), "failed")
	gauge(cacheDesc, float64(m.CacheBytes))
	gauge(windowDesc, float64(m.SendWindowBytes))
	ch <- histogram(appendSeconds, m.AppendSeconds)
	ch <- histogram(appendEvents, m.AppendEvents)
	for i := range m.Queues {
		q := &m.Queues[i]
		gauge(readyDesc, boolean(q.Ready), q.Name)
		if !q.Ready {
			gauge(recoveredDesc, float64(q.RecoveredTo), q.Name)
			gauge(recoveryEndDesc, float64(q.RecoveryEnd), q.Name)
			continue
		}
		for _, qm := range queueMetrics {
			ch <- prometheus.MustNewConstMetric(qm.desc, qm.kind, qm.value(q), append([]string{q.Name}, qm.labels...)...)
		}
	}
}

// histogram makes counts cumulative.
func histogram(d *prometheus.Desc, h broker.Histogram, labels ...string) prometheus.Metric {
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, n := range h.Counts {
		total += n
		if i < len(h.Bounds) {
			buckets[h.Bounds[i]] = total
		}
	}
	return prometheus.MustNewConstHistogram(d, total, h.Sum, buckets, labels...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var (
	queuesDesc      = prometheus.NewDesc("holdfast_queues", "Queues of this broker, by whether they are ready.", []string{"state"}, nil)
	cacheDesc       = prometheus.NewDesc("holdfast_cache_bytes", "Frames kept in memory for hand-over.", nil, nil)
	windowDesc      = prometheus.NewDesc("holdfast_send_window_bytes", "Bytes that senders may send without an answer, all together.", nil, nil)
	readyDesc       = desc("ready", "1 if the queue is recovered and in use.")
	recoveredDesc   = desc("recovered_seq", "How far the recovery of a queue that is not ready has come.")
	recoveryEndDesc = desc("recovery_end_seq", "Where the recovery of a queue that is not ready ends.")
	appendSeconds   = prometheus.NewDesc("holdfast_append_seconds", "How long records of queues took to be stored.", nil, nil)
	appendEvents    = prometheus.NewDesc("holdfast_append_events", "How many events records of queues had: the batch size.", nil, nil)

	connsDesc        = prometheus.NewDesc("holdfast_connections", "Open data connections.", nil, nil)
	streamsDesc      = prometheus.NewDesc("holdfast_streams", "Open streams of senders and receivers on them.", nil, nil)
	acceptedDesc     = prometheus.NewDesc("holdfast_connections_total", "Data connections ever made.", nil, nil)
	unauthorizedDesc = prometheus.NewDesc("holdfast_unauthorized_total", "Requests refused for who made them.", nil, nil)
	protocolDesc     = prometheus.NewDesc("holdfast_protocol_errors_total", "Data connections ended because the client broke the protocol.", nil, nil)
	deadDesc         = prometheus.NewDesc("holdfast_dead_connections_total", "Data connections ended because the client was gone or did not read.", nil, nil)

	brokerDescs = []*prometheus.Desc{
		queuesDesc, cacheDesc, windowDesc, readyDesc, recoveredDesc, recoveryEndDesc,
		connsDesc, streamsDesc, acceptedDesc, unauthorizedDesc, protocolDesc, deadDesc,
	}
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_queue_"+name, help, append([]string{"queue"}, labels...), nil)
}
