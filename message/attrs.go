package message

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Attributes are encoded as a sequence of tag byte and value. Values are unsigned
// varints, or a length as a varint and that many bytes. Tags ascend, but for
// tagHeader, which repeats and comes last.
const (
	tagDelay     = 1 // ms
	tagNotBefore = 2 // Unix ms
	tagTTL       = 3 // ms
	tagExpiresAt = 4 // Unix ms
	tagPriority  = 5
	tagKey       = 6
	tagDedupID   = 7
	tagHeader    = 8 // name, value

	// Internal tags: written by brokers when a message moves from one queue to another, refused in
	// what clients send. See Origin and Hop.
	tagOrigin = 16 // 16 bytes uid, varint seq
	tagHop    = 17 // queue, reason, varint deliveries, varint Unix ms; repeats, oldest first
)

// Attrs is what a message says besides its body, as the broker reads it: times in
// milliseconds, strings as slices of the frame.
type Attrs struct {
	DelayMs, NotBeforeMs int64
	TTLMs, ExpiresAtMs   int64
	Priority             int
	Key, DedupID         []byte
	Headers              int // count
	HeaderBytes          int // names and values together
	HasOrigin            bool
	Origin               Origin
}

// Origin is the id of a message that was first stored elsewhere: the uid of that stream, and its seq
// there. Ids never change, so a message that was moved keeps it.
type Origin struct {
	UID [16]byte
	Seq uint64
}

// Hop is one move of a message out of a queue: to a dead-letter queue, or back.
type Hop struct {
	Queue      string // that it left
	Reason     string // e.g. "max-deliveries", "redrive"
	Deliveries int    // its delivery count there
	TimeMs     int64  // queue time of the move, Unix ms
}

func millis(d time.Duration) uint64 { return uint64((d + time.Millisecond - 1) / time.Millisecond) }

func (m *Message) appendAttrs(b []byte) []byte {
	num := func(tag byte, v uint64) {
		if v != 0 {
			b = binary.AppendUvarint(append(b, tag), v)
		}
	}
	str := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	num(tagDelay, millis(m.Delay))
	if !m.NotBefore.IsZero() {
		num(tagNotBefore, uint64(m.NotBefore.UnixMilli()))
	}
	num(tagTTL, millis(m.TTL))
	if !m.ExpiresAt.IsZero() {
		num(tagExpiresAt, uint64(m.ExpiresAt.UnixMilli()))
	}
	num(tagPriority, uint64(m.Priority))
	if m.Key != "" {
		b = append(b, tagKey)
		str(m.Key)
	}
	if m.DedupID != "" {
		b = append(b, tagDedupID)
		str(m.DedupID)
	}
	for _, h := range m.Headers {
		b = append(b, tagHeader)
		str(h.Name)
		str(h.Value)
	}
	return b
}

// attrReader walks encoded attributes without allocating.
type attrReader struct {
	b   []byte
	bad bool
}

func (r *attrReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *attrReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *attrReader) time(tag byte, a *Attrs) error {
	v := r.uvarint()
	dst, most, limit := &a.DelayMs, uint64(MaxDelay.Milliseconds()), "1ms to "+MaxDelay.String()
	switch tag {
	case tagTTL:
		dst = &a.TTLMs
	case tagNotBefore:
		dst, most, limit = &a.NotBeforeMs, maxUnixMilli, "years 1970 to 9999"
	case tagExpiresAt:
		dst, most, limit = &a.ExpiresAtMs, maxUnixMilli, "years 1970 to 9999"
	}
	if v == 0 || v > most {
		return fault(tagName(tag), limit, "is %d ms", v)
	}
	*dst = int64(v)
	return nil
}

func (r *attrReader) internal(tag byte, a *Attrs, hop func(Hop)) {
	if tag == tagOrigin {
		if len(r.b) < len(a.Origin.UID) {
			r.bad, r.b = true, nil
			return
		}
		a.HasOrigin = true
		r.b = r.b[copy(a.Origin.UID[:], r.b):]
		a.Origin.Seq = r.uvarint()
		return
	}
	h := Hop{Queue: string(r.bytes()), Reason: string(r.bytes()), Deliveries: int(r.uvarint()), TimeMs: int64(r.uvarint())}
	if hop != nil && !r.bad {
		hop(h)
	}
}

