package rpc_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
)

// nullLink accepts whatever is sent and hands over as much as it is asked for, so that what is measured is the way there and back.
type nullLink struct{ run []byte }

func (*nullLink) Admin() holdfast.Admin { return nil }

type nullSender struct {
	ev    holdfast.SenderEvents
	seq   uint64
	bytes uint64
}

func (*nullLink) OpenSender(_ context.Context, _ string, _ holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	l := message.Limits{}.WithDefaults()
	o := holdfast.SenderOpened{Epoch: 1, Credit: holdfast.SendCredit{Messages: 1 << 16, Bytes: 8 << 20}, MaxBody: l.MaxBody, MaxFrameBytes: l.MaxFrameBytes}
	return &nullSender{ev: ev}, o, nil
}

func (s *nullSender) Send(first uint64, frame []byte) error {
	info, err := message.Check(frame, message.Limits{}) // as a broker does
	if err != nil {
		return err
	}
	s.bytes += uint64(len(frame))
	a := holdfast.Accepted{UpTo: first + uint64(info.Count) - 1, First: s.seq + 1, Count: uint64(info.Count)}
	s.seq += a.Count
	a.Credit = holdfast.SendCredit{Messages: a.UpTo + 1<<16, Bytes: s.bytes + 8<<20}
	s.ev.Accepted(a)
	return nil
}

func (s *nullSender) Close(bool) {}

type nullReceiver struct {
	l    *nullLink
	ev   holdfast.ReceiverEvents
	seq  uint64
	each uint64
}

func (l *nullLink) OpenReceiver(_ context.Context, _ string, _ holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	return &nullReceiver{l: l, ev: ev, each: uint64(len(l.run) / 102)}, holdfast.ReceiverOpened{Epoch: 1, Visibility: time.Minute}, nil
}

func (r *nullReceiver) Credit(messages, _ uint64) {
	for r.seq+r.each <= messages {
		d := queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: r.seq + 1, Seq: r.seq + 1, Count: r.each}, Attempt: 1}
		r.ev.Deliver([]holdfast.Run{{Delivery: d, Data: r.l.run}})
		r.seq += r.each
	}
}
func (r *nullReceiver) Started(_ []queue.LeaseSpan, reply holdfast.Outcomes) { answer(reply) }
func (r *nullReceiver) Ack(_ []queue.LeaseSpan, reply holdfast.Outcomes)     { answer(reply) }
func (r *nullReceiver) Nack(_ []queue.LeaseSpan, _ time.Duration, reply holdfast.Outcomes) {
	answer(reply)
}
func (r *nullReceiver) Release(_ []queue.LeaseSpan, reply holdfast.Outcomes) { answer(reply) }
func (r *nullReceiver) Extend(_ []queue.LeaseSpan, _ time.Duration, reply holdfast.Outcomes) {
	answer(reply)
}
func (r *nullReceiver) Close(bool) {}

func answer(reply holdfast.Outcomes) {
	if reply != nil {
		reply(nil, nil)
	}
}

// benchLink connects a client to a null link.
func benchLink(b *testing.B, network string, l *nullLink) *client.Client {
	b.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = "unix:" + filepath.Join(b.TempDir(), "s")
	}
	ln, err := rpc.Listen(b.Context(), addr)
	if err != nil {
		b.Fatal(err)
	}
	s, err := rpc.NewServer(l, rpc.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = s.Serve(ln); close(done) }()
	if t, ok := ln.Addr().(*net.TCPAddr); ok {
		addr = t.String()
	}
	c, err := client.Dial(b.Context(), client.Options{Addrs: []string{addr}, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(); s.Close(); <-done })
	return c
}

// windowed is a sender that waits for room in its window.
type windowed struct{ accepted chan uint64 }

func (w windowed) Accepted(a holdfast.Accepted) { w.accepted <- a.Count }
func (windowed) Refused(uint64, error)          {}
func (windowed) Waits(bool, string)             {}
func (windowed) Broken(error)                   {}

