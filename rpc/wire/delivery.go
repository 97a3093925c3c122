package wire

import (
	"encoding/binary"
	"math"
	"slices"
)

// Limits of the streams of reliable delivery.
const (
	// MaxEnvelopeBodies is the greatest sum of the bodies of an Envelope frame, in bytes. Larger messages go in parts.
	MaxEnvelopeBodies = 256 << 10
	// MaxEnvelope is the greatest payload of an Envelope frame, in bytes: its bodies, their lengths and what stands before them.
	MaxEnvelope = 512 << 10
	// MaxEnvelopeCount is the greatest number of bodies in an Envelope frame.
	MaxEnvelopeCount = 1 << 16
	// MaxAcknowledgments is the greatest number of ranges in an Acknowledge frame.
	MaxAcknowledgments = 256
)

// AppendOpenDelivery appends an OpenDelivery frame: the stream of a producer to the consumer of that name.
func AppendOpenDelivery(dst []byte, stream uint32, consumer string) []byte {
	b, at := begin(dst, TypeOpenDelivery, stream)
	return end(appendString(b, consumer), at)
}

// DecodeOpenDelivery reads the payload of an OpenDelivery frame.
func DecodeOpenDelivery(payload []byte) (consumer string, err error) {
	r := reader{b: payload, t: TypeOpenDelivery}
	consumer = r.string("consumer")
	return consumer, r.end()
}

// AppendDeliveryOpened appends a DeliveryOpened frame, which has no payload.
func AppendDeliveryOpened(dst []byte, stream uint32) []byte {
	b, at := begin(dst, TypeDeliveryOpened, stream)
	return end(b, at)
}

// DecodeDeliveryOpened reads the payload of a DeliveryOpened frame.
func DecodeDeliveryOpened(payload []byte) error {
	r := reader{b: payload, t: TypeDeliveryOpened}
	return r.end()
}

// Envelope is a delivery.Delivery without the address for acknowledgements, which go back on its stream.
type Envelope struct {
	ProducerID, Incarnation string
	Seq, Floor              uint64
	Part, Parts, Total      uint32
	Bodies                  [][]byte
}

// AppendEnvelope appends an Envelope frame. Bodies are copied.
func AppendEnvelope(dst []byte, stream uint32, m *Envelope) []byte {
	size := HeaderSize + len(m.ProducerID) + len(m.Incarnation) + 8*binary.MaxVarintLen64
	for _, body := range m.Bodies {
		size += binary.MaxVarintLen32 + len(body)
	}
	b, at := begin(slices.Grow(dst, size), TypeEnvelope, stream)
	b = appendString(b, m.ProducerID)
	b = appendString(b, m.Incarnation)
	for _, v := range [...]uint64{m.Seq, m.Floor, uint64(m.Part), uint64(m.Parts), uint64(m.Total), uint64(len(m.Bodies))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, body := range m.Bodies {
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return end(b, at)
}

// DecodeEnvelope reads the payload of an Envelope frame. Bodies are slices of it. Ids and numbers are not judged: the
// consumer does that, to whom a malformed envelope is a dead letter.
func DecodeEnvelope(payload []byte) (Envelope, error) {
	r := reader{b: payload, t: TypeEnvelope}
	m := Envelope{ProducerID: r.string("producer id"), Incarnation: r.string("incarnation"), Seq: r.uvarint("seq"), Floor: r.uvarint("floor")}
	m.Part, m.Parts, m.Total = r.uint32("part"), r.uint32("parts"), r.uint32("total")
	n := r.uvarint("bodies")
	if n > MaxEnvelopeCount || n > uint64(len(r.b)) {
		r.fail("bodies", "are %d in %d bytes, limit %d", n, len(r.b), MaxEnvelopeCount)
	}
	if r.err != nil {
		return Envelope{}, r.err
	}
	m.Bodies = make([][]byte, n)
	for i := range m.Bodies {
		m.Bodies[i] = r.take("body", int(min(r.uvarint("body"), math.MaxInt32)))
	}
	if err := r.end(); err != nil {
		return Envelope{}, err
	}
	return m, nil
}

// Acknowledgment says that the messages First…Last of a producer's incarnation were handled.
type Acknowledgment struct {
	ProducerID, Incarnation string
	First, Last             uint64
}

// AppendAcknowledge appends an Acknowledge frame of at most MaxAcknowledgments ranges.
func AppendAcknowledge(dst []byte, stream uint32, acks []Acknowledgment) []byte {
	b, at := begin(dst, TypeAcknowledge, stream)
	b = binary.AppendUvarint(b, uint64(len(acks)))
	for i := range acks {
		b = appendString(b, acks[i].ProducerID)
		b = appendString(b, acks[i].Incarnation)
		b = binary.AppendUvarint(b, acks[i].First)
		b = binary.AppendUvarint(b, acks[i].Last)
	}
	return end(b, at)
}

// DecodeAcknowledge reads the payload of an Acknowledge frame.
func DecodeAcknowledge(payload []byte) ([]Acknowledgment, error) {
	r := reader{b: payload, t: TypeAcknowledge}
	n := r.uvarint("acknowledgments")
	if n > MaxAcknowledgments {
		r.fail("acknowledgments", "are %d, limit %d", n, MaxAcknowledgments)
	}
	var acks []Acknowledgment
	for range n {
		var before Acknowledgment // mostly of the same producer
		if len(acks) > 0 {
			before = acks[len(acks)-1]
		}
		a := Acknowledgment{
			ProducerID: r.again("producer id", before.ProducerID), Incarnation: r.again("incarnation", before.Incarnation),
			First: r.uvarint("first"), Last: r.uvarint("last"),
		}
		if r.err != nil {
			return nil, r.err
		}
		acks = append(acks, a)
	}
	return acks, r.end()
}

// again reads a string that is likely the same as before.
func (r *reader) again(field, before string) string {
	n := r.uvarint(field)
	if n > MaxString {
		r.fail(field, "has %d bytes, limit %d", n, MaxString)
		return ""
	}
	if b := r.take(field, int(n)); string(b) != before {
		return string(b)
	}
	return before
}

// Farewell says that a producer has ended, with everything below Floor settled.
type Farewell struct {
	ProducerID, Incarnation string
	Floor                   uint64
}

// AppendFarewell appends a Farewell frame.
func AppendFarewell(dst []byte, stream uint32, m *Farewell) []byte {
	b, at := begin(dst, TypeFarewell, stream)
	b = appendString(appendString(b, m.ProducerID), m.Incarnation)
	return end(binary.AppendUvarint(b, m.Floor), at)
}

// DecodeFarewell reads the payload of a Farewell frame.
func DecodeFarewell(payload []byte) (Farewell, error) {
	r := reader{b: payload, t: TypeFarewell}
	m := Farewell{ProducerID: r.string("producer id"), Incarnation: r.string("incarnation"), Floor: r.uvarint("floor")}
	return m, r.end()
}
