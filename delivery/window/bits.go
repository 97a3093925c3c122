package window

import "math/bits"

// Bits is a set of sequence numbers that slides upwards: a ring of bits over base, base+1, …
//
// It grows to the span that is used (8 KiB for MaxWindow) and gives a large ring back once the base has passed
// everything that was ever in it; not as soon as it is empty, or numbers that come and go one by one in random
// order would allocate a ring each.
// Setting, clearing and asking cost the same whatever the order; sliding costs at most one step for each 64
// numbers passed. The zero value is an empty set at base 0.
type Bits struct {
	words []uint64 // a power of two long; seq is bit seq mod 64·len
	base  uint64   // the lowest seq that can be in the set
	high  uint64   // the highest seq that was set
	count int
}

// keepWords is the size up to which an empty ring is kept for its next use.
const keepWords = 64

// Len returns how many numbers are in the set.
func (b *Bits) Len() int { return b.count }

// Base returns the lowest number that can be in the set.
func (b *Bits) Base() uint64 { return b.base }

// Has reports whether seq is in the set.
func (b *Bits) Has(seq uint64) bool {
	if b.count == 0 || seq < b.base || seq-b.base >= b.size() {
		return false
	}
	w, mask := b.at(seq)
	return *w&mask != 0
}

// Set adds seq and reports whether it was new. A seq below the base is not added. The ring grows to hold
// seq − base bits, so the caller bounds that.
func (b *Bits) Set(seq uint64) bool {
	if seq < b.base {
		return false
	}
	if seq-b.base >= b.size() {
		b.grow(seq - b.base + 1)
	}
	w, mask := b.at(seq)
	if *w&mask != 0 {
		return false
	}
	*w |= mask
	b.high = max(b.high, seq)
	b.count++
	return true
}

// Clear takes seq out and reports whether it was in.
func (b *Bits) Clear(seq uint64) bool {
	if !b.Has(seq) {
		return false
	}
	w, mask := b.at(seq)
	*w &^= mask
	b.count--
	return true
}

// NextClear returns the lowest number that is at least from (and the base) and not in the set.
func (b *Bits) NextClear(from uint64) uint64 {
	from = max(from, b.base)
	if b.count == 0 {
		return from
	}
	for limit := b.base + b.size(); from < limit; {
		pos := from & (b.size() - 1)
		// Bits above the ones shifted out read as clear, so a full rest of a word counts exactly.
		run := uint64(bits.TrailingZeros64(^(b.words[pos>>6] >> (pos & 63))))
		if run < 64-pos&63 {
			return min(from+run, limit)
		}
		from = min(from+64-pos&63, limit)
	}
	return from
}

// NextSet returns the lowest number of the set that is at least from, and false if there is none.
func (b *Bits) NextSet(from uint64) (uint64, bool) {
	from = max(from, b.base)
	if b.count == 0 {
		return 0, false
	}
	for limit := b.base + b.size(); from < limit; {
		pos := from & (b.size() - 1)
		if rest := b.words[pos>>6] >> (pos & 63); rest != 0 {
			// A set bit in the word is within the span unless the word wraps round to the base.
			if seq := from + uint64(bits.TrailingZeros64(rest)); seq < limit {
				return seq, true
			}
			return 0, false
		}
		from += 64 - pos&63
	}
	return 0, false
}

// Last returns the highest number of the set, and false if it is empty.
func (b *Bits) Last() (uint64, bool) {
	if b.count == 0 {
		return 0, false
	}
	for seq := min(b.high, b.base+b.size()-1); ; {
		pos := seq & (b.size() - 1)
		if rest := b.words[pos>>6] << (63 - pos&63); rest != 0 {
			if n := uint64(bits.LeadingZeros64(rest)); n <= seq-b.base {
				return seq - n, true
			}
		}
		if pos&63 >= seq-b.base {
			// Not reached while count is right; ends the loop if it is not.
			return 0, false
		}
		seq -= pos&63 + 1
	}
}

// Advance raises the base, taking out everything below it. A lower base changes nothing.
func (b *Bits) Advance(base uint64) {
	if base <= b.base {
		return
	}
	if b.count > 0 {
		if base-b.base >= b.size() {
			clear(b.words)
			b.count = 0
		} else {
			b.clearRange(b.base, base)
		}
	}
	b.base = base
	if base > b.high && len(b.words) > keepWords {
		b.words = nil
	}
}

// SetRange adds first…last, both included and first ≤ last, as Set would each. It costs a step for each 64.
func (b *Bits) SetRange(first, last uint64) {
	first = max(first, b.base)
	if last < first {
		return
	}
	if last-b.base >= b.size() {
		b.grow(last - b.base + 1)
	}
	b.high = max(b.high, last)
	for first <= last {
		pos := first & (b.size() - 1)
		n := min(64-pos&63, last-first+1)
		mask := (^uint64(0) >> (64 - n)) << (pos & 63)
		w := &b.words[pos>>6]
		b.count += bits.OnesCount64(^*w & mask)
		*w |= mask
		first += n
	}
}

// clearRange takes out first ≤ seq < end, which are within the span.
func (b *Bits) clearRange(first, end uint64) {
	for first < end {
		pos := first & (b.size() - 1)
		n := min(64-pos&63, end-first)
		mask := (^uint64(0) >> (64 - n)) << (pos & 63)
		w := &b.words[pos>>6]
		b.count -= bits.OnesCount64(*w & mask)
		*w &^= mask
		first += n
	}
}

func (b *Bits) size() uint64 { return uint64(len(b.words)) << 6 }

func (b *Bits) at(seq uint64) (word *uint64, mask uint64) {
	pos := seq & (b.size() - 1)
	return &b.words[pos>>6], 1 << (pos & 63)
}

func (b *Bits) grow(span uint64) {
	n := uint64(1)
	for n<<6 < span {
		n <<= 1
	}
	bigger := Bits{words: make([]uint64, n), base: b.base, high: b.high}
	for seq, ok := b.NextSet(b.base); ok; seq, ok = b.NextSet(seq + 1) {
		bigger.Set(seq)
	}
	*b = bigger
}
