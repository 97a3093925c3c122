package journal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
)

// UID identifies one life of a stream: a stream that was dropped and made anew
// has another one. Message ids carry it, so that an id never means two messages.
type UID [16]byte

// String returns the uid as 32 hexadecimal digits.
func (u UID) String() string { return hex.EncodeToString(u[:]) }

// ParseUID reads what String wrote.
func ParseUID(s string) (UID, error) {
	var u UID
	if len(s) != 2*len(u) {
		return u, fmt.Errorf("stream uid %q: want %d hexadecimal digits", s, 2*len(u))
	}
	if _, err := hex.Decode(u[:], []byte(s)); err != nil {
		return u, fmt.Errorf("stream uid %q: %w", s, err)
	}
	return u, nil
}

// Kind tells what a record is.
type Kind uint8

const (
	// KindEvents is a record of events: what Append normally carries.
	KindEvents Kind = 1
	// KindEpoch is the record that a driver may write on Acquire, of one seq and
	// without parts. Readers skip it; it only takes its place in the numbering. An owner may
	// append one too, with a body of no meaning, to learn whether the store has room.
	KindEpoch Kind = 2
	// KindSkip says that the seqs First…Last were discarded before they got here. It
	// lets a stream with a discarded beginning be copied without changing a seq.
	KindSkip Kind = 3
)

// FormatVersion is the version of the record header that this package writes. A
// header of a newer version is refused with [ErrNewerFormat].
const FormatVersion = 1

// HeaderSize is the length of an encoded header in bytes.
const HeaderSize = 76

// Header describes a record. Its CRC covers every other field, and through
// MetaCRC and BodyCRC both parts, so that metas can be verified without reading
// bodies. All CRCs are CRC-32C (Castagnoli).
type Header struct {
	UID     UID
	Epoch   uint64 // of the owner that wrote it
	First   uint64 // seq of its first event, at least 1
	Count   uint64 // events in it, at least 1
	Kind    Kind
	Time    int64 // queue time in Unix milliseconds; never decreases in a stream
	MetaLen uint32
	BodyLen uint32
	MetaCRC uint32
	BodyCRC uint32
	PrevCRC uint32 // CRC of the record before (of an earlier life of the stream, too), 0 if none
	CRC     uint32
}

// Last returns the seq of the record's last event.
func (h *Header) Last() uint64 { return h.First + h.Count - 1 }

// Size returns what the record costs in a store that adds nothing: header and
// both parts, in bytes. [Limits.MaxRecordBytes] bounds it.
func (h *Header) Size() int { return HeaderSize + int(h.MetaLen) + int(h.BodyLen) }

// Record is an atomically stored group of events.
//
// Body is a list of chunks whose concatenation is the body part: a writer can
// pass the buffers that it received without joining them. A driver may store
// and return them in other chunks.
type Record struct {
	Header
	Meta []byte
	Body [][]byte

	// Buffered asks for less than durability on return, where the driver can: the
	// record may be lost by a crash of the machine, together with all later ones, until
	// a later record that is not Buffered has been stored. It is not stored.
	Buffered bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of the concatenation of parts.
func Checksum(parts ...[]byte) uint32 {
	var c uint32
	for _, p := range parts {
		c = crc32.Update(c, castagnoli, p)
	}
	return c
}

// Seal fills in the lengths and CRCs of a record whose other fields are set. prev is
// the CRC of the record before it. Append refuses a record that is not sealed.
func (r *Record) Seal(prev uint32) error {
	var body uint64
	for _, c := range r.Body {
		body += uint64(len(c))
	}
	if uint64(len(r.Meta)) > math.MaxUint32 || body > math.MaxUint32 {
		return fmt.Errorf("record at seq %d: %w: meta %d bytes, body %d bytes", r.First, ErrTooLarge, len(r.Meta), body)
	}
	r.MetaLen, r.BodyLen = uint32(len(r.Meta)), uint32(body)
	r.MetaCRC, r.BodyCRC = Checksum(r.Meta), Checksum(r.Body...)
	r.PrevCRC = prev
	r.CRC = r.Header.sum()
	return nil
}

func (h *Header) sum() uint32 {
	var b [HeaderSize]byte
	h.put(b[:])
	return crc32.Checksum(b[:HeaderSize-4], castagnoli)
}

func (h *Header) put(b []byte) {
	_ = b[HeaderSize-1]
	le := binary.LittleEndian
	b[0], b[1], b[2], b[3] = FormatVersion, byte(h.Kind), 0, 0
	copy(b[4:20], h.UID[:])
	le.PutUint64(b[20:], h.Epoch)
	le.PutUint64(b[28:], h.First)
	le.PutUint64(b[36:], h.Count)
	le.PutUint64(b[44:], uint64(h.Time))
	le.PutUint32(b[52:], h.MetaLen)
	le.PutUint32(b[56:], h.BodyLen)
	le.PutUint32(b[60:], h.MetaCRC)
	le.PutUint32(b[64:], h.BodyCRC)
	le.PutUint32(b[68:], h.PrevCRC)
	le.PutUint32(b[72:], h.CRC)
}

// AppendHeader appends the encoded header, HeaderSize bytes, to dst.
func AppendHeader(dst []byte, h *Header) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	h.put(dst[n:])
	return dst
}

