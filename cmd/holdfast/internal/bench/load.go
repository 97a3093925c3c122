package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/worker"
)

// The names of figures and latencies that are compared with others.
const (
	sendRate    = "sent and acknowledged"
	receiveRate = "received and acknowledged"
	toAnswer    = "send to acknowledgement"
	toHandler   = "send to handler"
	writtenPer  = "storage written ÷ user bytes"
)

// site is a broker with the queues of a run.
type site struct {
	b     *bench
	own   *own // nil: the broker is somebody else's, or embedded
	c     *client.Client
	queue string // beginning of the names of the queues
	all   []string
	crew  *crew
	embed string // URL of the journal, embedded
}

// open starts a broker, if there is to be one, and creates the queues of a run; names are the beginnings of their names, each with
// so many queues.
func (b *bench) open(ctx context.Context, dir string, names map[string]int) (s *site, err error) {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	s = &site{b: b, queue: "bench-" + hex.EncodeToString(id)}
	s.crew = &crew{b: b, warmup: time.Duration(b.o.warmup), length: time.Duration(b.o.duration)}
	if b.o.embedded {
		s.embed = b.o.journalIn(dir)
		return s, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
			s = nil
		}
	}()
	b.show(func() string { return "starting the broker" })
	addr := ""
	if !b.o.remote() {
		if s.own, err = newOwn(b.o, dir); err != nil {
			return s, err
		}
		if err := s.own.start(ctx); err != nil {
			return s, err
		}
		s.crew.broker = s.own.PID()
		addr = s.own.addr
	}
	b.workersAt(addr)
	if s.c, err = b.dial(ctx, addr); err != nil {
		return s, err
	}
	return s, s.create(ctx, names)
}

