package consumer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/holdfastmq/holdfast/delivery/window"
)

// The scripts in testdata/scripts are the sentences of design §6 about the consumer, as traces. Run with -rewrite to accept
// what the core does now.
//
//	consumer [max-producers=N] [ttl=N] [max-concurrent=N] [per-producer=N] [in-order] [max-waiting=N] [waiting-each=N] [max-bytes=N]
//	deliver P/I SEQ[-SEQ]... [floor=N] [no-reply]    one envelope for each SEQ or range; names with * are repeated
//	run                                              begin all jobs that can run
//	ok P/I SEQ... / fail P/I SEQ...                  handlers of running messages end
//	farewell P/I floor=N
//	now N / sweep
//	window P/I / producers / load
//	flood N [prefix=X]                               one message of N different producers, each handled at once
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript(Options[string]{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.command(t, d)
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

type script struct {
	core *Core[string]
	now  int64
	jobs []*scriptJob
	out  strings.Builder
}

type scriptJob struct {
	job   Job[string]
	ended int
}

func newScript(o Options[string]) *script {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MaxProducers, 1024)
	def(&o.MaxConcurrent, 4)
	def(&o.PerProducer, 1)
	def(&o.MaxWaiting, 1000)
	def(&o.MaxWaitingPerProducer, 100)
	def(&o.MaxWaitingBytes, 1<<20)
	if o.IdleTTL == 0 {
		o.IdleTTL = 300_000
	}
	o.Size = func(b string) int { return len(b) }
	return &script{core: New(o)}
}

func (s *script) command(t *testing.T, d *datadriven.TestData) {
	switch d.Cmd {
	case "consumer":
		s.consumer(t, d)
	case "deliver":
		s.deliver(t, d)
	case "run":
		s.run()
	case "ok", "fail":
		k := parseKey(d.CmdArgs[0].Key)
		for _, a := range d.CmdArgs[1:] {
			s.settle(t, d, k, parseSeq(t, d, a.Key))
		}
	case "farewell":
		var floor uint64
		d.ScanArgs(t, "floor", &floor)
		if !s.core.Farewell(parseKey(d.CmdArgs[0].Key), floor) {
			s.printf("nothing to free\n")
		}
	case "now":
		s.now = int64(parseSeq(t, d, d.CmdArgs[0].Key))
	case "sweep":
		s.printf("%d producers forgotten\n", s.core.Sweep(s.now))
	case "window":
		s.window(parseKey(d.CmdArgs[0].Key))
	case "producers":
		s.printf("%d\n", s.core.Producers())
	case "load":
		n, b := s.core.Unsettled()
		s.printf("%d unsettled, %d bytes, %d jobs\n", n, b, s.core.Running())
	case "flood":
		s.flood(t, d)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) }

func (s *script) consumer(t *testing.T, d *datadriven.TestData) {
	var o Options[string]
	ttl := 0
	for name, v := range map[string]*int{
		"max-producers": &o.MaxProducers, "ttl": &ttl, "max-concurrent": &o.MaxConcurrent, "per-producer": &o.PerProducer,
		"max-waiting": &o.MaxWaiting, "waiting-each": &o.MaxWaitingPerProducer, "max-bytes": &o.MaxWaitingBytes,
	} {
		if d.HasArg(name) {
			d.ScanArgs(t, name, v)
		}
	}
	o.IdleTTL = int64(ttl)
	o.InOrder = d.HasArg("in-order")
	*s = *newScript(o)
}

// parseKey reads P/I, where x*N stands for N times x.
func parseKey(arg string) window.Key {
	p, i, _ := strings.Cut(arg, "/")
	expand := func(s string) string {
		if x, n, ok := strings.Cut(s, "*"); ok {
			count, _ := strconv.Atoi(n)
			return strings.Repeat(x, count)
		}
		return s
	}
	return window.Key{Producer: expand(p), Incarnation: expand(i)}
}

func parseSeq(t *testing.T, d *datadriven.TestData, arg string) uint64 {
	n, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func (s *script) deliver(t *testing.T, d *datadriven.TestData) {
	e := Envelope[string]{Key: parseKey(d.CmdArgs[0].Key), Floor: 1, Reply: "sender"}
	if d.HasArg("floor") {
		d.ScanArgs(t, "floor", &e.Floor)
	}
	if d.HasArg("no-reply") {
		e.Reply = nil
	}
	for _, a := range d.CmdArgs[1:] {
		if a.Key == "floor" || a.Key == "no-reply" {
			continue
		}
		from, to, isRange := strings.Cut(a.Key, "-")
		e.First = parseSeq(t, d, from)
		e.Bodies = []string{"body " + from}
		if isRange {
			for n := parseSeq(t, d, to) - e.First; n > 0; n-- {
				e.Bodies = append(e.Bodies, "body")
			}
		}
		n, fault := s.core.Deliver(e, s.now)
		s.printf("%s:", a.Key)
		if fault != nil {
			s.printf(" dead letter: %v", fault)
		}
		for _, c := range []struct {
			n    int
			what string
		}{{n.Accepted, "accepted"}, {n.Known, "known"}, {n.InProgress, "in progress, ignored"}, {n.NoRoom, "no room, ignored"}, {n.Evicted, "evicted"}} {
			if c.n == 1 && len(e.Bodies) == 1 {
				s.printf(" %s", c.what)
			} else if c.n > 0 {
				s.printf(" %d %s", c.n, c.what)
			}
		}
		s.printf("\n")
		s.acks()
	}
}

func (s *script) acks() {
	for _, a := range s.core.AppendAcks(nil) {
		if a.Reply != "sender" {
			s.printf("  WRONG REPLY %v\n", a.Reply)
		}
		if a.First == a.Last {
			s.printf("  acknowledge %s/%s %d\n", a.Key.Producer, a.Key.Incarnation, a.First)
		} else {
			s.printf("  acknowledge %s/%s %d-%d\n", a.Key.Producer, a.Key.Incarnation, a.First, a.Last)
		}
	}
}

func (s *script) run() {
	for {
		job, ok := s.core.Begin(make([]Item[string], 0, 8))
		if !ok {
			break
		}
		s.jobs = append(s.jobs, &scriptJob{job: job})
		s.printf("job:")
		for i := range job.Items {
			k := job.Items[i].Key()
			s.printf(" %s/%s %d", k.Producer, k.Incarnation, job.Items[i].Seq)
		}
		s.printf("\n")
	}
	if s.out.Len() == 0 {
		s.printf("nothing to run\n")
	}
}

func (s *script) settle(t *testing.T, d *datadriven.TestData, k window.Key, seq uint64) {
	for _, j := range s.jobs {
		if j.ended == len(j.job.Items) {
			continue
		}
		it := &j.job.Items[j.ended]
		if *it.Key() != k || it.Seq != seq {
			continue
		}
		s.core.Settle(&j.job, j.ended, d.Cmd == "ok", s.now)
		j.ended++
		s.acks()
		if rest := j.ended; rest == len(j.job.Items) || d.Cmd == "fail" && s.core.opts.InOrder {
			if rest < len(j.job.Items) {
				s.printf("  the rest of the job waits\n")
			}
			s.core.End(&j.job, rest)
			s.jobs = slices.DeleteFunc(s.jobs, func(x *scriptJob) bool { return x == j })
		}
		return
	}
	d.Fatalf(t, "%v %d is not what a job runs now", k, seq)
}

func (s *script) window(k window.Key) {
	w := s.core.Window(k)
	if w == nil {
		s.printf("none\n")
		return
	}
	list := func(next func(uint64) (uint64, bool)) string {
		var l []string
		for seq, ok := next(0); ok; seq, ok = next(seq + 1) {
			l = append(l, strconv.FormatUint(seq, 10))
		}
		return "{" + strings.Join(l, " ") + "}"
	}
	s.printf("contiguous %d above %s in progress %s\n", w.Contiguous(), list(w.NextAbove), list(w.NextInProgress))
}

func (s *script) flood(t *testing.T, d *datadriven.TestData) {
	n, prefix, evicted, noRoom := int(parseSeq(t, d, d.CmdArgs[0].Key)), "flood", 0, 0
	if d.HasArg("prefix") {
		d.ScanArgs(t, "prefix", &prefix)
	}
	for i := range n {
		k := window.Key{Producer: prefix + strconv.Itoa(i), Incarnation: "x"}
		c, _ := s.core.Deliver(Envelope[string]{Key: k, Floor: 1, First: 1, Bodies: []string{""}, Reply: "sender"}, s.now)
		evicted += c.Evicted
		noRoom += c.NoRoom
		for job, ok := s.core.Begin(make([]Item[string], 0, 1)); ok; job, ok = s.core.Begin(make([]Item[string], 0, 1)) {
			s.core.Settle(&job, 0, true, s.now)
			s.core.End(&job, 1)
		}
		s.core.AppendAcks(nil)
	}
	s.printf("%d evicted, %d without room\n", evicted, noRoom)
}
