package measure_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func near(a, b float64) bool { return math.Abs(a-b) <= 0.002*math.Max(math.Abs(a), math.Abs(b)) }

func TestHistogram(t *testing.T) {
	var h measure.Histogram
	if h.Percentile(50) != 0 || h.Latency("x").Count != 0 {
		t.Error("an empty histogram has durations")
	}
	for i := range 10_000 {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	l := h.Latency("x")
	for _, c := range []struct{ got, want float64 }{
		{l.P50, 5000}, {l.P90, 9000}, {l.P99, 9900}, {l.P999, 9990}, {l.Max, 10_000}, {l.Mean, 5000.5}, {float64(h.Percentile(25)), 2.5e6},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if l.Count != 10_000 || len(l.Curve) < 10 || l.Curve[0][0] != 0 {
		t.Errorf("%+v", l)
	}
	h.Record(-time.Second)
	h.Record(time.Hour)
	if l := h.Latency("x"); l.Count != 10_002 || l.Max < 599e6 {
		t.Errorf("%+v", l)
	}
}

// Histograms that went through JSON and were joined are the one of all durations.
func TestMergeAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, joined := &measure.Histogram{}, &measure.Histogram{}
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			part := &measure.Histogram{}
			for _, v := range rapid.SliceOf(rapid.Int64Range(0, int64(10*time.Minute))).Draw(t, "durations") {
				part.Record(time.Duration(v))
				all.Record(time.Duration(v))
			}
			b, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			read := &measure.Histogram{}
			if err := json.Unmarshal(b, read); err != nil {
				t.Fatal(err)
			}
			joined.Merge(read)
		}
		if a, j := all.Latency("x"), joined.Latency("x"); !reflect.DeepEqual(a, j) {
			t.Fatalf("%+v, want %+v", j, a)
		}
	})
	var h measure.Histogram
	if err := h.UnmarshalText([]byte("nonsense")); err == nil {
		t.Error("nonsense was read")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}, {[]float64{1, 2, 3, 100}, 2.5}} {
		if got := measure.Median(c.of); got != c.want {
			t.Errorf("%v: %v, want %v", c.of, got, c.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{1234567.8, "msg/s", "1,234,568 msg/s"}, {0, "", "0"}, {12.34, "", "12.3"}, {1.234, "cores", "1.23 cores"}, {0.0123, "", "0.012"}, {3, "", "3"},
		{1 << 20, "B", "1MiB"}, {0.0325, "s", "32.5 ms"}, {291.4, "ns", "291 ns"}, {1093, "ns", "1.09 µs"}, {65e9, "ns", "65.0 s"}, {1e6, "ns", "1.00 ms"}, {123456, "ns", "123 µs"},
	} {
		if got := measure.Format(c.v, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

// A report has the median of each figure with its spread, all latencies together, and the series of the last run.
func TestJoin(t *testing.T) {
	var rep measure.Report
	var runs []*measure.Run
	for i, v := range []float64{3, 1, 2} {
		r := &measure.Run{Series: []measure.Series{{Name: "s", Unit: "B", Points: [][2]float64{{0, float64(i)}}}}}
		r.Add("rate", "msg/s", v)
		if i == 1 {
			r.Add("once", "", 7)
		}
		h := &measure.Histogram{}
		h.Record(time.Duration(v) * time.Millisecond)
		r.AddLatency("lat", h)
		r.AddLatency("none", &measure.Histogram{})
		runs = append(runs, r)
	}
	rep.Join(runs)
	if want := []measure.Figure{{"rate", "msg/s", 2, 1, 3, []float64{3, 1, 2}}, {"once", "", 7, 7, 7, []float64{7}}}; !reflect.DeepEqual(rep.Figures, want) {
		t.Errorf("%+v", rep.Figures)
	}
	l := rep.Latency("lat")
	if l == nil || l.Count != 3 || !near(l.P50, 2000) || rep.Latency("none") != nil || rep.Series[0].Points[0][1] != 2 {
		t.Errorf("%+v %+v", rep.Latencies, rep.Series)
	}
	rep.Compare("half", 1, 2)
	rep.Compare("nothing", 1, 0)
	if len(rep.Ratios) != 1 || rep.Ratios[0].Value != 0.5 {
		t.Errorf("%+v", rep.Ratios)
	}
	text := ""
	for _, rows := range rep.Rows() {
		for _, row := range rows {
			text += strings.Join(row, "|") + "\n"
		}
	}
	for _, want := range []string{"FIGURE|MEDIAN|FROM|TO\nrate|2 msg/s|1 msg/s|3 msg/s\n", "lat|2.00 ms|3.00 ms|", "half|0.5\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
