package wire

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// sample is one frame of each kind with what it says.
type sample struct {
	name   string
	stream uint32
	value  any
}

// sent is a Send frame, taken apart.
type sent struct {
	First uint64
	Frame []byte
}

type refused struct {
	Resume uint64
	Error  *Error
}

type waits struct {
	Waits  bool
	Reason string
}

type lost struct {
	Reason string
	Spans  []queue.LeaseSpan
}

type token struct {
	Token uint64
}

type closed struct {
	Clean bool
}

type (
	goaway         struct{ Error *Error }
	broken         struct{ Error *Error }
	ping           token
	pong           token
	deliver        struct{ Runs []Run }
	openDelivery   struct{ Consumer string }
	deliveryOpened struct{}
	acknowledge    struct{ Acknowledgments []Acknowledgment }
)

func uid(first byte) (u [16]byte) {
	for i := range u {
		u[i] = first + byte(i)
	}
	return u
}

func messages(bodies ...string) []byte {
	var b message.Builder
	for _, s := range bodies {
		b.Add(&message.Message{Body: []byte(s)})
	}
	return b.Finish()
}

func samples() []sample {
	frame := messages("hello", "world")
	spans := []queue.LeaseSpan{{Lease: 7, Seq: 100, Count: 3}, {Lease: 10, Seq: 103, Count: 1}, {Lease: 9, Seq: 50, Count: 200}}
	return []sample{
		{"hello", 0, Hello{Client: "holdfast-go", MaxFrame: 8 << 20}},
		{"welcome", 0, Welcome{Broker: "10.0.0.1:9650", Version: "1.0.0", MaxFrame: 1 << 20, MaxStreams: 10000, DeadAfter: 10 * time.Second}},
		{"ping", 0, ping{Token: 300}},
		{"pong", 0, pong{Token: 300}},
		{"goaway", 0, goaway{&Error{Code: CodeClosed, Message: "broker stops"}}},
		{"open sender", 1, OpenSender{Queue: "orders", Producer: queue.Producer{ID: "web-1", Incarnation: "5f3a"}, Seen: Seen{StreamUID: uid(0x10), Epoch: 3}}},
		{"open sender without dedup", 3, OpenSender{Queue: "orders", NoWait: true}},
		{"sender opened", 1, SenderOpened{
			StreamUID: uid(0x10), Epoch: 4, Resume: 1001, Credit: Credit{Messages: 11000, Bytes: 4 << 20},
			MaxBody: 1 << 20, MaxFrame: 1<<20 + 64<<10,
		}},
		{"send", 1, sent{First: 1001, Frame: frame}},
		{"accepted", 1, Accepted{UpTo: 1002, First: 5, Count: 2, Credit: Credit{Messages: 12002, Bytes: 4<<20 + 26}}},
		{"accepted: some suppressed", 1, Accepted{
			UpTo: 1008, First: 7, Count: 4, Duplicates: 2, Credit: Credit{Messages: 12008, Bytes: 4<<20 + 100}, Suppressed: []queue.Suppressed{{ProducerSeq: 1004, Seq: 6}, {ProducerSeq: 1007, Seq: 2}},
		}},
		{"refused: gap", 1, refused{1003, &Error{Code: CodeGap, Want: 1003, Got: 1010}}},
		{"refused: bad input", 1, refused{1003, &Error{
			Code: CodeInvalid, Field: "body", Fault: "of message 0 has 2000000 bytes", Limit: "1048576 bytes",
		}}},
		{"waits", 1, waits{true, "full"}},
		{"open receiver", 2, OpenReceiver{
			Queue: "orders", Session: uid(0xa0), Announces: true, Visibility: 30 * time.Second, Seen: Seen{StreamUID: uid(0x10), Epoch: 4}, Held: spans[:1],
		}},
		{"open receiver: unbound", 4, OpenReceiver{Queue: "orders", Unbound: true}},
		{"receiver opened", 2, ReceiverOpened{StreamUID: uid(0x10), Epoch: 4, Visibility: 30 * time.Second, Kept: spans[:1]}},
		{"credit", 2, Credit{Messages: 1000, Bytes: 1 << 20}},
		{"deliver", 2, deliver{[]Run{
			{Delivery: queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: 1, Seq: 5, Count: 2}, Attempt: 1}, Data: frame[message.FrameHeaderSize:]},
			{Delivery: queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: 3, Seq: 2, Count: 1}, Attempt: 4, ConfirmStart: true}, Data: []byte{0, 2, 'h', 'i'}},
		}}},
		{"started", 2, Command{Type: TypeStarted, Token: 1, Spans: spans[1:2]}},
		{"ack", 2, Command{Type: TypeAck, Token: 2, Spans: spans}},
		{"nack: by policy", 2, Command{Type: TypeNack, Token: 3, Delay: -time.Millisecond, Spans: spans[:1]}},
		{"nack: in 5 s", 2, Command{Type: TypeNack, Delay: 5 * time.Second, Spans: spans[:1]}},
		{"release", 2, Command{Type: TypeRelease, Token: 4, Spans: spans[:1]}},
		{"extend", 2, Command{Type: TypeExtend, Token: 5, Spans: spans[:2]}},
		{"outcomes: all done", 2, Outcomes{Token: 2}},
		{"outcomes: one lost", 2, Outcomes{Token: 3, Outcomes: []queue.Outcome{
			{LeaseSpan: spans[0], Result: queue.AckDone}, {LeaseSpan: spans[1], Result: queue.AckLost},
		}}},
		{"outcomes: unknown", 2, Outcomes{Token: 3, Err: &Error{Code: CodeUnavailable, Message: "storage does not answer"}}},
		{"lost", 2, lost{"expired", spans[:2]}},
		{"broken: fenced", 2, broken{&Error{Code: CodeFenced, Message: "queue is owned by another broker", Address: "10.0.0.2:9650"}}},
		{"open delivery", 5, openDelivery{"payments"}},
		{"delivery opened", 5, deliveryOpened{}},
		{"envelope", 5, Envelope{ProducerID: "web-1", Incarnation: "5f3a", Seq: 42, Floor: 40, Bodies: [][]byte{[]byte("hello"), []byte("world")}}},
		{"envelope: part of a large message", 5, Envelope{ProducerID: "web-1", Incarnation: "5f3a", Seq: 44, Floor: 40, Part: 2, Parts: 3, Total: 600_000, Bodies: [][]byte{[]byte("end")}}},
		{"acknowledge", 5, acknowledge{[]Acknowledgment{
			{ProducerID: "web-1", Incarnation: "5f3a", First: 40, Last: 42}, {ProducerID: "web-2", Incarnation: "c001", First: 7, Last: 7},
		}}},
		{"farewell", 5, Farewell{ProducerID: "web-1", Incarnation: "5f3a", Floor: 45}},
		{"close: clean", 1, closed{true}},
		{"close: not clean", 2, closed{false}},
	}
}

