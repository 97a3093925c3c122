// Package seqset holds sets of sequence numbers as a queue has them: mostly long runs, consumed from the front and
// added to at the end, now and then full of holes, over a range without bound.
//
// It is a roaring bitmap cut down to what a queue does, and shaped by it: the run is the unit of every call, so that a
// batch of messages costs one operation; what is one run in a page costs no allocation; and a clone is cheap, so that a
// snapshot can be taken at any time. See docs/decisions for what the general library costs in its place.
package seqset

import (
	"iter"
	"slices"
	"sort"
)

// Set is a set of sequence numbers below 2^64-1. The zero value is empty and ready. It is used by one goroutine at a time; clones
// are independent of it in every respect.
//
// Ranges are half-open: lo ≤ x < hi; one with lo ≥ hi is empty.
type Set struct {
	pages []page // ascending by key, none of them empty
	n     uint64
}

const (
	pageBits = 16
	pageSize = 1 << pageBits
)

// Len returns the number of members.
func (s *Set) Len() uint64 { return s.n }

// Clear removes all members.
func (s *Set) Clear() { s.pages, s.n = nil, 0 }

// Clone returns a set of the same members. It costs 48 bytes for each page of 65,536 seqs that has members; what the pages hold is
// copied only when either set changes it. The clone may be read in another goroutine while s changes.
func (s *Set) Clone() Set {
	for i := range s.pages {
		s.pages[i].shared = true
	}
	return Set{pages: slices.Clone(s.pages), n: s.n}
}

// Frozen is Clone for a set that will never be changed again: it does not write to s, so that s may be read by others meanwhile.
func (s *Set) Frozen() Set {
	c := Set{pages: slices.Clone(s.pages), n: s.n}
	for i := range c.pages {
		c.pages[i].shared = true
	}
	return c
}

// find returns the index of the first page whose key is not below key.
func (s *Set) find(key uint64) int {
	n := len(s.pages)
	switch {
	case n == 0 || s.pages[0].key >= key:
		return 0
	case s.pages[n-1].key < key:
		return n
	case s.pages[n-1].key == key:
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return s.pages[i].key >= key })
}

// Contains tells whether x is a member.
func (s *Set) Contains(x uint64) bool {
	i := s.find(x >> pageBits)
	return i < len(s.pages) && s.pages[i].key == x>>pageBits && s.pages[i].contains(int(x%pageSize))
}

// Add adds x, and tells whether it was no member.
func (s *Set) Add(x uint64) bool { return s.AddRange(x, x+1) == 1 }

// Remove removes x, and tells whether it was a member.
func (s *Set) Remove(x uint64) bool { return s.RemoveRange(x, x+1) == 1 }

// AddRange adds a range, and returns how many were no members.
func (s *Set) AddRange(lo, hi uint64) (added uint64) {
	for lo < hi {
		key := lo >> pageBits
		end := min(hi, (key+1)<<pageBits)
		if end < lo { // the last page
			end = hi
		}
		from, to := int(lo-key<<pageBits), int(end-key<<pageBits)
		i := s.find(key)
		if i < len(s.pages) && s.pages[i].key == key {
			added += uint64(s.pages[i].addRange(from, to))
		} else {
			s.pages = slices.Insert(s.pages, i, page{key: key, lo: uint16(from), n: int32(to - from)})
			added += uint64(to - from)
		}
		lo = end
	}
	s.n += added
	return added
}

// RemoveRange removes a range, and returns how many were members.
func (s *Set) RemoveRange(lo, hi uint64) (removed uint64) {
	if lo >= hi || s.n == 0 {
		return 0
	}
	first := s.find(lo >> pageBits)
	i, keep := first, first
	for ; i < len(s.pages); i++ {
		p := &s.pages[i]
		base := p.key << pageBits
		if base >= hi {
			break
		}
		from, to := 0, pageSize
		if lo > base {
			from = int(lo - base)
		}
		if hi-base < pageSize {
			to = int(hi - base)
		}
		removed += uint64(p.removeRange(from, to))
		if p.n > 0 {
			if keep != i {
				s.pages[keep] = *p
			}
			keep++
		}
	}
	s.n -= removed
	switch {
	case keep == i:
	case keep == 0 && i < len(s.pages):
		// Consumed from the front: no page is moved.
		clear(s.pages[:i])
		s.pages = s.pages[i:]
	default:
		s.pages = slices.Delete(s.pages, keep, i)
	}
	return removed
}

