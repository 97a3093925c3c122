package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/transport"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// delivered is what a client sees of one message.
type delivered struct {
	lease, seq uint64
	attempt    int
	confirm    bool
	raw        string
}

func flatten(t *testing.T, runs []wire.Run) (out []delivered, counts uint64) {
	t.Helper()
	for _, r := range runs {
		cur := message.NewSpanCursor(r.Data)
		for i := range r.Count {
			one, ok := cur.Span(1)
			if !ok {
				t.Fatalf("run of %d messages at seq %d has %d", r.Count, r.Seq, i)
			}
			c := message.NewSpanCursor(one)
			raw, _ := c.Next()
			counts += uint64(raw.Size())
			out = append(out, delivered{r.Lease + i, r.Seq + i, r.Attempt, r.ConfirmStart, string(one)})
		}
		if _, ok := cur.Next(); ok {
			t.Fatalf("run at seq %d has more than %d messages", r.Seq, r.Count)
		}
	}
	return out, counts
}

// Whatever is handed over arrives in the same order and with the same leases, in frames that the client takes, and what is
// counted as written is what counts towards credit (G4).
func TestDeliverInFrames(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	sizes := []func() int{
		func() int { return 100 },
		func() int { return rng.IntN(300) },
		func() int { return 0 },
		func() int { return rng.IntN(60_000) },
		func() int {
			if rng.IntN(50) == 0 {
				return 700_000
			}
			return 10
		},
	}
	for round := range 15 {
		size := sizes[round%len(sizes)]
		var handed []holdfast.Run
		seq, lease := uint64(1), uint64(1)
		most := 1 + rng.IntN(1200) // runs
		for total := 0; len(handed) < most && total < 1<<20 && seq < 10_000; {
			n := 1 + rng.IntN(3)
			if round%3 == 0 {
				n = 1 + rng.IntN(2000)
			}
			if size() > 1000 {
				n = 1
			}
			var b message.Builder
			for range n {
				m := message.Message{Body: bytes.Repeat([]byte{byte(seq)}, size())}
				if rng.IntN(3) == 0 {
					m.Headers = []message.Header{{Name: "a", Value: "b"}}
				}
				b.Add(&m)
			}
			data := b.Finish()[message.FrameHeaderSize:]
			total += len(data)
			handed = append(handed, holdfast.Run{
				Delivery: queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: lease, Seq: seq, Count: uint64(n)}, Attempt: 1 + rng.IntN(3), ConfirmStart: rng.IntN(2) == 0},
				Data:     data,
			})
			seq += uint64(n + rng.IntN(2))
			lease += uint64(n)
		}
		maxFrame := 1 << 20
		got, messages, counted := deliverAll(t, handed, maxFrame)
		var asRuns []wire.Run
		for _, r := range handed {
			asRuns = append(asRuns, wire.Run(r))
		}
		want, counts := flatten(t, asRuns)
		have, _ := flatten(t, got)
		if len(have) != len(want) || messages != uint64(len(want)) || counted != counts {
			t.Fatalf("round %d: %d messages of %d arrived, %d and %d bytes counted, want %d", round, len(have), len(want), messages, counted, counts)
		}
		for i := range want {
			if have[i] != want[i] {
				t.Fatalf("round %d: message %d arrived as %+v, want %+v", round, i, have[i], want[i])
			}
		}
	}
}

// deliverAll writes runs to a connection and returns what comes out at the other end, and what was counted.
func deliverAll(t *testing.T, runs []holdfast.Run, maxFrame int) (got []wire.Run, messages, counted uint64) {
	t.Helper()
	a, b := net.Pipe()
	var total uint64
	for _, r := range runs {
		total += r.Count
	}
	sender := transport.New(a, nil, transport.Options{Written: func(id uint32, m, n uint64) {
		if id == 5 {
			messages += m
			counted += n
		}
	}})
	receiver := transport.New(b, nil, transport.Options{MaxBulk: maxFrame})
	sent := make(chan error, 1)
	go func() { sent <- sender.Serve(func(wire.Header, []byte) error { return nil }) }()
	var d deliverer
	if err := d.send(sender, 5, maxFrame, runs); err != nil {
		t.Fatal(err)
	}
	done := fmt.Errorf("done")
	var seen uint64
	err := receiver.Serve(func(h wire.Header, p []byte) error {
		if h.Type == wire.TypeGoaway {
			return done
		}
		list, err := wire.DecodeDeliver(p)
		if err != nil {
			return err
		}
		for _, r := range list {
			seen += r.Count
		}
		got = append(got, list...)
		if seen >= total {
			// The writer counts what it wrote before it ends.
			sender.Goodbye(done, &wire.Error{Code: wire.CodeClosed})
			return nil
		}
		return nil
	})
	if seen < total {
		t.Fatalf("%d messages of %d arrived: %v", seen, total, err)
	}
	if err := <-sent; !errors.Is(err, done) {
		t.Fatalf("sender ended with %v", err)
	}
	return got, messages, counted
}

// A message that is larger than what the client takes, or a run with fewer messages than it says, is an error of the stream.
func TestDeliverWhatCannotBe(t *testing.T) {
	var d deliverer
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := transport.New(a, nil, transport.Options{})
	big := frameWith(100_000)
	run := holdfast.Run{Delivery: queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: 1, Seq: 9, Count: 1}, Attempt: 1}, Data: big}
	if err := d.send(c, 1, minDeliver, []holdfast.Run{run}); err == nil || err.Error() != "message at seq 9: message takes 100004 bytes, more than the client takes in a frame (limit: 65475 bytes)" {
		t.Errorf("too large: %v", err)
	}
	run.Count = 2
	d = deliverer{}
	if err := d.send(c, 1, 1<<20, []holdfast.Run{run}); err == nil {
		t.Error("a run with too few messages is accepted")
	}
}

func frameWith(size int) []byte {
	var b message.Builder
	b.Add(&message.Message{Body: make([]byte, size)})
	return b.Finish()[message.FrameHeaderSize:]
}

// FuzzMeasure holds the walk over encoded messages against that of package message.
func FuzzMeasure(f *testing.F) {
	f.Add([]byte{0, 2, 'h', 'i'})
	f.Add([]byte{0x80, 0, 1, 'x'})
	f.Add([]byte{3, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, counts := measure(b)
		cur := message.NewSpanCursor(b)
		one, ok := cur.Span(1)
		c := message.NewSpanCursor(b)
		raw, _ := c.Next()
		if ok != (n > 0) || ok && (n != len(one) || counts != raw.Size()) {
			t.Errorf("%x: %d bytes, %d counted; package message says %d, %d, %v", b, n, counts, len(one), raw.Size(), ok)
		}
	})
}
