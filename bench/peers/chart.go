package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
)

// chart draws the medians of all rates as bars, one panel for each load, with the spread.
func (t *table) chart() []byte {
	const width, left, bar, gap = 900, 230, 20, 8
	var b bytes.Buffer
	y := 10
	var loads []string
	for _, r := range t.Rows {
		if r.Kind != "latency" && !slices.Contains(loads, r.Load) {
			loads = append(loads, r.Load)
		}
	}
	for _, name := range loads {
		top := 0.0
		var rows []*row
		for _, r := range t.Rows {
			if r.Load == name && r.Peer != ceiling {
				rows = append(rows, r)
				top = max(top, slices.Max(r.values(rate)))
			}
		}
		fmt.Fprintf(&b, `<text x="10" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", y+14, html.EscapeString(name+", messages a second"))
		y += 28
		for _, r := range rows {
			v := r.values(rate)
			at := func(x float64) float64 { return left + x/max(top, 1)*(width-left-110) }
			colour := "#9db4c8"
			switch {
			case r.Peer == own:
				colour = "#1f6fb4"
			case !r.Synced:
				colour = "#d8d3c5"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
				left-8, y+15, html.EscapeString(r.Peer), left, y, at(median(v))-left, bar, colour)
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="black"/><text x="%.1f" y="%d">%s</text>`+"\n",
				at(v[0]), y+bar/2, at(v[len(v)-1]), y+bar/2, at(v[len(v)-1])+6, y+15, count(median(v)))
			y += bar + gap
		}
		y += 20
	}
	fmt.Fprintf(&b, `<text x="10" y="%d" font-size="11" fill="#444">%s; pale bars: not synced before the answer; lines: from the lowest to the highest run</text>`+"\n", y+10, html.EscapeString(t.Facts))
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="white"/>`+"\n", width, y+30)
	out.Write(b.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}
