package window

import (
	"iter"
	"math"
	"strconv"
)

const (
	// DefaultSequenceProducers is the budget of entries of a Sequences that was given none.
	DefaultSequenceProducers = 65_536

	// DefaultSequenceTTL is how long, in milliseconds, a Sequences that was given no TTL remembers a
	// producer after its last send: 24 hours.
	DefaultSequenceTTL int64 = 24 * 60 * 60 * 1000

	// UnlimitedTTL as a TTL keeps entries until the budget evicts them.
	UnlimitedTTL int64 = math.MaxInt64
)

// Verdict is what Sequences.Check says of a batch.
type Verdict uint8

const (
	// VerdictStore means that the batch, less its first skip messages, is new and next in order.
	VerdictStore Verdict = iota + 1
	// VerdictDuplicate means that every message of the batch was stored before. It is acknowledged again,
	// but only once the record that carries it is on stable storage: the entry says what was decided, not
	// what is durable.
	VerdictDuplicate
	// VerdictGap means that messages before the batch are missing. Nothing of it may be stored; the
	// producer is told to go on at resume.
	VerdictGap
	// VerdictMalformed means that the batch can be no message of any producer: a key outside its limits,
	// no message, or a seq or floor that is not in 1…MaxSeq. It changes nothing.
	VerdictMalformed
)

// String returns the verdict as a lower-case word.
func (v Verdict) String() string {
	switch v {
	case VerdictStore:
		return "store"
	case VerdictDuplicate:
		return "duplicate"
	case VerdictGap:
		return "gap"
	case VerdictMalformed:
		return "malformed"
	}
	return "verdict " + strconv.Itoa(int(v))
}

// Entry is what is remembered of one producer and incarnation, and what a snapshot stores of it.
type Entry struct {
	// Last is the highest seq stored. The next one expected is Last+1.
	Last uint64
	// At is the time of the last Store, in milliseconds, on the clock of the caller (a queue's queue time).
	At int64
}

// Sequences remembers, for each producer and incarnation, the highest sequence number that was stored, and
// so tells a new batch from a repeated one and from one that came too early.
//
// It relies on order: a producer's messages are stored in the order in which they were numbered, so what is
// stored is always 1…Last without holes, and one number is the whole state.
//
// # Where an unknown producer starts
//
// An entry can be missing although its producer is not new: the budget evicted it, or its TTL ran out.
// Then the producer goes on where it is, at its floor (its lowest seq that is not settled): a lost entry
// costs a possible duplicate, never a message. Callers should always pass the floor. Without it the
// first batch seen sets the start, and if that batch overtook an earlier one (one that was refused because
// the queue was full, say), the earlier one looks like a duplicate when it comes again, and is lost.
//
// # Budget
//
// There are at most maxProducers entries. A new producer that needs room evicts the entry with the oldest
// Store; Store reports how many went, so that its caller can count and warn. Entries that are pinned (by an
// open session) are passed over by eviction and by Expire; if all are pinned, the budget is exceeded rather
// than an entry lost, so that the excess is bounded by the number of open sessions.
//
// # Time
//
// Time is only ever the now that is passed in. If it is part of the stored events, then replaying them with
// the same calls gives the same entries. Pins are not stored: a caller that needs a replay to evict the very
// same entries stores what was evicted (see Oldest) as events of its own, or accepts that a pin can have
// changed the choice. A now below an earlier one counts as the earlier one.
//
// # Cost
//
// Check and Store on a known key cost one map look-up and no allocation, whatever the length of the batch.
// An entry costs its two strings and about 100 bytes.
//
// A Sequences is not safe for concurrent use. The zero value is not usable; call NewSequences.
type Sequences struct {
	entries map[Key]*seqNode
	// pins counts the sessions of a key. It is apart from the entries because a session opens before its
	// first message, and must not use budget until then.
	pins map[Key]int

	// The entries in order of Store, oldest next to root.next.
	root seqNode
	// scanned is the newest entry such that it and all older ones are known to be pinned; nil if none is.
	// Without it a front of idle sessions would be walked again for each eviction.
	scanned *seqNode

	max int
	ttl int64
	now int64
}

