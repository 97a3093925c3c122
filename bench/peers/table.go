package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// table is everything that was measured.
type table struct {
	Time  time.Time `json:"time"` // of the first run
	Facts string    `json:"facts"`
	// Duration is how long each measurement took.
	Duration string   `json:"duration"`
	Peers    []*about `json:"peers"`
	Rows     []*row   `json:"rows"`
}

// readTable reads the figures that write has written to a path.
func readTable(path string) (*table, error) {
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, fmt.Errorf("read the figures so far: %w", err)
	}
	t := &table{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, fmt.Errorf("read the figures so far from %s.json: %w", path, err)
	}
	return t, nil
}

// runs is how many runs there are of whatever has most.
func (t *table) runs() (n int) {
	for _, r := range t.Rows {
		n = max(n, len(r.Figures)+len(r.Failed))
	}
	return n
}

// about is what a peer was.
type about struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Text    string `json:"about"`
	// Claims tells that the peer says that it syncs before it answers, Syncs how many syncs there were for a hundred messages that were sent singly; nil if nobody looked.
	Claims bool `json:"claims_sync"`
	Syncs  *int `json:"syncs_per_100,omitempty"`
}

// row is one peer under one load.
type row struct {
	Load    string   `json:"load"`
	Kind    string   `json:"kind"`
	Asked   float64  `json:"asked_rate,omitempty"`
	Peer    string   `json:"peer"`
	Figures []figure `json:"figures"`
	Failed  []string `json:"failed,omitempty"`
}

// describe says what a peer is.
func (t *table) describe(p *peer, version string) {
	if t.about(p.name) == nil {
		t.Peers = append(t.Peers, &about{Name: p.name, Version: version, Text: p.about, Claims: p.synced})
	}
}

func (t *table) about(name string) *about {
	i := slices.IndexFunc(t.Peers, func(a *about) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return t.Peers[i]
}

// synced says how many syncs were seen.
func (t *table) synced(p *peer, n int) { t.about(p.name).Syncs = &n }

func (t *table) row(l load, p *peer) *row {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Load == l.name && r.Peer == p.name })
	if i < 0 {
		t.describe(p, "")
		t.Rows = append(t.Rows, &row{Load: l.name, Kind: l.kind, Asked: l.rate, Peer: p.name})
		i = len(t.Rows) - 1
	}
	return t.Rows[i]
}

func (t *table) add(l load, p *peer, f figure) {
	r := t.row(l, p)
	r.Figures = append(r.Figures, f)
}

// fail says that a run gave no figure.
func (t *table) fail(p *peer, l load, err error) {
	r := t.row(l, p)
	r.Failed = append(r.Failed, err.Error())
}

// isSynced tells whether a peer syncs before it answers, as far as one knows.
func (a *about) isSynced() bool { return a.Claims && (a.Syncs == nil || *a.Syncs >= loneSends) }

func (a *about) syncedText() string {
	switch {
	case a.Name == ceiling:
		return "–"
	case !a.Claims:
		return "no"
	case a.Syncs == nil:
		return "yes, not looked at"
	case *a.Syncs >= loneSends:
		return "yes, seen"
	}
	return fmt.Sprintf("NO: %d for %d messages", *a.Syncs, loneSends)
}

// text is a figure in a line.
func (f figure) text(l load) string {
	if l.kind != "latency" {
		return count(f.Rate) + "/s"
	}
	text := fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", f.P50/1000, f.P99/1000)
	if f.Rate < enough*l.rate {
		text += ", but only " + count(f.Rate) + "/s"
	}
	return text
}

// enough is which part of a rate has to be reached for latencies at this rate.
const enough = 0.95

// gives tells whether there are figures for the table, and if not, why.
func (r *row) gives() (string, bool) {
	switch {
	case len(r.Figures) == 0:
		return "failed", false
	case r.Peer != ceiling && r.Kind == "latency" && median(r.values(rate)) < enough*r.Asked:
		return "does not keep up: " + count(median(r.values(rate))) + "/s", false
	}
	return "", true
}

// value is what is compared: the more the better, or for latencies the less.
func (r *row) values(of func(figure) float64) []float64 {
	var v []float64
	for _, f := range r.Figures {
		v = append(v, of(f))
	}
	slices.Sort(v)
	return v
}

