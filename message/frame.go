package message

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// The layout of a frame, integers little-endian:
//
//	u32  CRC-32C of everything behind it
//	u8   version, 1
//	u8   flags: bit 0 set if any message has attributes
//	u16  zero
//	u32  count of messages, at least 1
//	then each message: uvarint length of its attributes, the attributes,
//	uvarint length of its body, the body
const (
	// FrameVersion is the version that this package writes.
	FrameVersion = 1
	// FrameHeaderSize is the length of a frame's header in bytes.
	FrameHeaderSize = 12

	flagAttrs = 1
)

// Overhead is what a message without attributes costs in a frame at most besides its body, in bytes.
const Overhead = 6

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Builder forms a frame from messages. The zero value is ready. A Builder is used by one
// goroutine at a time.
type Builder struct {
	buf   []byte
	count int
	flags byte
	tmp   []byte
}

// Reset empties the builder and makes it build into buf[:0], which it owns until Finish.
func (b *Builder) Reset(buf []byte) {
	b.buf, b.count, b.flags = append(buf[:0], make([]byte, FrameHeaderSize)...), 0, 0
}

// Count returns the number of messages added since Reset.
func (b *Builder) Count() int { return b.count }

// Size returns the length of the frame as it stands, in bytes.
func (b *Builder) Size() int { return max(len(b.buf), FrameHeaderSize) }

// Add appends a message that Validate accepts. The message is copied.
func (b *Builder) Add(m *Message) {
	if len(b.buf) == 0 {
		b.Reset(nil)
	}
	b.tmp = m.appendAttrs(b.tmp[:0])
	b.addParts(b.tmp, m.Body)
}

// AddRaw appends an encoded message, as Walk yields it or Append wrote it.
func (b *Builder) AddRaw(raw Raw) {
	if len(b.buf) == 0 {
		b.Reset(nil)
	}
	b.addParts(raw.Attrs, raw.Body)
}

func (b *Builder) addParts(attrs, body []byte) {
	if len(attrs) > 0 {
		b.flags |= flagAttrs
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(attrs)))
	b.buf = append(b.buf, attrs...)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(body)))
	b.buf = append(b.buf, body...)
	b.count++
}

// Finish writes the header and returns the frame, which belongs to the caller; the builder must
// be Reset before it is used again. It returns nil if no message was added.
func (b *Builder) Finish() []byte {
	if b.count == 0 {
		return nil
	}
	f := b.buf
	putFrameHeader(f, b.flags, b.count)
	b.buf = nil
	return f
}

func putFrameHeader(f []byte, flags byte, count int) {
	f[4], f[5], f[6], f[7] = FrameVersion, flags, 0, 0
	binary.LittleEndian.PutUint32(f[8:], uint32(count))
	binary.LittleEndian.PutUint32(f, crc32.Checksum(f[4:], castagnoli))
}

// Raw is an encoded message: slices of the frame that it lies in.
type Raw struct{ Attrs, Body []byte }

// Size returns what the message counts towards byte limits and credit: attributes and body.
func (r Raw) Size() int { return len(r.Attrs) + len(r.Body) }

// Special is what a frame's check tells of one message that has attributes.
type Special struct {
	Index int // position in the frame, from 0
	Attrs Attrs
}

// Info is what a frame's check tells of it.
type Info struct {
	Count int
	Bytes int // sum of Raw.Size over its messages
	// Uniform is the Raw.Size of every message if Sizes is nil.
	Uniform uint32
	// Sizes is the Raw.Size of each message, nil if they are all equal.
	Sizes []uint32
	// Specials are the messages with attributes other than headers, ascending. Their slices lie in the frame.
	Specials []Special
}

// Count returns the number of messages in an encoded frame that was checked before, without checking it.
func Count(frame []byte) int { return int(binary.LittleEndian.Uint32(frame[8:])) }

