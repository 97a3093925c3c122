// Package chart draws the report of a benchmark as an SVG: what was seen over time, and how latencies are distributed.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

const (
	width, left, right = 960, 110, 30
	panel, head, foot  = 260, 40, 60
	plot               = width - left - right
)

var colours = []string{"#1f6fb4", "#d9602b", "#3a8f3f", "#8a55b0", "#b8860b", "#5b6770"}

// line is one line of a panel.
type line struct {
	name   string
	points [][2]float64
	dashed bool
}

// axis maps values to places.
type axis struct {
	lo, hi float64
	log    bool
	marks  []float64
	label  func(float64) string
}

// place returns where a value is, 0 to 1.
func (a axis) place(v float64) float64 {
	if a.log {
		return (math.Log10(max(v, a.lo)) - math.Log10(a.lo)) / (math.Log10(a.hi) - math.Log10(a.lo))
	}
	return (v - a.lo) / (a.hi - a.lo)
}

// Draw returns the chart of a report, with lines of text below it.
func Draw(rep *measure.Report, text []string) []byte {
	var b bytes.Buffer
	var panels []func(top int)
	for _, unit := range units(rep.Series) {
		panels = append(panels, func(top int) { overTime(&b, top, rep.Series, unit) })
	}
	if len(rep.Latencies) > 0 {
		panels = append(panels, func(top int) { percentiles(&b, top, rep) })
	}
	height := 20 + len(panels)*(head+panel+foot) + 18*len(wrapAll(text)) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	top := 10
	for _, draw := range panels {
		draw(top)
		top += head + panel + foot
	}
	for _, l := range wrapAll(text) {
		top += 18
		fmt.Fprintf(&b, `<text x="20" y="%d" font-size="11" fill="#444">%s</text>`+"\n", top, html.EscapeString(l))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// wrapAll breaks lines of text at a width that fits.
func wrapAll(text []string) (out []string) {
	const most = 150
	for _, l := range text {
		r := []rune(l)
		for len(r) > most {
			cut := most
			for cut > most/2 && r[cut] != ' ' {
				cut--
			}
			out = append(out, string(r[:cut]))
			r = r[cut:]
		}
		out = append(out, string(r))
	}
	return out
}

// units returns the units of series, in their order.
func units(all []measure.Series) (out []string) {
	for _, s := range all {
		if len(s.Points) > 1 && !slices.Contains(out, s.Unit) {
			out = append(out, s.Unit)
		}
	}
	return out
}

// overTime draws all series of a unit.
func overTime(b *bytes.Buffer, top int, all []measure.Series, unit string) {
	var lines []line
	x, y := axis{label: func(v float64) string { return measure.Format(v, "") + " s" }}, axis{label: func(v float64) string { return measure.Format(v, unit) }}
	for _, s := range all {
		if s.Unit != unit || len(s.Points) < 2 {
			continue
		}
		lines = append(lines, line{name: s.Name, points: s.Points})
		for _, p := range s.Points {
			x.hi, y.hi = max(x.hi, p[0]), max(y.hi, p[1])
		}
	}
	x.spread(8)
	y.spread(5)
	draw(b, top, "over time", x, y, lines)
}

// spread puts round marks on an axis from 0.
func (a *axis) spread(n int) {
	if a.hi <= 0 {
		a.hi = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(a.hi/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if a.hi/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	a.hi = step * math.Ceil(a.hi/step)
	for v := 0.0; v <= a.hi*1.0001; v += step {
		a.marks = append(a.marks, v)
	}
}

// percentiles draws how latencies are distributed, with those of the raw disk.
func percentiles(b *bytes.Buffer, top int, rep *measure.Report) {
	var lines []line
	for _, l := range rep.Latencies {
		lines = append(lines, line{name: l.Name, points: l.Curve})
	}
	for _, c := range rep.Ceilings {
		if c.Latency != nil {
			lines = append(lines, line{name: c.Name, points: c.Latency.Curve, dashed: true})
		}
	}
	// The place of a percentile is how rare it is to be beyond it.
	x := axis{lo: 1, hi: 10, log: true, label: func(v float64) string { return fmt.Sprintf("%.6g %%", 100*(1-1/v)) }}
	y := axis{lo: math.Inf(1), hi: 0, log: true, label: func(v float64) string { return measure.Format(v*1e3, "ns") }}
	for i := range lines {
		moved := make([][2]float64, 0, len(lines[i].points))
		for _, p := range lines[i].points {
			rare := 100 / (100 - p[0])
			if v := max(p[1], 0.1); p[0] < 100 {
				moved = append(moved, [2]float64{rare, v})
				x.hi, y.lo, y.hi = max(x.hi, rare), min(y.lo, v), max(y.hi, v)
			}
		}
		lines[i].points = moved
	}
	x.decades()
	y.decades()
	draw(b, top, "latency by percentile", x, y, lines)
}

// decades puts a mark at each power of ten.
func (a *axis) decades() {
	if a.lo > a.hi {
		a.lo, a.hi = 1, 10
	}
	a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(a.lo))), math.Pow(10, math.Ceil(math.Log10(a.hi)))
	if a.lo == a.hi {
		a.hi *= 10
	}
	for v := a.lo; v <= a.hi*1.0001; v *= 10 {
		a.marks = append(a.marks, v)
	}
}

// draw draws a panel.
func draw(b *bytes.Buffer, top int, title string, x, y axis, lines []line) {
	at := top + head
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", left, top+14, html.EscapeString(title))
	for _, v := range y.marks {
		py := float64(at+panel) - y.place(v)*panel
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, py, left+plot, py, left-8, py+4, html.EscapeString(y.label(v)))
	}
	for _, v := range x.marks {
		px := left + x.place(v)*plot
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			px, at, px, at+panel, px, at+panel+18, html.EscapeString(x.label(v)))
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>`+"\n", left, at, plot, panel)
	name := left
	for i, l := range lines {
		colour, dash := colours[i%len(colours)], ""
		if l.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.8"%s points="`, colour, dash)
		for _, p := range l.points {
			fmt.Fprintf(b, "%.1f,%.1f ", left+x.place(p[0])*plot, float64(at+panel)-y.place(p[1])*panel)
		}
		b.WriteString(`"/>` + "\n")
		row, long := at-10, 26+7*len([]rune(l.name))
		if name+long > left+plot {
			name = left
		}
		if i >= 3 {
			row = at + panel + 38
		}
		if i == 3 {
			name = left
		}
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			name, row-4, name+18, row-4, colour, dash, name+22, row, html.EscapeString(l.name))
		name += long + 14
	}
}
