package queue

import "iter"

// BodyEntry is one frame of the body part of a record: the messages Seq, Seq+1, … in order.
type BodyEntry struct {
	Span
	Frame []byte
}

// Body returns the event's share of the body part of its record, in chunks, or nil if it has no bodies: for each frame a
// header that names its messages, and the frame as it came. The chunks share the memory of e.Frames. An Added event must
// have its span, so the event must have been decided by a Core.
func Body(e *Event) [][]byte { panic("to follow") }

// BodyEntries yields the entries of a record's body part, which is the concatenation of body. Frames are slices of it where
// they lie in one chunk, and copies where they do not. An error, which matches ErrMalformed, ends it.
// Frames are not checked beyond their count of messages.
func BodyEntries(body [][]byte) iter.Seq2[BodyEntry, error] { panic("to follow") }
