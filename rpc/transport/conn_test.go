package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// served is a Conn at one end of a pipe; what Serve returned comes through err.
type served struct {
	*Conn
	err    chan error
	frames chan string
}

// wait returns when Serve has.
func (s *served) wait() error { return <-s.err }

func serve(nc net.Conn, o Options) *served {
	s := &served{Conn: New(nc, nil, o), err: make(chan error, 1), frames: make(chan string, 1000)}
	go func() {
		s.err <- s.Serve(func(h wire.Header, payload []byte) error {
			if h.Type == wire.TypeClose && len(payload) == 1 && payload[0] == 1 {
				return &wire.Error{Code: wire.CodeProtocol, Field: "close frame", Fault: "is not wanted"}
			}
			s.frames <- fmt.Sprintf("%s %d %d", h.Type, h.Stream, len(payload))
			return nil
		})
	}()
	return s
}

// loopback is a pair of connected TCP sockets.
func loopback(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Frames of all sizes arrive whole and in order, whichever way they are queued, over sockets and over what is none.
func TestFramesArrive(t *testing.T) {
	sizes := []int{0, 1, 100, 5000, 63 << 10, 65 << 10, 300 << 10, 1 << 20}
	for name, pair := range map[string]func() (net.Conn, net.Conn){
		"tcp":  func() (net.Conn, net.Conn) { return loopback(t) },
		"pipe": net.Pipe,
	} {
		t.Run(name, func(t *testing.T) {
			nc, other := pair()
			a, b := serve(nc, Options{}), New(other, nil, Options{})
			got := make(chan error, 1)
			var want [][]byte
			for i, n := range sizes {
				want = append(want, bytes.Repeat([]byte{byte(i + 1)}, n))
			}
			ack := &wire.Command{Type: wire.TypeAck, Token: 7, Spans: manySpans(20000)}
			go func() {
				i := 0
				done := errors.New("done")
				err := b.Serve(func(h wire.Header, payload []byte) error {
					if h.Type == wire.TypeAck {
						c, err := wire.DecodeCommand(h.Type, payload)
						if err != nil || len(c.Spans) != len(ack.Spans) {
							return fmt.Errorf("ack with %d spans: %w", len(c.Spans), err)
						}
						return done
					}
					first, frame, err := wire.DecodeSend(payload)
					if err != nil || first != uint64(i) || !bytes.Equal(frame, want[i]) {
						return fmt.Errorf("frame %d arrived as %d with %d bytes: %w", i, first, len(frame), err)
					}
					i++
					return nil
				})
				if errors.Is(err, done) {
					err = nil
				}
				got <- err
			}()
			for i, w := range want {
				h := wire.AppendSendHeader(a.Begin(), 1, uint64(i), len(w))
				if i%2 == 0 {
					a.EndBulk(h, [][]byte{w[:len(w)/2], w[len(w)/2:]}, 1, 1, uint64(len(w)))
				} else {
					a.End(append(h, w...))
				}
			}
			a.End(wire.AppendCommand(a.Begin(), 1, ack)) // larger than the reader's buffer
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			_ = a.wait()
		})
	}
}

func manySpans(n int) (s []queue.LeaseSpan) {
	for i := range uint64(n) {
		s = append(s, queue.LeaseSpan{Lease: 3 * i, Seq: 1000 * i, Count: 1})
	}
	return s
}

// A half-open connection is noticed within 10 s of the last byte, by both kinds of ends (§7, disconnect).
func TestDeadPeerIsNoticed(t *testing.T) {
	for _, eager := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			nc, other := net.Pipe()
			a := serve(nc, Options{Eager: eager})
			go func() { _, _ = io.Copy(io.Discard, other) }() // reads, and never says a word
			time.Sleep(3700 * time.Millisecond)
			if _, err := other.Write(wire.AppendPong(nil, 1)); err != nil {
				t.Fatal(err)
			}
			last := time.Now()
			err := <-a.err
			if took := time.Since(last); !errors.Is(err, ErrDead) || took > 10*time.Second || took < 7*time.Second {
				t.Errorf("eager %v: %v after %v", eager, err, took)
			}
			other.Close()
		})
	}
}

// Two silent ends keep their connection by pings for as long as they like.
func TestSilenceIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		a, b := serve(nc, Options{}), serve(other, Options{Eager: true})
		time.Sleep(24 * time.Hour)
		if a.Err() != nil || b.Err() != nil {
			t.Errorf("ended: %v, %v", a.Err(), b.Err())
		}
		a.Fail(errors.New("enough"))
		_ = a.wait()
		_ = b.wait()
	})
}

// A peer that does not read is not read from, what waits for it stays bounded, and after the write timeout the
// connection ends (G4).
func TestPeerThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		begun := time.Now()
		a := serve(nc, Options{Buffer: 64 << 10, DeadAfter: time.Hour})
		wrote := make(chan int)
		go func() {
			pings, n := bytes.Repeat(wire.AppendPing(nil, 1), 1000), 0
			for {
				k, err := other.Write(pings)
				if n += k; err != nil {
					wrote <- n
					return
				}
			}
		}()
		err := <-a.err
		if took := time.Since(begun); took != DefaultWriteTimeout || !errors.Is(err, ErrNotRead) {
			t.Errorf("%v after %v", err, took)
		}
		// Each ping is answered by as many bytes. What is read at most: what the writer has taken and cannot write, what fills the buffer meanwhile, and
		// one buffer beyond each, since reading stops between two.
		if n := <-wrote; n > 2*(64<<10)+2*readBuffer {
			t.Errorf("%d bytes were taken from a peer that does not read", n)
		}
		other.Close()
	})
}