// ParseHeader decodes and verifies an encoded header. Its errors match [ErrCorrupt], or
// [ErrNewerFormat] where a later version of Holdfast wrote it.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < HeaderSize {
		return h, fmt.Errorf("record header of %d bytes, want %d: %w", len(b), HeaderSize, ErrCorrupt)
	}
	if b[0] > FormatVersion {
		return h, fmt.Errorf("record header of version %d, this binary reads up to %d: %w", b[0], FormatVersion, ErrNewerFormat)
	}
	le := binary.LittleEndian
	h.Kind = Kind(b[1])
	copy(h.UID[:], b[4:20])
	h.Epoch, h.First, h.Count = le.Uint64(b[20:]), le.Uint64(b[28:]), le.Uint64(b[36:])
	h.Time = int64(le.Uint64(b[44:]))
	h.MetaLen, h.BodyLen = le.Uint32(b[52:]), le.Uint32(b[56:])
	h.MetaCRC, h.BodyCRC = le.Uint32(b[60:]), le.Uint32(b[64:])
	h.PrevCRC, h.CRC = le.Uint32(b[68:]), le.Uint32(b[72:])
	if b[0] != FormatVersion || crc32.Checksum(b[:HeaderSize-4], castagnoli) != h.CRC {
		return h, fmt.Errorf("record header: checksum does not match: %w", ErrCorrupt)
	}
	if b[2] != 0 || b[3] != 0 {
		return h, fmt.Errorf("record header uses what this binary does not know: %w", ErrNewerFormat)
	}
	if h.First == 0 || h.Count == 0 || h.First+h.Count < h.First {
		return h, fmt.Errorf("record header: first seq %d, count %d: %w", h.First, h.Count, ErrCorrupt)
	}
	return h, nil
}

// VerifyMeta reports whether meta is the meta part that the header was sealed with.
func (h *Header) VerifyMeta(meta []byte) error {
	if uint32(len(meta)) != h.MetaLen || Checksum(meta) != h.MetaCRC {
		return fmt.Errorf("meta of record at seq %d: checksum does not match: %w", h.First, ErrCorrupt)
	}
	return nil
}

// VerifyBody reports whether the chunks are the body part that the header was sealed with.
func (h *Header) VerifyBody(body ...[]byte) error {
	n := 0
	for _, c := range body {
		n += len(c)
	}
	if uint32(n) != h.BodyLen || Checksum(body...) != h.BodyCRC {
		return fmt.Errorf("body of record at seq %d: checksum does not match: %w", h.First, ErrCorrupt)
	}
	return nil
}

// Chain verifies that records follow one another: without a gap, linked by CRC, in one
// stream, with epochs and queue time that never decrease. Drivers and readers share it.
// The zero value accepts any record first.
type Chain struct {
	last Header
	has  bool
}

// StartAfter makes the chain expect the record behind seq end, whose last record had the
// given CRC. For an empty stream both are 0.
func (c *Chain) StartAfter(uid UID, end uint64, crc uint32) {
	c.last, c.has = Header{UID: uid, First: end, Count: 1, CRC: crc}, true
	c.last.Time = math.MinInt64
}

// Next verifies h against the record before it and remembers it. Its error matches
// [ErrCorrupt] and names the place.
func (c *Chain) Next(h *Header) error {
	if c.has {
		l := &c.last
		switch {
		case h.UID != l.UID:
			return &CorruptError{Seq: h.First, What: fmt.Sprintf("record of stream uid %s inside stream uid %s", h.UID, l.UID)}
		case h.First != l.Last()+1:
			return &CorruptError{Seq: l.Last() + 1, What: fmt.Sprintf("record missing: after seq %d comes seq %d", l.Last(), h.First)}
		case h.PrevCRC != l.CRC:
			return &CorruptError{Seq: h.First, What: "record does not follow the one before it (CRC chain broken)"}
		case h.Epoch < l.Epoch:
			return &CorruptError{Seq: h.First, What: fmt.Sprintf("epoch %d after epoch %d", h.Epoch, l.Epoch)}
		case h.Time < l.Time:
			return &CorruptError{Seq: h.First, What: "queue time decreases"}
		}
	}
	c.last, c.has = *h, true
	return nil
}
