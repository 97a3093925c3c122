package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/queue"
)

// queueMetric is one number of a ready queue.
type queueMetric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  func(*broker.QueueMetrics) float64
	labels []string // values of the labels behind the queue's name
}

// queueMetrics are all numbers of a ready queue.
var queueMetrics = slicesOf(states(), gauges(), counters(), ways())

func slicesOf(groups ...[]queueMetric) (all []queueMetric) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

func states() []queueMetric {
	d := desc("messages", "Messages in the queue, by state.", "state")
	state := func(name string, v func(*queue.Stats) uint64) queueMetric {
		return queueMetric{d, prometheus.GaugeValue, func(q *broker.QueueMetrics) float64 { return float64(v(&q.Stats)) }, []string{name}}
	}
	return []queueMetric{
		state("ready", func(s *queue.Stats) uint64 { return s.Ready }),
		state("blocked", func(s *queue.Stats) uint64 { return s.Blocked }),
		state("delayed", func(s *queue.Stats) uint64 { return s.Delayed }),
		state("retrying", func(s *queue.Stats) uint64 { return s.Retrying }),
		state("in-flight", func(s *queue.Stats) uint64 { return s.InFlight }),
		state("parked", func(s *queue.Stats) uint64 { return s.Parked }),
		state("moving", func(s *queue.Stats) uint64 { return s.Moving }),
	}
}