// Min returns the lowest member.
func (s *Set) Min() (x uint64, ok bool) {
	if len(s.pages) == 0 {
		return 0, false
	}
	p := &s.pages[0]
	lo, _ := p.nextRun(0)
	return p.key<<pageBits + uint64(lo), true
}

// Max returns the highest member.
func (s *Set) Max() (x uint64, ok bool) {
	if len(s.pages) == 0 {
		return 0, false
	}
	p := &s.pages[len(s.pages)-1]
	return p.key<<pageBits + uint64(p.max()), true
}

// Next returns the lowest member at or above x.
func (s *Set) Next(x uint64) (y uint64, ok bool) {
	lo, _, ok := s.NextRun(x, ^uint64(0))
	return lo, ok
}

// Any tells whether any member is in a range.
func (s *Set) Any(lo, hi uint64) bool {
	if lo >= hi || s.n == 0 {
		return false
	}
	for i := s.find(lo >> pageBits); i < len(s.pages); i++ {
		p := &s.pages[i]
		base := p.key << pageBits
		if base >= hi {
			return false
		}
		from := 0
		if lo > base {
			from = int(lo - base)
		}
		if m, _ := p.nextRun(from); m >= 0 {
			return base+uint64(m) < hi
		}
	}
	return false
}

// NextRun returns the first run of consecutive members in the range from…limit, cut to it.
func (s *Set) NextRun(from, limit uint64) (lo, hi uint64, ok bool) {
	if from >= limit || s.n == 0 {
		return 0, 0, false
	}
	for i := s.find(from >> pageBits); i < len(s.pages); i++ {
		p := &s.pages[i]
		base := p.key << pageBits
		if base >= limit {
			break
		}
		off := 0
		if from > base {
			off = int(from - base)
		}
		a, b := p.nextRun(off)
		if a < 0 {
			continue
		}
		lo, hi = base+uint64(a), base+uint64(b)
		if lo >= limit {
			break
		}
		for b == pageSize && hi < limit && i+1 < len(s.pages) && s.pages[i+1].key == p.key+1 {
			i++
			p = &s.pages[i]
			if a, b = p.nextRun(0); a != 0 {
				break
			}
			hi = p.key<<pageBits + uint64(b)
		}
		return lo, min(hi, limit), true
	}
	return 0, 0, false
}

// Runs yields the runs of consecutive members in a range, ascending, cut to it. The set must not change meanwhile.
func (s *Set) Runs(lo, hi uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(lo, hi uint64) bool) {
		for from := lo; ; {
			a, b, ok := s.NextRun(from, hi)
			if !ok || !yield(a, b) {
				return
			}
			from = b
		}
	}
}

// All yields all runs.
func (s *Set) All() iter.Seq2[uint64, uint64] { return s.Runs(0, ^uint64(0)) }

// Count returns how many members are in a range.
func (s *Set) Count(lo, hi uint64) (n uint64) {
	if lo >= hi || s.n == 0 {
		return 0
	}
	for i := s.find(lo >> pageBits); i < len(s.pages); i++ {
		p := &s.pages[i]
		base := p.key << pageBits
		if base >= hi {
			break
		}
		from, to := 0, pageSize
		if lo > base {
			from = int(lo - base)
		}
		if hi-base < pageSize {
			to = int(hi - base)
		}
		n += uint64(p.count(from, to))
	}
	return n
}

// NextCommonRun returns the first run in the range from…limit whose members are in both sets.
func NextCommonRun(a, b *Set, from, limit uint64) (lo, hi uint64, ok bool) {
	for {
		alo, ahi, ok := a.NextRun(from, limit)
		if !ok {
			return 0, 0, false
		}
		blo, bhi, ok := b.NextRun(alo, limit)
		if !ok {
			return 0, 0, false
		}
		if blo < ahi {
			return blo, min(ahi, bhi), true
		}
		from = blo
	}
}