// Two ends that have many messages for each other at once do not wait for each other to read (G9).
func TestBothEndsWriteMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		a, b := serve(nc, Options{}), serve(other, Options{Eager: true, Buffer: math.MaxInt})
		const total, n = 1 << 20, 8
		for _, s := range []*served{a, b} {
			for range n {
				s.EndBulk(wire.AppendSendHeader(s.Begin(), 1, 1, total), [][]byte{make([]byte, total)}, 0, 0, 0)
			}
		}
		for _, s := range []*served{a, b} {
			for range n {
				select {
				case <-s.frames:
				case err := <-s.err:
					t.Fatalf("ended: %v", err)
				}
			}
		}
		a.Fail(io.EOF)
		_, _ = a.wait(), b.wait()
	})
}

// A peer that reads slowly but steadily keeps its connection, over sockets and over what is none.
func TestSlowReaderIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		a := serve(nc, Options{DeadAfter: time.Hour})
		const total = 4 << 20
		a.EndBulk(wire.AppendSendHeader(a.Begin(), 1, 1, total), [][]byte{make([]byte, total)}, 0, 0, 0)
		buf := make([]byte, 32<<10)
		for n := 0; n < total; {
			time.Sleep(4 * time.Second)
			k, err := other.Read(buf)
			if n += k; err != nil {
				t.Fatalf("ended after %d bytes: %v", n, err)
			}
		}
		a.Fail(io.EOF)
		_ = a.wait()
		other.Close()
	})
}

// What is malformed ends the connection, and the peer is told why although it goes on sending.
func TestReasonReachesThePeer(t *testing.T) {
	ack := wire.AppendCommand(nil, 1, &wire.Command{Type: wire.TypeAck, Spans: manySpans(3)})
	flipped := bytes.Clone(ack)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"garbage":      {[]byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)), "frame has the unknown type 47"},
		"damaged":      {flipped, "ack frame does not match its checksum"},
		"too large":    {wire.AppendSendHeader(nil, 1, 1, 100), "send frame has 108 bytes (limit: 100 bytes)"},
		"not accepted": {wire.AppendClose(nil, 1, true), "close frame is not wanted"},
		"bad ping":     {append(wire.AppendPing(nil, 1), wire.AppendPing(nil, 1<<40)...)[:20], "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			nc, other := loopback(t)
			a := serve(nc, Options{MaxBulk: 100})
			told := make(chan string, 1)
			go func() {
				r := frameReader{src: other, maxBulk: 100}
				for {
					h, payload, err := r.next()
					switch {
					case err != nil:
						told <- "nothing"
						return
					case h.Type == wire.TypeGoaway:
						e, err := wire.DecodeGoaway(payload)
						if err != nil {
							told <- err.Error()
						}
						told <- e.Error()
						return
					}
				}
			}()
			if _, err := other.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if c.want == "EOF" {
				other.Close()
				if err := <-a.err; !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("ended with %v", err)
				}
				<-told
				return
			}
			for range 1000 { // more input must not turn the end into a reset before the reason was read
				if _, err := other.Write(ack); err != nil {
					break
				}
			}
			if got := <-told; got != c.want {
				t.Errorf("the peer was told %q, want %q", got, c.want)
			}
			other.Close()
			if err := <-a.err; err == nil || err.Error() != c.want {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// Goodbye writes what was queued before it, takes nothing more, and does not wait for a peer that stays.
func TestGoodbye(t *testing.T) {
	nc, other := loopback(t)
	a, b := serve(nc, Options{}), serve(other, Options{})
	a.End(wire.AppendClose(a.Begin(), 5, false))
	a.Goodbye(io.EOF, &wire.Error{Code: wire.CodeClosed, Message: "bye"})
	a.End(wire.AppendClose(a.Begin(), 6, false))
	if f := <-b.frames; f != "close 5 1" {
		t.Errorf("first %q", f)
	}
	if f := <-b.frames; !strings.HasPrefix(f, "goaway") {
		t.Errorf("then %q", f)
	}
	if err := <-b.err; !errors.Is(err, io.EOF) {
		t.Errorf("peer ended with %v", err)
	}
	if err := <-a.err; !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
}

// A Conn allocates nothing for a frame that it writes, and for one that it reads only what belongs to its receiver.
func BenchmarkFrames(b *testing.B) {
	for _, n := range []int{1, 16, 128, 1000} {
		b.Run(fmt.Sprintf("100B×%d", n), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			nc, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			other, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			var build message.Builder
			for range n {
				build.Add(&message.Message{Body: make([]byte, 100)})
			}
			frame := build.Finish()
			window := make(chan struct{}, max(4, 4096/n))
			server := New(other, nil, Options{})
			client := New(nc, nil, Options{Eager: true})
			ended := make(chan struct{}, 2)
			go func() {
				_ = server.Serve(func(wire.Header, []byte) error {
					server.End(wire.AppendAccepted(server.Begin(), 1, &wire.Accepted{UpTo: 1 << 30, First: 1 << 30, Count: 1}))
					return nil
				})
				ended <- struct{}{}
			}()
			go func() {
				_ = client.Serve(func(_ wire.Header, p []byte) error {
					if _, err := wire.DecodeAccepted(p); err != nil {
						return err
					}
					<-window
					return nil
				})
				ended <- struct{}{}
			}()
			b.ReportAllocs()
			for b.Loop() {
				window <- struct{}{}
				client.EndBulk(wire.AppendSendHeader(client.Begin(), 1, 1, len(frame)), [][]byte{frame}, 0, 0, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
			client.Fail(io.EOF)
			<-ended
			<-ended
		})
	}
}