// encode returns the whole frame of a sample.
func encode(t testing.TB, s sample) []byte {
	t.Helper()
	switch v := s.value.(type) {
	case Hello:
		return AppendHello(nil, &v)
	case Welcome:
		return AppendWelcome(nil, &v)
	case ping:
		return AppendPing(nil, v.Token)
	case pong:
		return AppendPong(nil, v.Token)
	case goaway:
		return AppendGoaway(nil, v.Error)
	case OpenSender:
		return AppendOpenSender(nil, s.stream, &v)
	case SenderOpened:
		return AppendSenderOpened(nil, s.stream, &v)
	case sent:
		return append(AppendSendHeader(nil, s.stream, v.First, len(v.Frame)), v.Frame...)
	case Accepted:
		return AppendAccepted(nil, s.stream, &v)
	case refused:
		return AppendRefused(nil, s.stream, v.Resume, v.Error)
	case waits:
		return AppendWaits(nil, s.stream, v.Waits, v.Reason)
	case OpenReceiver:
		return AppendOpenReceiver(nil, s.stream, &v)
	case ReceiverOpened:
		return AppendReceiverOpened(nil, s.stream, &v)
	case Credit:
		return AppendCredit(nil, s.stream, v)
	case deliver:
		b := AppendDeliverHeader(nil, s.stream, v.Runs)
		for _, r := range v.Runs {
			b = append(b, r.Data...)
		}
		return b
	case Command:
		return AppendCommand(nil, s.stream, &v)
	case Outcomes:
		return AppendOutcomes(nil, s.stream, &v)
	case lost:
		return AppendLost(nil, s.stream, v.Spans, v.Reason)
	case broken:
		return AppendBroken(nil, s.stream, v.Error)
	case closed:
		return AppendClose(nil, s.stream, v.Clean)
	case openDelivery:
		return AppendOpenDelivery(nil, s.stream, v.Consumer)
	case deliveryOpened:
		return AppendDeliveryOpened(nil, s.stream)
	case Envelope:
		return AppendEnvelope(nil, s.stream, &v)
	case acknowledge:
		return AppendAcknowledge(nil, s.stream, v.Acknowledgments)
	case Farewell:
		return AppendFarewell(nil, s.stream, &v)
	}
	t.Fatalf("no encoder for %T", s.value)
	return nil
}

// decode reads a whole frame.
func decode(b []byte, maxBulk int) (sample, error) {
	if len(b) < HeaderSize {
		return sample{}, malformed("frame", "has no header")
	}
	h, err := ParseHeader(b, maxBulk)
	if err != nil {
		return sample{}, err
	}
	p := b[HeaderSize:]
	if uint64(len(p)) < uint64(h.Length) {
		return sample{}, malformed("frame", "is truncated")
	}
	p = p[:h.Length]
	if err := h.Verify(b, p); err != nil {
		return sample{}, err
	}
	v, err := decodePayload(h.Type, p)
	return sample{stream: h.Stream, value: v}, err
}

