package queue

import "slices"

// dedup remembers dedup ids, by their hashes, for a time, in the order in which they came.
type dedup struct {
	byHash map[[16]byte]dedupItem
	order  []dedupItem // of ordinal base, base+1, …; forgotten ones have seq 0. Snapshots share it: what is in it never changes
	base   uint64
	max    int
}

type dedupItem struct {
	hash    [16]byte
	seq     uint64 // of the message that was stored with it
	expires int64
}

func newDedup(max int) dedup { return dedup{byHash: make(map[[16]byte]dedupItem), max: max} }

// find returns the message that was stored with a dedup id, if it is remembered.
func (d *dedup) find(hash [16]byte, now int64) (seq uint64, ok bool) {
	it, ok := d.byHash[hash]
	return it.seq, ok && it.expires > now
}

// add remembers a dedup id, and returns how many had to go for it before their time.
func (d *dedup) add(hash [16]byte, seq uint64, now, expires int64) (evicted uint64) {
	d.expire(now)
	it := dedupItem{hash, seq, expires}
	d.byHash[hash] = it
	d.order = append(d.order, it)
	for len(d.byHash) > d.max {
		evicted += d.pop(now)
	}
	return evicted
}

// pop forgets the oldest, and returns 1 if it was before its time.
func (d *dedup) pop(now int64) (evicted uint64) {
	it := d.order[0]
	d.order = d.order[1:]
	d.base++
	// The id may have come again since.
	if it.seq == 0 || d.byHash[it.hash].seq != it.seq {
		return 0
	}
	delete(d.byHash, it.hash)
	if it.expires > now {
		return 1
	}
	return 0
}

// expire forgets the oldest as far as their time is over.
func (d *dedup) expire(now int64) {
	for len(d.order) > 0 && d.order[0].expires <= now {
		d.pop(now)
	}
}

// forget forgets the ids of messages that were not stored after all, which are among the latest.
func (d *dedup) forget(lo, hi uint64) {
	owned := false
	for i := len(d.order) - 1; i >= 0; i-- {
		it := d.order[i]
		if it.seq != 0 && it.seq < lo {
			return
		}
		if it.seq < lo || it.seq >= hi {
			continue
		}
		if d.byHash[it.hash].seq == it.seq {
			delete(d.byHash, it.hash)
		}
		if !owned {
			d.order, owned = slices.Clone(d.order), true
		}
		d.order[i].seq = 0
	}
}

// Len returns how many are remembered.
func (d *dedup) Len() int { return len(d.byHash) }