func gauges() []queueMetric {
	gauge := func(name, help string, v func(*broker.QueueMetrics) float64) queueMetric {
		return queueMetric{desc(name, help), prometheus.GaugeValue, v, nil}
	}
	return []queueMetric{
		gauge("depth", "Messages in the queue, in whatever state.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Depth) }),
		gauge("damaged", "Messages whose bodies are known to be unreadable; they are among the parked ones.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Damaged) }),
		gauge("bytes", "Attributes and bodies of all messages in the queue.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Bytes) }),
		gauge("oldest_age_seconds", "How long ago the oldest message was stored.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.OldestAge) / 1000 }),
		gauge("credit_outstanding", "Messages that receivers are willing to take now.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.CreditOutstanding) }),
		gauge("senders", "Open senders.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Senders) }),
		gauge("waiting_senders", "Senders that wait because the queue or the store is full.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.WaitingSenders) }),
		gauge("receivers", "Open receivers.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Receivers) }),
		gauge("held_receivers", "Receivers that were lost, and whose messages are held for them to come back.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.HeldReceivers) }),
		gauge("dedup_entries", "Producers whose last number is remembered.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.Producers) }),
		gauge("dedup_ids", "Dedup ids that are remembered.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.DedupIDs) }),
		gauge("journal_stored_bytes", "Bodies in the journal that are not discarded.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.StoredBytes) }),
		gauge("journal_live_bytes", "What of them is needed.", func(q *broker.QueueMetrics) float64 { return float64(q.Stats.LiveBytes) }),
		gauge("journal_amplification", "Stored bytes divided by live bytes; 0 where nothing is live.", func(q *broker.QueueMetrics) float64 {
			if q.Stats.LiveBytes == 0 {
				return 0
			}
			return float64(q.Stats.StoredBytes) / float64(q.Stats.LiveBytes)
		}),
		gauge("epoch", "Epoch under which this broker owns the queue.", func(q *broker.QueueMetrics) float64 { return float64(q.Epoch) }),
		gauge("paused", "1 if the queue hands nothing out.", func(q *broker.QueueMetrics) float64 { return boolean(q.Paused) }),
		gauge("storage_full", "1 if the store has no room for messages.", func(q *broker.QueueMetrics) float64 { return boolean(q.Stats.StorageFull) }),
		gauge("holding_expiry", "1 if expiry is held back because the clock was found far ahead.", func(q *broker.QueueMetrics) float64 { return boolean(q.Stats.HoldingExpiry) }),
		gauge("buffered", "1 if sends are acknowledged before they are on stable storage.", func(q *broker.QueueMetrics) float64 {
			return boolean(q.Config.Durability == queue.DurabilityBuffered)
		}),
	}
}

func counters() []queueMetric {
	counter := func(name, help string, v func(*queue.Stats) uint64) queueMetric {
		return queueMetric{desc(name, help), prometheus.CounterValue, func(q *broker.QueueMetrics) float64 { return float64(v(&q.Stats)) }, nil}
	}
	return []queueMetric{
		counter("sent_total", "Messages stored.", func(s *queue.Stats) uint64 { return s.Sent }),
		counter("duplicates_total", "Messages not stored again, since the last recovery.", func(s *queue.Stats) uint64 { return s.Duplicates }),
		counter("refused_total", "Sends refused because the queue or the store was full, since the last recovery.", func(s *queue.Stats) uint64 { return s.Refused }),
		counter("delivered_total", "Hand-overs of messages to receivers.", func(s *queue.Stats) uint64 { return s.Delivered }),
		counter("redelivered_total", "Hand-overs that were not the first of their message.", func(s *queue.Stats) uint64 { return s.Redelivered }),
		counter("nacked_total", "Messages that receivers gave back as failed.", func(s *queue.Stats) uint64 { return s.Nacked }),
		counter("released_total", "Messages that receivers gave back uncounted.", func(s *queue.Stats) uint64 { return s.Released }),
		counter("lease_expired_total", "Messages whose receiver let its lease run out.", func(s *queue.Stats) uint64 { return s.LeaseExpired }),
		counter("disconnected_total", "Messages that came back because their receiver was lost or closed.", func(s *queue.Stats) uint64 { return s.Disconnected }),
		counter("parked_total", "Messages parked because they failed too often, or cannot be read.", func(s *queue.Stats) uint64 { return s.ParkedEver }),
		counter("unparked_total", "Parked messages that were made ready again.", func(s *queue.Stats) uint64 { return s.Unparked }),
		counter("dedup_evictions_total", "Producers that were forgotten for want of room.", func(s *queue.Stats) uint64 { return s.ProducersEvicted }),
		counter("dedup_id_evictions_total", "Dedup ids that were forgotten within their window for want of room.", func(s *queue.Stats) uint64 { return s.DedupIDsEvicted }),
		{desc("appends_total", "Records that the queue has stored since its last recovery."), prometheus.CounterValue,
			func(q *broker.QueueMetrics) float64 { return float64(q.AppendedRecords) }, nil},
		{desc("append_seconds_total", "How long they took to be stored, in all."), prometheus.CounterValue,
			func(q *broker.QueueMetrics) float64 { return q.AppendSeconds }, nil},
		{desc("appended_bytes_total", "Bytes of records that the queue has stored since its last recovery."), prometheus.CounterValue,
			func(q *broker.QueueMetrics) float64 { return float64(q.AppendedBytes) }, nil},
	}
}

// ways are the ways out of a queue (G2): together with the depth they are what was sent.
func ways() []queueMetric {
	d := desc("left_total", "Messages that have left the queue, by way.", "way")
	way := func(name string, v func(*queue.Stats) uint64) queueMetric {
		return queueMetric{d, prometheus.CounterValue, func(q *broker.QueueMetrics) float64 { return float64(v(&q.Stats)) }, []string{name}}
	}
	return []queueMetric{
		way("acked", func(s *queue.Stats) uint64 { return s.Acked }),
		way("expired", func(s *queue.Stats) uint64 { return s.Expired }),
		way("purged", func(s *queue.Stats) uint64 { return s.Purged }),
		way("dropped", func(s *queue.Stats) uint64 { return s.Dropped }),
		way("dead-lettered", func(s *queue.Stats) uint64 { return s.DeadLettered }),
		way("redriven", func(s *queue.Stats) uint64 { return s.Redriven }),
	}
}
