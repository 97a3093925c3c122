package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfastmq/holdfast/rpc/wire"
)

// FuzzReader gives any bytes to the reader of a connection, in pieces of any size: it returns only frames whose checksum holds, and what
// it takes memory for has come or is within its limits.
func FuzzReader(f *testing.F) {
	f.Add(wire.AppendPing(wire.AppendHello(nil, &wire.Hello{Client: "x", MaxFrame: 1 << 20}), 5), uint8(3))
	f.Add(append(wire.AppendSendHeader(nil, 1, 1, 5), "hello"...), uint8(0))
	f.Add(wire.AppendSendHeader(nil, 1, 1, 1<<19), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		const limit = 1 << 20
		r := frameReader{src: &pieces{b, int(step)}, maxBulk: limit}
		for taken := 0; ; {
			h, payload, err := r.next()
			if err != nil {
				return
			}
			if taken += wire.HeaderSize + len(payload); taken > len(b) || len(payload) != int(h.Length) || len(payload) > limit {
				t.Fatalf("a %v frame of %d bytes, %d of %d read", h.Type, len(payload), taken, len(b))
			}
		}
	})
}

// pieces reads b some bytes at a time.
type pieces struct {
	b    []byte
	step int
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(to), len(p.b))
	if p.step > 0 {
		n = min(n, p.step)
	}
	copy(to, p.b[:n])
	p.b = p.b[n:]
	return n, nil
}

// Frames come out whole and in order however the bytes come in, and bulk belongs to whoever takes it.
func TestReaderPieces(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 30 {
		var stream []byte
		var want [][]byte
		for i := range 1 + rng.IntN(20) {
			if rng.IntN(2) == 0 {
				stream = wire.AppendPing(stream, uint64(i))
				want = append(want, nil)
				continue
			}
			body := bytes.Repeat([]byte{byte(i + 1)}, rng.IntN([]int{10, 5000, 100_000, 600_000}[rng.IntN(4)]))
			stream = append(wire.AppendSendHeader(stream, 1, uint64(i), len(body)), body...)
			want = append(want, body)
		}
		sources := []io.Reader{bytes.NewReader(stream), &pieces{stream, 1 + rng.IntN(200_000)}, iotest.DataErrReader(bytes.NewReader(stream))}
		r := frameReader{src: sources[rng.IntN(len(sources))], maxBulk: 1 << 20}
		var bodies [][]byte
		for i := range want {
			h, payload, err := r.next()
			if err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
			if h.Type == wire.TypePing {
				bodies = append(bodies, nil)
				continue
			}
			_, body, err := wire.DecodeSend(payload)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, body)
		}
		if _, _, err := r.next(); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("at the end: %v", err)
		}
		for i := range want {
			if !bytes.Equal(bodies[i], want[i]) {
				t.Fatalf("frame %d has changed", i)
			}
		}
	}
}

// A peer that announces a large frame and sends little of it costs little memory (G11: limits before allocation).
func TestAnnouncedFrameCostsWhatCame(t *testing.T) {
	head := wire.AppendSendHeader(nil, 1, 1, 60<<20)
	sent := append(head, make([]byte, 1000)...)
	const rounds = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		r := frameReader{src: &pieces{b: sent}, maxBulk: 64 << 20}
		if _, _, err := r.next(); err == nil {
			t.Fatal("a frame that did not come was read")
		}
	}
	runtime.ReadMemStats(&after)
	got := int(after.TotalAlloc-before.TotalAlloc) / rounds
	if got > eagerBulk+3*readBuffer {
		t.Errorf("%d bytes were allocated for 1,000 that came", got)
	}
}
