package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/machine"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
)

// lookEvery is how often a run is looked at.
const lookEvery = 100 * time.Millisecond

// crew is the workers of a run, and what is seen of them and of the broker while they work.
type crew struct {
	b       *bench
	members []*member
	broker  int // number of the broker's process; 0: none that can be seen
	warmup  time.Duration
	length  time.Duration
	// timed ends the run when the measured time is over, total once so many messages are done; else it ends with the workers that end by
	// themselves.
	timed bool
	total int64

	began time.Time
	// start and end are what the broker had used when the measured time began and ended.
	start, end, latest machine.Usage
	peak               int64
	rates              map[string]*measure.Series
	rss                measure.Series
	seen               bool
}

type member struct {
	*worker.Process
	name  string // of the series that it belongs to; empty: none
	endsN bool   // it ends by itself
	last  int64
	res   []worker.Result
}

// add starts a worker and waits until it can begin.
func (c *crew) add(ctx context.Context, name string, s worker.Spec) (addr string, err error) {
	if dir := c.b.o.profile; dir != "" && name != "" {
		s.Profile = filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", name, len(c.members)))
	}
	p, err := worker.Start(c.b.o.binary, []string{"bench", "worker"}, c.b.o.env, s)
	if err != nil {
		return "", err
	}
	m := &member{Process: p, name: name, endsN: true}
	for _, part := range s.Parts {
		// A worker with several parts ends with the last of them.
		if part.UntilStopped {
			m.endsN = false
		}
	}
	c.members = append(c.members, m)
	return p.Ready(ctx)
}

// kill ends all workers.
func (c *crew) kill() {
	for _, m := range c.members {
		m.Kill()
	}
}

// run lets all workers work, until those that end by themselves have ended, and then stops the others.
func (c *crew) run(ctx context.Context, what string) (err error) {
	for _, m := range c.members {
		if err := m.Begin(); err != nil {
			return err
		}
	}
	c.began = time.Now()
	c.rates = map[string]*measure.Series{}
	c.rss = measure.Series{Name: "broker memory (RSS)", Unit: "B"}
	defer c.b.show(func() string { return "" })
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var started, ended bool
	before := c.began
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		at := time.Since(c.began)
		c.look(time.Since(before), what)
		before = time.Now()
		if !started && at >= c.warmup {
			started = true
			c.start, c.seen = c.use()
		}
		if c.length > 0 && !ended && at >= c.warmup+c.length {
			ended = true
			c.end, c.seen = c.use()
		}
		if c.over(at) {
			break
		}
	}
	if !ended {
		c.end, c.seen = c.use()
	}
	return c.finish(ctx)
}

// use returns what the broker has used so far.
func (c *crew) use() (machine.Usage, bool) {
	if c.broker == 0 {
		return machine.Usage{}, false
	}
	u, err := machine.Used(c.broker)
	if err != nil {
		return u, false // not known on this system
	}
	c.peak, c.latest = max(c.peak, u.RSS), u
	return u, true
}

// look notes the rates since the last look, and shows them.
func (c *crew) look(since time.Duration, what string) {
	at := time.Since(c.began).Seconds()
	sums := map[string]float64{}
	var names []string
	total := int64(0)
	for _, m := range c.members {
		if m.name == "" {
			continue
		}
		n := m.Progress()
		if _, ok := sums[m.name]; !ok {
			names = append(names, m.name)
		}
		sums[m.name] += float64(n-m.last) / since.Seconds()
		m.last = n
		total += n
	}
	text := what
	for _, name := range names {
		s := c.rates[name]
		if s == nil {
			s = &measure.Series{Name: name, Unit: "msg/s"}
			c.rates[name] = s
		}
		s.Points = append(s.Points, [2]float64{at, sums[name]})
		text += fmt.Sprintf(", %s %s", name, measure.Format(sums[name], "msg/s"))
	}
	if u, ok := c.use(); ok {
		c.rss.Points = append(c.rss.Points, [2]float64{at, float64(u.RSS)})
		text += ", broker " + measure.Format(float64(u.RSS), "B")
	}
	c.b.show(func() string { return fmt.Sprintf("%s (%.0f s)", text, at) })
}

// over tells that the run has come to its end, or a worker to an end of its own, which finish finds out.
func (c *crew) over(at time.Duration) bool {
	all, done := true, int64(0)
	for _, m := range c.members {
		done += m.Progress()
		select {
		case <-m.Done():
			if !m.endsN {
				return true
			}
		default:
			all = all && !m.endsN
		}
	}
	switch {
	case c.total > 0:
		return done >= c.total
	case c.timed:
		return at >= c.warmup+c.length
	}
	return all
}

// finish stops the workers that still work, and takes all results.
func (c *crew) finish(ctx context.Context) error {
	var errs []error
	for _, m := range c.members {
		if !m.endsN {
			errs = append(errs, m.Stop())
		}
	}
	for _, m := range c.members {
		var err error
		m.res, err = m.Wait(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// results returns what the parts of a kind have measured, of workers whose series has the given name; empty: all.
func (c *crew) results(kind worker.Kind, name string) (all []worker.Result) {
	for _, m := range c.members {
		for _, r := range m.res {
			if r.Kind == kind && (name == "" || name == m.name) {
				all = append(all, r)
			}
		}
	}
	return all
}

// sum adds up what several parts have measured side by side.
func sum(all []worker.Result) (rate float64, total int64, cpu time.Duration) {
	for _, r := range all {
		rate += r.Rate()
		total += r.Total
		cpu += r.CPU
	}
	return rate, total, cpu
}

// merge joins a histogram of several parts.
func merge(all []worker.Result, of func(worker.Result) *measure.Histogram) *measure.Histogram {
	h := &measure.Histogram{}
	for _, r := range all {
		if from := of(r); from != nil {
			h.Merge(from)
		}
	}
	return h
}

// series returns what was seen over time.
func (c *crew) series() (all []measure.Series) {
	for _, m := range c.members {
		if s := c.rates[m.name]; s != nil {
			all = append(all, *s)
			delete(c.rates, m.name)
		}
	}
	if len(c.rss.Points) > 0 {
		all = append(all, c.rss)
	}
	return all
}
