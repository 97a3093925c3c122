package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// envelopeOf returns the payload of an envelope with these fields behind its ids.
func envelopeOf(rest ...byte) []byte {
	return append([]byte{1, 'p', 1, 'i'}, rest...)
}

// What a delivery frame promises and does not have is refused with the field (§9, G11).
func TestDeliveryFramesRefused(t *testing.T) {
	uvarint := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	long := append(uvarint(MaxString+1), make([]byte, MaxString+1)...)
	for _, c := range []struct {
		name   string
		decode func() error
		want   string
	}{
		{"more bodies than bytes", func() error { _, err := DecodeEnvelope(envelopeOf(1, 1, 0, 0, 0, 3, 0, 0)); return err }, "bodies are 3 in 2 bytes"},
		{"more bodies than an envelope may have", func() error {
			_, err := DecodeEnvelope(append(envelopeOf(append([]byte{1, 1, 0, 0, 0}, uvarint(MaxEnvelopeCount+1)...)...), make([]byte, 2*MaxEnvelopeCount)...))
			return err
		}, "bodies are 65537 in 131072 bytes, limit 65536"},
		{"a body that is cut", func() error { _, err := DecodeEnvelope(envelopeOf(1, 1, 0, 0, 0, 1, 9, 'x')); return err }, "body is truncated"},
		{"a body of all ones", func() error {
			_, err := DecodeEnvelope(envelopeOf(append([]byte{1, 1, 0, 0, 0, 1}, uvarint(math.MaxUint64)...)...))
			return err
		}, "body is truncated"},
		{"a part beyond 32 bits", func() error {
			_, err := DecodeEnvelope(envelopeOf(append([]byte{1, 1}, uvarint(math.MaxUint32+1)...)...))
			return err
		}, "part is 4294967296, limit 4294967295"},
		{"a producer id beyond any string", func() error { _, err := DecodeEnvelope(long); return err }, "producer id has 4097 bytes, limit 4096"},
		{"one behind the last body", func() error { _, err := DecodeEnvelope(envelopeOf(1, 1, 0, 0, 0, 1, 0, 0)); return err }, "payload has 1 bytes behind its last field"},
		{"more acknowledgments than a frame may have", func() error { _, err := DecodeAcknowledge(uvarint(MaxAcknowledgments + 1)); return err }, "acknowledgments are 257, limit 256"},
		{"fewer acknowledgments than said", func() error { _, err := DecodeAcknowledge([]byte{2, 1, 'p', 1, 'i', 1, 1, 1}); return err }, "producer id is truncated"},
		{"an acknowledgment's id beyond any string", func() error { _, err := DecodeAcknowledge(append([]byte{1}, long...)); return err }, "producer id has 4097 bytes, limit 4096"},
		{"an opening with more than a name", func() error { _, err := DecodeOpenDelivery([]byte{1, 'q', 0}); return err }, "payload has 1 bytes behind its last field"},
		{"an answer that says something", func() error { return DecodeDeliveryOpened([]byte{0}) }, "payload has 1 bytes behind its last field"},
		{"a farewell without floor", func() error { _, err := DecodeFarewell(envelopeOf()); return err }, "floor is truncated"},
	} {
		if err := c.decode(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The largest envelope that a producer's side sends is within the limit of the frame.
func TestLargestEnvelope(t *testing.T) {
	bodies := make([][]byte, MaxEnvelopeCount)
	for i := range bodies {
		bodies[i] = bytes.Repeat([]byte{1}, MaxEnvelopeBodies/MaxEnvelopeCount)
	}
	id := strings.Repeat("x", MaxString)
	for _, bodies := range [][][]byte{bodies, {make([]byte, MaxEnvelopeBodies)}} {
		b := AppendEnvelope(nil, 1, &Envelope{
			ProducerID: id, Incarnation: id, Seq: math.MaxUint64, Floor: math.MaxUint64,
			Part: math.MaxUint32, Parts: math.MaxUint32, Total: math.MaxUint32, Bodies: bodies,
		})
		s, err := decode(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.value.(Envelope); len(got.Bodies) != len(bodies) || !bytes.Equal(got.Bodies[0], bodies[0]) {
			t.Errorf("%d bodies came as %d", len(bodies), len(got.Bodies))
		}
	}
}

// Ids that repeat within a frame are not allocated again; others are read as they are.
func TestAcknowledgeIds(t *testing.T) {
	var acks []Acknowledgment
	for i := range uint64(MaxAcknowledgments) {
		acks = append(acks, Acknowledgment{ProducerID: "a-producer-with-a-name", Incarnation: "one-life-of-it", First: i, Last: i})
	}
	acks[100].ProducerID, acks[101].Incarnation = "b", ""
	b := AppendAcknowledge(nil, 1, acks)
	s, err := decode(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range s.value.(acknowledge).Acknowledgments {
		if a != acks[i] {
			t.Errorf("%d: %+v, want %+v", i, a, acks[i])
		}
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = DecodeAcknowledge(b[HeaderSize:]) }); n > 30 {
		t.Errorf("%v allocations for %d ranges", n, len(acks))
	}
}
