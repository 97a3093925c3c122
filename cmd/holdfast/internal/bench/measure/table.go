package measure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

// Format writes a value with its unit for people, with three digits or all of those before the point.
func Format(v float64, unit string) string {
	switch unit {
	case "B":
		return cli.FormatSize(int64(v))
	case "s":
		return FormatDuration(time.Duration(v * float64(time.Second)))
	case "ns":
		return FormatDuration(time.Duration(v))
	case "":
		return number(v)
	}
	return number(v) + " " + unit
}

func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return cli.FormatCount(int64(math.Round(v)))
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// FormatDuration writes a duration with three digits.
func FormatDuration(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.of {
			v := float64(d) / float64(u.of)
			return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Log10(v))), 64) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + " ns"
}

func micros(v float64) string { return FormatDuration(time.Duration(v * float64(time.Microsecond))) }

// Rows returns the report's tables: figures, latencies and ratios, each with a heading.
func (rep *Report) Rows() (tables [][][]string) {
	if len(rep.Figures) > 0 {
		several := len(rep.Figures[0].Values) > 1
		rows := [][]string{{"FIGURE", "VALUE"}}
		if several {
			rows[0] = []string{"FIGURE", "MEDIAN", "FROM", "TO"}
		}
		for _, f := range rep.Figures {
			row := []string{f.Name, Format(f.Median, f.Unit)}
			if several {
				row = append(row, Format(f.Min, f.Unit), Format(f.Max, f.Unit))
			}
			rows = append(rows, row)
		}
		tables = append(tables, rows)
	}
	lat := [][]string{{"LATENCY", "P50", "P90", "P99", "P99.9", "P99.99", "MAX", "SAMPLES"}}
	row := func(l *Latency) {
		lat = append(lat, []string{l.Name, micros(l.P50), micros(l.P90), micros(l.P99), micros(l.P999), micros(l.P9999), micros(l.Max), cli.FormatCount(l.Count)})
	}
	for i := range rep.Latencies {
		row(&rep.Latencies[i])
	}
	for i := range rep.Ceilings {
		if l := rep.Ceilings[i].Latency; l != nil {
			row(l)
		}
	}
	if len(lat) > 1 {
		tables = append(tables, lat)
	}
	if len(rep.Ceilings) > 0 {
		rows := [][]string{{"CEILING", "RATE"}}
		for _, c := range rep.Ceilings {
			rows = append(rows, []string{c.Name, Format(c.Rate, c.Unit)})
		}
		tables = append(tables, rows)
	}
	if len(rep.Ratios) > 0 {
		rows := [][]string{{"RATIO", "VALUE"}}
		for _, r := range rep.Ratios {
			rows = append(rows, []string{r.Name, strings.TrimSpace(fmt.Sprintf("%.3g", r.Value))})
		}
		tables = append(tables, rows)
	}
	return tables
}
