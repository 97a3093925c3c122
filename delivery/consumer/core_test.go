package consumer

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastmq/holdfast/delivery/window"
)

// walk is a consumer core with producers that keep to the protocol, in a world where every envelope may be lost,
// repeated and late, and handlers fail. It checks on the way what must hold in every state.
type walk struct {
	t     *rapid.T
	opts  Options[int]
	core  *Core[int]
	now   int64
	peers []*peer
	stale []Envelope[int] // sent before, may come again
	jobs  []*walkJob
	acks  []Ack
	// by message: how often its handler returned nil, and how often it runs now
	done, running map[msg]int
	// messages of a window that was dropped may be handled again
	excused map[window.Key]bool
	// for InOrder: the next number that may begin, by incarnation
	order map[window.Key]uint64
}

type msg struct {
	key window.Key
	seq uint64
}

type peer struct {
	key     window.Key
	life    int
	next    uint64
	settled map[uint64]bool
	floor   uint64
}

type walkJob struct {
	job   Job[int]
	at    int
	ended bool // a handler failed that the others must wait for; the job is yet to be given back
}

func (p *peer) settle(seq uint64) {
	p.settled[seq] = true
	for p.settled[p.floor] {
		p.floor++
	}
}

func (w *walk) deliver(e Envelope[int]) {
	before := w.windows()
	n, fault := w.core.Deliver(e, w.now)
	if fault != nil {
		w.t.Fatalf("%v %d floor %d: %v", e.Key, e.First, e.Floor, fault)
	}
	if n.Accepted+n.Known+n.InProgress+n.NoRoom != len(e.Bodies) {
		w.t.Fatalf("%d messages became %+v", len(e.Bodies), n)
	}
	w.noteDrops(before)
	w.acks = w.core.AppendAcks(w.acks)
	if w.opts.InOrder && w.core.Window(e.Key) != nil {
		w.order[e.Key] = max(w.order[e.Key], e.Floor)
	}
}

// windows tells which incarnations have a window.
func (w *walk) windows() map[window.Key]bool {
	there := map[window.Key]bool{}
	for _, e := range w.stale {
		there[e.Key] = w.core.Window(e.Key) != nil
	}
	return there
}

// noteDrops excuses the incarnations whose window is gone.
func (w *walk) noteDrops(before map[window.Key]bool) {
	for k, there := range before {
		if there && w.core.Window(k) == nil {
			w.excused[k] = true
			w.order[k] = 0
		}
	}
}

func (w *walk) envelope(p *peer, first, last uint64) Envelope[int] {
	e := Envelope[int]{Key: p.key, Floor: p.floor, First: first, Reply: p}
	for seq := first; seq <= last; seq++ {
		e.Bodies = append(e.Bodies, int(seq))
	}
	return e
}

func (w *walk) begin(limit int) bool {
	job, ok := w.core.Begin(make([]Item[int], 0, limit))
	if !ok {
		return false
	}
	perProducer := 1
	for i := range job.Items {
		it := &job.Items[i]
		m := msg{*it.Key(), it.Seq}
		if it.Body != int(it.Seq) {
			w.t.Fatalf("%v got the body of %d", m, it.Body)
		}
		if it.win.Dropped() {
			w.t.Fatalf("%v begun, its window was dropped", m)
		}
		w.running[m]++
		if !w.excused[m.key] && (w.running[m] > 1 || w.done[m] > 0) {
			w.t.Fatalf("%v begun, running %d times and done %d times", m, w.running[m], w.done[m])
		}
	}
	for _, j := range w.jobs {
		if j.job.lane == job.lane {
			perProducer++
		}
	}
	if perProducer > max(1, w.opts.PerProducer) {
		w.t.Fatalf("%d jobs of one producer", perProducer)
	}
	w.jobs = append(w.jobs, &walkJob{job: job})
	return true
}

