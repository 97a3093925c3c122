package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// work loads.
type load struct {
	name             string
	kind             string // send, pipeline or latency
	payload, window  int
	rate             float64
	warmup, duration time.Duration
}

// loads are the workloads of the table, by the time that each is measured.
func loads(d time.Duration) []load {
	w := d / 3
	return []load{
		{"send, 100 B, window 1,000", "send", 100, 1000, 0, w, d},
		{"send, 100 B, window 10,000", "send", 100, 10_000, 0, w, d},
		{"send, 1 KiB, window 10,000", "send", 1024, 10_000, 0, w, d},
		{"send, receive, acknowledge, 100 B, window 10,000", "pipeline", 100, 10_000, 0, w, d},
		{"send, receive, acknowledge, 1 KiB, window 10,000", "pipeline", 1024, 10_000, 0, w, d},
		{"latency at 1,000/s, 100 B", "latency", 100, 1000, 1000, w, d},
	}
}

// figure is what one run of a load gave.
type figure struct {
	Rate float64 `json:"rate"`
	// Total counts what was stored, or acknowledged, warming up and what came after it included; 0 if it is not known.
	Total int64   `json:"total,omitempty"`
	P50   float64 `json:"p50_us,omitempty"`
	P99   float64 `json:"p99_us,omitempty"`
	P999  float64 `json:"p99_9_us,omitempty"`
}

// found is told what a run of a peer under a load gave, or why it gave nothing.
type found func(p *peer, l load, f figure, failed error)

// measureGroup starts a server, measures the peers that are clients of it, each under its loads on queues of their own, and ends it. synced, if not nil, is told
// how many syncs there were for a hundred messages that were sent singly. What goes wrong under one load does not keep the others from being measured.
func measureGroup(ctx context.Context, e *env, peers []*peer, all []load, parent string, tell found, synced func(p *peer, syncs int, failed error)) (err error) {
	first := peers[0]
	dir, err := e.newDir(parent, first.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.removeDir(dir)) }()
	s, err := first.start(ctx, e, dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", first.name, err)
	}
	defer func() { err = errors.Join(err, s.end()) }()
	var errs []error
	for i, p := range peers {
		if err := measurePeer(ctx, e, p, s, i == 0, all, tell, synced); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// measurePeer measures a peer whose server runs.
func measurePeer(ctx context.Context, e *env, p *peer, s *server, first bool, all []load, tell found, synced func(*peer, int, error)) error {
	c, err := p.connect(ctx, s.addr)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", p.name, err)
	}
	defer c.close()
	if synced != nil && p.does(load{kind: "send"}) {
		queue := p.name + "-single"
		if err := c.create(ctx, queue); err != nil {
			return fmt.Errorf("make a queue of %s: %w", p.name, err)
		}
		n, err := sendSingly(ctx, e, p, s, queue)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		synced(p, n, err)
	}
	if first && len(all) > 0 {
		// What compiles itself while it runs, or grows its files, gets a run that does not count.
		warm := load{name: "warming up", kind: "pipeline", payload: 100, window: 1000, warmup: time.Millisecond, duration: max(all[0].warmup, p.warm)}
		if _, err := runClients(ctx, e, p, c, warm, s.addr, p.name+"-warm"); err != nil {
			return err
		}
	}
	for i, l := range all {
		if !p.does(l) {
			continue
		}
		// What the loads before have left in the page cache is not to be written during this one.
		if err := syncDir(s.dir); err != nil {
			return err
		}
		if p.program != nil {
			l.warmup = max(l.warmup, warmClient)
		}
		f, err := runClients(ctx, e, p, c, l, s.addr, p.name+"-"+strconv.Itoa(i))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tell(p, l, f, err)
	}
	return nil
}

// prime sends a message, and waits until the receiver has it.
func prime(ctx context.Context, c conn, l load, queue string, receiver *process) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := c.sender(ctx, queue, 1)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	if err := s.send(ctx, make([]byte, l.payload), func(err error) { done <- err }); err != nil {
		return err
	}
	if err := errors.Join(s.flush(ctx), <-done); err != nil {
		return fmt.Errorf("send a first message: %w", err)
	}
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	for receiver.progress.Load() == 0 {
		select {
		case <-t.C:
		case <-receiver.done:
			return errors.Join(errors.New("the receiver ended"), receiver.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the first message: %w", context.Cause(ctx))
		}
	}
	return nil
}

