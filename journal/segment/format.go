package segment

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// A segment file begins with a block that names it (segHeader). Batches follow, each at a multiple of batchAlign. A batch is a header
// and its entries; an entry is a header, a payload, and, of records and parts, a body. All integers are little endian.

const (
	formatVersion = 1

	headerBlock = 4096 // before the first batch of a segment
	headerCopy  = 1024 // the segment's header stands at each multiple of it in the block
	batchAlign  = 512  // what a disk surely writes as a whole, or not
	pageSize    = 4096 // writes end at a multiple of it
	// pagedBatch is from which size on a batch is followed by the next one at another page. The space is nothing beside it, and a page
	// that was written is not written again. The operating system keeps large writes in large pieces, and where a part of such a
	// piece is written again, it counts all of it as written.
	pagedBatch = 8 << 10

	segMagic        = "HFSEGLOG"
	segHeaderSize   = 8 + 4 + 8 + 8 + 4
	batchMagic      = 0x48464231 // "1BFH"
	batchHeaderSize = 64
	entryHeaderSize = 40
)

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

// afterBatch returns where the next batch begins behind one of size bytes at off.
func afterBatch(off, size int64) int64 {
	if size >= pagedBatch {
		return alignUp(off+size, pageSize)
	}
	return alignUp(off+size, batchAlign)
}

// segHeader says which segment a file is. The salt is another each time that a file is used, so that nothing that was written
// before, or by a user as the body of a message, is taken for a batch.
type segHeader struct{ number, salt uint64 }

func (h segHeader) block() []byte {
	le := binary.LittleEndian
	one := append([]byte(segMagic), make([]byte, segHeaderSize-8)...)
	le.PutUint32(one[8:], formatVersion)
	le.PutUint64(one[12:], h.number)
	le.PutUint64(one[20:], h.salt)
	le.PutUint32(one[28:], journal.Checksum(one[:28]))
	b := make([]byte, headerBlock)
	for at := 0; at < headerBlock; at += headerCopy {
		copy(b[at:], one)
	}
	return b
}

// parseSegHeader takes the first copy that is intact. ok is false if none is.
func parseSegHeader(b []byte) (h segHeader, ok bool, err error) {
	le := binary.LittleEndian
	for at := 0; at+segHeaderSize <= len(b); at += headerCopy {
		c := b[at:]
		if string(c[:8]) != segMagic || journal.Checksum(c[:28]) != le.Uint32(c[28:]) {
			continue
		}
		if v := le.Uint32(c[8:]); v > formatVersion {
			return h, false, fmt.Errorf("segment of version %d, this binary reads up to %d: %w", v, formatVersion, journal.ErrNewerFormat)
		}
		return segHeader{le.Uint64(c[12:]), le.Uint64(c[20:])}, true, nil
	}
	return h, false, nil
}

// batchHeader is before the entries of a batch.
type batchHeader struct {
	salt    uint64 // of the segment
	n       uint64 // number of the batch, one more than that of the one before it in the log
	durable uint64 // the last batch that was on stable storage when this one was formed
	first   uint64 // the first batch of this segment: what other segments before it have from that number on is void
	size    uint32 // with header and entries, without what fills up to batchAlign
	entries uint32
	prev    uint32 // CRC of the header of the batch before
	crc     uint32 // of the fields before
}

func (h *batchHeader) put(b []byte) {
	le := binary.LittleEndian
	_ = b[batchHeaderSize-1]
	le.PutUint32(b, batchMagic)
	le.PutUint32(b[4:], formatVersion)
	le.PutUint64(b[8:], h.salt)
	le.PutUint64(b[16:], h.n)
	le.PutUint64(b[24:], h.durable)
	le.PutUint64(b[32:], h.first)
	le.PutUint32(b[40:], h.size)
	le.PutUint32(b[44:], h.entries)
	le.PutUint32(b[48:], h.prev)
	le.PutUint64(b[52:], 0)
	h.crc = journal.Checksum(b[:60])
	le.PutUint32(b[60:], h.crc)
}

// parseBatch reads the header of a batch of a segment with that salt.
func parseBatch(b []byte, salt uint64) (h batchHeader, ok bool) {
	le := binary.LittleEndian
	if len(b) < batchHeaderSize || le.Uint32(b) != batchMagic || le.Uint64(b[8:]) != salt {
		return h, false
	}
	h = batchHeader{
		salt: salt, n: le.Uint64(b[16:]), durable: le.Uint64(b[24:]), first: le.Uint64(b[32:]),
		size: le.Uint32(b[40:]), entries: le.Uint32(b[44:]), prev: le.Uint32(b[48:]), crc: le.Uint32(b[60:]),
	}
	return h, journal.Checksum(b[:60]) == h.crc && h.size >= batchHeaderSize
}

// entryKind tells what an entry changes.
type entryKind uint8

const (
	entRecord      entryKind = 1 // payload: header and meta of a record
	entAcquire     entryKind = 2 // payload: the stream's name and head
	entDiscard     entryKind = 3 // payload: ranges whose bodies are discarded
	entDiscardMeta entryKind = 4 // payload: the new low
	entPart        entryKind = 5 // payload: name; the body is the data
	entDeleteParts entryKind = 6 // payload: names
	entDrop        entryKind = 7
)

