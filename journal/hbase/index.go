package hbase

import (
	"cmp"
	"slices"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// span is the seqs of a record.
type span struct{ first, last uint64 }

func bySpan(s span, first uint64) int { return cmp.Compare(s.first, first) }

// maxIndexed bounds of how many buckets an owner knows the bodies.
const maxIndexed = 64

// bodyIndex knows of some buckets which records have bodies, so that discarding them reads nothing. It may have
// too many, never too few. The zero value knows of none.
type bodyIndex struct {
	mu      sync.Mutex
	buckets map[uint64]*bucketBodies // by their first seq
	clock   uint64
}

// bucketBodies is the records of a bucket that have bodies, ascending.
type bucketBodies struct {
	spans []span
	whole bool // nothing is missing; false while it is being read
	used  uint64
}

// begin remembers a new bucket, without bodies, if it isn't known yet.
func (x *bodyIndex) begin(bucket uint64) { x.bucket(bucket, true) }

// bucket returns a bucket's entry, and makes one if there is none.
func (x *bodyIndex) bucket(first uint64, whole bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.buckets == nil {
		x.buckets = map[uint64]*bucketBodies{}
	}
	x.clock++
	if b := x.buckets[first]; b != nil {
		b.used = x.clock
		return
	}
	if len(x.buckets) >= maxIndexed {
		oldest := first
		for k, b := range x.buckets {
			if o := x.buckets[oldest]; o == nil || b.used < o.used {
				oldest = k
			}
		}
		delete(x.buckets, oldest)
	}
	x.buckets[first] = &bucketBodies{whole: whole, used: x.clock}
}

// add remembers a body, if the bucket is known.
func (x *bodyIndex) add(bucket uint64, s span) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.buckets[bucket]; b != nil {
		b.insert(s)
	}
}

func (b *bucketBodies) insert(s span) {
	if i, ok := slices.BinarySearchFunc(b.spans, s.first, bySpan); !ok {
		b.spans = slices.Insert(b.spans, i, s)
	}
}

// complete adds what was read of a bucket, which is then known as a whole.
func (x *bodyIndex) complete(bucket uint64, read []span) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buckets[bucket]
	if b == nil {
		return
	}
	for _, s := range read {
		b.insert(s)
	}
	b.whole = true
}

// within returns the bodies of a bucket whose records lie wholly inside one of the ranges. ok is false if the bucket is not known.
func (x *bodyIndex) within(bucket uint64, ranges []journal.Range) (found []span, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buckets[bucket]
	if b == nil || !b.whole {
		return nil, false
	}
	x.clock++
	b.used = x.clock
	for _, r := range ranges {
		i, _ := slices.BinarySearchFunc(b.spans, r.From, bySpan)
		for ; i < len(b.spans) && b.spans[i].last <= r.To; i++ {
			found = append(found, b.spans[i])
		}
	}
	return found, true
}

// remove forgets bodies of a bucket.
func (x *bodyIndex) remove(bucket uint64, gone []span) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buckets[bucket]
	if b == nil || len(gone) == 0 {
		return
	}
	set := make(map[span]bool, len(gone))
	for _, s := range gone {
		set[s] = true
	}
	b.spans = slices.DeleteFunc(b.spans, func(s span) bool { return set[s] })
}

// clear forgets all bodies of a bucket that is closed, and remembers that it has none.
func (x *bodyIndex) clear(bucket uint64) {
	x.bucket(bucket, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buckets[bucket]
	b.spans, b.whole = nil, true
}

// floor returns the seq before which a bucket has no bodies: behind its last one, end, if it has none at all. ok is false if
// the bucket is not known.
func (x *bodyIndex) floor(bucket, end uint64) (seq uint64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buckets[bucket]
	switch {
	case b == nil || !b.whole:
		return 0, false
	case len(b.spans) > 0:
		return min(b.spans[0].first, end+1), true
	}
	return end + 1, true
}
