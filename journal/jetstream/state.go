package jetstream

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// formatVersion is the version of control states, marks and the stream's layout that this package writes.
const formatVersion = 1

// control is the state of a stream that is not in its records. Each message on the control subject holds all of it.
type control struct {
	Version int    `json:"v"`
	UID     string `json:"uid"`
	Epoch   uint64 `json:"epoch"`
	// Low is the lowest seq whose meta is kept, or more than End. No message of the record subject below LowAt (a sequence
	// number of JetStream) is needed, but the last one.
	Low     uint64 `json:"low"`
	LowAt   uint64 `json:"low_at,omitempty"`
	End     uint64 `json:"end"` // it was at least that when this was written
	Dropped bool   `json:"dropped,omitempty"`
	// Since is the first control message of this life of the stream: bodies and parts before it are of an earlier one. 0 stands for the
	// message that this state is in.
	Since uint64 `json:"since,omitempty"`
	// Unclean says that messages of an earlier life may still be there.
	Unclean bool `json:"unclean,omitempty"`
	// Fences tell where the stream ended when an epoch was over, the newest last.
	Fences []fence `json:"fences,omitempty"`
	// Gone bodies and parts are discarded, whether or not their messages are deleted yet.
	Gone  []span     `json:"gone,omitempty"`
	Parts []partGone `json:"parts,omitempty"`
}

// fence is where a stream ended when an epoch was taken from its owner.
type fence struct {
	Epoch uint64 `json:"e"`
	End   uint64 `json:"end"`
	CRC   uint32 `json:"crc"`
}

// maxFences bounds how many epochs a stream remembers the ends of. An owner that is more takeovers late, and does not know
// what became of its last append, is told that it is unknown.
const maxFences = 64

// span is the bodies with a first seq in From…To whose message is older than Before, a sequence number of JetStream. Before 0 stands
// for the sequence number of the message that the span is in.
type span struct {
	From   uint64 `json:"f"`
	To     uint64 `json:"t"`
	Before uint64 `json:"b,omitempty"`
}

// partGone says that a part is deleted whose message is older than Before (as in span).
type partGone struct {
	Name   string `json:"n"`
	Before uint64 `json:"b,omitempty"`
}

// clone returns a copy that can be changed.
func (c *control) clone() *control {
	n := *c
	n.Fences, n.Gone, n.Parts = slices.Clone(c.Fences), slices.Clone(c.Gone), slices.Clone(c.Parts)
	return &n
}

// at fills in the sequence number of the message that the state is in.
func (c *control) at(seq uint64) {
	if c.Since == 0 {
		c.Since = seq
	}
	for i := range c.Gone {
		if c.Gone[i].Before == 0 {
			c.Gone[i].Before = seq
		}
	}
	for i := range c.Parts {
		if c.Parts[i].Before == 0 {
			c.Parts[i].Before = seq
		}
	}
}

// bodyGone tells whether the body in message seq, of the record at first, is discarded.
func (c *control) bodyGone(first, seq uint64) bool {
	return seq < c.Since || slices.ContainsFunc(c.Gone, func(s span) bool { return s.From <= first && first <= s.To && seq < s.Before })
}

// partGone tells whether the part in message seq is deleted.
func (c *control) partGone(name string, seq uint64) bool {
	return seq < c.Since || slices.ContainsFunc(c.Parts, func(p partGone) bool { return p.Name == name && seq < p.Before })
}

// endOf returns where the stream ended when epoch was over.
func (c *control) endOf(epoch uint64) (fence, bool) {
	i := slices.IndexFunc(c.Fences, func(f fence) bool { return f.Epoch == epoch })
	if i < 0 {
		return fence{}, false
	}
	return c.Fences[i], true
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

// decode reads a control state or a mark. version is where it has its version.
func decode(what string, data []byte, v any, version *int) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s is no JSON of ours: %w: %w", what, err, journal.ErrCorrupt)
	}
	if *version > formatVersion {
		return fmt.Errorf("%s has version %d, this binary reads up to %d: %w", what, *version, formatVersion, journal.ErrNewerFormat)
	}
	return nil
}

// mark is a message on the record subject that is no record: it says where the stream ends, and its only purpose is to be the last
// message, so that whoever expects another one to be it is refused. Acquire, Import and Drop publish one.
type mark struct {
	Version int    `json:"v"`
	UID     string `json:"uid"`
	Epoch   uint64 `json:"epoch"`
	End     uint64 `json:"end"`
	CRC     uint32 `json:"crc"`
	Time    int64  `json:"time"`
}

// tip is what the last message of a record subject tells. The zero value is that of a stream that never was.
type tip struct {
	seq   uint64 // of the message, in JetStream
	epoch uint64
	end   uint64
	crc   uint32
	time  int64
	rec   *journal.Header // nil if it is a mark
}

// parseTip reads a message of a record subject.
func parseTip(m *stored) (tip, error) {
	t := tip{seq: m.seq}
	if isMark(m.data) {
		var k mark
		if err := decode("mark", m.data, &k, &k.Version); err != nil {
			return t, err
		}
		t.epoch, t.end, t.crc, t.time = k.Epoch, k.End, k.CRC, k.Time
		return t, nil
	}
	h, err := journal.ParseHeader(m.data)
	if err != nil {
		return t, err
	}
	t.epoch, t.end, t.crc, t.time, t.rec = h.Epoch, h.Last(), h.CRC, h.Time, &h
	return t, nil
}

// isMark tells a mark from a record, whose first byte is the version of its header.
func isMark(data []byte) bool { return len(data) > 0 && data[0] == '{' }