// step ends the next handler of a job, and the job if it was the last or the others must wait.
func (w *walk) step(i int, ok bool) {
	j := w.jobs[i]
	if j.ended {
		w.end(i)
		return
	}
	it := &j.job.Items[j.at]
	m := msg{*it.Key(), it.Seq}
	if w.opts.InOrder && !it.win.Dropped() {
		if m.seq < w.order[m.key] && m.seq > it.win.Contiguous() || m.seq > w.order[m.key] && m.seq > it.win.Contiguous()+1 {
			w.t.Fatalf("%v begun out of order: next is %d", m, w.order[m.key])
		}
		if ok {
			w.order[m.key] = m.seq + 1
		}
	}
	w.running[m]--
	if ok {
		w.done[m]++
	}
	w.core.Settle(&j.job, j.at, ok, w.now)
	w.acks = w.core.AppendAcks(w.acks)
	j.at++
	if j.ended = !ok && w.opts.InOrder; !j.ended && j.at == len(j.job.Items) {
		w.end(i)
	}
}

func (w *walk) end(i int) {
	j := w.jobs[i]
	for k := j.at; k < len(j.job.Items); k++ {
		w.running[msg{*j.job.Items[k].Key(), j.job.Items[k].Seq}]--
	}
	w.core.End(&j.job, j.at)
	w.jobs = append(w.jobs[:i], w.jobs[i+1:]...)
}

// takeAck lets the producer have an acknowledgement.
func (w *walk) takeAck(a Ack) {
	p := a.Reply.(*peer)
	for seq := a.First; seq <= a.Last; seq++ {
		if w.done[msg{a.Key, seq}] == 0 && !(p.key == a.Key && p.settled[seq]) {
			w.t.Fatalf("%v %d acknowledged and never handled", a.Key, seq)
		}
		if p.key == a.Key {
			p.settle(seq)
		}
	}
}

func (w *walk) check() {
	n, bytes := w.core.Unsettled()
	if n > w.opts.MaxWaiting || w.core.Producers() > w.opts.MaxProducers || w.core.Running() != len(w.jobs) ||
		len(w.jobs) > w.opts.MaxConcurrent || bytes > max(w.opts.MaxWaitingBytes, 9) {
		w.t.Fatalf("%d unsettled, %d bytes, %d producers, %d jobs", n, bytes, w.core.Producers(), w.core.Running())
	}
	sum := 0
	for id, l := range w.core.lanes {
		sum += l.unsettled
		if l.unsettled > w.opts.MaxWaitingPerProducer || l.producer != id {
			w.t.Fatalf("%d unsettled of %s", l.unsettled, id)
		}
	}
	if sum != n {
		w.t.Fatalf("%d unsettled in all, %d in lanes", n, sum)
	}
	for i, st := range w.core.holders {
		if st.holder != i || len(st.held) == 0 || st.order.Len() != len(st.held) {
			w.t.Fatalf("holder %d: %d held, %d in order", i, len(st.held), st.order.Len())
		}
	}
}

// settle ends the walk: nothing is lost any more, every handler succeeds, and everybody repeats what is unsettled, the
// last first. All must be confirmed after a number of rounds that the bounds allow: nobody is wedged.
func (w *walk) settle() {
	for round := 0; ; round++ {
		open := false
		for _, p := range w.peers {
			for seq := p.next - 1; seq >= p.floor && seq > 0; seq-- {
				if !p.settled[seq] {
					open = true
					w.deliver(w.envelope(p, seq, seq))
				}
			}
		}
		for w.begin(3) || len(w.jobs) > 0 {
			for len(w.jobs) > 0 {
				w.step(0, true)
			}
			w.check()
		}
		for _, a := range w.acks {
			w.takeAck(a)
		}
		w.acks = nil
		if !open {
			break
		}
		if round > 300 {
			w.t.Fatalf("not all confirmed after %d rounds", round)
		}
	}
	if w.core.Ready() || w.core.Running() != 0 {
		w.t.Fatal("something still runs")
	}
}

func TestCoreWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		w := &walk{t: t, done: map[msg]int{}, running: map[msg]int{}, excused: map[window.Key]bool{}, order: map[window.Key]uint64{}}
		w.opts = Options[int]{
			MaxProducers: draw("max producers", 1, 4), IdleTTL: 50,
			MaxConcurrent: draw("max concurrent", 1, 3), PerProducer: draw("per producer", 1, 2),
			InOrder:    rapid.Bool().Draw(t, "in order"),
			MaxWaiting: draw("max waiting", 1, 12), MaxWaitingPerProducer: draw("waiting each", 1, 8),
			MaxWaitingBytes: draw("max bytes", 5, 60), Size: func(b int) int { return b%9 + 1 },
		}
		if w.opts.InOrder {
			w.opts.PerProducer = 1
		}
		w.core = New(w.opts)
		for i := range draw("peers", 1, 4) {
			w.peers = append(w.peers, &peer{key: window.Key{Producer: fmt.Sprint("p", i), Incarnation: "0"}, next: 1, floor: 1, settled: map[uint64]bool{}})
		}
		pick := func() *peer { return w.peers[draw("peer", 0, len(w.peers)-1)] }
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				p := pick()
				n := uint64(draw("n", 1, 4))
				e := w.envelope(p, p.next, p.next+n-1)
				p.next += n
				w.stale = append(w.stale, e)
				if rapid.Bool().Draw(t, "arrives") {
					w.deliver(e)
				}
			},
			"repeat": func(t *rapid.T) {
				p := pick()
				if p.next == 1 {
					return
				}
				first := uint64(draw("first", 1, int(p.next-1)))
				first = max(first, p.floor)
				if first < p.next {
					w.deliver(w.envelope(p, first, min(p.next-1, first+uint64(draw("more", 0, 2)))))
				}
			},
			"straggler": func(t *rapid.T) {
				if len(w.stale) > 0 {
					w.deliver(w.stale[draw("which", 0, len(w.stale)-1)])
				}
			},
			"begin": func(t *rapid.T) { w.begin(draw("limit", 1, 4)) },
			"end": func(t *rapid.T) {
				if len(w.jobs) > 0 {
					w.step(draw("job", 0, len(w.jobs)-1), draw("outcome", 0, 3) > 0)
				}
			},
			"ack": func(t *rapid.T) {
				if len(w.acks) > 0 {
					i := draw("which", 0, len(w.acks)-1)
					if rapid.Bool().Draw(t, "arrives") {
						w.takeAck(w.acks[i])
					}
					w.acks = append(w.acks[:i], w.acks[i+1:]...)
				}
			},
			"restart": func(t *rapid.T) {
				p := pick()
				p.life++
				*p = peer{key: window.Key{Producer: p.key.Producer, Incarnation: fmt.Sprint(p.life)}, life: p.life, next: 1, floor: 1, settled: map[uint64]bool{}}
			},
			"farewell": func(t *rapid.T) {
				if p := pick(); p.floor == p.next && w.core.Window(p.key) != nil {
					w.core.Farewell(p.key, p.next)
					w.order[p.key] = 0
				}
			},
			"sweep": func(t *rapid.T) {
				w.now += int64(draw("step", 0, 60))
				before := w.windows()
				w.core.Sweep(w.now)
				w.noteDrops(before)
				for k := range w.done { // a farewell is forgotten after two sweeps
					if _, ok := w.core.table.Closed(k.key); !ok && w.core.Window(k.key) == nil {
						w.excused[k.key] = true
					}
				}
			},
			"": func(t *rapid.T) { w.check() },
		})
		w.settle()
	})
}

// All messages of a batch in one envelope cost one look-up, and none allocates, in the steady state.
func TestHotPathAllocates(t *testing.T) {
	c := New(Options[int]{MaxProducers: 10, IdleTTL: 1 << 40, MaxConcurrent: 2, PerProducer: 1, MaxWaiting: 4096, MaxWaitingPerProducer: 4096, MaxWaitingBytes: 1 << 20})
	e := Envelope[int]{Key: window.Key{Producer: "p", Incarnation: "i"}, Floor: 1, First: 1, Bodies: make([]int, 256), Reply: t}
	buf := make([]Item[int], 0, 256)
	acks := make([]Ack, 0, 8)
	round := func() {
		if n, fault := c.Deliver(e, 1); n.Accepted != 256 || fault != nil {
			t.Fatal(n, fault)
		}
		job, ok := c.Begin(buf)
		if !ok || len(job.Items) != 256 {
			t.Fatal("no job")
		}
		for i := range job.Items {
			c.Settle(&job, i, true, 1)
		}
		c.End(&job, 256)
		if acks = c.AppendAcks(acks[:0]); len(acks) != 1 || acks[0].Last-acks[0].First != 255 {
			t.Fatal(acks)
		}
		e.First += 256
		e.Floor += 256
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for 256 messages", n)
	}
}
