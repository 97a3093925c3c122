package wire

import (
	"encoding/binary"

	"github.com/holdfastmq/holdfast/queue"
)

// OpenSender opens a sender's stream under a stream id that is higher than any before.
type OpenSender struct {
	Queue    string
	Producer queue.Producer // zero: a sender without dedup
	NoWait   bool
	Seen     Seen
}

// Seen is the newest life of a queue that a client has met: the uid of its stream and the highest epoch. Zero if it met none.
// A broker whose epoch of that stream is lower has been superseded, and refuses with CodeFenced.
type Seen struct {
	StreamUID [16]byte
	Epoch     uint64
}

func appendSeen(b []byte, s Seen) []byte {
	return binary.AppendUvarint(append(b, s.StreamUID[:]...), s.Epoch)
}

func (r *reader) seen() (s Seen) {
	copy(s.StreamUID[:], r.take("stream uid seen", 16))
	s.Epoch = r.uvarint("epoch seen")
	return s
}

// AppendOpenSender appends an OpenSender frame.
func AppendOpenSender(dst []byte, stream uint32, m *OpenSender) []byte {
	b, at := begin(dst, TypeOpenSender, stream)
	b = appendString(b, m.Queue)
	b = appendString(b, m.Producer.ID)
	b = appendString(b, m.Producer.Incarnation)
	b = appendBool(b, m.NoWait)
	return end(appendSeen(b, m.Seen), at)
}

// DecodeOpenSender reads the payload of an OpenSender frame.
func DecodeOpenSender(payload []byte) (OpenSender, error) {
	r := reader{b: payload, t: TypeOpenSender}
	m := OpenSender{
		Queue:    r.string("queue"),
		Producer: queue.Producer{ID: r.string("producer id"), Incarnation: r.string("incarnation")},
		NoWait:   r.bool("no-wait"), Seen: r.seen(),
	}
	return m, r.end()
}

// Credit is cumulative, from the opening of the stream: messages and bytes.
type Credit struct{ Messages, Bytes uint64 }

// SenderOpened is the broker's answer to OpenSender.
type SenderOpened struct {
	StreamUID [16]byte
	Epoch     uint64
	Resume    uint64 // producer seq that is expected next, 0 if the producer is not known
	Credit    Credit
	MaxBody   uint32 // bytes
	MaxFrame  uint32 // bytes of a frame of messages
	Buffered  bool   // acknowledged before stable storage
}

// AppendSenderOpened appends a SenderOpened frame.
func AppendSenderOpened(dst []byte, stream uint32, m *SenderOpened) []byte {
	b, at := begin(dst, TypeSenderOpened, stream)
	b = append(b, m.StreamUID[:]...)
	for _, v := range [...]uint64{m.Epoch, m.Resume, m.Credit.Messages, m.Credit.Bytes, uint64(m.MaxBody), uint64(m.MaxFrame)} {
		b = binary.AppendUvarint(b, v)
	}
	return end(appendBool(b, m.Buffered), at)
}

// DecodeSenderOpened reads the payload of a SenderOpened frame.
func DecodeSenderOpened(payload []byte) (SenderOpened, error) {
	r := reader{b: payload, t: TypeSenderOpened}
	var m SenderOpened
	copy(m.StreamUID[:], r.take("stream uid", 16))
	m.Epoch, m.Resume = r.uvarint("epoch"), r.uvarint("resume")
	m.Credit = r.credit()
	m.MaxBody, m.MaxFrame = r.uint32("greatest body"), r.uint32("greatest frame")
	m.Buffered = r.bool("buffered")
	return m, r.end()
}

func (r *reader) credit() Credit {
	return Credit{Messages: r.uvarint("credit in messages"), Bytes: r.uvarint("credit in bytes")}
}

