package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/chart"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

// The chart is well-formed, has a panel for each unit and one for latencies, and nothing lies outside of it; also if there is nothing.
func TestDraw(t *testing.T) {
	h := &measure.Histogram{}
	for i := range 10_000 {
		h.Record(time.Duration(i+1) * time.Microsecond)
	}
	run := &measure.Run{Series: []measure.Series{
		{Name: "sent <1>", Unit: "msg/s", Points: [][2]float64{{0.1, 5}, {0.2, 1e6}}},
		{Name: "memory", Unit: "B", Points: [][2]float64{{0.1, 1 << 20}, {0.2, 1 << 25}}},
		{Name: "a single point", Unit: "x", Points: [][2]float64{{1, 1}}},
	}}
	run.AddLatency("to handler", h)
	rep := &measure.Report{}
	rep.Join([]*measure.Run{run})
	raw := h.Latency("raw")
	rep.Ceilings = []measure.Ceiling{{Name: "raw", Latency: &raw}}
	for _, c := range []struct {
		rep    *measure.Report
		panels int
	}{{rep, 3}, {&measure.Report{}, 0}} {
		svg := string(chart.Draw(c.rep, []string{strings.Repeat("facts & more ", 40)}))
		if got := strings.Count(svg, `font-weight="bold"`); got != c.panels {
			t.Errorf("%d panels, want %d", got, c.panels)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, `"-`) {
			t.Errorf("places that are none:\n%s", svg)
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
