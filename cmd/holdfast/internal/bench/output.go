package bench

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/chart"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/machine"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

// describe returns the options of a benchmark by their names.
func (o *Options) describe(name string) map[string]string {
	d := map[string]string{
		"payload": o.payload.String(), "window": strconv.Itoa(o.window), "runs": strconv.Itoa(o.runs), "network": o.network.Value,
	}
	if name == "delivery" {
		d["duration"], d["warmup"] = o.duration.String(), o.warmup.String()
		return d
	}
	d["senders"], d["queues"], d["durability"] = strconv.Itoa(o.senders), strconv.Itoa(o.queues), o.durability.Value
	if name != "send" {
		d["receivers"] = strconv.Itoa(o.receivers)
	}
	if name == "receive" || name == "backlog" {
		d["messages"] = strconv.FormatInt(o.messages, 10)
		if o.stuck > 0 {
			d["stuck"] = strconv.FormatFloat(o.stuck, 'g', -1, 64)
		}
	} else {
		d["duration"], d["warmup"] = o.duration.String(), o.warmup.String()
	}
	if o.rate > 0 {
		d["rate"] = strconv.FormatFloat(o.rate, 'g', -1, 64)
	}
	for name, on := range map[string]bool{"blocking": o.blocking, "embedded": o.embedded, "one-process": o.together, "background": o.background} {
		if on {
			d[name] = "true"
		}
	}
	if o.remote() {
		d["addr"] = strings.Join(o.conn.Addrs(), ",")
	} else {
		d["journal"] = o.journal
	}
	if len(o.serveArgs) > 0 {
		d["serve"] = strings.Join(o.serveArgs, " ")
	}
	return d
}

// optionOrder is how options are told.
var optionOrder = []string{"payload", "window", "senders", "receivers", "queues", "rate", "messages", "stuck", "duration", "warmup", "runs", "durability",
	"blocking", "embedded", "one-process", "background", "network", "addr", "journal", "serve"}

func (b *bench) optionLine() string {
	var parts []string
	for _, name := range optionOrder {
		if v, ok := b.rep.Options[name]; ok {
			parts = append(parts, name+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}

// print writes the report to standard output, and the chart to its file.
func (b *bench) print() error {
	facts, _ := b.rep.Machine.(machine.Facts)
	if b.o.chart != "" {
		svg := chart.Draw(b.rep, []string{"holdfast bench " + b.name + ": " + b.optionLine(), facts.String()})
		if err := os.WriteFile(b.o.chart, svg, 0o644); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	if b.o.output.Value == "json" {
		return cli.WriteJSONIndented(b.a.Out, b.rep)
	}
	if _, err := fmt.Fprintf(b.a.Out, "bench %s: %s\n%s\n", b.name, b.optionLine(), facts); err != nil {
		return err
	}
	for _, rows := range b.rep.Rows() {
		if _, err := io.WriteString(b.a.Out, "\n"); err != nil {
			return err
		}
		if err := cli.Table(b.a.Out, rows); err != nil {
			return err
		}
	}
	for _, note := range b.rep.Notes {
		if _, err := fmt.Fprintf(b.a.Out, "\nnote: %s\n", note); err != nil {
			return err
		}
	}
	return nil
}