// runClients makes a queue and runs the client processes of a load.
func runClients(ctx context.Context, e *env, p *peer, c conn, l load, addr, queue string) (f figure, err error) {
	if err := c.create(ctx, queue); err != nil {
		return f, fmt.Errorf("make a queue of %s: %w", p.name, err)
	}
	spec := spec{Peer: p.name, Addr: addr, Queue: queue, Payload: l.payload, Window: l.window, Rate: l.rate, Warmup: l.warmup, Duration: l.duration}
	var receiver *process
	spec.Receive = l.kind != "send"
	if spec.Receive && !p.embedded {
		if receiver, err = startClient(ctx, e, p, spec); err != nil {
			return f, err
		}
		defer receiver.kill()
		if !p.ready {
			if err := prime(ctx, c, l, queue, receiver); err != nil {
				return f, fmt.Errorf("%s, %s: %w", p.name, l.name, err)
			}
		}
		spec.Receive = false
	}
	if l.kind != "send" {
		// A sender that outruns the receiver would take its processor: what a queue holds in this load is bounded.
		spec.Ahead = 4 * int64(l.window)
	}
	spec.Send = true
	sender, err := startClient(ctx, e, p, spec)
	if err != nil {
		return f, err
	}
	defer sender.kill()
	if receiver != nil {
		receiver.tell("go")
	}
	sender.tell("go")
	t := time.NewTicker(progressEvery)
	defer t.Stop()
	limit := time.NewTimer(l.warmup + l.duration + answerTime + 10*time.Second)
	defer limit.Stop()
	for going := true; going; {
		select {
		case <-sender.done:
			going = false
		case <-t.C:
			if receiver != nil {
				sender.tell(strconv.FormatInt(receiver.progress.Load(), 10))
			}
		case <-limit.C:
			return f, fmt.Errorf("%s: the sender does not end", p.name)
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
	}
	r, err := sender.wait(ctx)
	if err != nil {
		return f, fmt.Errorf("%s, %s: %w", p.name, l.name, err)
	}
	if receiver != nil {
		receiver.tell("stop")
		if r, err = receiver.wait(ctx); err != nil {
			return f, fmt.Errorf("%s, %s: %w", p.name, l.name, err)
		}
	}
	return figure{r.Rate, r.Total, r.P50, r.P99, r.P999}, nil
}

// measureHoldfast runs a load by Holdfast's own bench, in its default configuration.
func measureHoldfast(ctx context.Context, binary string, l load, parent string, more []string) (f figure, raw figure, err error) {
	args := []string{"bench", l.kind, "--payload", strconv.Itoa(l.payload), "--window", strconv.Itoa(l.window), "--warmup", l.warmup.String(), "--duration", l.duration.String(),
		"--dir", parent, "--ceiling-time", "300ms", "--output", "json"}
	if l.rate > 0 {
		args = append(args, "--rate", strconv.FormatFloat(l.rate, 'g', -1, 64))
	}
	cmd := exec.CommandContext(ctx, binary, append(args, more...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, raw, fmt.Errorf("run %s bench %s: %w", filepath.Base(binary), l.kind, err)
	}
	var rep struct {
		Figures []struct {
			Name   string
			Median float64
		}
		Latencies []struct {
			Name string
			P50  float64 `json:"p50_us"`
			P99  float64 `json:"p99_us"`
			P999 float64 `json:"p99_9_us"`
		}
		Ceilings []struct {
			Unit    string
			Rate    float64
			Latency *struct {
				P50 float64 `json:"p50_us"`
				P99 float64 `json:"p99_us"`
			}
		}
	}
	if err := json.Unmarshal(out, &rep); err != nil {
		return f, raw, fmt.Errorf("read the report of bench %s: %w", l.kind, err)
	}
	want := "received and acknowledged"
	if l.kind == "send" {
		want = "sent and acknowledged"
	}
	for _, x := range rep.Figures {
		if x.Name == want {
			f.Rate = x.Median
		}
	}
	for _, x := range rep.Latencies {
		if x.Name == "send to handler" {
			f.P50, f.P99, f.P999 = x.P50, x.P99, x.P999
		}
	}
	for i, x := range rep.Ceilings {
		if x.Unit == "msg/s" {
			raw.Rate = x.Rate
		}
		if i == 0 && x.Latency != nil {
			raw.P50, raw.P99 = x.Latency.P50, x.Latency.P99
		}
	}
	return f, raw, nil
}
