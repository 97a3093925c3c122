package wire

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/holdfastmq/holdfast/queue"
)

// OpenReceiver opens a receiver's stream under a stream id that is higher than any before.
type OpenReceiver struct {
	Queue      string
	Session    [16]byte // of the receiver across reconnections; zero: none
	Announces  bool     // it sends Started
	Unbound    bool     // its leases outlive the stream
	Visibility time.Duration
	Seen       Seen
	Held       []queue.LeaseSpan // what it holds from its stream before
}

const (
	flagAnnounces = 1 << iota
	flagUnbound
)

// AppendOpenReceiver appends an OpenReceiver frame.
func AppendOpenReceiver(dst []byte, stream uint32, m *OpenReceiver) []byte {
	b, at := begin(dst, TypeOpenReceiver, stream)
	b = appendString(b, m.Queue)
	b = append(b, m.Session[:]...)
	var flags byte
	if m.Announces {
		flags |= flagAnnounces
	}
	if m.Unbound {
		flags |= flagUnbound
	}
	b = append(b, flags)
	b = appendMillis(b, m.Visibility)
	b = appendSeen(b, m.Seen)
	return end(appendSpans(b, m.Held), at)
}

// DecodeOpenReceiver reads the payload of an OpenReceiver frame.
func DecodeOpenReceiver(payload []byte) (OpenReceiver, error) {
	r := reader{b: payload, t: TypeOpenReceiver}
	m := OpenReceiver{Queue: r.string("queue")}
	copy(m.Session[:], r.take("session", 16))
	flags := r.byte("flags")
	if flags&^(flagAnnounces|flagUnbound) != 0 {
		r.fail("flags", "are %#x, some unknown", flags)
	}
	m.Announces, m.Unbound = flags&flagAnnounces != 0, flags&flagUnbound != 0
	m.Visibility, m.Seen = r.millis("visibility"), r.seen()
	m.Held = r.spans("held messages")
	return m, r.end()
}

// ReceiverOpened is the broker's answer to OpenReceiver.
type ReceiverOpened struct {
	StreamUID  [16]byte
	Epoch      uint64
	Visibility time.Duration
	Kept       []queue.LeaseSpan // of what was held
}

// AppendReceiverOpened appends a ReceiverOpened frame.
func AppendReceiverOpened(dst []byte, stream uint32, m *ReceiverOpened) []byte {
	b, at := begin(dst, TypeReceiverOpened, stream)
	b = append(b, m.StreamUID[:]...)
	b = binary.AppendUvarint(b, m.Epoch)
	b = appendMillis(b, m.Visibility)
	return end(appendSpans(b, m.Kept), at)
}

// DecodeReceiverOpened reads the payload of a ReceiverOpened frame.
func DecodeReceiverOpened(payload []byte) (ReceiverOpened, error) {
	r := reader{b: payload, t: TypeReceiverOpened}
	var m ReceiverOpened
	copy(m.StreamUID[:], r.take("stream uid", 16))
	m.Epoch, m.Visibility = r.uvarint("epoch"), r.millis("visibility")
	m.Kept = r.spans("kept messages")
	return m, r.end()
}

// AppendCredit appends a Credit frame: what the receiver has been willing to take in all.
func AppendCredit(dst []byte, stream uint32, c Credit) []byte {
	b, at := begin(dst, TypeCredit, stream)
	return end(binary.AppendUvarint(binary.AppendUvarint(b, c.Messages), c.Bytes), at)
}

// DecodeCredit reads the payload of a Credit frame.
func DecodeCredit(payload []byte) (Credit, error) {
	r := reader{b: payload, t: TypeCredit}
	c := r.credit()
	return c, r.end()
}

// Command is what a receiver does with messages that it holds: a Started, Ack, Nack, Release or Extend frame.
type Command struct {
	Type Type
	// Token comes back with the Outcomes; 0 asks for none.
	Token uint64
	// Delay is a Nack's delay (negative: by the queue's policy) and how long an Extend extends (0: the visibility timeout).
	Delay time.Duration
	Spans []queue.LeaseSpan // at most MaxSpans
}

// AppendCommand appends the frame of a command.
func AppendCommand(dst []byte, stream uint32, m *Command) []byte {
	b, at := begin(dst, m.Type, stream)
	b = binary.AppendUvarint(b, m.Token)
	if m.Type == TypeNack || m.Type == TypeExtend {
		b = appendMillis(b, m.Delay)
	}
	return end(appendSpans(b, m.Spans), at)
}

// DecodeCommand reads the payload of the frame of a command.
func DecodeCommand(t Type, payload []byte) (Command, error) {
	r := reader{b: payload, t: t}
	m := Command{Type: t, Token: r.uvarint("token")}
	if t == TypeNack || t == TypeExtend {
		m.Delay = r.millis("delay")
	}
	m.Spans = r.spans("messages")
	return m, r.end()
}

// Outcomes answers a command. nil Outcomes without Err mean that all of it was done.
type Outcomes struct {
	Token    uint64
	More     bool   // further frames with this token follow
	Err      *Error // the outcome of all of it is unknown
	Outcomes []queue.Outcome
}

const (
	flagMore = 1 << iota
	flagErr
)