func decodePayload(t Type, p []byte) (v any, err error) {
	switch t {
	case TypeHello:
		return DecodeHello(p)
	case TypeWelcome:
		return DecodeWelcome(p)
	case TypePing:
		n, err := DecodePing(p)
		return ping{n}, err
	case TypePong:
		n, err := DecodePing(p)
		return pong{n}, err
	case TypeGoaway:
		e, err := DecodeGoaway(p)
		return goaway{e}, err
	case TypeOpenSender:
		return DecodeOpenSender(p)
	case TypeSenderOpened:
		return DecodeSenderOpened(p)
	case TypeSend:
		first, frame, err := DecodeSend(p)
		return sent{first, frame}, err
	case TypeAccepted:
		return DecodeAccepted(p)
	case TypeRefused:
		n, e, err := DecodeRefused(p)
		return refused{n, e}, err
	case TypeWaits:
		w, r, err := DecodeWaits(p)
		return waits{w, r}, err
	case TypeOpenReceiver:
		return DecodeOpenReceiver(p)
	case TypeReceiverOpened:
		return DecodeReceiverOpened(p)
	case TypeCredit:
		return DecodeCredit(p)
	case TypeDeliver:
		r, err := DecodeDeliver(p)
		return deliver{r}, err
	case TypeStarted, TypeAck, TypeNack, TypeRelease, TypeExtend:
		return DecodeCommand(t, p)
	case TypeOutcomes:
		return DecodeOutcomes(p)
	case TypeLost:
		spans, reason, err := DecodeLost(p)
		return lost{reason, spans}, err
	case TypeBroken:
		e, err := DecodeBroken(p)
		return broken{e}, err
	case TypeClose:
		c, err := DecodeClose(p)
		return closed{c}, err
	case TypeOpenDelivery:
		c, err := DecodeOpenDelivery(p)
		return openDelivery{c}, err
	case TypeDeliveryOpened:
		return deliveryOpened{}, DecodeDeliveryOpened(p)
	case TypeEnvelope:
		return DecodeEnvelope(p)
	case TypeAcknowledge:
		acks, err := DecodeAcknowledge(p)
		return acknowledge{acks}, err
	case TypeFarewell:
		return DecodeFarewell(p)
	}
	return nil, malformed("frame", "is of no type")
}

// Every prefix of a frame is refused, and so is a frame with any bit flipped in what its checksum covers (§9).
func TestDamageIsRefused(t *testing.T) {
	for _, s := range samples() {
		b := encode(t, s)
		for n := range b {
			if _, err := decode(b[:n], math.MaxInt32); err == nil {
				t.Errorf("%s: accepted when cut to %d of %d bytes", s.name, n, len(b))
			}
		}
		covered := len(b)
		if _, ok := s.value.(sent); ok {
			covered = HeaderSize + SendHeaderSize
		}
		for i := range covered * 8 {
			bad := bytes.Clone(b)
			bad[i/8] ^= 1 << (i % 8)
			if _, err := decode(bad, math.MaxInt32); err == nil {
				t.Errorf("%s: accepted with bit %d flipped", s.name, i)
			}
		}
	}
}

// A header is refused for its length before its payload is read (G11: limits before allocation).
func TestHeaderLimits(t *testing.T) {
	frame := messages("x")
	for _, c := range []struct {
		name  string
		b     []byte
		limit int
		want  string
	}{
		{"send at its limit", AppendSendHeader(nil, 1, 1, 92), 100, ""},
		{"send over its limit", AppendSendHeader(nil, 1, 1, 93), 100, "send frame has 101 bytes (limit: 100 bytes)"},
		{"control over its limit", append([]byte{1, 0, 0x10, 0, byte(TypeAck), 1, 0, 0, 0}, 0, 0, 0, 0), 1 << 30, "ack frame has 1048577 bytes (limit: 1048576 bytes)"},
		{"send without a seq", append([]byte{7, 0, 0, 0, byte(TypeSend), 1, 0, 0, 0}, 0, 0, 0, 0), 100, "send frame has 7 bytes, less than its first producer seq"},
		{"unknown type", make([]byte, HeaderSize), 100, "frame has the unknown type 0"},
		{"type of later versions", append([]byte{0, 0, 0, 0, 69, 1, 0, 0, 0}, 0, 0, 0, 0), 100, "frame has the unknown type 69"},
		{"envelope at its limit", append([]byte{0, 0, 8, 0, byte(TypeEnvelope), 1, 0, 0, 0}, 0, 0, 0, 0), 100, ""},
		{"envelope over its limit", append([]byte{1, 0, 8, 0, byte(TypeEnvelope), 1, 0, 0, 0}, 0, 0, 0, 0), 1 << 30, "envelope frame has 524289 bytes (limit: 524288 bytes)"},
		{"stream frame on the connection", AppendClose(nil, 0, true), 100, "close frame is on stream 0"},
		{"connection frame on a stream", append([]byte{0, 0, 0, 0, byte(TypePing), 1, 0, 0, 0}, 0, 0, 0, 0), 100, "ping frame is on stream 1"},
	} {
		_, err := ParseHeader(append(c.b, frame...), c.limit)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