// AppendSendHeader appends what stands before the messages of a Send frame: the header and the producer
// seq of the first message. frameLen is the length of the frame of messages (see package message), which
// goes to the connection right behind it.
func AppendSendHeader(dst []byte, stream uint32, first uint64, frameLen int) []byte {
	b, at := begin(dst, TypeSend, stream)
	b = binary.LittleEndian.AppendUint64(b, first)
	binary.LittleEndian.PutUint32(b[at:], uint32(SendHeaderSize+frameLen))
	sum := updateSum(0, b[at:at+crcAt])
	sum = updateSum(sum, b[at+HeaderSize:])
	binary.LittleEndian.PutUint32(b[at+crcAt:], sum)
	return b
}

// DecodeSend reads the payload of a Send frame. frame is the rest of payload; it is not checked.
func DecodeSend(payload []byte) (first uint64, frame []byte, err error) {
	if len(payload) < SendHeaderSize {
		return 0, nil, malformed("send frame", "has %d bytes, less than its first producer seq", len(payload))
	}
	return binary.LittleEndian.Uint64(payload), payload[SendHeaderSize:], nil
}

// Accepted says that messages are stored. See holdfast.Accepted.
type Accepted struct {
	UpTo, First, Count, Duplicates uint64
	Credit                         Credit
	Suppressed                     []queue.Suppressed // ascending, at most MaxSpans
}

// AppendAccepted appends an Accepted frame.
func AppendAccepted(dst []byte, stream uint32, m *Accepted) []byte {
	b, at := begin(dst, TypeAccepted, stream)
	for _, v := range [...]uint64{m.UpTo, m.First, m.Count, m.Duplicates, m.Credit.Messages, m.Credit.Bytes} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Suppressed)))
	var last queue.Suppressed
	for _, s := range m.Suppressed {
		b = binary.AppendUvarint(b, s.ProducerSeq-last.ProducerSeq)
		b = binary.AppendVarint(b, int64(s.Seq-last.Seq))
		last = s
	}
	return end(b, at)
}

// DecodeAccepted reads the payload of an Accepted frame.
func DecodeAccepted(payload []byte) (Accepted, error) {
	r := reader{b: payload, t: TypeAccepted}
	m := Accepted{UpTo: r.uvarint("up to"), First: r.uvarint("first"), Count: r.uvarint("count"), Duplicates: r.uvarint("duplicates")}
	m.Credit = r.credit()
	var last queue.Suppressed
	for range r.count("suppressed messages", 2) {
		next := queue.Suppressed{
			ProducerSeq: last.ProducerSeq + r.uvarint("suppressed message"),
			Seq:         last.Seq + uint64(r.varint("suppressed message")),
		}
		if r.err == nil && next.ProducerSeq <= last.ProducerSeq {
			r.fail("suppressed messages", "are not ascending: %d after %d", next.ProducerSeq, last.ProducerSeq)
		}
		m.Suppressed, last = append(m.Suppressed, next), next
	}
	return m, r.end()
}

// AppendRefused appends a Refused frame: nothing from producer seq resume on was stored.
func AppendRefused(dst []byte, stream uint32, resume uint64, e *Error) []byte {
	b, at := begin(dst, TypeRefused, stream)
	b = binary.AppendUvarint(b, resume)
	return end(appendError(b, e), at)
}

// DecodeRefused reads the payload of a Refused frame.
func DecodeRefused(payload []byte) (resume uint64, e *Error, err error) {
	r := reader{b: payload, t: TypeRefused}
	resume = r.uvarint("resume")
	e = r.error()
	return resume, e, r.end()
}

// AppendWaits appends a Waits frame: the queue grants nothing more at present, or no longer so.
func AppendWaits(dst []byte, stream uint32, waits bool, reason string) []byte {
	b, at := begin(dst, TypeWaits, stream)
	return end(appendString(appendBool(b, waits), clip(reason)), at)
}

// DecodeWaits reads the payload of a Waits frame.
func DecodeWaits(payload []byte) (waits bool, reason string, err error) {
	r := reader{b: payload, t: TypeWaits}
	waits, reason = r.bool("waits"), r.string("reason")
	return waits, reason, r.end()
}