type seqNode struct {
	prev, next *seqNode
	key        Key
	entry      Entry
	pinned     bool
}

// NewSequences returns an empty Sequences that keeps at most maxProducers entries, each for ttlMillis
// milliseconds after its last Store.
//
// Zero means DefaultSequenceProducers and DefaultSequenceTTL; math.MaxInt and UnlimitedTTL mean no limit.
// A negative value is a mistake in the program and panics.
func NewSequences(maxProducers int, ttlMillis int64) *Sequences {
	if maxProducers < 0 || ttlMillis < 0 {
		panic("window: NewSequences: negative budget or TTL")
	}
	if maxProducers == 0 {
		maxProducers = DefaultSequenceProducers
	}
	if ttlMillis == 0 {
		ttlMillis = DefaultSequenceTTL
	}
	s := &Sequences{
		entries: make(map[Key]*seqNode),
		pins:    make(map[Key]int),
		max:     maxProducers,
		ttl:     ttlMillis,
		now:     math.MinInt64,
	}
	s.root.prev, s.root.next = &s.root, &s.root
	return s
}

// Next returns the highest seq stored for key, and whether there is an entry. A producer that reconnects is
// told last+1 as the place to resume at.
func (s *Sequences) Next(key Key) (last uint64, known bool) {
	n, ok := s.entries[key]
	if !ok {
		return 0, false
	}
	return n.entry.Last, true
}

// Check says what to do with a batch of count messages numbered first, first+1, … of a producer whose lowest
// unsettled seq is floor. It changes nothing; a caller that stores the batch calls Store.
//
// With VerdictStore, the first skip messages of the batch are already stored and the rest is to be stored.
// With VerdictGap, resume is the seq to go on at. In every case but VerdictMalformed resume is the lowest seq
// that is not yet stored.
//
// Everything below floor is settled and will not be sent again, so the expected seq is never below it: a
// known producer that gave up on messages skips them, and an unknown one starts there. floor 0 means that
// it is not known; then an unknown producer starts at first (see the type's comment for the danger).
func (s *Sequences) Check(key Key, floor, first uint64, count int) (verdict Verdict, skip int, resume uint64) {
	if !key.Valid() || count < 1 || first < 1 || first > MaxSeq || uint64(count) > MaxSeq-first+1 || floor > MaxSeq {
		return VerdictMalformed, 0, 0
	}
	next := max(floor, 1)
	if n, ok := s.entries[key]; ok {
		next = max(next, n.entry.Last+1)
	} else if floor == 0 {
		next = first
	}
	end := first + uint64(count) // one past the batch
	switch {
	case first > next:
		return VerdictGap, 0, next
	case end <= next:
		return VerdictDuplicate, count, next
	default:
		return VerdictStore, int(next - first), next
	}
}

// Store records at time now that everything of key up to and including last is stored, and makes its entry the
// most recently used one. It never lowers a number. It returns how many entries were evicted to make room.
func (s *Sequences) Store(key Key, last uint64, now int64) (evicted int) {
	s.advance(now)
	n, ok := s.entries[key]
	if ok {
		n.entry.Last = max(n.entry.Last, last)
		n.entry.At = s.now
		if s.root.prev != n {
			s.unlink(n)
			s.insertAfter(n, s.root.prev)
		}
		return 0
	}
	evicted = s.makeRoom()
	s.add(key, Entry{Last: last, At: s.now}, s.root.prev)
	return evicted
}

// Pin keeps the entry of key from eviction and expiry until Unpin was called as often as Pin. It may be
// called before there is an entry, and does not make one.
func (s *Sequences) Pin(key Key) {
	s.pins[key]++
	if n, ok := s.entries[key]; ok {
		n.pinned = true
	}
}

