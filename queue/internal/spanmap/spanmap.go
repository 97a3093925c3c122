// Package spanmap maps runs of sequence numbers to values: what is said of a thousand messages at once costs one entry, until
// they part.
package spanmap

import "github.com/tidwall/btree"

// Value is what is said of a run.
type Value[V any] interface {
	// After returns what is said of the rest of the run without its first n members: numbers that count along with
	// the members are n further.
	After(n uint64) V
}

// Map maps disjoint runs of sequence numbers to values. The zero value is empty and ready. It is used by one goroutine at a
// time; a copy is independent. Ranges are half-open.
type Map[V Value[V]] struct {
	t btree.Map[uint64, item[V]]
	n uint64
}

type item[V any] struct {
	n uint64
	v V
}

// Len returns how many sequence numbers have a value.
func (m *Map[V]) Len() uint64 { return m.n }

// Runs returns in how many runs they are.
func (m *Map[V]) Runs() int { return m.t.Len() }

// Copy returns a copy, at constant cost. It may be read in another goroutine while m changes.
func (m *Map[V]) Copy() *Map[V] { return &Map[V]{t: *m.t.Copy(), n: m.n} }

// Set gives the run lo…hi a value. None of it may have one.
func (m *Map[V]) Set(lo, hi uint64, v V) {
	if lo < hi {
		m.t.Set(lo, item[V]{hi - lo, v})
		m.n += hi - lo
	}
}

// Get returns the value at x, and the rest of its run from x on.
func (m *Map[V]) Get(x uint64) (hi uint64, v V, ok bool) {
	lo, it, ok := m.cover(x)
	if !ok {
		return 0, v, false
	}
	return lo + it.n, it.v.After(x - lo), true
}

// cover returns the run that x is in.
func (m *Map[V]) cover(x uint64) (lo uint64, it item[V], ok bool) {
	m.t.Descend(x, func(k uint64, i item[V]) bool {
		lo, it, ok = k, i, k+i.n > x
		return false
	})
	return lo, it, ok
}

// Next returns the first run at or above x, cut to begin there.
func (m *Map[V]) Next(x uint64) (lo, hi uint64, v V, ok bool) {
	if hi, v, ok = m.Get(x); ok {
		return x, hi, v, true
	}
	m.t.Ascend(x, func(k uint64, i item[V]) bool {
		lo, hi, v, ok = k, k+i.n, i.v, true
		return false
	})
	return lo, hi, v, ok
}

// Each calls f for the runs in a range, cut to it, in order, until f returns false. The map must not change meanwhile.
func (m *Map[V]) Each(lo, hi uint64, f func(lo, hi uint64, v V) bool) {
	if lo >= hi || m.n == 0 {
		return
	}
	from := lo
	if k, i, ok := m.cover(lo); ok {
		from = k + i.n
		if !f(lo, min(hi, from), i.v.After(lo-k)) {
			return
		}
	}
	if from >= hi {
		return
	}
	m.t.Ascend(from, func(k uint64, i item[V]) bool {
		return k < hi && f(k, min(hi, k+i.n), i.v)
	})
}

// Cut takes the values away from a range. It calls f, if not nil, for each run that was there, cut to the range, in order; f may
// not change the map.
func (m *Map[V]) Cut(lo, hi uint64, f func(lo, hi uint64, v V)) (removed uint64) {
	for lo < hi && m.n > 0 {
		k, i, ok := m.cover(lo)
		if !ok {
			m.t.Ascend(lo, func(kk uint64, ii item[V]) bool {
				k, i, ok = kk, ii, true
				return false
			})
			if !ok || k >= hi {
				break
			}
			lo = k
		}
		end := k + i.n
		to := min(hi, end)
		if k < lo {
			m.t.Set(k, item[V]{lo - k, i.v})
		} else {
			m.t.Delete(k)
		}
		if to < end {
			m.t.Set(to, item[V]{end - to, i.v.After(to - k)})
		}
		m.n -= to - lo
		removed += to - lo
		if f != nil {
			f(lo, to, i.v.After(lo-k))
		}
		lo = to
	}
	return removed
}