// cpu returns the processor time that the process has used, which says more on a busy machine than the time on the clock.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perMessage reports what each of n messages took since start.
func perMessage(b *testing.B, start time.Duration, n uint64) {
	b.ReportMetric(float64(cpu(b)-start)/float64(n), "cpu-ns/msg")
	b.ReportMetric(float64(b.Elapsed())/float64(n), "ns/msg")
}

func plainFrame(n, size int) []byte {
	var b message.Builder
	for range n {
		b.Add(&message.Message{Body: make([]byte, size)})
	}
	return b.Finish()
}

// Frames of messages over a connection and their acceptance back, client and broker in one process.
func BenchmarkSendFrames(b *testing.B) {
	for _, network := range []string{"tcp", "unix"} {
		for _, c := range []struct{ each, size, window int }{
			{1, 100, 1}, {1, 100, 1000}, {16, 100, 1000}, {128, 100, 1000}, {500, 100, 1000}, {600, 100, 10_000}, {64, 1024, 10_000},
		} {
			b.Run(fmt.Sprintf("%s/%d×%dB/window=%d", network, c.each, c.size, c.window), func(b *testing.B) {
				cl := benchLink(b, network, &nullLink{})
				w := windowed{make(chan uint64, 100_000)}
				s, _, err := cl.OpenSender(b.Context(), "q", holdfast.SenderConfig{}, w)
				if err != nil {
					b.Fatal(err)
				}
				frame := plainFrame(c.each, c.size)
				seq, out := uint64(1), 0
				b.ReportAllocs()
				start := cpu(b)
				for b.Loop() {
					for out+c.each > c.window {
						out -= int(<-w.accepted)
					}
					if err := s.Send(seq, frame); err != nil {
						b.Fatal(err)
					}
					seq += uint64(c.each)
					out += c.each
				}
				for out > 0 {
					out -= int(<-w.accepted)
				}
				perMessage(b, start, seq-1)
			})
		}
	}
}

// Hand-overs of runs over a connection, with new credit and acknowledgement back.
func BenchmarkReceiveRuns(b *testing.B) {
	for _, network := range []string{"tcp", "unix"} {
		for _, each := range []int{1, 16, 128, 1000} {
			b.Run(fmt.Sprintf("%s/%d×100B", network, each), func(b *testing.B) {
				cl := benchLink(b, network, &nullLink{run: plainFrame(each, 100)[message.FrameHeaderSize:]})
				got := make(taker, 100_000)
				r, _, err := cl.OpenReceiver(b.Context(), "q", holdfast.ReceiverConfig{}, got)
				if err != nil {
					b.Fatal(err)
				}
				window := uint64(max(10_000, 2*each))
				r.Credit(window, 1<<60)
				var seen uint64
				b.ReportAllocs()
				start := cpu(b)
				for b.Loop() {
					run := <-got
					seen += run.Count
					r.Credit(window+seen, 1<<60)
					r.Ack([]queue.LeaseSpan{run.LeaseSpan}, nil)
				}
				perMessage(b, start, seen)
			})
		}
	}
}

type taker chan queue.Delivery

func (t taker) Deliver(runs []holdfast.Run) {
	for i := range runs {
		t <- runs[i].Delivery
	}
}
func (taker) Lost([]queue.LeaseSpan, string) {}
func (taker) Broken(error)                   {}

// What a user's program reaches over a connection to a broker that does nothing: a Sender with so many unanswered.
func BenchmarkSenderOverConnection(b *testing.B) {
	for _, window := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("100B/window=%d", window), func(b *testing.B) {
			cl := benchLink(b, "tcp", &nullLink{})
			s, err := cl.Queue("q").NewSender(holdfast.SenderOptions{MaxInFlight: window})
			if err != nil {
				b.Fatal(err)
			}
			var failed atomic.Int64
			body := make([]byte, 100)
			b.ReportAllocs()
			start, n := cpu(b), uint64(0)
			for b.Loop() {
				n++
				if err := s.SendAsync(b.Context(), holdfast.Message{Body: body}, func(_ holdfast.ID, err error) {
					if err != nil {
						failed.Add(1)
					}
				}); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(b.Context()); err != nil || failed.Load() > 0 {
				b.Fatalf("%v, %d sends failed", err, failed.Load())
			}
			perMessage(b, start, n)
		})
	}
}
