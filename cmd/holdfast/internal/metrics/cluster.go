package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastmq/holdfast/broker/cluster"
	"github.com/holdfastmq/holdfast/broker/placement"
)

// clusterMetric is one number of a broker that shares its journal.
type clusterMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*cluster.Metrics) float64
}

var membersDesc = prometheus.NewDesc("holdfast_cluster_members", "Brokers that share the journal, as this one sees them, by state.", []string{"state"}, nil)

var clusterMetrics = []clusterMetric{
	clusterGauge("valid", "1 if this broker serves: it told the others in time that it lives, or there are none.", func(m *cluster.Metrics) float64 { return boolean(m.Valid) }),
	clusterGauge("refused_queues", "Queues that this broker has published as such that it cannot open.", func(m *cluster.Metrics) float64 { return float64(m.Refused) }),
	clusterCounter("heartbeats_total", "Renewals of this broker's entry.", func(m *cluster.Metrics) uint64 { return m.Beats }),
	clusterCounter("heartbeat_failures_total", "Renewals of this broker's entry that failed.", func(m *cluster.Metrics) uint64 { return m.BeatFailures }),
	clusterCounter("look_failures_total", "Reads of the other brokers' entries that failed.", func(m *cluster.Metrics) uint64 { return m.LookFailures }),
	clusterCounter("acquisitions_total", "Queues that this broker has opened, each time under a new epoch.", func(m *cluster.Metrics) uint64 { return m.Taken }),
	clusterCounter("fenced_total", "Queues that another broker has taken from this one.", func(m *cluster.Metrics) uint64 { return m.Fenced }),
	clusterCounter("lapses_total", "Times that this broker stopped serving because it could not renew its entry.", func(m *cluster.Metrics) uint64 { return m.Lapses }),
	clusterCounter("forwarded_total", "Calls and streams passed on to another broker.", func(m *cluster.Metrics) uint64 { return m.Forwarded }),
	clusterCounter("redirected_total", "Streams of clients that were sent on to another broker.", func(m *cluster.Metrics) uint64 { return m.Redirected }),
}

func clusterGauge(name, help string, v func(*cluster.Metrics) float64) clusterMetric {
	return clusterMetric{prometheus.NewDesc("holdfast_cluster_"+name, help, nil, nil), prometheus.GaugeValue, v}
}

func clusterCounter(name, help string, v func(*cluster.Metrics) uint64) clusterMetric {
	return clusterMetric{prometheus.NewDesc("holdfast_cluster_"+name, help, nil, nil), prometheus.CounterValue, func(m *cluster.Metrics) float64 { return float64(v(m)) }}
}

func describeCluster(ch chan<- *prometheus.Desc) {
	ch <- membersDesc
	for _, m := range clusterMetrics {
		ch <- m.desc
	}
}

// collectCluster tells of the membership, if there is one.
func (c *collector) collectCluster(ch chan<- prometheus.Metric) {
	m, ok := c.src.Cluster()
	if !ok {
		return
	}
	for s := placement.Unknown; s <= placement.Expired; s++ {
		ch <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(m.Members[s.String()]), s.String())
	}
	for _, cm := range clusterMetrics {
		ch <- prometheus.MustNewConstMetric(cm.desc, cm.kind, cm.value(&m))
	}
}
