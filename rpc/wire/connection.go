package wire

import (
	"encoding/binary"
	"time"
)

// Hello is the client's first frame.
type Hello struct {
	Client string // name and version of the client, for logs
	// Features are the optional parts of the protocol that the client knows, a bit each. Unknown bits are
	// ignored. None are defined yet.
	Features uint64
	// MaxFrame is the greatest payload of a Deliver frame that the client takes, in bytes. A single message
	// that is larger is an error of the stream.
	MaxFrame uint32
}

// AppendHello appends a Hello frame.
func AppendHello(dst []byte, m *Hello) []byte {
	b, at := begin(dst, TypeHello, 0)
	b = appendString(b, m.Client)
	b = binary.AppendUvarint(b, m.Features)
	b = binary.AppendUvarint(b, uint64(m.MaxFrame))
	return end(b, at)
}

// DecodeHello reads the payload of a Hello frame.
func DecodeHello(payload []byte) (Hello, error) {
	r := reader{b: payload, t: TypeHello}
	m := Hello{Client: r.string("client"), Features: r.uvarint("features"), MaxFrame: r.uint32("greatest frame")}
	return m, r.end()
}

// Welcome is the broker's answer to Hello.
type Welcome struct {
	Broker   string // the broker's advertised address, empty if it has none
	Version  string // of the broker, for logs
	Features uint64 // those of the client's that the broker knows too
	MaxFrame uint32 // the greatest payload of a Send frame that the broker takes, in bytes
	// MaxStreams is how many streams the connection may have open at once.
	MaxStreams uint32
	// DeadAfter is the time without a byte from the other side after which either ends the connection.
	DeadAfter time.Duration
}

// AppendWelcome appends a Welcome frame.
func AppendWelcome(dst []byte, m *Welcome) []byte {
	b, at := begin(dst, TypeWelcome, 0)
	b = appendString(b, m.Broker)
	b = appendString(b, m.Version)
	b = binary.AppendUvarint(b, m.Features)
	b = binary.AppendUvarint(b, uint64(m.MaxFrame))
	b = binary.AppendUvarint(b, uint64(m.MaxStreams))
	b = appendMillis(b, m.DeadAfter)
	return end(b, at)
}

// DecodeWelcome reads the payload of a Welcome frame.
func DecodeWelcome(payload []byte) (Welcome, error) {
	r := reader{b: payload, t: TypeWelcome}
	m := Welcome{
		Broker: r.string("broker"), Version: r.string("version"), Features: r.uvarint("features"),
		MaxFrame: r.uint32("greatest frame"), MaxStreams: r.uint32("most streams"), DeadAfter: r.millis("dead after"),
	}
	return m, r.end()
}

// AppendPing appends a Ping frame. The answer carries the same token.
func AppendPing(dst []byte, token uint64) []byte {
	b, at := begin(dst, TypePing, 0)
	return end(binary.AppendUvarint(b, token), at)
}

// AppendPong appends a Pong frame.
func AppendPong(dst []byte, token uint64) []byte {
	b, at := begin(dst, TypePong, 0)
	return end(binary.AppendUvarint(b, token), at)
}

// DecodePing reads the payload of a Ping or Pong frame.
func DecodePing(payload []byte) (token uint64, err error) {
	r := reader{b: payload, t: TypePing}
	token = r.uvarint("token")
	return token, r.end()
}

// AppendGoaway appends a Goaway frame: its sender opens and accepts no new streams on this connection. With
// CodeProtocol it closes the connection at once.
func AppendGoaway(dst []byte, e *Error) []byte {
	b, at := begin(dst, TypeGoaway, 0)
	return end(appendError(b, e), at)
}

// DecodeGoaway reads the payload of a Goaway frame.
func DecodeGoaway(payload []byte) (*Error, error) {
	r := reader{b: payload, t: TypeGoaway}
	e := r.error()
	return e, r.end()
}

// AppendBroken appends a Broken frame: the stream has ended, or was not opened.
func AppendBroken(dst []byte, stream uint32, e *Error) []byte {
	b, at := begin(dst, TypeBroken, stream)
	return end(appendError(b, e), at)
}

// DecodeBroken reads the payload of a Broken frame.
func DecodeBroken(payload []byte) (*Error, error) {
	r := reader{b: payload, t: TypeBroken}
	e := r.error()
	return e, r.end()
}

// AppendClose appends a Close frame. clean has the meaning of holdfast.SenderLink and ReceiverLink.
func AppendClose(dst []byte, stream uint32, clean bool) []byte {
	b, at := begin(dst, TypeClose, stream)
	return end(appendBool(b, clean), at)
}

// DecodeClose reads the payload of a Close frame.
func DecodeClose(payload []byte) (clean bool, err error) {
	r := reader{b: payload, t: TypeClose}
	clean = r.bool("clean")
	return clean, r.end()
}