// parseAttrs decodes and checks attributes. header, if not nil, is called for each header.
func parseAttrs(b []byte, l *Limits, header func(name, value []byte), hop func(Hop)) (Attrs, error) {
	var a Attrs
	r := attrReader{b: b}
	last := byte(0)
	for len(r.b) > 0 {
		tag := r.b[0]
		r.b = r.b[1:]
		if tag < last || (tag == last && tag != tagHeader && tag != tagHop) {
			return a, fault("attributes", "", "are out of order: tag %d after %d", tag, last)
		}
		last = tag
		switch tag {
		case tagDelay, tagTTL, tagNotBefore, tagExpiresAt:
			if err := r.time(tag, &a); err != nil {
				return a, err
			}
		case tagPriority:
			v := r.uvarint()
			if v == 0 || v > MaxPriority {
				return a, fault("priority", fmt.Sprintf("0 to %d", MaxPriority), "is %d", v)
			}
			a.Priority = int(v)
		case tagKey:
			if a.Key = r.bytes(); !r.bad && (len(a.Key) == 0 || len(a.Key) > MaxKeyLen) {
				return a, fault("key", fmt.Sprintf("1 to %d bytes", MaxKeyLen), "has %d bytes", len(a.Key))
			}
		case tagDedupID:
			if a.DedupID = r.bytes(); !r.bad && (len(a.DedupID) == 0 || len(a.DedupID) > MaxDedupIDLen) {
				return a, fault("dedup id", fmt.Sprintf("1 to %d bytes", MaxDedupIDLen), "has %d bytes", len(a.DedupID))
			}
		case tagHeader:
			name := r.bytes()
			value := r.bytes()
			if !r.bad && (len(name) == 0 || len(name) > maxHeaderName) {
				return a, fault("header name", fmt.Sprintf("1 to %d bytes", maxHeaderName), "has %d bytes", len(name))
			}
			a.Headers++
			a.HeaderBytes += len(name) + len(value)
			if a.Headers > l.MaxHeaders {
				return a, fault("headers", fmt.Sprintf("%d headers", l.MaxHeaders), "are more")
			}
			if a.HeaderBytes > l.MaxHeaderBytes {
				return a, fault("headers", fmt.Sprintf("%d bytes", l.MaxHeaderBytes), "have more")
			}
			if header != nil && !r.bad {
				header(name, value)
			}
		case tagOrigin, tagHop:
			if !l.Internal {
				return a, fault("attributes", "", "have the internal tag %d", tag)
			}
			r.internal(tag, &a, hop)
		default:
			return a, fault("attributes", "", "have the unknown tag %d", tag)
		}
		if r.bad {
			return a, fault("attributes", "", "are truncated in %s", tagName(tag))
		}
	}
	if a.DelayMs != 0 && a.NotBeforeMs != 0 {
		return a, fault("not-before", "", "and delay are both set")
	}
	if a.TTLMs != 0 && a.ExpiresAtMs != 0 {
		return a, fault("expires-at", "", "and ttl are both set")
	}
	if !l.Internal && a.TTLMs != 0 && a.TTLMs <= a.DelayMs {
		return a, expiresFirst(time.Duration(a.TTLMs)*time.Millisecond, time.Duration(a.DelayMs)*time.Millisecond)
	}
	return a, nil
}

const maxUnixMilli = 253402300799999 // end of the year 9999

func tagName(tag byte) string {
	switch tag {
	case tagOrigin:
		return "origin"
	case tagHop:
		return "hop"
	}
	return [...]string{"", "delay", "not-before", "ttl", "expires-at", "priority", "key", "dedup id", "header"}[tag]
}

// Moved returns the attributes of a message as it goes to another queue: what held it back or limited its
// life where it was, and its dedup id, stay behind; key, priority and headers go along; its origin is kept, or
// set to origin if it has none, and hop is added to its moves.
func Moved(raw Raw, origin Origin, hop Hop) ([]byte, error) {
	d, err := raw.Decode()
	if err != nil {
		return nil, err
	}
	m := Message{Key: d.Key, Priority: d.Priority, Headers: d.Headers}
	if d.HasOrigin {
		origin = d.Origin
	}
	out := append(m.appendAttrs(nil), tagOrigin)
	out = append(out, origin.UID[:]...)
	out = binary.AppendUvarint(out, origin.Seq)
	for _, h := range append(d.Hops, hop) {
		out = append(out, tagHop)
		for _, s := range []string{h.Queue, h.Reason} {
			out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
		}
		out = binary.AppendUvarint(out, uint64(h.Deliveries))
		out = binary.AppendUvarint(out, uint64(h.TimeMs))
	}
	return out, nil
}
