package spanmap

import (
	"testing"

	"pgregory.net/rapid"
)

// lease counts along with its run.
type lease uint64

func (l lease) After(n uint64) lease { return l + lease(n) }

// What a run says of each of its members is what a map says (design §7: leases are ranges).
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Map[lease]
		model := map[uint64]lease{}
		var copied *Map[lease]
		var copiedLen int
		next := lease(1000)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lo := rapid.Uint64Range(0, 100).Draw(t, "lo")
			hi := lo + rapid.Uint64Range(0, 30).Draw(t, "len")
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				for hi > lo && overlaps(model, lo, hi) {
					hi--
				}
				m.Set(lo, hi, next)
				for x := lo; x < hi; x++ {
					model[x] = next + lease(x-lo)
				}
				next += 100
			case 2:
				want := map[uint64]lease{}
				for x := lo; x < hi; x++ {
					if v, ok := model[x]; ok {
						want[x] = v
						delete(model, x)
					}
				}
				n := m.Cut(lo, hi, func(a, b uint64, v lease) {
					for x := a; x < b; x++ {
						if want[x] != v+lease(x-a) {
							t.Fatalf("cut %d: %d, want %d", x, v+lease(x-a), want[x])
						}
						delete(want, x)
					}
				})
				if len(want) > 0 {
					t.Fatalf("cut %d, and left %v", n, want)
				}
			case 3:
				copied, copiedLen = m.Copy(), len(model)
			case 4:
				checkGet(t, &m, model, lo)
			}
			compare(t, &m, model, lo, hi)
			if copied != nil && copied.Len() != uint64(copiedLen) {
				t.Fatal("the copy changed")
			}
		}
	})
}

func overlaps(model map[uint64]lease, lo, hi uint64) bool {
	for x := lo; x < hi; x++ {
		if _, ok := model[x]; ok {
			return true
		}
	}
	return false
}

func checkGet(t *rapid.T, m *Map[lease], model map[uint64]lease, x uint64) {
	_, v, ok := m.Get(x)
	if w, wok := model[x]; v != w || ok != wok {
		t.Fatalf("Get(%d) = %d, %v, want %d, %v", x, v, ok, w, wok)
	}
	lo, _, v, ok := m.Next(x)
	for y := x; y < 200; y++ {
		if w, wok := model[y]; wok {
			if lo != y || v != w || !ok {
				t.Fatalf("Next(%d) = %d, %d, %v, want %d, %d", x, lo, v, ok, y, w)
			}
			return
		}
	}
	if ok {
		t.Fatalf("Next(%d) = %d", x, lo)
	}
}

func compare(t *rapid.T, m *Map[lease], model map[uint64]lease, lo, hi uint64) {
	if m.Len() != uint64(len(model)) {
		t.Fatalf("Len %d, want %d", m.Len(), len(model))
	}
	n := 0
	m.Each(lo, hi, func(a, b uint64, v lease) bool {
		for x := a; x < b; x++ {
			if w, ok := model[x]; !ok || w != v+lease(x-a) || x < lo || x >= hi {
				t.Fatalf("Each: %d has %d, want %d, %v", x, v+lease(x-a), w, ok)
			}
			n++
		}
		return true
	})
	for x := lo; x < hi; x++ {
		if _, ok := model[x]; ok {
			n--
		}
	}
	if n != 0 {
		t.Fatalf("Each: %d too many", n)
	}
}
