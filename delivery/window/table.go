package window

import "math"

const (
	// DefaultMaxProducers is the budget of producer ids of a Table.
	DefaultMaxProducers = 1024

	// MaxEarlier is how many windows of earlier incarnations are kept beside the current one of a producer.
	MaxEarlier = 4

	// MaxClosed is how many producers that closed are remembered, so that a straggler of theirs is not
	// handled again.
	MaxClosed = 1024
)

// Table is the dedup state of a consumer: for each producer id the window of its current incarnation and those
// of up to MaxEarlier earlier ones, within a budget of producer ids and of time.
//
// # What goes when
//
// A new producer id over the budget evicts the entry that was used longest ago; entries with something in
// progress go last. Sweep drops the windows that were not used for the TTL and have nothing in progress, and
// with its last window the entry; a caller that sweeps once per TTL lets an idle entry go after one to two of
// it. A new incarnation over MaxEarlier drops the earlier one that was used longest ago, those in progress last.
// Close frees the window of a producer that ended. What was dropped costs a possible duplicate, never a
// message: a producer that comes again starts at its floor.
//
// A closed producer leaves its last number in a list of its own of at most MaxClosed, apart from the budget and
// freed by the next but one Sweep, because an envelope of it can still be on its way.
//
// A Table is not safe for concurrent use. Times are int64 of one unit, the caller's; the TTL has the same.
type Table struct {
	// OnDrop, if set, is called with each window that is dropped while it has something in progress, so that
	// what still waits can be thrown away. It must not call the table.
	OnDrop func(*Window)

	entries map[string]*entry
	idle    entry // root of the entries with nothing in progress, the longest unused at next
	busy    entry // root of the others
	max     int
	ttl     int64

	closed map[Key]uint64 // the last number of closed producers,
	older  map[Key]uint64 // in two generations
}

type entry struct {
	prev, next *entry
	producer   string
	unsettled  int
	windows    []*Window // the current incarnation first, then the earlier ones, latest first
}

// NewTable returns an empty table for at most maxProducers producer ids, each kept for ttl after its last use.
// Zero means DefaultMaxProducers, and for the TTL no limit; math.MaxInt and UnlimitedTTL mean no limit. A
// negative value is a mistake in the program and panics.
func NewTable(maxProducers int, ttl int64) *Table {
	if maxProducers < 0 || ttl < 0 {
		panic("window: NewTable: negative budget or TTL")
	}
	if maxProducers == 0 {
		maxProducers = DefaultMaxProducers
	}
	if ttl == 0 {
		ttl = math.MaxInt64
	}
	t := &Table{entries: make(map[string]*entry), max: maxProducers, ttl: ttl}
	t.idle.prev, t.idle.next = &t.idle, &t.idle
	t.busy.prev, t.busy.next = &t.busy, &t.busy
	return t
}

// Len returns the number of producer ids.
func (t *Table) Len() int { return len(t.entries) }

// Lookup returns the window of key, or nil. It is not a use.
func (t *Table) Lookup(key Key) *Window {
	if e := t.entries[key.Producer]; e != nil {
		return e.find(key.Incarnation)
	}
	return nil
}

// Current returns the window of the latest incarnation of producer, or nil.
func (t *Table) Current(producer string) *Window {
	if e := t.entries[producer]; e != nil {
		return e.windows[0]
	}
	return nil
}

// Closed returns the last number of a producer that closed and is still remembered.
func (t *Table) Closed(key Key) (last uint64, ok bool) {
	if last, ok = t.closed[key]; !ok {
		last, ok = t.older[key]
	}
	return last, ok
}

// Open returns the window of key, made if there is none, raised to floor−1, and used at now. An incarnation
// that has no window becomes the current one. It returns how many entries were evicted to make room.
// The key must be valid and floor at least 1.
func (t *Table) Open(key Key, floor uint64, now int64) (w *Window, evicted int) {
	e := t.entries[key.Producer]
	if e == nil {
		evicted = t.makeRoom()
		e = &entry{producer: key.Producer}
		t.entries[key.Producer] = e
		e.linkBefore(&t.idle)
	} else {
		t.touch(e)
		w = e.find(key.Incarnation)
	}
	if w == nil {
		w = t.introduce(e, key)
	}
	w.used = now
	w.raise(floor - 1)
	return w, evicted
}

// Accept puts seq, which must be Fresh, in progress. seq must be below floor + MaxWindow for some floor that
// the window was opened with.
func (t *Table) Accept(w *Window, seq uint64) {
	w.progress.Set(seq)
	w.unsettled++
	if w.dropped {
		return
	}
	w.entry.unsettled++
	t.touch(w.entry)
}

