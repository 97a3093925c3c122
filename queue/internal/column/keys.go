package column

import (
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"
)

// Keys is the key hashes of those messages that have one. The zero value is empty and ready. It is used by one goroutine at a time.
type Keys struct {
	pages btree.Map[uint64, *keyPage]
	tail  *keyPage
	key   uint64
}

// keyPage is the keys of 4,096 seqs: as long as there are no great gaps, of consecutive ones, with zeros in between.
type keyPage struct {
	first int
	keys  []uint64
	offs  []uint16 // of each key; nil: consecutive from first
}

const maxGap = 8

// Clone returns a copy at constant cost. It may be read in another goroutine while k changes.
func (k *Keys) Clone() *Keys {
	c := &Keys{pages: *k.pages.Copy(), tail: k.tail, key: k.key}
	if k.tail != nil {
		c.tail = &keyPage{k.tail.first, slices.Clone(k.tail.keys), slices.Clone(k.tail.offs)}
		c.pages.Set(k.key, c.tail)
	}
	return c
}

// Append sets the key hash of a seq above all that were set before.
func (k *Keys) Append(x, hash uint64) {
	p, off := k.page(x)
	if p.reach(off, 1) {
		p.keys = append(p.keys, hash)
		return
	}
	p.keys = append(p.keys, hash)
	p.offs = append(p.offs, uint16(off))
}

// AppendRun sets the key hashes of consecutive seqs from x on, above all that were set before: eight bytes for each, little-endian.
func (k *Keys) AppendRun(x uint64, hashes []byte) {
	for len(hashes) >= 8 {
		n := min(len(hashes)/8, int(pageSize-x%pageSize))
		p, off := k.page(x)
		consecutive := p.reach(off, n)
		for i := range n {
			p.keys = append(p.keys, binary.LittleEndian.Uint64(hashes[8*i:]))
			if !consecutive {
				p.offs = append(p.offs, uint16(off+i))
			}
		}
		x, hashes = x+uint64(n), hashes[8*n:]
	}
}

// page returns the page of a seq, the last one, and its place in it.
func (k *Keys) page(x uint64) (p *keyPage, off int) {
	key, off := x>>pageBits, int(x%pageSize)
	p = k.tail
	if p == nil || key != k.key {
		if p != nil {
			p.keys, p.offs = clip(p.keys), clip(p.offs)
		}
		p = &keyPage{first: off}
		k.tail, k.key = p, key
		k.pages.Set(key, p)
	}
	return p, off
}

// reach makes the next key that is appended that of off, with room for n. It returns false if the page is not one of consecutive keys: then
// the places must be appended too.
func (p *keyPage) reach(off, n int) bool {
	if p.offs != nil {
		return false
	}
	next := p.first + len(p.keys)
	if off-next > maxGap {
		p.offs = make([]uint16, len(p.keys), 2*len(p.keys)+n)
		for i := range p.offs {
			p.offs[i] = uint16(p.first + i)
		}
		return false
	}
	if n += off - p.first; n > cap(p.keys) {
		// A page is mostly filled: append would copy it in many small steps.
		p.keys = append(make([]uint64, 0, min(max(n, 16, 2*cap(p.keys)), pageSize-p.first)), p.keys...)
	}
	for ; next < off; next++ {
		p.keys = append(p.keys, 0)
	}
	return true
}

// clip returns s with hardly any room behind it, copied only if there is more.
func clip[T any](s []T) []T {
	if cap(s)-len(s) <= len(s)/16 {
		return s[:len(s):len(s)]
	}
	return append(make([]T, 0, len(s)), s...)
}

// At returns the key hash of a seq, 0 if it has none.
func (k *Keys) At(x uint64) uint64 {
	p := k.tail
	if key := x >> pageBits; p == nil || key != k.key {
		if p, _ = k.pages.Get(key); p == nil {
			return 0
		}
	}
	i := int(x%pageSize) - p.first
	if p.offs != nil {
		at, ok := slices.BinarySearch(p.offs, uint16(x%pageSize))
		if i = at; !ok {
			return 0
		}
	}
	if i < 0 || i >= len(p.keys) {
		return 0
	}
	return p.keys[i]
}

// Drop drops the keys of all seqs in a range whose page lies wholly inside it.
func (k *Keys) Drop(lo, hi uint64) { drop(&k.pages, lo, hi, k.key) }

// Pages returns how many pages there are.
func (k *Keys) Pages() int { return k.pages.Len() }