// Check verifies a frame completely: version, CRC, lengths, limits, attributes. Its errors are
// FieldErrors. A frame that it accepts can be walked without errors.
func Check(frame []byte, l Limits) (Info, error) {
	l = l.WithDefaults()
	var info Info
	if err := checkHeader(frame, &l); err != nil {
		return info, err
	}
	n := int(binary.LittleEndian.Uint32(frame[8:]))
	info.Count = n
	b := frame[FrameHeaderSize:]
	// A message takes two bytes at least, so that the count bounds itself before allocation.
	if n > len(b)/2 {
		return info, fault("frame", "", "says %d messages in %d bytes", n, len(b))
	}
	for i := range n {
		raw, rest, ok := cut(b)
		if !ok {
			return info, fault("frame", "", "is truncated in message %d of %d", i, n)
		}
		b = rest
		if len(raw.Body) > l.MaxBody {
			return info, fault("body", fmt.Sprintf("%d bytes", l.MaxBody), "of message %d has %d bytes", i, len(raw.Body))
		}
		size := uint32(raw.Size())
		info.Bytes += int(size)
		switch {
		case i == 0:
			info.Uniform = size
		case info.Sizes != nil:
			info.Sizes = append(info.Sizes, size)
		case size != info.Uniform:
			info.Sizes = make([]uint32, i, n)
			for k := range info.Sizes {
				info.Sizes[k] = info.Uniform
			}
			info.Sizes = append(info.Sizes, size)
		}
		if len(raw.Attrs) > 0 {
			a, err := parseAttrs(raw.Attrs, &l, nil, nil)
			if err != nil {
				return info, fmt.Errorf("message %d of %d: %w", i, n, err)
			}
			if a.special() {
				info.Specials = append(info.Specials, Special{Index: i, Attrs: a})
			}
		}
	}
	if len(b) != 0 {
		return info, fault("frame", "", "has %d bytes behind its last message", len(b))
	}
	return info, nil
}

func (a *Attrs) special() bool {
	return a.DelayMs|a.NotBeforeMs|a.TTLMs|a.ExpiresAtMs != 0 || a.Priority != 0 || len(a.Key) > 0 || len(a.DedupID) > 0 || a.HasOrigin
}

func checkHeader(frame []byte, l *Limits) error {
	if len(frame) < FrameHeaderSize {
		return fault("frame", "", "has %d bytes, less than its header", len(frame))
	}
	if len(frame) > l.MaxFrameBytes {
		return fault("frame", fmt.Sprintf("%d bytes", l.MaxFrameBytes), "has %d bytes", len(frame))
	}
	if frame[4] != FrameVersion {
		return fault("frame", fmt.Sprintf("%d", FrameVersion), "has version %d", frame[4])
	}
	if frame[5]&^flagAttrs != 0 || frame[6] != 0 || frame[7] != 0 {
		return fault("frame", "", "has unknown flags")
	}
	if crc32.Checksum(frame[4:], castagnoli) != binary.LittleEndian.Uint32(frame) {
		return fault("frame", "", "does not match its checksum")
	}
	n := binary.LittleEndian.Uint32(frame[8:])
	if n == 0 || uint64(n) > uint64(l.MaxFrameCount) {
		return fault("frame", fmt.Sprintf("1 to %d messages", l.MaxFrameCount), "has %d messages", n)
	}
	return nil
}

// cut takes the first message off b.
func cut(b []byte) (raw Raw, rest []byte, ok bool) {
	an, k := binary.Uvarint(b)
	if k <= 0 || an > uint64(len(b)-k) {
		return raw, nil, false
	}
	b = b[k:]
	raw.Attrs, b = b[:an:an], b[an:]
	bn, k := binary.Uvarint(b)
	if k <= 0 || bn > uint64(len(b)-k) {
		return raw, nil, false
	}
	b = b[k:]
	raw.Body, b = b[:bn:bn], b[bn:]
	return raw, b, true
}

