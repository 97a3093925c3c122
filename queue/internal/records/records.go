// Package records remembers where the records of a stream begin that hold message bodies, and how large their bodies are, in
// six bytes each.
package records

import (
	"slices"

	"github.com/tidwall/btree"
)

// Set is a set of records. The zero value is empty and ready. It is used by one goroutine at a time.
type Set struct {
	blocks btree.Map[uint64, *block]
	n      int
	bytes  uint64
	gen    uint32
}

// block is the records that begin in a range of 65,536 seqs. One of an older generation is shared with a clone.
type block struct {
	gen   uint32
	offs  []uint16
	bytes []uint32
}

const blockBits = 16

// Record is a record with a body part.
type Record struct {
	Start uint64 // its first seq
	Bytes uint32 // of its body part
}

// Len returns how many records there are.
func (s *Set) Len() int { return s.n }

// Bytes returns how large their body parts are together.
func (s *Set) Bytes() uint64 { return s.bytes }

// Clone returns a copy at constant cost. It may be read in another goroutine while s changes.
func (s *Set) Clone() *Set {
	c := &Set{blocks: *s.blocks.Copy(), n: s.n, bytes: s.bytes, gen: s.gen + 1}
	s.gen++
	return c
}

// own returns a block to be changed, nil if there is none.
func (s *Set) own(key uint64) *block {
	b, ok := s.blocks.Get(key)
	if !ok {
		return nil
	}
	if b.gen != s.gen {
		b = &block{s.gen, slices.Clone(b.offs), slices.Clone(b.bytes)}
		s.blocks.Set(key, b)
	}
	return b
}

// Add adds a record. Adding it again only sets its size.
func (s *Set) Add(start uint64, bytes uint32) {
	key := start >> blockBits
	b := s.own(key)
	if b == nil {
		b = &block{gen: s.gen}
		s.blocks.Set(key, b)
	}
	i, ok := slices.BinarySearch(b.offs, uint16(start))
	if ok {
		s.bytes -= uint64(b.bytes[i])
		b.bytes[i] = bytes
	} else {
		b.offs = slices.Insert(b.offs, i, uint16(start))
		b.bytes = slices.Insert(b.bytes, i, bytes)
		s.n++
	}
	s.bytes += uint64(bytes)
}

// Remove removes the record that begins at start, and tells whether there was one.
func (s *Set) Remove(start uint64) bool {
	b := s.own(start >> blockBits)
	if b == nil {
		return false
	}
	i, ok := slices.BinarySearch(b.offs, uint16(start))
	if !ok {
		return false
	}
	s.n--
	s.bytes -= uint64(b.bytes[i])
	switch {
	case len(b.offs) == 1:
		s.blocks.Delete(start >> blockBits)
	case i == 0:
		b.offs, b.bytes = b.offs[1:], b.bytes[1:]
	default:
		b.offs = slices.Delete(b.offs, i, i+1)
		b.bytes = slices.Delete(b.bytes, i, i+1)
	}
	return true
}

// Find returns the last record that begins at or before seq.
func (s *Set) Find(seq uint64) (r Record, ok bool) {
	s.blocks.Descend(seq>>blockBits, func(key uint64, b *block) bool {
		i := len(b.offs)
		if key == seq>>blockBits {
			at, exact := slices.BinarySearch(b.offs, uint16(seq))
			if i = at; exact {
				i++
			}
		}
		if i == 0 {
			return true
		}
		r, ok = Record{key<<blockBits + uint64(b.offs[i-1]), b.bytes[i-1]}, true
		return false
	})
	return r, ok
}

// Next returns the first record that begins at or after seq.
func (s *Set) Next(seq uint64) (r Record, ok bool) {
	s.blocks.Ascend(seq>>blockBits, func(key uint64, b *block) bool {
		i := 0
		if key == seq>>blockBits {
			i, _ = slices.BinarySearch(b.offs, uint16(seq))
		}
		if i == len(b.offs) {
			return true
		}
		r, ok = Record{key<<blockBits + uint64(b.offs[i]), b.bytes[i]}, true
		return false
	})
	return r, ok
}

// Each calls f for the records that begin in the range lo ≤ start < hi, in order.
func (s *Set) Each(lo, hi uint64, f func(Record)) {
	if lo >= hi {
		return
	}
	s.blocks.Ascend(lo>>blockBits, func(key uint64, b *block) bool {
		if key<<blockBits >= hi {
			return false
		}
		for i, off := range b.offs {
			if start := key<<blockBits + uint64(off); start >= lo && start < hi {
				f(Record{start, b.bytes[i]})
			}
		}
		return true
	})
}
