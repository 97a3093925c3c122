package seqset

import (
	"math/bits"
	"slices"
	"sort"
)

// page is the members of a set with the same upper 48 bits, in one of three forms: a single run (runs and bits are nil),
// several runs, or a bitmap.
type page struct {
	key    uint64
	n      int32  // members, 1…65,536
	lo     uint16 // of the single run; in a bitmap, no word before that of lo has a member
	shared bool   // runs and bits are shared with a clone
	runs   []run  // ascending, apart from each other
	bits   *[pageSize / 64]uint64
}

// run is the members lo…last, both included.
type run struct{ lo, last uint16 }

const (
	maxRuns = 1024 // more take the space of half a bitmap
	minBits = 256  // a bitmap of fewer members becomes runs
)

func (p *page) single() bool { return p.runs == nil && p.bits == nil }

// own makes what the page holds its own, to be changed.
func (p *page) own() {
	if !p.shared {
		return
	}
	p.shared = false
	if p.runs != nil {
		p.runs = append(make([]run, 0, len(p.runs)+8), p.runs...)
	}
	if p.bits != nil {
		b := *p.bits
		p.bits = &b
	}
}

// findRun returns the index of the first run that does not end before x.
func (p *page) findRun(x int) int {
	n := len(p.runs)
	switch {
	case int(p.runs[0].last) >= x:
		return 0
	case int(p.runs[n-1].last) < x:
		return n
	}
	return sort.Search(n, func(i int) bool { return int(p.runs[i].last) >= x })
}

func (p *page) contains(x int) bool {
	switch {
	case p.bits != nil:
		return p.bits[x>>6]>>(x&63)&1 == 1
	case p.runs != nil:
		i := p.findRun(x)
		return i < len(p.runs) && int(p.runs[i].lo) <= x
	}
	return x >= int(p.lo) && x < int(p.lo)+int(p.n)
}

func (p *page) max() int {
	switch {
	case p.bits != nil:
		for w := len(p.bits) - 1; w >= 0; w-- {
			if p.bits[w] != 0 {
				return w<<6 + 63 - bits.LeadingZeros64(p.bits[w])
			}
		}
	case p.runs != nil:
		return int(p.runs[len(p.runs)-1].last)
	}
	return int(p.lo) + int(p.n) - 1
}

// nextRun returns the first run lo ≤ x < hi of members from from on, or -1.
func (p *page) nextRun(from int) (lo, hi int) {
	switch {
	case p.bits != nil:
		lo = p.nextBit(max(from, int(p.lo)&^63), 0)
		if lo == pageSize {
			return -1, -1
		}
		return lo, p.nextBit(lo, ^uint64(0))
	case p.runs != nil:
		i := p.findRun(from)
		if i == len(p.runs) {
			return -1, -1
		}
		return max(from, int(p.runs[i].lo)), int(p.runs[i].last) + 1
	}
	lo, hi = max(from, int(p.lo)), int(p.lo)+int(p.n)
	if lo >= hi {
		return -1, -1
	}
	return lo, hi
}

// nextBit returns the first bit from x on that is set (flip 0) or not (flip all ones), or pageSize.
func (p *page) nextBit(x int, flip uint64) int {
	if x >= pageSize {
		return pageSize
	}
	w := x >> 6
	if v := (p.bits[w] ^ flip) >> (x & 63); v != 0 {
		return x + bits.TrailingZeros64(v)
	}
	for w++; w < len(p.bits); w++ {
		if v := p.bits[w] ^ flip; v != 0 {
			return w<<6 + bits.TrailingZeros64(v)
		}
	}
	return pageSize
}

func (p *page) count(lo, hi int) (n int) {
	switch {
	case lo == 0 && hi == pageSize:
		return int(p.n)
	case p.bits != nil:
		return p.countBits(lo, hi)
	case p.runs != nil:
		for _, r := range p.runs[p.findRun(lo):] {
			if int(r.lo) >= hi {
				break
			}
			n += min(hi, int(r.last)+1) - max(lo, int(r.lo))
		}
		return n
	}
	return max(0, min(hi, int(p.lo)+int(p.n))-max(lo, int(p.lo)))
}

func (p *page) countBits(lo, hi int) (n int) {
	for w := lo >> 6; w<<6 < hi; w++ {
		n += bits.OnesCount64(p.bits[w] & mask(w, lo, hi))
	}
	return n
}

// mask returns the bits of word w that are in the range lo…hi.
func mask(w, lo, hi int) uint64 {
	m := ^uint64(0)
	if lo > w<<6 {
		m <<= lo & 63
	}
	if hi < (w+1)<<6 {
		m &= 1<<(hi&63) - 1
	}
	return m
}