// create creates queues, several at a time.
func (s *site) create(ctx context.Context, names map[string]int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for name, n := range names {
		for i := range n {
			s.all = append(s.all, worker.Part{Queue: s.queue + name}.QueueName(i))
		}
	}
	var wg sync.WaitGroup
	work := make(chan string)
	for range 16 {
		wg.Go(func() {
			for name := range work {
				if err := s.c.Queue(name).Create(ctx, worker.Config(s.b.o.durability.Value)); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, name := range s.all {
		work <- name
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// close ends what was opened, and removes what was made.
func (s *site) close(ctx context.Context) error {
	s.crew.kill()
	var errs []error
	if s.c != nil {
		if s.own == nil {
			ctx, cancel := s.b.a.Finish(ctx, 30*time.Second)
			defer cancel()
			for _, name := range s.all {
				errs = append(errs, s.c.Queue(name).Delete(ctx))
			}
		}
		s.c.Close()
	}
	if s.own != nil {
		errs = append(errs, s.own.remove())
	}
	return errors.Join(errs...)
}

// part is what all parts of a run have in common.
func (s *site) part(k worker.Kind, name string) worker.Part {
	o := s.b.o
	return worker.Part{
		Kind: k, Queue: s.queue + name, Queues: o.queues, Payload: int(o.payload), Window: o.window, Blocking: o.blocking, Rate: o.rate,
		Warmup: time.Duration(o.warmup), Duration: time.Duration(o.duration), Workers: o.workers, UntilStopped: k == worker.Receive,
	}
}

// group is a number of workers that do the same.
type group struct {
	name string // of the series
	part worker.Part
	n    int
}

// staff starts the workers: one process for each, one for all of them, or one that has the broker too.
func (s *site) staff(ctx context.Context, groups ...group) error {
	var together worker.Spec
	together.Embedded = s.embed
	last := ""
	for _, g := range groups {
		for range g.n {
			if s.b.o.together || s.embed != "" {
				together.Parts = append(together.Parts, g.part)
				last = g.name
				continue
			}
			if _, err := s.crew.add(ctx, g.name, worker.Spec{Parts: []worker.Part{g.part}}); err != nil {
				return err
			}
		}
	}
	if len(together.Parts) == 0 {
		return nil
	}
	_, err := s.crew.add(ctx, last, together)
	if s.embed != "" && len(s.crew.members) > 0 {
		s.crew.broker = s.crew.members[0].PID()
	}
	if len(together.Parts) > 1 && len(s.crew.members) > 0 {
		// The senders end by themselves, the receivers when the worker is told.
		s.crew.members[0].endsN = false
		s.crew.timed = true
	}
	return err
}

// load runs groups of workers, and tells what was measured of all kinds of loads.
func (s *site) load(ctx context.Context, what string, groups ...group) (*measure.Run, error) {
	if err := s.staff(ctx, groups...); err != nil {
		return nil, err
	}
	before, known := s.crew.use()
	profiled := make(chan error, 1)
	if s.b.o.profile != "" && s.own != nil {
		go func() { profiled <- s.b.profileBroker(ctx, s.own, time.Duration(s.b.o.warmup+s.b.o.duration)) }()
	} else {
		profiled <- nil
	}
	if err := s.crew.run(ctx, what); err != nil {
		return nil, err
	}
	if err := <-profiled; err != nil {
		return nil, err
	}
	s.crew.use()
	r := &measure.Run{Series: s.crew.series()}
	main := groups[0]
	sent, received := s.crew.results(worker.Send, ""), s.crew.results(worker.Receive, "")
	if len(groups) > 2 { // there is a background
		sent, received = only(sent, 0, main.n), only(received, 0, groups[1].n)
	}
	sendSpeed, sentTotal, sendCPU := sum(sent)
	receiveSpeed, receivedTotal, receiveCPU := sum(received)
	if len(sent) > 0 {
		r.Add(sendRate, "msg/s", sendSpeed)
	}
	if len(received) > 0 {
		r.Add(receiveRate, "msg/s", receiveSpeed)
		r.Add("left in the queue at the end", "messages", float64(sentTotal-receivedTotal))
	}
	if len(groups) > 2 {
		rest := s.crew.results(worker.Receive, "")[groups[1].n:]
		speed, _, _ := sum(rest)
		r.Add("received in the background", "msg/s", speed)
	}
	if f := frames(sent); f > 0 {
		r.Add("messages a frame", "", float64(sentTotal)/float64(f))
	}
	speed := max(sendSpeed, receiveSpeed)
	took := s.b.o.duration
	if known && s.crew.seen {
		cpu := s.crew.end.CPU - s.crew.start.CPU
		who := "broker"
		if s.embed != "" {
			who = "process"
		}
		r.Add(who+" processor time", "cores", cpu.Seconds()/time.Duration(took).Seconds())
		r.Add(who+" processor time a message", "ns", float64(cpu)/(speed*time.Duration(took).Seconds()))
		r.Add(who+" memory (RSS), highest", "B", float64(s.crew.peak))
		if len(groups) <= 2 && sentTotal > 0 {
			r.Add(writtenPer, "", float64(s.crew.latest.Written-before.Written)/(float64(sentTotal)*float64(s.b.o.payload)))
		}
	}
	if s.embed == "" && !s.b.o.together {
		r.Add("clients' processor time a message", "ns", float64(sendCPU+receiveCPU)/(speed*time.Duration(took).Seconds()))
	}
	r.AddLatency(toAnswer, merge(sent, func(r worker.Result) *measure.Histogram { return r.Answer }))
	r.AddLatency(toHandler, merge(received, func(r worker.Result) *measure.Histogram { return r.EndToEnd }))
	r.AddLatency("of it: the sender's own delay", merge(sent, func(r worker.Result) *measure.Histogram { return r.Late }))
	return r, s.verify(ctx, sentTotal, receivedTotal, len(groups) > 2)
}

// only is a part of all results of a kind: those of the groups in front.
func only(all []worker.Result, from, n int) []worker.Result { return all[from:min(len(all), from+n)] }

func frames(all []worker.Result) (n uint64) {
	for _, r := range all {
		n += r.Frames
	}
	return n
}

// verify checks that the queues have what was sent and not received.
func (s *site) verify(ctx context.Context, sent, received int64, background bool) error {
	if s.c == nil || background {
		return nil
	}
	depth := int64(0)
	for _, name := range s.all {
		info, err := s.c.Queue(name).Describe(ctx)
		if err != nil {
			return err
		}
		depth += int64(info.Stats.Depth)
	}
	if depth != sent-received {
		s.b.rep.Notes = append(s.b.rep.Notes, fmt.Sprintf("the queues have %d messages, and %d were sent and %d received: some came more than once", depth, sent, received))
	}
	return nil
}

// send is "bench send".
func send(ctx context.Context, b *bench, dir string) (*measure.Run, error) {
	return b.loads(ctx, dir, map[string]int{"": b.o.queues}, func(s *site) []group {
		return []group{{"sent", s.part(worker.Send, ""), b.o.senders}}
	})
}

// pipeline is "bench pipeline".
func pipeline(ctx context.Context, b *bench, dir string) (*measure.Run, error) {
	return b.loads(ctx, dir, map[string]int{"": b.o.queues}, func(s *site) []group {
		return []group{{"sent", s.part(worker.Send, ""), b.o.senders}, {"received", s.part(worker.Receive, ""), b.o.receivers}}
	})
}

// latency is "bench latency".
func latency(ctx context.Context, b *bench, dir string) (*measure.Run, error) {
	names := map[string]int{"": b.o.queues}
	if b.o.background {
		names["-background"] = 1
	}
	return b.loads(ctx, dir, names, func(s *site) []group {
		all := []group{{"sent", s.part(worker.Send, ""), b.o.senders}, {"received", s.part(worker.Receive, ""), b.o.receivers}}
		if b.o.background {
			for _, k := range []worker.Kind{worker.Send, worker.Receive} {
				p := s.part(k, "-background")
				p.Rate, p.Queues = 0, 1
				// It goes on until the others have ended.
				p.UntilStopped = true
				all = append(all, group{string(k) + " in the background", p, 1})
			}
		}
		return all
	})
}

// loads opens a site, runs groups of workers there, and closes it.
func (b *bench) loads(ctx context.Context, dir string, names map[string]int, groups func(*site) []group) (r *measure.Run, err error) {
	s, err := b.open(ctx, dir, names)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	return s.load(ctx, filepath.Base(b.name), groups(s)...)
}

// receive is "bench receive": a number of messages is sent first, and then received.
func receive(ctx context.Context, b *bench, dir string) (r *measure.Run, err error) {
	s, err := b.open(ctx, dir, map[string]int{"": b.o.queues})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r = &measure.Run{}
	if _, err := s.fill(ctx, r, b.o.messages); err != nil {
		return nil, err
	}
	return r, s.drain(ctx, r, b.o.messages, 0)
}

// fill sends a number of messages.
func (s *site) fill(ctx context.Context, r *measure.Run, n int64) (*crew, error) {
	c := &crew{b: s.b, broker: s.crew.broker}
	defer c.kill()
	for i := range s.b.o.senders {
		p := s.part(worker.Send, "")
		p.Messages = n / int64(s.b.o.senders)
		if i == 0 {
			p.Messages += n % int64(s.b.o.senders)
		}
		if _, err := c.add(ctx, "sent", worker.Spec{Parts: []worker.Part{p}}); err != nil {
			return nil, err
		}
	}
	before, known := c.use()
	if err := c.run(ctx, "filling"); err != nil {
		return nil, err
	}
	rate, _, _ := sum(c.results(worker.Send, ""))
	r.Add(sendRate, "msg/s", rate)
	r.Series = append(r.Series, c.series()...)
	if after, known2 := c.use(); known && known2 {
		r.Add("broker memory (RSS), highest while filling", "B", float64(c.peak))
		r.Add(writtenPer+", filling", "", float64(after.Written-before.Written)/(float64(n)*float64(s.b.o.payload)))
	}
	return c, nil
}

// drain receives a number of messages, all of them there already, and measures from the first to the last acknowledgement. The handler of
// each that stuckEvery divides fails (0: none).
func (s *site) drain(ctx context.Context, r *measure.Run, n, stuckEvery int64) error {
	c := &crew{b: s.b, broker: s.crew.broker}
	defer c.kill()
	for range s.b.o.receivers {
		p := s.part(worker.Receive, "")
		p.UntilStopped, p.StuckEvery = false, stuckEvery
		p.Messages = n
		if s.b.o.receivers > 1 {
			// Who gets how many is not known before: they end together.
			p.Messages, p.UntilStopped = 1<<62, true
		}
		if _, err := c.add(ctx, "received", worker.Spec{Parts: []worker.Part{p}}); err != nil {
			return err
		}
	}
	c.total = n
	if s.b.o.receivers == 1 {
		c.total = 0
	}
	if err := c.run(ctx, "draining"); err != nil {
		return err
	}
	all := c.results(worker.Receive, "")
	first, last, total := all[0].First, all[0].Last, int64(0)
	for _, one := range all {
		first, last, total = min(first, one.First), max(last, one.Last), total+one.Total
	}
	r.Add(receiveRate, "msg/s", float64(total)/(last-first).Seconds())
	r.Series = append(r.Series, c.series()...)
	if c.seen {
		r.Add("broker memory (RSS), highest while draining", "B", float64(c.peak))
	}
	return nil
}
