package pebble

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// The rows of the store. A stream has a number for life, so that keys are short; numbers are big-endian.
//
//	b NO FIRST COUNT SIZE GAP  header, body  a record's bodies; COUNT, SIZE and GAP are uvarints: events,
//	                                         bytes of body, and how many seqs before FIRST have no body
//	c                          N, DURABLE    the number of the batch, and of the last one that was known durable
//	h NO                       head          the stream's state
//	m NO FIRST                 header, TOTAL, meta  a record's metas; TOTAL is the bytes of all metas before it
//	n NAME                     NO            the stream's number
//	p NO NAME                  CRC, data     a part
//
// c is written first in every batch: preflight.go finds it in the log without the engine.
const (
	kindBody   = 'b'
	kindCommit = 'c'
	kindHead   = 'h'
	kindMeta   = 'm'
	kindName   = 'n'
	kindPart   = 'p'
)

var commitKey = []byte{kindCommit}

func prefixKey(kind byte, no uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, no)
}

// prefixEnd is the key behind all keys of a stream and kind.
func prefixEnd(kind byte, no uint32) []byte {
	k := prefixKey(kind, no)
	for i := len(k) - 1; ; i-- {
		if k[i]++; k[i] != 0 {
			return k
		}
	}
}

// seqKey is the key of a meta, and the beginning of the key of a body.
func seqKey(kind byte, no uint32, first uint64) []byte {
	k := make([]byte, 0, 13)
	k = append(k, kind)
	k = binary.BigEndian.AppendUint32(k, no)
	return binary.BigEndian.AppendUint64(k, first)
}

// span is what a body's key tells.
type span struct {
	first, last uint64
	size        uint64 // bytes of body
	gap         uint64 // seqs before first that have no body
}

// bytes is what a body's row counts as.
func (s span) bytes() int64 { return int64(s.size) + journal.HeaderSize }

func (s span) key(no uint32) []byte {
	k := make([]byte, 0, 24)
	k = append(k, seqKey(kindBody, no, s.first)...)
	k = binary.AppendUvarint(k, s.last-s.first+1)
	k = binary.AppendUvarint(k, s.size)
	return binary.AppendUvarint(k, s.gap)
}

func parseBodyKey(k []byte) (span, error) {
	s, ok := span{}, len(k) > 13 && k[0] == kindBody
	if ok {
		s.first = binary.BigEndian.Uint64(k[5:])
		var f [3]uint64
		rest := k[13:]
		for i := range f {
			var n int
			if f[i], n = binary.Uvarint(rest); n <= 0 {
				ok = false
				break
			}
			rest = rest[n:]
		}
		s.last, s.size, s.gap = s.first+f[0]-1, f[1], f[2]
		ok = ok && len(rest) == 0 && f[0] > 0 && s.last >= s.first && s.gap < s.first
	}
	if !ok {
		return span{}, fmt.Errorf("key %x is not of a body: %w", k, journal.ErrCorrupt)
	}
	return s, nil
}

func parseMetaKey(k []byte) (first uint64, err error) {
	if len(k) != 13 || k[0] != kindMeta {
		return 0, fmt.Errorf("key %x is not of a meta: %w", k, journal.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(k[5:]), nil
}

// metaOverhead is what precedes a meta in its row.
const metaOverhead = journal.HeaderSize + 8

// openMeta takes a meta's row apart and verifies it. It returns the bytes of all metas before it.
func openMeta(v []byte) (h journal.Header, meta []byte, total int64, err error) {
	if len(v) < metaOverhead {
		return h, nil, 0, fmt.Errorf("row of %d bytes: %w", len(v), journal.ErrCorrupt)
	}
	if h, err = journal.ParseHeader(v); err != nil {
		return h, nil, 0, err
	}
	meta = v[metaOverhead:]
	return h, meta, int64(binary.LittleEndian.Uint64(v[journal.HeaderSize:])), h.VerifyMeta(meta)
}

func nameKey(name string) []byte { return append([]byte{kindName}, name...) }

func partKey(no uint32, name string) []byte { return append(prefixKey(kindPart, no), name...) }

// partOverhead is the size of a part's CRC.
const partOverhead = 4

func openPart(v []byte) ([]byte, error) {
	if len(v) < partOverhead || journal.Checksum(v[partOverhead:]) != binary.LittleEndian.Uint32(v) {
		return nil, fmt.Errorf("checksum does not match: %w", journal.ErrCorrupt)
	}
	return v[partOverhead:], nil
}

const commitValueSize = 16

func putCommit(v []byte, n, durable uint64) {
	binary.LittleEndian.PutUint64(v, n)
	binary.LittleEndian.PutUint64(v[8:], durable)
}

func parseCommit(v []byte) (n, durable uint64, ok bool) {
	if len(v) != commitValueSize {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:]), true
}
