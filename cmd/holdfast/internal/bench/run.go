package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/ceiling"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/machine"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
)

// The names of ceilings.
const (
	rawGrowing    = "raw: append 4 KiB, fdatasync, growing file"
	rawPaced      = "raw: the same at the rate of the messages, growing file"
	rawPrewritten = "raw: write 4 KiB, fdatasync, prewritten file"
	bareLog       = "bare: framed connection into one synced log"
)

// bench is one call of a benchmark.
type bench struct {
	a    *cli.App
	o    *Options
	name string
	dir  string
	rep  *measure.Report

	mu     sync.Mutex
	status string

	growing, prewritten, paced, bareLatency measure.Histogram
	bare                                    []float64
}

// show is what whoever watches sees.
func (b *bench) show(text func() string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = text()
}

func (b *bench) shown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// workload is what one benchmark does in a run.
type workload func(ctx context.Context, b *bench, dir string) (*measure.Run, error)

// run measures a workload, as often as the options say, and prints the report.
func run(ctx context.Context, a *cli.App, o *Options, name string, w workload, compare func(*bench)) (err error) {
	b := &bench{a: a, o: o, name: name}
	parent, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	if b.dir, err = os.MkdirTemp(parent, "holdfast-bench-"); err != nil {
		return fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if o.network.Value == "unix" {
		// The path of a socket is limited to a hundred bytes.
		if o.sockets, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
			return fmt.Errorf("make a directory for sockets: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.sockets)) }()
	}
	if o.profile != "" {
		if o.profile, err = filepath.Abs(o.profile); err != nil {
			return fmt.Errorf("find the directory for profiles: %w", err)
		}
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return fmt.Errorf("make the directory for profiles: %w", err)
		}
	}
	b.rep = &measure.Report{Benchmark: name, Time: time.Now().UTC(), Machine: machine.Find(a.Version, b.dir), Options: o.describe(name),
		Ceilings: []measure.Ceiling{}, Latencies: []measure.Latency{}, Ratios: []measure.Ratio{}, Series: []measure.Series{}, Notes: []string{}}
	hide := a.Err.Progress(b.shown)
	defer hide()
	var runs []*measure.Run
	for i := range o.runs {
		if err := b.ceilings(ctx); err != nil {
			return err
		}
		dir := filepath.Join(b.dir, strconv.Itoa(i))
		r, err := w(ctx, b, dir)
		if err != nil {
			return err
		}
		runs = append(runs, r)
		if err := b.rawAgain(ctx); err != nil {
			return err
		}
	}
	b.rep.Join(runs)
	b.joinCeilings()
	compare(b)
	hide()
	return b.print()
}

// ceilings measures what there is without a queue, before a run.
func (b *bench) ceilings(ctx context.Context) error {
	if b.o.noCeilings {
		return nil
	}
	if err := b.rawAgain(ctx); err != nil {
		return err
	}
	b.show(func() string { return rawPrewritten })
	h, err := ceiling.Raw(ctx, b.dir, true, 0, time.Duration(b.o.ceiling))
	if err != nil {
		return err
	}
	b.prewritten.Merge(h)
	if b.name == "delivery" {
		return nil // nothing of it is stored
	}
	b.show(func() string { return bareLog })
	rate, err := b.measureBare(ctx)
	b.bare = append(b.bare, rate)
	return err
}

// rawAgain measures the raw disk before and after each run: it is what latencies are compared with.
func (b *bench) rawAgain(ctx context.Context) error {
	if b.o.noCeilings {
		return nil
	}
	b.show(func() string { return rawGrowing })
	h, err := ceiling.Raw(ctx, b.dir, false, 0, time.Duration(b.o.ceiling))
	if err != nil {
		return err
	}
	b.growing.Merge(h)
	if b.name != "latency" || b.o.rate == 0 {
		return nil
	}
	if h, err = ceiling.Raw(ctx, b.dir, false, b.o.rate*float64(b.o.senders*b.o.queues), time.Duration(b.o.ceiling)); err != nil {
		return err
	}
	b.paced.Merge(h)
	return nil
}

// measureBare measures the bare log: a process that serves it, and one for each sender.
func (b *bench) measureBare(ctx context.Context) (float64, error) {
	c := &crew{b: b}
	defer c.kill()
	part := worker.Part{
		Kind: worker.BareServe, Network: b.o.network.Value, Dir: b.dir, Sockets: b.o.sockets, Warmup: time.Duration(b.o.ceiling) / 4, Duration: time.Duration(b.o.ceiling), UntilStopped: true}
	addr, err := c.add(ctx, "", worker.Spec{Parts: []worker.Part{part}})
	if err != nil {
		return 0, err
	}
	part.Kind, part.Addr, part.UntilStopped, part.Payload, part.Window = worker.BareSend, addr, false, int(b.o.payload), b.o.window
	if b.name == "latency" {
		part.Rate = b.o.rate
	}
	for range b.o.senders {
		if _, err := c.add(ctx, "", worker.Spec{Parts: []worker.Part{part}}); err != nil {
			return 0, err
		}
	}
	if err := c.run(ctx, bareLog); err != nil {
		return 0, err
	}
	all := c.results(worker.BareSend, "")
	b.bareLatency.Merge(merge(all, func(r worker.Result) *measure.Histogram { return r.Answer }))
	rate, _, _ := sum(all)
	return rate, nil
}

// joinCeilings puts what was measured of the ceilings into the report.
func (b *bench) joinCeilings() {
	for _, raw := range []struct {
		name string
		h    *measure.Histogram
	}{{rawGrowing, &b.growing}, {rawPrewritten, &b.prewritten}, {rawPaced, &b.paced}} {
		if raw.h.Count() == 0 {
			continue
		}
		l := raw.h.Latency(raw.name)
		b.rep.Ceilings = append(b.rep.Ceilings, measure.Ceiling{Name: raw.name, Rate: 1e6 / l.Mean, Unit: "syncs/s", Latency: &l})
	}
	if len(b.bare) > 0 {
		c := measure.Ceiling{Name: bareLog, Rate: measure.Median(b.bare), Unit: "msg/s"}
		if b.bareLatency.Count() > 0 {
			l := b.bareLatency.Latency(bareLog)
			c.Latency = &l
		}
		b.rep.Ceilings = append(b.rep.Ceilings, c)
	}
}

// compareRate adds the ratios of a rate of messages to the ceilings.
func (b *bench) compareRate(figure string) {
	v, ok := b.rep.Figure(figure)
	if !ok {
		return
	}
	for _, c := range b.rep.Ceilings {
		if c.Unit == "msg/s" {
			b.rep.Compare(figure+" ÷ "+bareLog, v, c.Rate)
		}
	}
	if c := b.rep.Ceiling(rawGrowing); c != nil {
		b.rep.Compare(figure+" ÷ syncs/s of the raw growing file", v, c.Rate)
	}
}

// compareLatency adds the ratios of a latency to that of the raw disk.
func (b *bench) compareLatency(name string) {
	l, c := b.rep.Latency(name), b.rep.Ceiling(rawGrowing)
	if l == nil || c == nil {
		return
	}
	b.rep.Compare(name+", p50 ÷ raw p50", l.P50, c.Latency.P50)
	b.rep.Compare(name+", p99 ÷ raw p99", l.P99, c.Latency.P99)
	if c := b.rep.Ceiling(rawPaced); c != nil {
		b.rep.Compare(name+", p50 ÷ raw p50 at the same rate", l.P50, c.Latency.P50)
		b.rep.Compare(name+", p99 ÷ raw p99 at the same rate", l.P99, c.Latency.P99)
	}
	if c := b.rep.Ceiling(bareLog); c != nil && c.Latency != nil {
		b.rep.Compare(name+", p50 ÷ bare p50", l.P50, c.Latency.P50)
		b.rep.Compare(name+", p99 ÷ bare p99", l.P99, c.Latency.P99)
	}
}

// dial connects this process to a broker.
func (b *bench) dial(ctx context.Context, addr string) (*client.Client, error) {
	o, err := b.o.conn.ClientOptions(b.a)
	if err != nil {
		return nil, err
	}
	o.Lazy = false
	if addr != "" {
		o.Addrs = []string{addr}
	}
	return client.Dial(ctx, o)
}

// workersAt makes the workers connect to an address, or to where the flags say.
func (b *bench) workersAt(addr string) {
	b.o.env = append([]string{}, b.o.env...)
	if addr != "" {
		b.o.env = append(b.o.env, cli.EnvName("addr")+"="+addr)
	}
}

// profileBroker writes a profile of the broker's processor time while it is measured.
func (b *bench) profileBroker(ctx context.Context, br *own, d time.Duration) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", br.http, max(1, int(d.Seconds()))), nil)
	if err != nil {
		return fmt.Errorf("profile the broker: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("profile the broker: %w", err)
	}
	defer res.Body.Close()
	f, err := os.Create(filepath.Join(b.o.profile, "broker.pprof"))
	if err != nil {
		return fmt.Errorf("profile the broker: %w", err)
	}
	_, err = io.Copy(f, res.Body)
	return errors.Join(err, f.Close())
}