// Cursor walks the messages of a frame that Check accepted, in order. It is the way to take
// consecutive messages out of a frame in several steps without walking it again.
type Cursor struct {
	rest []byte
	next int // index of the message that rest begins with
}

// NewCursor returns a cursor before the first message of a checked frame.
func NewCursor(frame []byte) Cursor { return Cursor{rest: frame[FrameHeaderSize:]} }

// NewSpanCursor returns a cursor before the first of the encoded messages that Span returned.
func NewSpanCursor(span []byte) Cursor { return Cursor{rest: span} }

// Index returns the index of the message that Next would return.
func (c *Cursor) Index() int { return c.next }

// Next returns the next message; ok is false behind the last one.
func (c *Cursor) Next() (raw Raw, ok bool) {
	if len(c.rest) == 0 {
		return Raw{}, false
	}
	raw, c.rest, ok = cut(c.rest)
	c.next++
	return raw, ok
}

// Span returns the encoded bytes of the next n messages, as they lie in the frame, and moves
// behind them. ok is false if there are fewer.
func (c *Cursor) Span(n int) (span []byte, ok bool) {
	start := c.rest
	for range n {
		if _, ok := c.Next(); !ok {
			return nil, false
		}
	}
	k := len(start) - len(c.rest)
	return start[:k:k], true
}

// FrameFromSpans joins encoded messages, as Span returns them, to a new frame of count messages,
// appended to dst.
func FrameFromSpans(dst []byte, count int, spans ...[]byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, FrameHeaderSize)...)
	for _, s := range spans {
		dst = append(dst, s...)
	}
	// The flag only promises that without it no message has attributes.
	putFrameHeader(dst[at:], flagAttrs, count)
	return dst
}

// Slice returns a new frame of the n messages from index from on of a checked frame.
func Slice(frame []byte, from, n int) ([]byte, error) {
	c := NewCursor(frame)
	if _, ok := c.Span(from); !ok {
		return nil, fault("frame", "", "has no message %d", from)
	}
	span, ok := c.Span(n)
	if !ok {
		return nil, fault("frame", "", "has no message %d", from+n-1)
	}
	return FrameFromSpans(make([]byte, 0, FrameHeaderSize+len(span)), n, span), nil
}

// Decoded is a message as a receiver gets it, with what brokers have added on its way.
type Decoded struct {
	Message
	// HasOrigin tells that the message was first stored under Origin, not where it was received from.
	HasOrigin bool
	Origin    Origin
	// Hops are its moves between queues, oldest first.
	Hops []Hop
}

// Decode turns an encoded message into a Message whose Body is a slice of the frame and whose strings are
// copies. It fails on attributes that Check would refuse.
func (r Raw) Decode() (Decoded, error) {
	m := Decoded{Message: Message{Body: r.Body}}
	if len(r.Attrs) == 0 {
		return m, nil
	}
	l := Limits{MaxHeaders: len(r.Attrs), MaxHeaderBytes: len(r.Attrs), Internal: true}.WithDefaults()
	a, err := parseAttrs(r.Attrs, &l,
		func(name, value []byte) { m.Headers = append(m.Headers, Header{string(name), string(value)}) },
		func(h Hop) { m.Hops = append(m.Hops, h) })
	if err != nil {
		return m, err
	}
	m.Delay, m.TTL = time.Duration(a.DelayMs)*time.Millisecond, time.Duration(a.TTLMs)*time.Millisecond
	if a.NotBeforeMs != 0 {
		m.NotBefore = time.UnixMilli(a.NotBeforeMs)
	}
	if a.ExpiresAtMs != 0 {
		m.ExpiresAt = time.UnixMilli(a.ExpiresAtMs)
	}
	m.Priority, m.Key, m.DedupID = a.Priority, string(a.Key), string(a.DedupID)
	m.HasOrigin, m.Origin = a.HasOrigin, a.Origin
	return m, nil
}
