package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/queue"
)

// FuzzDecode gives any bytes to every decoder: none panics, none allocates more than a small multiple of its
// input, and what one accepts is written back to a frame that says the same.
func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(encode(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		// Checksums that fit by themselves would never be found.
		binary.LittleEndian.PutUint32(b, uint32(len(b)-HeaderSize))
		sum := updateSum(0, b[:crcAt])
		if Type(b[4]) == TypeSend {
			sum = updateSum(sum, b[HeaderSize:min(len(b), HeaderSize+SendHeaderSize)])
		} else {
			sum = updateSum(sum, b[HeaderSize:])
		}
		binary.LittleEndian.PutUint32(b[crcAt:], sum)
		s, err := decode(b, 1<<20)
		if err != nil {
			return
		}
		again := encode(t, s)
		s2, err := decode(again, 1<<20)
		if err != nil {
			t.Fatalf("%x was accepted, but not when written again as %x: %v", b, again, err)
		}
		if third := encode(t, s2); !bytes.Equal(again, third) {
			t.Fatalf("%x reads differently the second time: %x, %x", b, again, third)
		}
	})
}

// Random spans and runs survive the delta coding, whatever their order.
func TestSpansRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		spans := make([]queue.LeaseSpan, rng.IntN(20))
		for i := range spans {
			spans[i] = queue.LeaseSpan{Lease: rng.Uint64() >> (1 + rng.IntN(63)), Seq: rng.Uint64() >> (1 + rng.IntN(63)), Count: 1 + rng.Uint64()>>(1+rng.IntN(63))}
		}
		r := reader{b: appendSpans(nil, spans)}
		got := r.spans("spans")
		if err := r.end(); err != nil {
			t.Fatalf("%v: %v", spans, err)
		}
		if len(got) != len(spans) {
			t.Fatalf("%d spans became %d", len(spans), len(got))
		}
		for i := range got {
			if got[i] != spans[i] {
				t.Fatalf("span %d: %v became %v", i, spans[i], got[i])
			}
		}
	}
}

// Counts that promise more than the payload can hold are refused before anything is allocated for them (G11).
func TestCountsAreBoundedByPayload(t *testing.T) {
	huge := binary.AppendUvarint(nil, MaxSpans)
	for name, decode := range map[string]func([]byte) error{
		"lost":     func(b []byte) error { _, _, err := DecodeLost(append([]byte{0}, b...)); return err },
		"deliver":  func(b []byte) error { _, err := DecodeDeliver(b); return err },
		"ack":      func(b []byte) error { _, err := DecodeCommand(TypeAck, append([]byte{1}, b...)); return err },
		"outcomes": func(b []byte) error { _, err := DecodeOutcomes(append([]byte{1, 0}, b...)); return err },
		"envelope": func(b []byte) error {
			_, err := DecodeEnvelope(append([]byte{1, 'p', 1, 'i', 1, 1, 0, 0, 0}, b...))
			return err
		},
	} {
		b := append(bytes.Clone(huge), 1, 2, 3, 4)
		var err error
		if n := testing.AllocsPerRun(10, func() { err = decode(b) }); n > 12 {
			t.Errorf("%s: %v allocations for a refusal", name, n)
		}
		if err == nil {
			t.Errorf("%s: accepted %d elements in 4 bytes", name, MaxSpans)
		}
	}
}
