package segment

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"
)

// The index tells where a stream's records are. It is kept in memory, packed: a record costs some 6 to 10 bytes in a block of up to
// blockSlots records that follow one another in the stream and in one segment. Blocks go when nothing in them is alive.

const blockSlots = 128

// slot is a record in the index.
type slot struct {
	first, count uint64
	off          int64  // of the entry in its segment
	meta         uint32 // bytes of the payload
	body         uint32 // bytes of the body in the entry
	alive        bool   // the body is not discarded
}

func (s *slot) last() uint64 { return s.first + s.count - 1 }

// entry is what header and payload take.
func (s *slot) entry() int64 { return entryHeaderSize + int64(s.meta) }

// live is what is alive of the record.
func (s *slot) live(low uint64) int64 {
	switch {
	case s.alive:
		return s.entry() + int64(s.body)
	case s.last() >= low:
		return s.entry()
	}
	return 0
}

// block is some records of a stream in one segment, ascending by seq and by place.
type block struct {
	seg         *segment
	first, last uint64 // seqs
	off, end    int64  // places of the first and the last entry
	n           int
	alive       [2]uint64 // which bodies
	data        []byte
}

func (b *block) isAlive(i int) bool   { return b.alive[i/64]>>(i%64)&1 == 1 }
func (b *block) aliveBodies() int     { return bits.OnesCount64(b.alive[0]) + bits.OnesCount64(b.alive[1]) }
func (b *block) setAlive(i int)       { b.alive[i/64] |= 1 << (i % 64) }
func (b *block) kill(i int)           { b.alive[i/64] &^= 1 << (i % 64) }
func (b *block) takes(s *slot) bool   { return b.n < blockSlots && s.first > b.last && s.off > b.end }
func (b *block) dead(low uint64) bool { return b.last < low && b.alive == [2]uint64{} }

// add appends a record.
func (b *block) add(s *slot) {
	if b.n == 0 {
		b.first, b.off, b.end = s.first, s.off, s.off
		b.last = s.first - 1
	}
	b.data = binary.AppendUvarint(b.data, s.first-b.last-1)
	b.data = binary.AppendUvarint(b.data, s.count-1)
	b.data = binary.AppendUvarint(b.data, uint64(s.off-b.end))
	b.data = binary.AppendUvarint(b.data, uint64(s.meta))
	b.data = binary.AppendUvarint(b.data, uint64(s.body))
	b.last, b.end = s.last(), s.off
	if s.alive {
		b.setAlive(b.n)
	}
	if b.n++; b.n == blockSlots {
		b.data = slices.Clip(slices.Clone(b.data))
	}
}

// slots decodes the records into buf.
func (b *block) slots(buf *[blockSlots]slot) []slot {
	c := cursor{b: b.data}
	at, off := b.first, b.off
	for i := range b.n {
		s := &buf[i]
		s.first = at + c.uvarint()
		s.count = c.uvarint() + 1
		off += int64(c.uvarint())
		s.off = off
		s.meta, s.body = uint32(c.uvarint()), uint32(c.uvarint())
		s.alive = b.isAlive(i)
		at = s.last() + 1
	}
	return buf[:b.n]
}

func newBlock(seg *segment, slots []slot) *block {
	b := &block{seg: seg}
	for i := range slots {
		b.add(&slots[i])
	}
	return b
}

// ledger notes by how much what is alive in segments changes. It is settled once the change is durable.
type ledger map[*segment]int64

func (l ledger) add(s *segment, n int64) {
	if n != 0 {
		l[s] += n
	}
}

func (l ledger) settle() {
	for s, n := range l {
		s.live.Add(n)
	}
	clear(l)
}

// index is where the records of a stream are. It is guarded by the stream's mutex.
type index struct {
	blocks []*block // ascending, without overlap
}

// find returns the number of the first block that holds seq or a later one.
func (x *index) find(seq uint64) int {
	return sort.Search(len(x.blocks), func(i int) bool { return x.blocks[i].last >= seq })
}

// get returns the record that begins at first.
func (x *index) get(first uint64) (*segment, slot, bool) {
	i := x.find(first)
	if i == len(x.blocks) || x.blocks[i].first > first {
		return nil, slot{}, false
	}
	var buf [blockSlots]slot
	for _, s := range x.blocks[i].slots(&buf) {
		if s.first == first {
			return x.blocks[i].seg, s, true
		}
	}
	return nil, slot{}, false
}

// add puts a record behind all others.
func (x *index) add(seg *segment, s *slot, low uint64, l ledger) {
	l.add(seg, s.live(low))
	if n := len(x.blocks); n > 0 && x.blocks[n-1].seg == seg && x.blocks[n-1].takes(s) {
		x.blocks[n-1].add(s)
		return
	}
	x.blocks = append(x.blocks, newBlock(seg, []slot{*s}))
}

// discard kills the bodies of the records that lie wholly in from…to.
func (x *index) discard(from, to, low uint64, l ledger) {
	i := x.find(from)
	j := i
	for ; j < len(x.blocks) && x.blocks[j].first <= to; j++ {
		x.blocks[j].discard(from, to, low, l)
	}
	x.tidy(i, j, low)
}

func (b *block) discard(from, to, low uint64, l ledger) {
	if b.aliveBodies() == 0 {
		return
	}
	var buf [blockSlots]slot
	for i, s := range b.slots(&buf) {
		if s.alive && s.first >= from && s.last() <= to {
			was := s.live(low)
			b.kill(i)
			s.alive = false
			l.add(b.seg, s.live(low)-was)
		}
	}
}

