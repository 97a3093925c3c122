package column

import (
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
	key, off := x>>pageBits, int(x%pageSize)
	p := k.tail
	if p == nil || key != k.key {
		if p != nil {
			p.keys, p.offs = slices.Clip(slices.Clone(p.keys)), slices.Clip(slices.Clone(p.offs))
		}
		p = &keyPage{first: off}
		k.tail, k.key = p, key
		k.pages.Set(key, p)
	}
	if p.offs == nil {
		next := p.first + len(p.keys)
		if off-next <= maxGap {
			for ; next < off; next++ {
				p.keys = append(p.keys, 0)
			}
			p.keys = append(p.keys, hash)
			return
		}
		p.offs = make([]uint16, len(p.keys), 2*len(p.keys)+1)
		for i := range p.offs {
			p.offs[i] = uint16(p.first + i)
		}
	}
	p.keys = append(p.keys, hash)
	p.offs = append(p.offs, uint16(off))
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
