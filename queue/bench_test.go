package queue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

// cpu returns the processor time that the process has used: the machine may be busy with other things.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, start time.Duration, messages int) {
	b.ReportMetric(float64(cpu()-start)/float64(messages), "cpu-ns/message")
}

func benchBatch(n int, m message.Message) ([]byte, message.Info) {
	ms := make([]message.Message, n)
	for i := range ms {
		ms[i] = m
		if m.Key != "" {
			ms[i].Key = fmt.Sprint(m.Key, i)
		}
	}
	return frameOf(ms...)
}

// bench is a core with a sender and a receiver that takes what comes.
type bench struct {
	c      *Core
	now    int64
	seq    uint64 // producer seq
	credit uint64
	last   uint64
	runs   []Delivery
}

func newBench(tb testing.TB, credit uint64) *bench {
	c, err := New(Options{}, 1)
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{c: c, now: 1e12, seq: 1, credit: credit}
	c.Recovered(b.now)
	if _, err := c.OpenSender(b.now, 1, SenderOptions{Producer: Producer{"bench", "1"}}); err != nil {
		tb.Fatal(err)
	}
	if credit > 0 {
		if err := c.OpenReceiver(b.now, 2, ReceiverOptions{}); err != nil {
			tb.Fatal(err)
		}
		if err := c.Credit(b.now, 2, credit, 1<<50); err != nil {
			tb.Fatal(err)
		}
	}
	b.take(0)
	return b
}

// take stores everything, and collects what is handed out.
func (b *bench) take(bytes int) {
	out := b.c.Take()
	if next := b.c.NextSeq() - 1; next > b.last {
		b.c.Stored(b.last+1, next, bytes)
		b.last = next
	}
	for _, e := range out.Effects {
		if d, ok := e.(Deliver); ok {
			b.runs = append(b.runs, d.Runs...)
		}
	}
}

func (b *bench) send(tb testing.TB, frame []byte, info message.Info) {
	if err := b.c.Send(b.now, SendBatch{Sender: 1, ProducerSeq: b.seq, Floor: 1, Frame: frame, Info: info}); err != nil {
		tb.Fatal(err)
	}
	b.seq += uint64(info.Count)
}

// BenchmarkPipeline is send, lease, ack, a batch at a time, with a window of a few batches on their way.
func BenchmarkPipeline(b *testing.B) {
	for _, size := range []int{1, 16, 500} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			frame, info := benchBatch(size, message.Message{Body: make([]byte, 100)})
			p := newBench(b, uint64(4*size))
			var spans []LeaseSpan
			b.ReportAllocs()
			n := 0
			start := cpu()
			for b.Loop() {
				p.now += int64(n % 2)
				p.send(b, frame, info)
				p.take(len(frame) + entryHeaderSize)
				if n++; n%2 == 0 {
					spans = spans[:0]
					for _, r := range p.runs {
						spans = append(spans, r.LeaseSpan)
						p.credit += r.Count
					}
					p.runs = p.runs[:0]
					p.c.Ack(p.now, 1, spans)
					if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
						b.Fatal(err)
					}
				}
			}
			report(b, start, b.N*size)
		})
	}
}

// BenchmarkKeys is the same with an ordering key on each message.
func BenchmarkKeys(b *testing.B) {
	const size = 500
	frame, info := benchBatch(size, message.Message{Body: make([]byte, 100), Key: "customer"})
	p := newBench(b, 4*size)
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		p.now++
		p.send(b, frame, info)
		p.take(len(frame) + entryHeaderSize)
		var spans []LeaseSpan
		for _, r := range p.runs {
			spans = append(spans, r.LeaseSpan)
			p.credit += r.Count
		}
		p.runs = p.runs[:0]
		p.c.Ack(p.now, 1, spans)
		if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
			b.Fatal(err)
		}
	}
	report(b, start, b.N*size)
}

