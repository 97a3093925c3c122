// Command growth shows how the cost of a message grows with its size, the window, the queues, the receivers and the backlog: it runs
// "holdfast bench" once for each value and writes a table for docs/performance.md.
//
//	go run ./bench/growth -holdfast bin/holdfast -duration 3s
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// series is what is measured at several values of one thing.
type series struct {
	title string
	work  string   // of bench
	fixed []string // flags that stay
	flags func(value string) []string
	// values are measured one after the other.
	values []string
	// columns are figures of bench's report.
	columns []column
}

// column is a figure, and how it is written.
type column struct {
	title, figure string
	write         func(float64) string
}

var (
	columnSent     = column{"sent/s", "sent and acknowledged", count}
	columnReceived = column{"received and acknowledged/s", "received and acknowledged", count}
	columnBroker   = column{"broker's processor time a message", "broker processor time a message", micro}
	columnClients  = column{"clients'", "clients' processor time a message", micro}
	columnMemory   = column{"broker's memory, highest", "broker memory (RSS), highest", mebi}
	columnWritten  = column{"storage written ÷ user bytes", "storage written ÷ user bytes", ratio}
)

// all are the series of the table.
func all() []series {
	sends := []column{columnSent, columnBroker, columnClients, columnMemory, columnWritten}
	cycles := []column{columnReceived, columnBroker, columnClients, columnMemory, columnWritten}
	one := func(flag string) func(string) []string {
		return func(value string) []string { return []string{flag, value} }
	}
	return []series{
		{title: "size of a message (`bench pipeline --window 1000`)", work: "pipeline", fixed: []string{"--window", "1000"}, flags: one("--payload"),
			values: []string{"10B", "100B", "1KiB", "10KiB", "100KiB"}, columns: cycles},
		{title: "window of the sender (`bench send`)", work: "send", flags: one("--window"), values: []string{"1", "10", "100", "1000", "10000", "100000"}, columns: sends},
		{title: "queues (`bench pipeline`, 10,000 messages in flight in all)", work: "pipeline", values: []string{"1", "10", "100", "1000"}, columns: cycles,
			flags: func(queues string) []string {
				return []string{"--queues", queues, "--window", "1" + strings.Repeat("0", max(5-len(queues), 0))}
			}},
		{title: "receivers, each a process (`bench pipeline --window 10000`)", work: "pipeline", fixed: []string{"--window", "10000"}, flags: one("--receivers"),
			values: []string{"1", "2", "4", "8", "16"}, columns: cycles},
		{title: "senders, each a process (`bench send --window 1000`)", work: "send", flags: one("--senders"), values: []string{"1", "2", "4", "8", "16"}, columns: sends},
		{title: "backlog (`bench backlog`)", work: "backlog", flags: one("--messages"), values: []string{"100000", "1000000", "10000000"}, columns: []column{
			columnSent, columnReceived, {"first message after SIGKILL", "after SIGKILL: start to first message", milli}, {"after a stop", "after a stop: start to first message", milli},
			{"broker's memory, filling", "broker memory (RSS), highest while filling", mebi}, {"started again", "broker memory (RSS), started again", mebi}}},
	}
}

func count(v float64) string { return fmt.Sprintf("%.0f", v) }
func micro(ns float64) string {
	return fmt.Sprintf("%.2f µs", ns/1e3)
}
func milli(s float64) string { return fmt.Sprintf("%.0f ms", s*1e3) }
func mebi(v float64) string  { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }
func ratio(v float64) string { return fmt.Sprintf("%.2f", v) }

// report is what bench says.
type report struct {
	Figures []struct {
		Name   string
		Median float64
	}
}

// cells are the columns of a report. What it does not have is a dash.
func (r *report) cells(columns []column) []string {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = "–"
		for _, f := range r.Figures {
			if f.Name == c.figure {
				cells[i] = c.write(f.Median)
			}
		}
	}
	return cells
}

// run runs bench once.
func run(ctx context.Context, binary string, args []string) (*report, error) {
	cmd := exec.CommandContext(ctx, binary, append([]string{"bench"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run bench %s: %w", strings.Join(args, " "), err)
	}
	r := &report{}
	if err := json.Unmarshal(out, r); err != nil {
		return nil, fmt.Errorf("read the report of bench %s: %w", strings.Join(args, " "), err)
	}
	return r, nil
}

// measure measures a series and writes its table, a line as soon as it is known.
func measure(ctx context.Context, w io.Writer, binary, dir string, d time.Duration, s series) error {
	var titles []string
	for _, c := range s.columns {
		titles = append(titles, c.title)
	}
	_, err := fmt.Fprintf(w, "\n| %s | %s |\n|%s\n", s.title, strings.Join(titles, " | "), strings.Repeat("---|", len(titles)+1))
	for _, value := range s.values {
		args := append([]string{s.work, "--dir", dir, "--no-ceilings", "--output", "json"}, s.fixed...)
		if s.work != "backlog" {
			args = append(args, "--duration", d.String(), "--warmup", (d / 3).String())
		}
		r, failed := run(ctx, binary, append(args, s.flags(value)...))
		if failed != nil {
			return errors.Join(err, failed)
		}
		_, wrong := fmt.Fprintf(w, "| %s | %s |\n", value, strings.Join(r.cells(s.columns), " | "))
		err = cmp.Or(err, wrong)
	}
	return err
}

func main() {
	binary := flag.String("holdfast", "bin/holdfast", "the binary to measure")
	dir := flag.String("dir", ".", "directory in which the benchmarks make their own, and whose disk is measured")
	d := flag.Duration("duration", 3*time.Second, "time that is measured at each value, after a third of it for warming up")
	only := flag.String("series", "", "measure only the series whose titles contain this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, s := range all() {
		if !strings.Contains(s.title, *only) {
			continue
		}
		if err := measure(ctx, os.Stdout, *binary, *dir, *d, s); err != nil {
			fmt.Fprintln(os.Stderr, "growth:", err)
			stop()
			os.Exit(1)
		}
	}
}
