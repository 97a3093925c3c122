package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// table is everything that was measured.
type table struct {
	Time  time.Time `json:"time"`
	Facts string    `json:"facts"`
	Rows  []*row    `json:"rows"`
}

// row is one peer under one load.
type row struct {
	Load    string   `json:"load"`
	Kind    string   `json:"kind"`
	Peer    string   `json:"peer"`
	About   string   `json:"about"`
	Synced  bool     `json:"synced"`
	Figures []figure `json:"figures"`
}

func (t *table) row(l load, peer string) *row {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Load == l.name && r.Peer == peer })
	if i < 0 {
		return nil
	}
	return t.Rows[i]
}

func (t *table) add(l load, peer, about string, synced bool, f figure) {
	r := t.row(l, peer)
	if r == nil {
		r = &row{Load: l.name, Kind: l.kind, Peer: peer, About: about, Synced: synced}
		t.Rows = append(t.Rows, r)
	}
	r.Figures = append(r.Figures, f)
}

// tell says on standard error what a run gave.
func (t *table) tell(l load, peer string, run int) {
	f := t.row(l, peer).Figures[run]
	fmt.Fprintf(os.Stderr, "%s  %-26s run %d  %s\n", l.name, peer, run+1, f.text(l.kind))
}

func (f figure) text(kind string) string {
	if kind == "latency" {
		return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", f.P50/1000, f.P99/1000)
	}
	return count(f.Rate) + "/s"
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

// markdown writes a table for each load.
func (t *table) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Measured %s on %s.\n", t.Time.Format("2006-01-02 15:04 UTC"), t.Facts)
	last := ""
	for _, r := range t.Rows {
		if r.Load == last {
			continue
		}
		last = r.Load
		t.loadTable(&b, r.Load)
	}
	return b.Bytes()
}

func (t *table) loadTable(b *bytes.Buffer, name string) {
	var rows []*row
	var mine *row
	for _, r := range t.Rows {
		if r.Load == name {
			rows = append(rows, r)
			if r.Peer == own {
				mine = r
			}
		}
	}
	if rows[0].Kind == "latency" {
		fmt.Fprintf(b, "\n### %s\n\n| | synced | p50, median (from–to) | p99, median (from–to) | Holdfast's p50, p99 by this |\n|---|---|---|---|---|\n", name)
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(median(a.values(p50)), median(b.values(p50))) })
	} else {
		fmt.Fprintf(b, "\n### %s\n\n| | synced | messages/s, median (from–to) | Holdfast by this |\n|---|---|---|---|\n", name)
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(median(b.values(rate)), median(a.values(rate))) })
	}
	for _, r := range rows {
		synced := "no"
		if r.Synced {
			synced = "yes"
		}
		if r.Kind == "latency" {
			a, c, by := r.values(p50), r.values(p99), ""
			if mine != nil && mine != r {
				by = fmt.Sprintf("%.2f, %.2f", median(mine.values(p50))/median(a), median(mine.values(p99))/median(c))
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", r.Peer, synced, spread(a, ms), spread(c, ms), by)
			continue
		}
		v, by := r.values(rate), ""
		if mine != nil && mine != r {
			by = fmt.Sprintf("%.2f", median(mine.values(rate))/median(v))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.Peer, synced, spread(v, count), by)
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

// facts describes machine and versions in a line.
func facts(ctx context.Context, binary string) string {
	text := fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		text += ", kernel " + strings.TrimSpace(string(b))
	}
	if binary != "" {
		if out, err := exec.CommandContext(ctx, binary, "version").Output(); err == nil {
			text += ", " + strings.TrimSpace(string(out))
		}
	}
	return text
}
