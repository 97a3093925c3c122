// Package column keeps a small value for each of many messages, by sequence number, in pages: what is the same for a whole run
// costs next to nothing.
//
// Values are appended in ascending order of seqs, and dropped by pages once their messages are gone. What lies between the
// messages has no defined value.
package column

import (
	"slices"
	"sort"

	"github.com/tidwall/btree"
)

const (
	pageBits = 12
	pageSize = 1 << pageBits
	// maxRuns is from how many runs on a page keeps each value singly, which takes four times as much.
	maxRuns = 512
)

// Sizes is the sizes of messages. The zero value is empty and ready. It is used by one goroutine at a time.
type Sizes struct {
	pages btree.Map[uint64, *sizePage]
	tail  *sizePage // of tailKey, the only one that is written to
	key   uint64
}

// sizePage is the sizes of 4,096 seqs, as runs or singly.
type sizePage struct {
	runs []sizeRun
	each []uint32
}

// sizeRun goes up to the next one.
type sizeRun struct {
	from uint16
	size uint32
}

// Clone returns a copy at constant cost. It may be read in another goroutine while s changes.
func (s *Sizes) Clone() *Sizes {
	c := &Sizes{pages: *s.pages.Copy(), tail: s.tail, key: s.key}
	if s.tail != nil {
		c.tail = &sizePage{slices.Clone(s.tail.runs), slices.Clone(s.tail.each)}
		c.pages.Set(s.key, c.tail)
	}
	return c
}

// Append sets the size of the seqs lo ≤ x < hi, which are above all that were set before.
func (s *Sizes) Append(lo, hi uint64, size uint32) {
	for lo < hi {
		end := min(hi, lo&^(pageSize-1)+pageSize)
		s.page(lo).append(int(lo%pageSize), int(end-lo), size)
		lo = end
	}
}

// page returns the page that lo is appended to.
func (s *Sizes) page(lo uint64) *sizePage {
	if key := lo >> pageBits; s.tail == nil || key != s.key {
		if s.tail != nil {
			s.tail.runs = slices.Clip(s.tail.runs)
		}
		s.tail, s.key = &sizePage{}, key
		s.pages.Set(key, s.tail)
	}
	return s.tail
}

func (p *sizePage) append(off, n int, size uint32) {
	if p.each == nil {
		if k := len(p.runs); k > 0 && p.runs[k-1].size == size {
			return
		}
		if len(p.runs) < maxRuns {
			p.runs = append(p.runs, sizeRun{uint16(off), size})
			return
		}
		p.each = make([]uint32, pageSize)
		for i, r := range p.runs {
			end := off
			if i+1 < len(p.runs) {
				end = int(p.runs[i+1].from)
			}
			for x := int(r.from); x < end; x++ {
				p.each[x] = r.size
			}
		}
		p.runs = nil
	}
	for x := off; x < off+n; x++ {
		p.each[x] = size
	}
}

// walk calls f for the stretches of equal size in a range, until it returns false.
func (s *Sizes) walk(lo, hi uint64, f func(n uint64, size uint32) bool) {
	for lo < hi {
		key := lo >> pageBits
		end := min(hi, (key+1)<<pageBits)
		p := s.tail
		if p == nil || key != s.key {
			p, _ = s.pages.Get(key)
		}
		if p == nil || !p.walk(int(lo%pageSize), int(end-lo), f) {
			return
		}
		lo = end
	}
}

func (p *sizePage) walk(off, n int, f func(n uint64, size uint32) bool) bool {
	if p.each != nil {
		for _, size := range p.each[off : off+n] {
			if !f(1, size) {
				return false
			}
		}
		return true
	}
	i := 0
	if len(p.runs) > 1 {
		i = max(0, sort.Search(len(p.runs), func(i int) bool { return int(p.runs[i].from) > off })-1)
	}
	for end := off + n; off < end && i < len(p.runs); i++ {
		to := end
		if i+1 < len(p.runs) {
			to = min(end, int(p.runs[i+1].from))
		}
		if !f(uint64(to-off), p.runs[i].size) {
			return false
		}
		off = to
	}
	return true
}

// At returns the size of one message.
func (s *Sizes) At(x uint64) (size uint32) {
	s.walk(x, x+1, func(_ uint64, v uint32) bool {
		size = v
		return false
	})
	return size
}

// Sum returns the sum of the sizes of consecutive messages.
func (s *Sizes) Sum(lo, hi uint64) (sum uint64) {
	s.walk(lo, hi, func(n uint64, size uint32) bool {
		sum += n * uint64(size)
		return true
	})
	return sum
}

// Fit returns how many of consecutive messages, from the first on, have a sum of sizes of at most budget, and the sum.
func (s *Sizes) Fit(lo, hi, budget uint64) (fit, sum uint64) {
	s.walk(lo, hi, func(n uint64, size uint32) bool {
		k := n
		if size > 0 {
			k = min(n, (budget-sum)/uint64(size))
		}
		fit += k
		sum += k * uint64(size)
		return k == n
	})
	return fit, sum
}

// Runs calls f for the stretches of equal size in a range of consecutive messages, in order.
func (s *Sizes) Runs(lo, hi uint64, f func(n uint64, size uint32)) {
	s.walk(lo, hi, func(n uint64, size uint32) bool {
		f(n, size)
		return true
	})
}

// Drop drops the sizes of all seqs in a range whose page lies wholly inside it.
func (s *Sizes) Drop(lo, hi uint64) { drop(&s.pages, lo, hi, s.key) }

// PageRange returns the range of seqs that share a page with x.
func PageRange(x uint64) (lo, hi uint64) {
	lo = x &^ (pageSize - 1)
	return lo, lo + pageSize
}

// drop deletes the pages of a range, but for the one that is being written to.
func drop[P any](pages *btree.Map[uint64, P], lo, hi, tail uint64) {
	first, end := (lo+pageSize-1)>>pageBits, hi>>pageBits
	for first < end {
		key, ok := uint64(0), false
		pages.Ascend(first, func(k uint64, _ P) bool {
			key, ok = k, k < end
			return false
		})
		if !ok {
			return
		}
		if key != tail {
			pages.Delete(key)
		}
		first = key + 1
	}
}

// Pages returns how many pages there are.
func (s *Sizes) Pages() int { return s.pages.Len() }
