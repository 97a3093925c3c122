package queue

import (
	"slices"
	"sort"
)

// ages tells when messages were stored, in few numbers: late by at most 1/64 of a message's age or 8 ms.
type ages struct {
	s     []sample
	limit int // of samples, from which on the next merge is tried
}

// sample says that the messages behind those of the sample before it, up to seq, were stored between first and last.
type sample struct {
	seq         uint64
	first, last int64
}

const (
	ageWidth   = 8    // ms
	maxSamples = 2048 // before the first merge
)

// add notes that messages up to seq were stored at a time, not before that of any earlier ones.
func (a *ages) add(seq uint64, at int64) {
	n := len(a.s)
	if n > 0 {
		l := &a.s[n-1]
		if at = max(at, l.last); at-l.first < ageWidth {
			l.seq, l.last = seq, at
			return
		}
	}
	if n >= max(a.limit, maxSamples) {
		a.merge(at)
		a.limit = 2 * len(a.s)
	}
	a.s = append(a.s, sample{seq, at, at})
}

// merge joins samples that are old enough for that.
func (a *ages) merge(now int64) {
	out := a.s[:1]
	for _, t := range a.s[1:] {
		l := &out[len(out)-1]
		if t.last-l.first <= max(ageWidth, (now-t.last)/64) {
			l.seq, l.last = t.seq, t.last
		} else {
			out = append(out, t)
		}
	}
	a.s = out
}

// find returns the index of the sample that seq is in.
func (a *ages) find(seq uint64) int {
	if len(a.s) > 0 && a.s[0].seq >= seq {
		return 0
	}
	return sort.Search(len(a.s), func(i int) bool { return a.s[i].seq >= seq })
}

// of returns when a message was stored at the latest.
func (a *ages) of(seq uint64) int64 {
	i := a.find(seq)
	if i == len(a.s) {
		return 0
	}
	return a.s[i].last
}

// before returns the highest seq such that all up to it were stored at or before a time, 0 if there is none.
func (a *ages) before(at int64) uint64 {
	i := sort.Search(len(a.s), func(i int) bool { return a.s[i].last > at })
	if i == 0 {
		return 0
	}
	return a.s[i-1].seq
}

// trim forgets about messages below seq.
func (a *ages) trim(seq uint64) {
	if n := a.find(seq); n > len(a.s)/2 && n > 16 {
		a.s = slices.Clone(a.s[n:])
	}
}