// Flags of entries.
const (
	entMoved    = 1 // a record or part that is stored anew, in place of where it was
	entStripped = 2 // a record whose body was discarded before
)

// entry is the header of an entry.
type entry struct {
	kind    entryKind
	flags   uint8
	stream  uint32
	payload uint32
	body    uint32
	bodyCRC uint32
	payCRC  uint32
	op      uint64 // of the stream: one more than that of its change before. 0 of what may be lost without a loss
}

// changes tells whether the entry has a number.
func (e *entry) numbered() bool {
	return e.flags&entMoved == 0 && e.kind != entDiscard && e.kind != entDiscardMeta
}

func (e *entry) size() int64 { return entryHeaderSize + int64(e.payload) + int64(e.body) }

func (e *entry) put(b []byte) {
	le := binary.LittleEndian
	_ = b[entryHeaderSize-1]
	b[4], b[5], b[6], b[7] = byte(e.kind), e.flags, 0, 0
	le.PutUint32(b[8:], e.stream)
	le.PutUint32(b[12:], e.payload)
	le.PutUint32(b[16:], e.body)
	le.PutUint32(b[20:], e.bodyCRC)
	le.PutUint32(b[24:], e.payCRC)
	le.PutUint64(b[28:], e.op)
	le.PutUint32(b[36:], 0)
	le.PutUint32(b, journal.Checksum(b[4:entryHeaderSize]))
}

func parseEntry(b []byte) (e entry, ok bool) {
	le := binary.LittleEndian
	if len(b) < entryHeaderSize || journal.Checksum(b[4:entryHeaderSize]) != le.Uint32(b) {
		return e, false
	}
	e = entry{
		kind: entryKind(b[4]), flags: b[5], stream: le.Uint32(b[8:]), payload: le.Uint32(b[12:]), body: le.Uint32(b[16:]),
		bodyCRC: le.Uint32(b[20:]), payCRC: le.Uint32(b[24:]), op: le.Uint64(b[28:]),
	}
	return e, true
}

var errShort = errors.New("too short")

// cursor reads fields; short is set where there were fewer bytes than that.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.short = nil, true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() byte {
	if p := c.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.short = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) str() string { return string(c.bytes(int(c.u8()))) }

// more tells whether there is another byte and none was missing.
func (c *cursor) more() bool { return !c.short && len(c.b) > 0 }

func appendString(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// appendRanges encodes ascending ranges.
func appendRanges(b []byte, ranges []journal.Range) []byte {
	at := uint64(0)
	for _, r := range ranges {
		b = binary.AppendVarint(b, int64(r.From-at))
		b = binary.AppendUvarint(b, r.To-r.From)
		at = r.To
	}
	return b
}

func parseRanges(b []byte) ([]journal.Range, error) {
	var out []journal.Range
	at := uint64(0)
	for len(b) > 0 {
		d, n := binary.Varint(b)
		if n <= 0 {
			return nil, errShort
		}
		l, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return nil, errShort
		}
		from := at + uint64(d)
		if from+l < from {
			return nil, errShort
		}
		out = append(out, journal.Range{From: from, To: from + l})
		at, b = from+l, b[n+m:]
	}
	return out, nil
}

// appendNames and parseNames are for names of parts.
func appendNames(b []byte, names []string) []byte {
	for _, n := range names {
		b = appendString(b, n)
	}
	return b
}

func parseNames(b []byte) ([]string, error) {
	c := cursor{b: b}
	var out []string
	for c.more() {
		out = append(out, c.str())
	}
	if c.short {
		return nil, errShort
	}
	return out, nil
}

// head is a stream's state, but for what it holds.
type head struct {
	uid     journal.UID
	epoch   uint64
	end     uint64
	endCRC  uint32
	endTime int64
	low     uint64
	dropped bool
	op      uint64 // the last change that has a number
}

func (h *head) info(name string) journal.Info {
	return journal.Info{
		Name: name, UID: h.uid, Epoch: h.epoch, Dropped: h.dropped,
		End: h.end, EndCRC: h.endCRC, EndTime: h.endTime, Low: h.low,
	}
}

func appendHead(b []byte, h *head) []byte {
	le := binary.LittleEndian
	b = append(b, h.uid[:]...)
	b = le.AppendUint64(b, h.epoch)
	b = le.AppendUint64(b, h.end)
	b = le.AppendUint32(b, h.endCRC)
	b = le.AppendUint64(b, uint64(h.endTime))
	b = le.AppendUint64(b, h.low)
	d := byte(0)
	if h.dropped {
		d = 1
	}
	return le.AppendUint64(append(b, d), h.op)
}

func (c *cursor) head() (h head) {
	copy(h.uid[:], c.bytes(len(h.uid)))
	h.epoch, h.end, h.endCRC = c.u64(), c.u64(), c.u32()
	h.endTime, h.low, h.dropped, h.op = int64(c.u64()), c.u64(), c.u8() == 1, c.u64()
	return h
}