// Unpin takes back one Pin. The entry's TTL still counts from its last Store, so Expire may remove it at
// once. An Unpin without a Pin does nothing.
func (s *Sequences) Unpin(key Key) {
	switch c := s.pins[key]; c {
	case 0:
		return
	case 1:
		delete(s.pins, key)
	default:
		s.pins[key] = c - 1
		return
	}
	n, ok := s.entries[key]
	if !ok {
		return
	}
	n.pinned = false
	// An entry of the same time may stand on either side of the mark; starting over is always right.
	if s.scanned != nil && n.entry.At <= s.scanned.entry.At {
		s.scanned = nil
	}
}

// Forget drops the entry of key, pinned or not, because its producer closed with nothing unsettled. Pins stay.
// It reports whether there was an entry.
func (s *Sequences) Forget(key Key) bool {
	n, ok := s.entries[key]
	if ok {
		s.remove(n)
	}
	return ok
}

// Expire drops the entries whose last Store is ttl or longer before now and that are not pinned, and returns
// how many. It costs nothing when there are none to drop.
func (s *Sequences) Expire(now int64) int {
	s.advance(now)
	if s.ttl == UnlimitedTTL {
		return 0
	}
	dropped := 0
	for n := s.oldest(); n != nil && s.now-n.entry.At >= s.ttl; n = s.oldest() {
		s.remove(n)
		dropped++
	}
	return dropped
}

// Oldest returns the key that would be evicted next: the one with the oldest Store that is not pinned. ok is
// false if there is none.
func (s *Sequences) Oldest() (key Key, ok bool) {
	n := s.oldest()
	if n == nil {
		return Key{}, false
	}
	return n.key, true
}

// Len returns the number of entries.
func (s *Sequences) Len() int { return len(s.entries) }

// All iterates over the entries, oldest Store first. The Sequences must not be changed meanwhile.
func (s *Sequences) All() iter.Seq2[Key, Entry] {
	return func(yield func(Key, Entry) bool) {
		for n := s.root.next; n != &s.root; n = n.next {
			if !yield(n.key, n.entry) {
				return
			}
		}
	}
}

// Load sets the entry of key as it was stored by a snapshot. Entries in the order of All load in linear time;
// any other order gives the same result. It does not evict: a smaller budget takes effect with the next Store.
func (s *Sequences) Load(key Key, e Entry) {
	if n, ok := s.entries[key]; ok {
		s.remove(n)
	}
	after := s.root.prev
	for after != &s.root && after.entry.At > e.At {
		after = after.prev
	}
	s.advance(e.At)
	s.add(key, e, after)
	if s.scanned != nil && e.At <= s.scanned.entry.At {
		s.scanned = nil
	}
}

func (s *Sequences) advance(now int64) { s.now = max(s.now, now) }

// makeRoom evicts until one more entry fits, or until only pinned ones are left.
func (s *Sequences) makeRoom() (evicted int) {
	for len(s.entries) >= s.max {
		n := s.oldest()
		if n == nil {
			break
		}
		s.remove(n)
		evicted++
	}
	return evicted
}

// oldest returns the entry with the oldest Store that is not pinned, or nil.
func (s *Sequences) oldest() *seqNode {
	n := s.root.next
	if s.scanned != nil {
		n = s.scanned.next
	}
	for ; n != &s.root; n = n.next {
		if !n.pinned {
			return n
		}
		s.scanned = n
	}
	return nil
}

func (s *Sequences) add(key Key, e Entry, after *seqNode) {
	n := &seqNode{key: key, entry: e, pinned: s.pins[key] > 0}
	s.entries[key] = n
	s.insertAfter(n, after)
}

func (s *Sequences) remove(n *seqNode) {
	s.unlink(n)
	delete(s.entries, n.key)
}

func (s *Sequences) insertAfter(n, after *seqNode) {
	n.prev, n.next = after, after.next
	after.next.prev = n
	after.next = n
}

func (s *Sequences) unlink(n *seqNode) {
	if s.scanned == n {
		if s.scanned = n.prev; s.scanned == &s.root {
			s.scanned = nil
		}
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}
