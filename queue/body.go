package queue

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/holdfastmq/holdfast/message"
)

// entryHeaderSize is the length of what precedes each frame in a record's body part: u64 seq of the first message, u32 count, u32
// length of the frame, little-endian.
const entryHeaderSize = 16

// BodyEntry is one frame of the body part of a record: the messages Seq, Seq+1, … in order.
type BodyEntry struct {
	Span
	Frame []byte
}

// Body returns the event's share of the body part of its record, in chunks, or nil if it has no bodies: for each frame a
// header that names its messages, and the frame as it came. The chunks share the memory of e.Frames. An Added event must
// have its span, so the event must have been decided by a Core.
func Body(e *Event) [][]byte {
	if len(e.Frames) == 0 {
		return nil
	}
	headers := make([]byte, 0, entryHeaderSize*len(e.Frames))
	out := make([][]byte, 0, 2*len(e.Frames))
	for i, f := range e.Frames {
		n := len(headers)
		headers = binary.LittleEndian.AppendUint64(headers, e.Spans[i].Seq)
		headers = binary.LittleEndian.AppendUint32(headers, uint32(e.Spans[i].Count))
		headers = binary.LittleEndian.AppendUint32(headers, uint32(len(f)))
		out = append(out, headers[n:len(headers):len(headers)], f)
	}
	return out
}

// BodyEntries yields the entries of a record's body part, which is the concatenation of body. Frames are slices of it where
// they lie in one chunk, and copies where they do not. An error, which matches ErrMalformed, ends it.
// Frames are not checked beyond their count of messages.
func BodyEntries(body [][]byte) iter.Seq2[BodyEntry, error] {
	return func(yield func(BodyEntry, error) bool) {
		r := chunks{rest: body}
		for at := 0; ; {
			h, n := r.take(entryHeaderSize)
			if n == 0 {
				return
			}
			e := BodyEntry{}
			if n == entryHeaderSize {
				e.Span = Span{binary.LittleEndian.Uint64(h), uint64(binary.LittleEndian.Uint32(h[8:]))}
				want := int(binary.LittleEndian.Uint32(h[12:]))
				if e.Frame, n = r.take(want); n == want && e.valid() {
					at += entryHeaderSize + n
					if !yield(e, nil) {
						return
					}
					continue
				}
			}
			yield(BodyEntry{}, fmt.Errorf("entry at byte %d of a body part: %w", at, ErrMalformed))
			return
		}
	}
}

func (e *BodyEntry) valid() bool {
	return e.Seq > 0 && e.Count > 0 && e.Seq <= maxSeq-e.Count && len(e.Frame) >= message.FrameHeaderSize &&
		uint64(message.Count(e.Frame)) == e.Count
}

// chunks reads a sequence of chunks as if they were one.
type chunks struct {
	cur  []byte
	rest [][]byte
}

// fill makes cur not empty, unless nothing is left.
func (c *chunks) fill() {
	for len(c.cur) == 0 && len(c.rest) > 0 {
		c.cur, c.rest = c.rest[0], c.rest[1:]
	}
}

// take takes n bytes; it returns fewer only at the end.
func (c *chunks) take(n int) ([]byte, int) {
	if c.fill(); len(c.cur) >= n {
		b := c.cur[:n:n]
		c.cur = c.cur[n:]
		return b, n
	}
	// What is taken is known to be there before room for it is made.
	have := len(c.cur)
	for i := 0; i < len(c.rest) && have < n; i++ {
		have += len(c.rest[i])
	}
	out := make([]byte, 0, min(n, have))
	for len(out) < cap(out) {
		c.fill()
		k := min(cap(out)-len(out), len(c.cur))
		out = append(out, c.cur[:k]...)
		c.cur = c.cur[k:]
	}
	return out, len(out)
}
