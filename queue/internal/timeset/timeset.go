// Package timeset remembers at what time something is due for each of many sequence numbers, in a few bytes each: it keeps
// them in buckets of time, whose width grows with the distance.
package timeset

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/tidwall/btree"
)

// Index is an index of sequence numbers by time, in milliseconds. A member comes up when its bucket ends: never early, and late by
// no more than 1/64 of the time that was left when it was added, at least 8 ms and at most the index's widest bucket.
//
// Members cannot be removed: the caller knows which are still of interest, and ignores the others when they come up. Retain drops
// those that are not, once there are too many.
type Index struct {
	// MaxWidth is the widest bucket in ms, a power of two. 0 means 65,536.
	MaxWidth int64

	buckets btree.Map[int64, *bucket] // by the time that ends each
	n       uint64
	gen     uint32 // a bucket of an older one is shared with a clone

	last    *bucket // that was changed last, or nil: what comes together is often due together
	lastEnd int64
}

// bucket is the members of a time. Runs of some length go into the set. Short ones are kept as they came, as differences, until there are
// so many that the set can be searched for less. The latest run is kept apart, since it may go on.
type bucket struct {
	gen    uint32
	n      uint64 // members added
	set    seqset.Set
	loose  []byte // of each run, how far it begins behind the end of the one before, as a zigzag varint, and its length as a uvarint
	end    uint64 // of the last run in loose
	lo, hi uint64 // the latest run
}

const (
	minWidth     = 8
	defaultWidth = 1 << 16
	longRun      = 16
	maxLoose     = 32 << 10 // bytes
)

// Len returns how many members there are. One that was added with several times counts several times.
func (x *Index) Len() uint64 { return x.n }

// Clear removes all members.
func (x *Index) Clear() { x.buckets, x.n, x.last = btree.Map[int64, *bucket]{}, 0, nil }

// Clone returns a copy at constant cost. It may be read in another goroutine while x changes.
func (x *Index) Clone() *Index {
	c := &Index{MaxWidth: x.MaxWidth, buckets: *x.buckets.Copy(), n: x.n, gen: x.gen + 1}
	x.gen++
	x.last = nil
	return c
}

// end returns the end of the bucket that at falls into.
func (x *Index) end(at, now int64) int64 {
	widest := x.MaxWidth
	if widest == 0 {
		widest = defaultWidth
	}
	w := int64(minWidth)
	if left := (at - now) / 64; left > w {
		w = min(widest, 1<<(bits.Len64(uint64(left))-1))
	}
	// Widths are powers of two, so that the end of a wide bucket is one of a narrow bucket too.
	return (at + w - 1) &^ (w - 1)
}

// Add adds the members lo ≤ x < hi, due at a time.
func (x *Index) Add(now, at int64, lo, hi uint64) {
	if lo < hi {
		x.bucket(x.end(at, now)).add(lo, hi)
		x.n += hi - lo
	}
}

// Load adds members to the bucket that ends at a time, as Buckets yielded it.
func (x *Index) Load(end int64, lo, hi uint64) {
	if lo < hi {
		x.bucket(end).add(lo, hi)
		x.n += hi - lo
	}
}

// bucket returns the bucket of a time, to be changed.
func (x *Index) bucket(end int64) *bucket {
	if x.last != nil && x.lastEnd == end {
		return x.last
	}
	b, ok := x.buckets.Get(end)
	switch {
	case !ok:
		b = &bucket{gen: x.gen}
		x.buckets.Set(end, b)
	case b.gen != x.gen:
		c := *b
		c.gen, c.set, c.loose = x.gen, b.set.Frozen(), slices.Clip(b.loose)
		b = &c
		x.buckets.Set(end, b)
	}
	x.last, x.lastEnd = b, end
	return b
}

func (b *bucket) add(lo, hi uint64) {
	b.n += hi - lo
	if lo == b.hi {
		b.hi = hi
		return
	}
	b.flush()
	b.lo, b.hi = lo, hi
}

// flush puts the latest run where it belongs.
func (b *bucket) flush() {
	switch n := b.hi - b.lo; {
	case n == 0:
		return
	case n >= longRun:
		b.set.AddRange(b.lo, b.hi)
	default:
		b.loose = binary.AppendVarint(b.loose, int64(b.lo-b.end))
		b.loose = binary.AppendUvarint(b.loose, n)
		b.end = b.hi
	}
	b.lo = b.hi
	if len(b.loose) >= maxLoose {
		b.eachLoose(func(lo, hi uint64) { b.set.AddRange(lo, hi) })
		b.loose, b.end = nil, 0
	}
}

// eachLoose calls f for the runs that are in loose, in the order in which they came.
func (b *bucket) eachLoose(f func(lo, hi uint64)) {
	end := uint64(0)
	for rest := b.loose; len(rest) > 0; {
		d, k := binary.Varint(rest)
		n, l := binary.Uvarint(rest[k:])
		rest = rest[k+l:]
		lo := end + uint64(d)
		end = lo + n
		f(lo, end)
	}
}

// all returns the members as one set. The bucket must not change while that is in use.
func (b *bucket) all() seqset.Set {
	s := b.set.Frozen()
	b.eachLoose(func(lo, hi uint64) { s.AddRange(lo, hi) })
	s.AddRange(b.lo, b.hi)
	return s
}

func (b *bucket) contains(seq uint64) bool {
	found := b.set.Contains(seq) || b.lo <= seq && seq < b.hi
	if !found {
		b.eachLoose(func(lo, hi uint64) { found = found || lo <= seq && seq < hi })
	}
	return found
}

// First returns the time at which the first members come up.
func (x *Index) First() (at int64, ok bool) {
	at, _, ok = x.buckets.Min()
	return at, ok
}

// Pop takes out the first bucket, if its time has come.
func (x *Index) Pop(now int64) (due seqset.Set, ok bool) {
	at, b, ok := x.buckets.Min()
	if !ok || at > now {
		return due, false
	}
	x.buckets.Delete(at)
	x.last = nil
	due = b.all()
	x.n -= b.n
	return due, true
}

// Find returns the time at which a member comes up first. It looks into all buckets.
func (x *Index) Find(seq uint64) (at int64, ok bool) {
	x.buckets.Scan(func(end int64, b *bucket) bool {
		if b.contains(seq) {
			at, ok = end, true
		}
		return !ok
	})
	return at, ok
}

// Retain drops all members that are not in keep.
func (x *Index) Retain(keep *seqset.Set) {
	old := x.buckets
	x.Clear()
	old.Scan(func(end int64, b *bucket) bool {
		all := b.all()
		for from := uint64(0); ; {
			lo, hi, ok := seqset.NextCommonRun(&all, keep, from, ^uint64(0))
			if !ok {
				return true
			}
			x.Load(end, lo, hi)
			from = hi
		}
	})
}

// Buckets calls f for the buckets, in order of time, until it returns false.
func (x *Index) Buckets(f func(end int64, members *seqset.Set) bool) {
	x.buckets.Scan(func(end int64, b *bucket) bool {
		all := b.all()
		return f(end, &all)
	})
}