func (p *page) addRange(lo, hi int) (added int) {
	if p.single() {
		a, b := int(p.lo), int(p.lo)+int(p.n)
		if lo <= b && hi >= a { // they touch
			a, b = min(a, lo), max(b, hi)
			added = b - a - int(p.n)
			p.lo, p.n = uint16(a), int32(b-a)
			return added
		}
		p.runs, p.shared = append(make([]run, 0, 4), run{p.lo, uint16(b - 1)}), false
	}
	if p.bits == nil {
		if len(p.runs) < maxRuns {
			p.own()
			return p.addRun(lo, hi)
		}
		p.toBits()
	}
	p.own()
	for w := lo >> 6; w<<6 < hi; w++ {
		m := mask(w, lo, hi)
		added += bits.OnesCount64(m &^ p.bits[w])
		p.bits[w] |= m
	}
	p.n += int32(added)
	p.lo = uint16(min(int(p.lo), lo))
	if p.n == pageSize {
		p.lo, p.bits = 0, nil
	}
	return added
}

// addRun adds a range to the runs.
func (p *page) addRun(lo, hi int) (added int) {
	added = hi - lo
	i := p.findRun(lo - 1) // the first run that can touch
	j, a, b := i, lo, hi
	for ; j < len(p.runs) && int(p.runs[j].lo) <= hi; j++ {
		r := p.runs[j]
		a, b = min(a, int(r.lo)), max(b, int(r.last)+1)
		added -= max(0, min(hi, int(r.last)+1)-max(lo, int(r.lo)))
	}
	p.n += int32(added)
	r := run{uint16(a), uint16(b - 1)}
	if i == j {
		p.runs = slices.Insert(p.runs, i, r)
		return added
	}
	p.runs[i] = r
	p.runs = slices.Delete(p.runs, i+1, j)
	p.simplify()
	return added
}

// simplify makes a single run of one that is.
func (p *page) simplify() {
	if len(p.runs) == 1 {
		p.lo, p.runs = p.runs[0].lo, nil
	}
}

func (p *page) removeRange(lo, hi int) (removed int) {
	if p.single() {
		a, b := int(p.lo), int(p.lo)+int(p.n)
		lo, hi = max(lo, a), min(hi, b)
		switch {
		case lo >= hi:
			return 0
		case lo == a:
			p.lo = uint16(hi) // overflows only if nothing is left
			p.n -= int32(hi - lo)
			return hi - lo
		case hi == b:
			p.n -= int32(hi - lo)
			return hi - lo
		}
		p.runs, p.shared = append(make([]run, 0, 4), run{uint16(a), uint16(b - 1)}), false
	}
	if p.bits == nil {
		if len(p.runs) < maxRuns {
			return p.removeRun(lo, hi)
		}
		p.toBits()
	}
	p.own()
	for w := lo >> 6; w<<6 < hi; w++ {
		m := mask(w, lo, hi) & p.bits[w]
		removed += bits.OnesCount64(m)
		p.bits[w] &^= m
	}
	p.n -= int32(removed)
	if lo <= int(p.lo) {
		p.lo = uint16(min(max(hi, int(p.lo)), pageSize-1))
	}
	if p.n <= minBits {
		p.toRuns()
	}
	return removed
}

// removeRun removes a range from the runs.
func (p *page) removeRun(lo, hi int) (removed int) {
	i := p.findRun(lo)
	if i == len(p.runs) || int(p.runs[i].lo) >= hi {
		return 0
	}
	p.own()
	if r := p.runs[i]; int(r.lo) < lo {
		if int(r.last) >= hi { // it is cut in two
			p.runs[i].last = uint16(lo - 1)
			p.runs = slices.Insert(p.runs, i+1, run{uint16(hi), r.last})
			p.n -= int32(hi - lo)
			return hi - lo
		}
		p.runs[i].last = uint16(lo - 1)
		removed += int(r.last) + 1 - lo
		i++
	}
	j := i
	for ; j < len(p.runs) && int(p.runs[j].last) < hi; j++ {
		removed += int(p.runs[j].last) - int(p.runs[j].lo) + 1
	}
	if j < len(p.runs) && int(p.runs[j].lo) < hi {
		removed += hi - int(p.runs[j].lo)
		p.runs[j].lo = uint16(hi)
	}
	p.n -= int32(removed)
	if i == 0 && j > 0 {
		p.runs = p.runs[j:] // consumed from the front
	} else {
		p.runs = slices.Delete(p.runs, i, j)
	}
	p.simplify()
	return removed
}

func (p *page) toBits() {
	p.bits = new([pageSize / 64]uint64)
	for _, r := range p.runs {
		lo, hi := int(r.lo), int(r.last)+1
		for w := lo >> 6; w<<6 < hi; w++ {
			p.bits[w] |= mask(w, lo, hi)
		}
	}
	p.lo = p.runs[0].lo
	p.runs, p.shared = nil, false
}

func (p *page) toRuns() {
	b := page{n: p.n, lo: p.lo, bits: p.bits}
	p.bits, p.runs, p.shared = nil, nil, false
	if p.n == 0 {
		return
	}
	for lo, hi := b.nextRun(0); lo >= 0; lo, hi = b.nextRun(hi) {
		p.runs = append(p.runs, run{uint16(lo), uint16(hi - 1)})
		if hi == pageSize {
			break
		}
	}
	p.simplify()
}