func median(sorted []float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func rate(f figure) float64 { return f.Rate }
func p50(f figure) float64  { return f.P50 }
func p99(f figure) float64  { return f.P99 }

// count writes a number in thousands or millions.
func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// markdown writes what was measured, and a table for each load.
func (t *table) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Measured from %s on, on %s: %d runs of %s each.\n", t.Time.Format("2006-01-02 15:04 UTC"), t.Facts, t.runs(), t.Duration)
	var names []string
	for _, r := range t.Rows {
		if !slices.Contains(names, r.Load) {
			names = append(names, r.Load)
		}
	}
	for _, name := range names {
		t.loadTable(&b, name)
	}
	fmt.Fprintf(&b, "\n### What was measured\n\n\"Yes, seen\" is said of those that made at least one fsync, fdatasync or synchronous msync for each of %d messages that were sent singly, as counted by strace.\n\n"+
		"| | version | how | synced before the answer |\n|---|---|---|---|\n", loneSends)
	for _, a := range t.Peers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.Name, a.Version, a.Text, a.syncedText())
	}
	return b.Bytes()
}

// loadTable writes the peers under a load, the best first.
func (t *table) loadTable(b *bytes.Buffer, name string) {
	var rows []*row
	var mine *row
	for _, r := range t.Rows {
		if r.Load == name {
			rows = append(rows, r)
			if _, ok := r.gives(); ok && r.Peer == own {
				mine = r
			}
		}
	}
	latency := rows[0].Kind == "latency"
	slices.SortStableFunc(rows, func(x, y *row) int {
		_, xGives := x.gives()
		_, yGives := y.gives()
		switch {
		case xGives != yGives:
			if xGives {
				return -1
			}
			return 1
		case !xGives:
			return 0
		case latency:
			return cmp.Compare(median(x.values(p50)), median(y.values(p50)))
		}
		return cmp.Compare(median(y.values(rate)), median(x.values(rate)))
	})
	if latency {
		fmt.Fprintf(b, "\n### %s\n\n| | synced | p50, median (from–to) | p99, median (from–to) | Holdfast's p50, p99 by this |\n|---|---|---|---|---|\n", name)
	} else {
		fmt.Fprintf(b, "\n### %s\n\n| | synced | messages/s, median (from–to) | Holdfast by this |\n|---|---|---|---|\n", name)
	}
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |", r.Peer, t.about(r.Peer).syncedText())
		why, ok := r.gives()
		switch {
		case !ok && latency:
			fmt.Fprintf(b, " %s | | |\n", why)
		case !ok:
			fmt.Fprintf(b, " %s | |\n", why)
		case latency:
			a, c, by := r.values(p50), r.values(p99), ""
			if mine != nil && mine != r {
				by = fmt.Sprintf("%.2f, %.2f", median(mine.values(p50))/median(a), median(mine.values(p99))/median(c))
			}
			fmt.Fprintf(b, " %s | %s | %s |\n", spread(a, ms), spread(c, ms), by)
		default:
			v, by := r.values(rate), ""
			if mine != nil && mine != r {
				by = fmt.Sprintf("%.2f", median(mine.values(rate))/median(v))
			}
			fmt.Fprintf(b, " %s | %s |\n", spread(v, count), by)
		}
	}
}

func ms(us float64) string { return fmt.Sprintf("%.2f ms", us/1000) }

func spread(sorted []float64, write func(float64) string) string {
	text := write(median(sorted))
	if len(sorted) > 1 {
		text += " (" + write(sorted[0]) + "–" + write(sorted[len(sorted)-1]) + ")"
	}
	return text
}

// write writes the table to standard output, and all of it to files if path is not empty.
func (t *table) write(path string) error {
	md := t.markdown()
	if path == "" {
		_, err := os.Stdout.Write(md)
		return err
	}
	all, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("write all figures: %w", err)
	}
	for _, f := range []struct {
		ext  string
		text []byte
	}{{".md", md}, {".json", append(all, '\n')}, {".svg", t.chart()}} {
		if err := os.WriteFile(path+f.ext, f.text, 0o644); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

// facts describes the machine in a line.
func facts() string {
	text := fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		text += ", kernel " + strings.TrimSpace(string(b))
	}
	return text
}
