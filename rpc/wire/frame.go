package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Protocol is the upgrade token that names this version of the protocol.
const Protocol = "holdfast/1"

// The layout of a frame's header, integers little-endian:
//
//	u32  length of the payload, which follows the header
//	u8   type
//	u32  stream id, 0 for the connection itself
//	u32  CRC-32C of the nine bytes before it and of the payload; of a Send frame's payload, only
//	     of its first eight bytes, because the messages behind them have a checksum of their own
const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 13
	// SendHeaderSize is what stands between the header of a Send frame and its messages.
	SendHeaderSize = 8

	crcAt = 9
)

// Limits of the protocol.
const (
	// MaxControl is the greatest payload of all frames but Send and Deliver, in bytes.
	MaxControl = 1 << 20
	// MaxSpans is the greatest number of spans or outcomes in one frame.
	MaxSpans = 1 << 15
	// MaxString is the greatest length of a string, in bytes.
	MaxString = 4096
	// MaxCredit is the greatest cumulative credit, in messages and in bytes.
	MaxCredit = 1 << 62
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Type is the type of a frame. Values are never reused.
type Type uint8

// The types of frames. 64 to 79 are those of reliable delivery between programs, where "broker" is the program that has
// the consumer, and "client" the one that has the producer.
const (
	TypeHello   Type = 1 // client, first frame of a connection
	TypeWelcome Type = 2 // broker, its answer
	TypePing    Type = 3 // either
	TypePong    Type = 4 // either
	TypeGoaway  Type = 5 // either: no new streams, and why

	TypeOpenSender   Type = 16 // client
	TypeSenderOpened Type = 17 // broker
	TypeSend         Type = 18 // client
	TypeAccepted     Type = 19 // broker
	TypeRefused      Type = 20 // broker
	TypeWaits        Type = 21 // broker

	TypeOpenReceiver   Type = 32 // client
	TypeReceiverOpened Type = 33 // broker
	TypeCredit         Type = 34 // client
	TypeDeliver        Type = 35 // broker
	TypeStarted        Type = 36 // client
	TypeAck            Type = 37 // client
	TypeNack           Type = 38 // client
	TypeRelease        Type = 39 // client
	TypeExtend         Type = 40 // client
	TypeOutcomes       Type = 41 // broker
	TypeLost           Type = 42 // broker

	TypeBroken Type = 48 // broker: the stream has ended, or was not opened
	TypeClose  Type = 49 // client: the stream ends

	TypeOpenDelivery   Type = 64 // client
	TypeDeliveryOpened Type = 65 // broker
	TypeEnvelope       Type = 66 // client
	TypeAcknowledge    Type = 67 // broker
	TypeFarewell       Type = 68 // client
)

var typeNames = [...]string{
	TypeHello: "hello", TypeWelcome: "welcome", TypePing: "ping", TypePong: "pong", TypeGoaway: "goaway",
	TypeOpenSender: "open sender", TypeSenderOpened: "sender opened", TypeSend: "send", TypeAccepted: "accepted",
	TypeRefused: "refused", TypeWaits: "waits",
	TypeOpenReceiver: "open receiver", TypeReceiverOpened: "receiver opened", TypeCredit: "credit",
	TypeDeliver: "deliver", TypeStarted: "started", TypeAck: "ack", TypeNack: "nack", TypeRelease: "release",
	TypeExtend: "extend", TypeOutcomes: "outcomes", TypeLost: "lost",
	TypeBroken: "broken", TypeClose: "close",
	TypeOpenDelivery: "open delivery", TypeDeliveryOpened: "delivery opened", TypeEnvelope: "envelope",
	TypeAcknowledge: "acknowledge", TypeFarewell: "farewell",
}

// Known reports whether t is a type of this version.
func (t Type) Known() bool { return int(t) < len(typeNames) && typeNames[t] != "" }

// OfConnection reports whether frames of the type belong to stream 0.
func (t Type) OfConnection() bool { return t >= TypeHello && t <= TypeGoaway }

// Bulk reports whether frames of the type carry messages, so that their payload may be larger than MaxControl
// and the receiver of the frame keeps it.
func (t Type) Bulk() bool { return t == TypeSend || t == TypeDeliver || t == TypeEnvelope }

// String returns the name of the type as docs/protocol.md has it.
func (t Type) String() string {
	if t.Known() {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Header is what stands before every payload.
type Header struct {
	Length uint32 // of the payload, in bytes
	Type   Type
	Stream uint32
	Sum    uint32 // the checksum as it was sent
}

// ParseHeader reads a header from the first HeaderSize bytes of b and checks what can be checked without the
// payload: the type, its length against MaxControl and maxBulk, and whether it belongs to a stream. b must be
// that long.
func ParseHeader(b []byte, maxBulk int) (Header, error) {
	_ = b[HeaderSize-1]
	h := Header{
		Length: binary.LittleEndian.Uint32(b),
		Type:   Type(b[4]),
		Stream: binary.LittleEndian.Uint32(b[5:]),
		Sum:    binary.LittleEndian.Uint32(b[crcAt:]),
	}
	if !h.Type.Known() {
		return h, malformed("frame", "has the unknown type %d", uint8(h.Type))
	}
	limit := MaxControl
	switch {
	case h.Type == TypeEnvelope:
		limit = MaxEnvelope
	case h.Type.Bulk():
		limit = maxBulk
	}
	if uint64(h.Length) > uint64(max(limit, 0)) {
		return h, &Error{Code: CodeProtocol, Field: h.Type.String() + " frame",
			Fault: fmt.Sprintf("has %d bytes", h.Length), Limit: fmt.Sprintf("%d bytes", limit)}
	}
	if h.Type == TypeSend && h.Length < SendHeaderSize {
		return h, malformed("send frame", "has %d bytes, less than its first producer seq", h.Length)
	}
	if (h.Stream == 0) != h.Type.OfConnection() {
		return h, malformed(h.Type.String()+" frame", "is on stream %d", h.Stream)
	}
	return h, nil
}

// Verify compares the checksum of h, which stands in head, with the payload.
func (h *Header) Verify(head, payload []byte) error {
	sum := updateSum(0, head[:crcAt])
	if h.Type == TypeSend {
		payload = payload[:SendHeaderSize]
	}
	if updateSum(sum, payload) != h.Sum {
		return malformed(h.Type.String()+" frame", "does not match its checksum")
	}
	return nil
}

// begin appends a header whose length and checksum end fills in.
func begin(dst []byte, t Type, stream uint32) (b []byte, at int) {
	at = len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(t))
	dst = binary.LittleEndian.AppendUint32(dst, stream)
	return append(dst, 0, 0, 0, 0), at
}

func end(b []byte, at int) []byte {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-HeaderSize))
	sum := updateSum(0, b[at:at+crcAt])
	sum = updateSum(sum, b[at+HeaderSize:])
	binary.LittleEndian.PutUint32(b[at+crcAt:], sum)
	return b
}

func updateSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }
