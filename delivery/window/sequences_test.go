package window

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func key(i int) Key { return Key{Producer: fmt.Sprintf("p%d", i), Incarnation: "a"} }

// Design §7, sender hop: "only the next seq is stored, a repeated one is acknowledged again, a gap is
// answered with where to resume."
func TestSequencesVerdicts(t *testing.T) {
	long := Key{Producer: string(make([]byte, MaxIDBytes+1)), Incarnation: "a"}
	for _, c := range []struct {
		name         string
		key          Key
		floor, first uint64
		count        int
		verdict      Verdict
		skip         int
		resume       uint64
	}{
		{"next", key(1), 1, 11, 5, VerdictStore, 0, 11},
		{"repeated", key(1), 1, 3, 8, VerdictDuplicate, 8, 11},
		{"partly repeated", key(1), 1, 8, 5, VerdictStore, 3, 11},
		{"gap", key(1), 1, 12, 5, VerdictGap, 0, 11},
		{"floor ahead of the entry", key(1), 15, 15, 1, VerdictStore, 0, 15},
		{"below the floor is settled", key(1), 15, 14, 1, VerdictDuplicate, 1, 15},
		{"unknown starts at its floor", key(2), 5_000_000, 5_000_000, 2, VerdictStore, 0, 5_000_000},
		{"unknown, overtaken at its floor", key(2), 7, 9, 2, VerdictGap, 0, 7},
		{"unknown without floor", key(2), 0, 9, 2, VerdictStore, 0, 9},
		{"empty producer", Key{Incarnation: "a"}, 1, 1, 1, VerdictMalformed, 0, 0},
		{"empty incarnation", Key{Producer: "a"}, 1, 1, 1, VerdictMalformed, 0, 0},
		{"long producer", long, 1, 1, 1, VerdictMalformed, 0, 0},
		{"seq 0", key(1), 1, 0, 1, VerdictMalformed, 0, 0},
		{"no message", key(1), 1, 11, 0, VerdictMalformed, 0, 0},
		{"negative count", key(1), 1, 11, -1, VerdictMalformed, 0, 0},
		{"highest seq", key(2), MaxSeq, MaxSeq, 1, VerdictStore, 0, MaxSeq},
		{"beyond the highest seq", key(2), MaxSeq, MaxSeq, 2, VerdictMalformed, 0, 0},
		{"first beyond the highest seq", key(2), 1, math.MaxUint64, math.MaxInt, VerdictMalformed, 0, 0},
		{"floor beyond the highest seq", key(2), MaxSeq + 1, 1, 1, VerdictMalformed, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSequences(0, 0)
			s.Store(key(1), 10, 1)
			v, skip, resume := s.Check(c.key, c.floor, c.first, c.count)
			if v != c.verdict || skip != c.skip || resume != c.resume {
				t.Errorf("Check = %v skip %d resume %d, want %v skip %d resume %d", v, skip, resume, c.verdict, c.skip, c.resume)
			}
			if last, known := s.Next(key(1)); last != 10 || !known || s.Len() != 1 {
				t.Errorf("Check changed the state: last %d known %v len %d", last, known, s.Len())
			}
		})
	}
}

// A new producer's second batch overtakes its first, which was refused: the first must not become a duplicate (G2).
func TestSequencesOvertakenBatchIsNotLost(t *testing.T) {
	s := NewSequences(0, 0)
	if v, _, resume := s.Check(key(1), 1, 11, 10); v != VerdictGap || resume != 1 {
		t.Fatalf("second batch before the first: %v, resume %d", v, resume)
	}
	if v, _, _ := s.Check(key(1), 1, 1, 10); v != VerdictStore {
		t.Fatalf("first batch: %v", v)
	}
}

// Design §7, sender hop: "TTL 24 h since the last send"; "an entry with an open session is pinned; a clean
// close frees it".
func TestSequencesTTLAndPins(t *testing.T) {
	const day = DefaultSequenceTTL
	s := NewSequences(0, 0)
	s.Pin(key(2)) // before its first message
	for i := range 4 {
		s.Store(key(i), 5, int64(i))
	}
	s.Pin(key(1))
	if n := s.Expire(day - 1); n != 0 {
		t.Fatalf("expired %d before the TTL", n)
	}
	if n := s.Expire(day + 2); n != 1 || s.Len() != 3 {
		t.Fatalf("expired %d, %d left; want key 0 only, since 1 and 2 are pinned", n, s.Len())
	}
	s.Unpin(key(2))
	if k, ok := s.Oldest(); !ok || k != key(2) {
		t.Fatalf("oldest = %v %v, want the unpinned one", k, ok)
	}
	if n := s.Expire(day + 2); n != 1 {
		t.Fatalf("expired %d after Unpin, want 1", n)
	}
	s.Store(key(3), 6, day+2)
	if n := s.Expire(day + 4); n != 0 {
		t.Fatal("a send must start the TTL again")
	}
	if !s.Forget(key(1)) || s.Forget(key(1)) || s.Len() != 1 {
		t.Fatal("a clean close must free the entry, once")
	}
	s.Store(key(1), 1, day+4)
	if n := s.Expire(3 * day); n != 1 {
		t.Fatal("the pin must outlive Forget")
	}
}

// Design §7, sender hop: "Budget: 65,536 producers". One more evicts the least recently used.
func TestSequencesBudget(t *testing.T) {
	s := NewSequences(0, UnlimitedTTL)
	for i := range DefaultSequenceProducers {
		if s.Store(key(i), 1, int64(i)) != 0 {
			t.Fatal("evicted within the budget")
		}
	}
	s.Store(key(0), 2, math.MaxInt32)
	if n := s.Store(key(-1), 1, math.MaxInt32); n != 1 || s.Len() != DefaultSequenceProducers {
		t.Fatalf("evicted %d, %d left", n, s.Len())
	}
	if _, known := s.Next(key(0)); !known {
		t.Error("the recently used entry was evicted")
	}
	if _, known := s.Next(key(1)); known {
		t.Error("the least recently used entry was kept")
	}
	if s.Expire(math.MaxInt64) != 0 {
		t.Error("UnlimitedTTL expired something")
	}
}