// BenchmarkRandomAck acknowledges messages one by one in random order, with 50,000 in flight.
func BenchmarkRandomAck(b *testing.B) {
	const window = 50_000
	frame, info := benchBatch(500, message.Message{Body: make([]byte, 100)})
	p := newBench(b, window)
	r := rand.New(rand.NewPCG(1, 2))
	var held []LeaseSpan
	fill := func() {
		for len(held) < window {
			p.send(b, frame, info)
			p.take(len(frame))
			for _, d := range p.runs {
				for i := range d.Count {
					held = append(held, LeaseSpan{d.Lease + i, d.Seq + i, 1})
				}
			}
			p.runs = p.runs[:0]
			if p.c.readyLen() > 0 {
				break
			}
		}
	}
	fill()
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		i := r.IntN(len(held))
		p.c.Ack(p.now, 1, held[i:i+1])
		held[i] = held[len(held)-1]
		held = held[:len(held)-1]
		p.credit++
		if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
			b.Fatal(err)
		}
		p.take(0)
		fill()
	}
	report(b, start, b.N)
}

// backlog sends n messages that nobody receives.
func backlog(tb testing.TB, n int, m message.Message) *bench {
	frame, info := benchBatch(500, m)
	p := newBench(tb, 0)
	for range n / 500 {
		p.now++
		p.send(tb, frame, info)
		p.take(len(frame) + entryHeaderSize)
	}
	return p
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A backlog of ten million is cheap (G8): in memory, to take a snapshot of, to restore.
func BenchmarkBacklog(b *testing.B) {
	const n = 10_000_000
	for _, c := range []struct {
		name string
		m    message.Message
	}{
		{"plain", message.Message{Body: make([]byte, 100)}},
		{"delay+ttl+key", message.Message{Body: make([]byte, 100), Delay: time.Minute, TTL: time.Hour, Key: "customer"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				start := time.Now()
				p := backlog(b, n, c.m)
				b.ReportMetric(float64(time.Since(start).Nanoseconds())/n, "ns/send")
				b.ReportMetric(float64(heap()-before)/1e6, "MB")
				start = time.Now()
				snap := p.c.Capture()
				b.ReportMetric(float64(time.Since(start).Microseconds())/1e3, "ms/capture")
				var chunks [][]byte
				size := 0
				start = time.Now()
				for x := range snap.Chunks() {
					chunks = append(chunks, x)
					size += len(x)
				}
				b.ReportMetric(time.Since(start).Seconds(), "s/encode")
				b.ReportMetric(float64(size)/1e6, "MB/snapshot")
				b.ReportMetric(float64(len(chunks)), "chunks")
				start = time.Now()
				r, err := Restore(Options{}, sequence(chunks))
				if err != nil {
					b.Fatal(err)
				}
				r.Recovered(p.now)
				b.ReportMetric(time.Since(start).Seconds(), "s/restore")
				runtime.KeepAlive(p)
			}
		})
	}
}

// BenchmarkReplay recovers by events alone.
func BenchmarkReplay(b *testing.B) {
	const size = 500
	_, info := benchBatch(size, message.Message{Body: make([]byte, 100)})
	p := newBench(b, size)
	var meta [][]byte
	var seqs []uint64
	frame, _ := benchBatch(size, message.Message{Body: make([]byte, 100)})
	next := uint64(1)
	for range 1000 {
		p.now++
		p.send(b, frame, info)
		out := p.c.Take()
		for _, e := range out.Effects {
			if d, ok := e.(Deliver); ok {
				p.c.Stored(p.c.stored+1, p.c.next-1, len(frame))
				p.c.Ack(p.now, 0, []LeaseSpan{d.Runs[0].LeaseSpan})
				p.credit += d.Runs[0].Count
				if err := p.c.Credit(p.now, 2, p.credit, 1<<50); err != nil {
					b.Fatal(err)
				}
			}
		}
		out.Events = append(out.Events, p.c.Take().Events...)
		for i := range out.Events {
			meta = append(meta, AppendEvent(nil, &out.Events[i]))
			seqs = append(seqs, next)
			next += Seqs(&out.Events[i])
		}
	}
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		c, err := New(Options{}, 1)
		if err != nil {
			b.Fatal(err)
		}
		for i, m := range meta {
			e, err := DecodeEvent(m)
			if err == nil {
				err = c.Apply(seqs[i], &e)
			}
			if err != nil {
				b.Fatal(err)
			}
			if i%3 == 2 {
				c.Stored(seqs[i], seqs[i], size*102)
			}
		}
		c.Recovered(p.now)
	}
	report(b, start, b.N*1000*size)
}
