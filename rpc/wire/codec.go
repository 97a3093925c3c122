package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/holdfastmq/holdfast/queue"
)

// Fields are unsigned varints (LEB128), strings with their length as a varint in front, fixed arrays of
// bytes, and single bytes. A payload ends with its last field.

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Durations are whole milliseconds, as signed (zigzag) varints; what lies between is rounded away from zero.
func appendMillis(b []byte, d time.Duration) []byte {
	ms := int64(d / time.Millisecond)
	switch rest := d % time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return binary.AppendVarint(b, ms)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Spans are delta-coded: lease number and seq as signed (zigzag) varints against what would follow the span
// before, from 0, then the count.
func appendSpan(b []byte, s queue.LeaseSpan, next *queue.LeaseSpan) []byte {
	b = binary.AppendVarint(b, int64(s.Lease-next.Lease))
	b = binary.AppendVarint(b, int64(s.Seq-next.Seq))
	next.Lease, next.Seq = s.Lease+s.Count, s.Seq+s.Count
	return binary.AppendUvarint(b, s.Count)
}

func appendSpans(b []byte, spans []queue.LeaseSpan) []byte {
	b = binary.AppendUvarint(b, uint64(len(spans)))
	var next queue.LeaseSpan
	for _, s := range spans {
		b = appendSpan(b, s, &next)
	}
	return b
}

const minSpan = 3 // bytes of an encoded span at least

// reader takes fields off a payload. The first fault stops it and is kept.
type reader struct {
	b   []byte
	t   Type
	err error
}

func (r *reader) fail(field, format string, args ...any) {
	if r.err == nil {
		r.err = malformed(r.t.String()+" frame", "%s %s", field, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

func (r *reader) uvarint(field string) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(field, "is truncated")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint(field string) int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(field, "is truncated")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(field string, n int) []byte {
	if n > len(r.b) {
		r.fail(field, "is truncated")
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) byte(field string) byte {
	if s := r.take(field, 1); s != nil {
		return s[0]
	}
	return 0
}

func (r *reader) bool(field string) bool {
	v := r.byte(field)
	if v > 1 {
		r.fail(field, "is %d, neither 0 nor 1", v)
	}
	return v == 1
}

func (r *reader) string(field string) string {
	n := r.uvarint(field)
	if n > MaxString {
		r.fail(field, "has %d bytes, limit %d", n, MaxString)
		return ""
	}
	return string(r.take(field, int(n)))
}

func (r *reader) uint32(field string) uint32 {
	v := r.uvarint(field)
	if v > math.MaxUint32 {
		r.fail(field, "is %d, limit %d", v, uint32(math.MaxUint32))
		return 0
	}
	return uint32(v)
}

func (r *reader) millis(field string) time.Duration {
	const limit = math.MaxInt64 / int64(time.Millisecond)
	// What does not fit is bad input, not a broken frame: the queue refuses the longest duration too.
	v := min(max(r.varint(field), -limit), limit)
	return time.Duration(v) * time.Millisecond
}

// count reads how many elements follow, each of at least size bytes.
func (r *reader) count(field string, size int) int {
	n := r.uvarint(field)
	if n > MaxSpans {
		r.fail(field, "are %d, limit %d", n, MaxSpans)
		return 0
	}
	if n > uint64(len(r.b)/size) {
		r.fail(field, "are %d in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) span(field string, next *queue.LeaseSpan) queue.LeaseSpan {
	s := queue.LeaseSpan{
		Lease: next.Lease + uint64(r.varint(field)),
		Seq:   next.Seq + uint64(r.varint(field)),
		Count: r.uvarint(field),
	}
	if r.err == nil && (s.Count == 0 || s.Lease+s.Count < s.Lease || s.Seq+s.Count < s.Seq) {
		r.fail(field, "has an impossible span of %d messages", s.Count)
	}
	next.Lease, next.Seq = s.Lease+s.Count, s.Seq+s.Count
	return s
}

func (r *reader) spans(field string) []queue.LeaseSpan {
	n := r.count(field, minSpan)
	if n == 0 {
		return nil
	}
	out := make([]queue.LeaseSpan, 0, n)
	var next queue.LeaseSpan
	for range n {
		s := r.span(field, &next)
		if r.err != nil {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// end reports the first fault, or that bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail("payload", "has %d bytes behind its last field", len(r.b))
	}
	return r.err
}