// raise lets go of the metas before low, where was is what low was before.
func (x *index) raise(was, low uint64, l ledger) {
	i := x.find(was)
	j := i
	for ; j < len(x.blocks) && x.blocks[j].first < low; j++ {
		b := x.blocks[j]
		if b.last < low && b.aliveBodies() == b.n {
			continue
		}
		var buf [blockSlots]slot
		for _, s := range b.slots(&buf) {
			l.add(b.seg, s.live(low)-s.live(was))
		}
	}
	x.tidy(i, j, low)
}

// tidy removes blocks that are dead from i to j, and packs those anew of which little is left.
func (x *index) tidy(i, j int, low uint64) {
	k := i
	for _, b := range x.blocks[i:j] {
		if b.dead(low) {
			continue
		}
		if b.last < low && b.n >= 16 && b.aliveBodies() <= b.n/4 {
			b = b.pack(low)
		}
		x.blocks[k] = b
		k++
	}
	if k < j {
		x.blocks = slices.Delete(x.blocks, k, j)
		if cap(x.blocks) > 64 && len(x.blocks) < cap(x.blocks)/4 {
			x.blocks = slices.Clone(x.blocks)
		}
	}
}

// pack returns the block without what is dead in it.
func (b *block) pack(low uint64) *block {
	var buf [blockSlots]slot
	left := slices.DeleteFunc(b.slots(&buf), func(s slot) bool { return s.live(low) == 0 })
	p := newBlock(b.seg, left)
	p.data = slices.Clip(p.data)
	return p
}

// lowAfter returns the first seq of the first record that does not end before low, or end+1.
func (x *index) lowAfter(low, end uint64) uint64 {
	if low > end {
		return end + 1
	}
	i := x.find(low)
	if i == len(x.blocks) {
		return end + 1
	}
	var buf [blockSlots]slot
	for _, s := range x.blocks[i].slots(&buf) {
		if s.last() >= low {
			return s.first
		}
	}
	return end + 1
}

// move says that a record now is at another place, and returns the segment where it was. It does nothing for one that is not there any
// more.
func (x *index) move(seg *segment, s slot, low uint64, l ledger) (from *segment) {
	i := x.find(s.first)
	if i == len(x.blocks) || x.blocks[i].first > s.first {
		return nil
	}
	b := x.blocks[i]
	var buf [blockSlots]slot
	old := b.slots(&buf)
	k := slices.IndexFunc(old, func(o slot) bool { return o.first == s.first })
	if k < 0 || old[k].live(low) == 0 {
		return nil
	}
	l.add(b.seg, -old[k].live(low))
	s.alive = old[k].alive && (s.body > 0 || old[k].body == 0)
	l.add(seg, s.live(low))
	alive := func(o []slot) []slot {
		return slices.DeleteFunc(slices.Clone(o), func(o slot) bool { return o.live(low) == 0 })
	}
	before, after := alive(old[:k]), alive(old[k+1:])
	var anew []*block
	if len(before) > 0 {
		anew = append(anew, newBlock(b.seg, before))
	}
	if prev := i - 1; len(before) == 0 && prev >= 0 && x.blocks[prev].seg == seg && x.blocks[prev].takes(&s) {
		x.blocks[prev].add(&s)
	} else {
		anew = append(anew, newBlock(seg, []slot{s}))
	}
	if len(after) > 0 {
		anew = append(anew, newBlock(b.seg, after))
	}
	x.blocks = slices.Replace(x.blocks, i, i+1, anew...)
	return b.seg
}

// clear lets go of everything.
func (x *index) clear(low uint64, l ledger) {
	var buf [blockSlots]slot
	for _, b := range x.blocks {
		for _, s := range b.slots(&buf) {
			l.add(b.seg, -s.live(low))
		}
	}
	x.blocks = nil
}

// append encodes the index for a checkpoint.
func (x *index) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.blocks)))
	for _, k := range x.blocks {
		b = binary.AppendUvarint(b, k.seg.number)
		b = binary.AppendUvarint(b, k.first)
		b = binary.AppendUvarint(b, uint64(k.off))
		b = binary.AppendUvarint(b, uint64(k.n))
		b = binary.LittleEndian.AppendUint64(b, k.alive[0])
		b = binary.LittleEndian.AppendUint64(b, k.alive[1])
		b = binary.AppendUvarint(b, uint64(len(k.data)))
		b = append(b, k.data...)
	}
	return b
}

// parseIndex reads what append wrote; seg gives the segment of a number.
func (c *cursor) index(seg func(number uint64) *segment) (x index) {
	for n := c.uvarint(); n > 0 && !c.short; n-- {
		b := &block{seg: seg(c.uvarint()), first: c.uvarint(), off: int64(c.uvarint())}
		count := c.uvarint()
		b.alive[0], b.alive[1] = c.u64(), c.u64()
		b.data = slices.Clone(c.bytes(int(min(c.uvarint(), 1<<30))))
		if c.short || count == 0 || count > blockSlots || !b.fill(int(count)) {
			c.short = true
			break
		}
		x.blocks = append(x.blocks, b)
	}
	return x
}

// fill finds out what a decoded block's other fields are.
func (b *block) fill(n int) bool {
	b.n = n
	d := cursor{b: b.data}
	at, off := b.first, b.off
	for range n {
		at += d.uvarint() + d.uvarint() + 1
		off += int64(d.uvarint())
		d.uvarint()
		d.uvarint()
	}
	b.last, b.end = at-1, off
	return !d.short && len(d.b) == 0
}