// Settle ends the progress of seq, which was accepted: as handled if done, else as never seen, so that its
// retransmission is Fresh. It reports whether the window is still there; if it was dropped, nothing is marked.
func (t *Table) Settle(w *Window, seq uint64, done bool, now int64) bool {
	if w.dropped {
		return false
	}
	if done {
		w.mark(seq)
	} else {
		w.progress.Clear(seq)
	}
	w.unsettled--
	w.used = max(w.used, now)
	w.entry.unsettled--
	t.touch(w.entry)
	return true
}

// Close frees the window of key, whose producer says that everything below floor was settled and that no
// more comes. It reports whether there was one. Unless its id has other windows, the entry goes with it.
func (t *Table) Close(key Key, floor uint64) bool {
	w := t.Lookup(key)
	if w == nil {
		return false
	}
	w.raise(floor - 1)
	if len(t.closed) >= MaxClosed/2 {
		t.older, t.closed = t.closed, nil
	}
	if t.closed == nil {
		t.closed = make(map[Key]uint64)
	}
	t.closed[key] = w.contiguous
	t.touch(w.entry)
	t.dropWindow(w)
	return true
}

// Sweep drops the windows that were not used since now − ttl and have nothing in progress, and returns how many
// entries went with their last window. It costs a walk over all entries.
func (t *Table) Sweep(now int64) (expired int) {
	t.older, t.closed = t.closed, nil
	if t.ttl == UnlimitedTTL {
		return 0
	}
	for _, e := range t.entries {
		for i := len(e.windows) - 1; i >= 0; i-- {
			w := e.windows[i]
			if w.unsettled > 0 || now-w.used < t.ttl {
				continue
			}
			t.dropWindow(w)
		}
		if len(e.windows) == 0 {
			expired++
		}
	}
	return expired
}

// makeRoom evicts until one more entry fits.
func (t *Table) makeRoom() (evicted int) {
	for len(t.entries) >= t.max {
		e := t.idle.next
		if e == &t.idle {
			e = t.busy.next
		}
		for len(e.windows) > 0 {
			t.dropWindow(e.windows[len(e.windows)-1])
		}
		evicted++
	}
	return evicted
}

// introduce makes the window of an incarnation that has none, as the current one of e.
func (t *Table) introduce(e *entry, key Key) *Window {
	if len(e.windows) > MaxEarlier {
		t.dropWindow(e.leastUsedEarlier())
	}
	w := &Window{key: &key, entry: e}
	w.above.Advance(1)
	w.progress.Advance(1)
	if last, ok := t.Closed(key); ok {
		w.raise(last)
		delete(t.closed, key)
		delete(t.older, key)
	}
	e.windows = append(e.windows, nil)
	copy(e.windows[1:], e.windows)
	e.windows[0] = w
	return w
}

// dropWindow lets go of w, and of its entry if it was the last.
func (t *Table) dropWindow(w *Window) {
	e := w.entry
	for i := range e.windows {
		if e.windows[i] == w {
			e.windows = append(e.windows[:i], e.windows[i+1:]...)
			break
		}
	}
	w.dropped, w.entry = true, nil
	if w.unsettled > 0 {
		if e.unsettled -= w.unsettled; e.unsettled == 0 {
			t.touch(e)
		}
		if t.OnDrop != nil {
			t.OnDrop(w)
		}
	}
	if len(e.windows) == 0 {
		e.unlink()
		delete(t.entries, e.producer)
	}
}

// touch makes e the most recently used of the list that it belongs to.
func (t *Table) touch(e *entry) {
	root := &t.idle
	if e.unsettled > 0 {
		root = &t.busy
	}
	if root.prev != e {
		e.unlink()
		e.linkBefore(root)
	}
}

func (e *entry) find(incarnation string) *Window {
	for _, w := range e.windows {
		if w.key.Incarnation == incarnation {
			return w
		}
	}
	return nil
}

// leastUsedEarlier returns the earlier window to drop for a new one.
func (e *entry) leastUsedEarlier() *Window {
	var victim *Window
	for _, w := range e.windows[1:] {
		if victim == nil || victim.unsettled > 0 && w.unsettled == 0 ||
			(victim.unsettled > 0) == (w.unsettled > 0) && w.used <= victim.used {
			victim = w
		}
	}
	return victim
}

func (e *entry) linkBefore(root *entry) {
	e.prev, e.next = root.prev, root
	root.prev.next = e
	root.prev = e
}

func (e *entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	// Or one dropped entry that somebody still holds would keep all that were dropped after it.
	e.prev, e.next = nil, nil
}