// AppendOutcomes appends an Outcomes frame.
func AppendOutcomes(dst []byte, stream uint32, m *Outcomes) []byte {
	b, at := begin(dst, TypeOutcomes, stream)
	b = binary.AppendUvarint(b, m.Token)
	var flags byte
	if m.More {
		flags |= flagMore
	}
	if m.Err != nil {
		flags |= flagErr
	}
	b = append(b, flags)
	if m.Err != nil {
		return end(appendError(b, m.Err), at)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Outcomes)))
	var next queue.LeaseSpan
	for _, o := range m.Outcomes {
		b = appendSpan(append(b, byte(o.Result)), o.LeaseSpan, &next)
	}
	return end(b, at)
}

// DecodeOutcomes reads the payload of an Outcomes frame.
func DecodeOutcomes(payload []byte) (Outcomes, error) {
	r := reader{b: payload, t: TypeOutcomes}
	m := Outcomes{Token: r.uvarint("token")}
	flags := r.byte("flags")
	if flags&^(flagMore|flagErr) != 0 {
		r.fail("flags", "are %#x, some unknown", flags)
	}
	m.More = flags&flagMore != 0
	if flags&flagErr != 0 {
		m.Err = r.error()
		return m, r.end()
	}
	n := r.count("outcomes", 1+minSpan)
	if n > 0 {
		m.Outcomes = make([]queue.Outcome, 0, n)
	}
	var next queue.LeaseSpan
	for range n {
		o := queue.Outcome{Result: queue.AckOutcome(r.byte("result"))}
		if o.Result > queue.AckLost {
			r.fail("result", "is %d", o.Result)
		}
		if o.LeaseSpan = r.span("outcomes", &next); r.err != nil {
			break
		}
		m.Outcomes = append(m.Outcomes, o)
	}
	return m, r.end()
}

// AppendLost appends a Lost frame: the receiver no longer holds messages. spans are at most MaxSpans.
func AppendLost(dst []byte, stream uint32, spans []queue.LeaseSpan, reason string) []byte {
	b, at := begin(dst, TypeLost, stream)
	return end(appendSpans(appendString(b, clip(reason)), spans), at)
}

// DecodeLost reads the payload of a Lost frame.
func DecodeLost(payload []byte) (spans []queue.LeaseSpan, reason string, err error) {
	r := reader{b: payload, t: TypeLost}
	reason = r.string("reason")
	spans = r.spans("messages")
	return spans, reason, r.end()
}

// Run is consecutive leased messages and their encoding, as they lie in a frame of messages.
type Run struct {
	queue.Delivery
	Data []byte
}

const flagConfirmStart = 1

// minRun is the length of an encoded entry of the table of runs at least; maxRun at most.
const (
	minRun = minSpan + 3
	maxRun = 3*binary.MaxVarintLen64 + binary.MaxVarintLen64 + 1 + binary.MaxVarintLen64
)

// DeliverRoom returns how many bytes of data a Deliver frame certainly has room for, if its payload is at most
// maxPayload bytes and it has at most so many runs.
func DeliverRoom(maxPayload, runs int) int { return maxPayload - binary.MaxVarintLen64 - runs*maxRun }

// AppendDeliverHeader appends what stands before the data of a Deliver frame: the header and the table of
// runs. The data of the runs goes to the connection right behind it, in order. There are at most MaxSpans runs.
func AppendDeliverHeader(dst []byte, stream uint32, runs []Run) []byte {
	b, at := begin(dst, TypeDeliver, stream)
	b = binary.AppendUvarint(b, uint64(len(runs)))
	var next queue.LeaseSpan
	data := 0
	for i := range runs {
		d := &runs[i]
		b = appendSpan(b, d.LeaseSpan, &next)
		b = binary.AppendUvarint(b, uint64(d.Attempt))
		b = appendBool(b, d.ConfirmStart)
		b = binary.AppendUvarint(b, uint64(len(d.Data)))
		data += len(d.Data)
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-HeaderSize+data))
	sum := updateSum(0, b[at:at+crcAt])
	sum = updateSum(sum, b[at+HeaderSize:])
	for i := range runs {
		sum = updateSum(sum, runs[i].Data)
	}
	binary.LittleEndian.PutUint32(b[at+crcAt:], sum)
	return b
}

// DecodeDeliver reads the payload of a Deliver frame. The data of the runs are slices of payload; that they hold
// as many messages as the run says is not checked.
func DecodeDeliver(payload []byte) ([]Run, error) {
	r := reader{b: payload, t: TypeDeliver}
	n := r.count("runs", minRun)
	if r.err == nil && n == 0 {
		r.fail("runs", "are none")
	}
	runs := make([]Run, 0, n)
	var next queue.LeaseSpan
	total := uint64(0)
	sizes := uint64(len(payload))
	for range n {
		d := Run{Delivery: queue.Delivery{LeaseSpan: r.span("run", &next)}}
		attempt := r.uvarint("attempt")
		flags := r.byte("run flags")
		size := r.uvarint("run size")
		switch {
		case attempt == 0 || attempt > math.MaxInt32:
			r.fail("attempt", "is %d", attempt)
		case flags&^flagConfirmStart != 0:
			r.fail("run flags", "are %#x, some unknown", flags)
		case size > sizes-total || size/2 < d.Count:
			// A message takes two bytes at least.
			r.fail("run size", "is %d bytes for %d messages", size, d.Count)
		}
		if r.err != nil {
			return nil, r.err
		}
		total += size
		d.Attempt, d.ConfirmStart = int(attempt), flags&flagConfirmStart != 0
		// Only the length is needed until the whole table is read and the data begins.
		d.Data = payload[:size]
		runs = append(runs, d)
	}
	for i := range runs {
		runs[i].Data = r.take("messages", len(runs[i].Data))
	}
	return runs, r.end()
}
