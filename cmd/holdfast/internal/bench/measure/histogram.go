package measure

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of a Histogram. What lies outside is counted at its ends.
const (
	lowest  = 100 * time.Nanosecond
	highest = 10 * time.Minute
	digits  = 3
)

// Histogram counts durations, each kept to one part in a thousand. It can be used concurrently. The zero value is empty.
type Histogram struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func (h *Histogram) get() *hdrhistogram.Histogram {
	if h.h == nil {
		h.h = hdrhistogram.New(int64(lowest), int64(highest), digits)
	}
	return h.h
}

// Record counts a duration. One that is negative, as the difference of two clocks can be, counts as 0.
func (h *Histogram) Record(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Within the range there is no error.
	_ = h.get().RecordValue(int64(min(max(d, 0), highest)))
}

// Merge adds all that another histogram has counted.
func (h *Histogram) Merge(other *Histogram) {
	other.mu.Lock()
	var from *hdrhistogram.Histogram
	if other.h != nil {
		from = hdrhistogram.Import(other.h.Export())
	}
	other.mu.Unlock()
	if from == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.get().Merge(from)
}

// Count returns how many durations were counted.
func (h *Histogram) Count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.get().TotalCount()
}

// Percentile returns the duration that p percent of those counted do not exceed, 0 if there are none.
func (h *Histogram) Percentile(p float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.get().TotalCount() == 0 {
		return 0
	}
	return time.Duration(h.get().ValueAtPercentile(p))
}

// MarshalText writes the histogram in the compressed form that all implementations of HDR histograms read, in base64.
func (h *Histogram) MarshalText() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := h.get().EncodeV2()
	if err != nil {
		return nil, fmt.Errorf("encode a histogram: %w", err)
	}
	return b, nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Histogram) UnmarshalText(text []byte) error {
	read, err := hdrhistogram.Decode(text)
	if err != nil {
		return fmt.Errorf("decode a histogram: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.h = read
	return nil
}

// Latency is what a histogram says, for a report. Durations are in microseconds.
type Latency struct {
	Name  string  `json:"name"`
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p99_9_us"`
	P9999 float64 `json:"p99_99_us"`
	Max   float64 `json:"max_us"`
	// Curve are pairs of a percentile and the duration there, for a chart.
	Curve [][2]float64 `json:"curve,omitempty"`
}

// Micros returns a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// curveAt are the percentiles of a Latency's curve, as the part of durations that is beyond.
var curveAt = []float64{1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 7e-3, 5e-3, 3e-3, 2e-3, 1.5e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5}

// Latency returns what the histogram says.
func (h *Histogram) Latency(name string) Latency {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.get()
	l := Latency{Name: name, Count: g.TotalCount()}
	if l.Count == 0 {
		return l
	}
	at := func(p float64) float64 { return Micros(time.Duration(g.ValueAtPercentile(p))) }
	l.Mean = g.Mean() / float64(time.Microsecond)
	l.P50, l.P90, l.P99, l.P999, l.P9999 = at(50), at(90), at(99), at(99.9), at(99.99)
	l.Max = Micros(time.Duration(g.Max()))
	for _, beyond := range curveAt {
		if beyond*float64(l.Count) < 1 && beyond < 1 {
			break
		}
		p := 100 * (1 - beyond)
		l.Curve = append(l.Curve, [2]float64{p, at(p)})
	}
	return l
}