// The hot path, one batch of a known producer, allocates nothing.
func TestSequencesHotPathAllocates(t *testing.T) {
	s := NewSequences(0, 0)
	for i := range 1000 {
		s.Store(key(i), 1, 1)
	}
	k, next := key(500), uint64(2)
	if n := testing.AllocsPerRun(1000, func() {
		if v, _, _ := s.Check(k, next, next, 100); v != VerdictStore {
			t.Fatal(v)
		}
		s.Store(k, next+99, int64(next))
		next += 100
		s.Expire(int64(next))
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// naiveSeqs is the specification of Sequences in the most obvious form: a slice in order of use.
type naiveSeqs struct {
	list []naiveSeq
	pins map[Key]int
	max  int
	ttl  int64
	now  int64
}

type naiveSeq struct {
	k Key
	e Entry
}

func (m *naiveSeqs) find(k Key) int {
	return slices.IndexFunc(m.list, func(n naiveSeq) bool { return n.k == k })
}

func (m *naiveSeqs) store(k Key, last uint64, now int64) (evicted int) {
	m.now = max(m.now, now)
	if i := m.find(k); i >= 0 {
		last = max(last, m.list[i].e.Last)
		m.list = append(slices.Delete(m.list, i, i+1), naiveSeq{k, Entry{last, m.now}})
		return 0
	}
	for i := 0; len(m.list) >= m.max && i < len(m.list); {
		if m.pins[m.list[i].k] > 0 {
			i++
			continue
		}
		m.list = slices.Delete(m.list, i, i+1)
		evicted++
	}
	m.list = append(m.list, naiveSeq{k, Entry{last, m.now}})
	return evicted
}

func (m *naiveSeqs) expire(now int64) int {
	m.now = max(m.now, now)
	before := len(m.list)
	m.list = slices.DeleteFunc(m.list, func(n naiveSeq) bool { return m.pins[n.k] == 0 && m.now-n.e.At >= m.ttl })
	return before - len(m.list)
}

// A random walk beside the naive model: verdict bookkeeping, eviction order, pins, expiry, and that what was
// iterated by All and loaded again is the same.
func TestSequencesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget, ttl := rapid.IntRange(1, 6).Draw(t, "budget"), rapid.Int64Range(1, 50).Draw(t, "ttl")
		s := NewSequences(budget, ttl)
		m := &naiveSeqs{pins: map[Key]int{}, max: budget, ttl: ttl, now: math.MinInt64}
		now := int64(100)
		draw := func() Key { return key(rapid.IntRange(0, 9).Draw(t, "key")) }
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				k, last := draw(), rapid.Uint64Range(1, 100).Draw(t, "last")
				now += rapid.Int64Range(-2, 9).Draw(t, "step")
				if got, want := s.Store(k, last, now), m.store(k, last, now); got != want {
					t.Fatalf("evicted %d, want %d", got, want)
				}
			},
			"expire": func(t *rapid.T) {
				now += rapid.Int64Range(0, 30).Draw(t, "step")
				if got, want := s.Expire(now), m.expire(now); got != want {
					t.Fatalf("expired %d, want %d", got, want)
				}
			},
			"pin":   func(t *rapid.T) { k := draw(); s.Pin(k); m.pins[k]++ },
			"unpin": func(t *rapid.T) { k := draw(); s.Unpin(k); m.pins[k] = max(0, m.pins[k]-1) },
			"forget": func(t *rapid.T) {
				k := draw()
				i := m.find(k)
				if s.Forget(k) != (i >= 0) {
					t.Fatal("Forget disagrees")
				}
				if i >= 0 {
					m.list = slices.Delete(m.list, i, i+1)
				}
			},
			"snapshot": func(t *rapid.T) {
				restored := NewSequences(budget, ttl)
				for k, n := range m.pins {
					for range n {
						restored.Pin(k)
					}
				}
				type pair struct {
					k Key
					e Entry
				}
				var all []pair
				for k, e := range s.All() {
					all = append(all, pair{k, e})
				}
				for _, p := range all {
					restored.Load(p.k, p.e)
				}
				restored.advance(s.now)
				s = restored
			},
			"": func(t *rapid.T) {
				if s.Len() != len(m.list) {
					t.Fatalf("Len %d, want %d", s.Len(), len(m.list))
				}
				i := 0
				for k, e := range s.All() {
					if m.list[i].k != k || m.list[i].e != e {
						t.Fatalf("entry %d is %v %v, want %v", i, k, e, m.list[i])
					}
					i++
				}
				i = slices.IndexFunc(m.list, func(n naiveSeq) bool { return m.pins[n.k] == 0 })
				if k, ok := s.Oldest(); ok != (i >= 0) || ok && k != m.list[i].k {
					t.Fatalf("Oldest %v %v", k, ok)
				}
			},
		})
	})
}

// Entries load in any order into the order of their times.
func TestSequencesLoadOrder(t *testing.T) {
	s := NewSequences(0, 0)
	for _, i := range []int{3, 1, 4, 0, 2} {
		s.Load(key(i), Entry{Last: 1, At: int64(i)})
	}
	i := 0
	for k := range s.All() {
		if k != key(i) {
			t.Fatalf("entry %d is %v", i, k)
		}
		i++
	}
}

func BenchmarkSequencesBatch(b *testing.B) {
	s := NewSequences(0, 0)
	keys := make([]Key, DefaultSequenceProducers)
	for i := range keys {
		keys[i] = key(i)
		s.Store(keys[i], 1, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := keys[i%len(keys)]
		last, _ := s.Next(k)
		if v, _, _ := s.Check(k, last+1, last+1, 100); v != VerdictStore {
			b.Fatal(v)
		}
		s.Store(k, last+100, int64(i))
	}
}
