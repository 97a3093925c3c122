package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
)

// Sizes of the chart, in pixels.
const (
	chartWidth = 900
	chartLeft  = 240
	chartBar   = 20
	chartGap   = 8
)

// chart draws the medians as bars, one panel for each load, with the spread; for latencies the median p50, with a line to the median p99.
func (t *table) chart() []byte {
	var b bytes.Buffer
	y := 10
	var names []string
	for _, r := range t.Rows {
		if !slices.Contains(names, r.Load) {
			names = append(names, r.Load)
		}
	}
	for _, name := range names {
		var rows []*row
		for _, r := range t.Rows {
			if _, ok := r.gives(); ok && r.Load == name && r.Peer != ceiling {
				rows = append(rows, r)
			}
		}
		if len(rows) > 0 {
			y = t.panel(&b, name, rows, y)
		}
	}
	fmt.Fprintf(&b, `<text x="10" y="%d" font-size="11" fill="#444">%s; pale bars: not synced before the answer</text>`+"\n", y+10, html.EscapeString(t.Facts))
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="white"/>`+"\n", chartWidth, y+30)
	out.Write(b.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// panel draws the peers under one load from y downwards, and returns where it ends.
func (t *table) panel(b *bytes.Buffer, name string, rows []*row, y int) int {
	latency := rows[0].Kind == "latency"
	unit := ", messages a second; line: from the lowest to the highest run"
	if latency {
		unit = ", p50; line: to p99"
	}
	top := 0.0
	for _, r := range rows {
		_, _, to := r.bar()
		top = max(top, to)
	}
	at := func(x float64) float64 { return chartLeft + x/max(top, 1)*(chartWidth-chartLeft-160) }
	fmt.Fprintf(b, `<text x="10" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", y+14, html.EscapeString(name+unit))
	y += 28
	for _, r := range rows {
		value, from, to := r.bar()
		colour := "#9db4c8"
		switch {
		case r.Peer == own:
			colour = "#1f6fb4"
		case !t.about(r.Peer).isSynced():
			colour = "#d8d3c5"
		}
		text := count(value)
		if latency {
			text = ms(value) + ", " + ms(to)
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
			chartLeft-8, y+15, html.EscapeString(r.Peer), chartLeft, y, at(value)-chartLeft, chartBar, colour)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="black"/><text x="%.1f" y="%d">%s</text>`+"\n",
			at(from), y+chartBar/2, at(to), y+chartBar/2, at(to)+6, y+15, text)
		y += chartBar + chartGap
	}
	return y + 20
}

// bar is what is drawn of a row: a bar, and a line.
func (r *row) bar() (value, from, to float64) {
	if r.Kind == "latency" {
		value = median(r.values(p50))
		return value, value, median(r.values(p99))
	}
	v := r.values(rate)
	return median(v), v[0], v[len(v)-1]
}
