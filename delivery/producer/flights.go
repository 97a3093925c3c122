package producer

import (
	"sort"
)

// flight is a range of messages that were transmitted together and are repeated together.
type flight struct {
	first, last uint64
	open        int // how many of the range are not settled; 0 means that it waits for nothing
	due         int64
	attempt     int
	level       int
	prev, next  uint64 // neighbours in the list of its level, by id
}

// flights is the transmitted and unsettled messages, in two orders: by sequence number, for acknowledgements
// (a ring, since first transmissions are in order), and by due time, for repetitions. The second is one list for
// each delay: what is transmitted with the same delay falls due in the order of transmission, so no heap and
// no timer for each message is needed.
type flights struct {
	ring   []flight // a power of two long; flight id is at id mod len
	lo, hi uint64   // the ids in use: lo ≤ id < hi

	delays []int64 // by level: the time to wait, doubling up to the cap
	lists  []list  // by level
}

type list struct{ head, tail uint64 }

// none is the id of no flight.
const none = ^uint64(0)

func (fs *flights) init(timeout, limit int64) {
	timeout = max(timeout, 1)
	for d := timeout; ; d *= 2 {
		if d >= limit || d > 1<<61 {
			d = max(limit, timeout)
		}
		fs.delays = append(fs.delays, d)
		fs.lists = append(fs.lists, list{none, none})
		if d >= limit {
			return
		}
	}
}

func (fs *flights) at(id uint64) *flight { return &fs.ring[id&uint64(len(fs.ring)-1)] }

// add puts a range on its way that lies above all others, or (after a cut) between the ones that are left.
func (fs *flights) add(r Range, now int64) {
	if int(fs.hi-fs.lo) == len(fs.ring) {
		fs.grow()
	}
	id := fs.hi
	fs.hi++
	*fs.at(id) = flight{first: r.First, last: r.Last, open: r.Len(), due: now + fs.delays[0]}
	fs.push(id)
}

// grow doubles the ring. Ids stay, so the lists do.
func (fs *flights) grow() {
	bigger := make([]flight, max(16, 2*len(fs.ring)))
	for id := fs.lo; id < fs.hi; id++ {
		bigger[id&uint64(len(bigger)-1)] = *fs.at(id)
	}
	fs.ring = bigger
}

// popDue takes the next flight out of its list that is due at now, and returns its id, or none. The caller
// schedules it again.
func (fs *flights) popDue(now int64) uint64 {
	for i := range fs.lists {
		if id := fs.lists[i].head; id != none && fs.at(id).due <= now {
			fs.unlink(id)
			return id
		}
	}
	return none
}

// schedule puts a flight that was repeated in the list of its next delay. jitter is in [0, 1): the delay is
// shortened by up to a quarter, so that producers that lost the same moment do not repeat in step, and no
// delay exceeds the cap.
func (fs *flights) schedule(id uint64, now int64, jitter float64) {
	f := fs.at(id)
	f.level = min(f.attempt, len(fs.delays)-1)
	delay := fs.delays[f.level]
	f.due = now + delay - int64(float64(delay)*jitter/4)
	fs.push(id)
}

// nextDue returns the earliest due time of all.
func (fs *flights) nextDue() (at int64, ok bool) {
	for i := range fs.lists {
		if id := fs.lists[i].head; id != none {
			if due := fs.at(id).due; !ok || due < at {
				at, ok = due, true
			}
		}
	}
	return at, ok
}

// settle notes that r is settled.
func (fs *flights) settle(r Range) {
	for id := fs.find(r.First); id < fs.hi; id++ {
		f := fs.at(id)
		if f.first > r.Last {
			return
		}
		if f.open == 0 || f.last < r.First {
			continue
		}
		f.open -= int(min(f.last, r.Last) - max(f.first, r.First) + 1)
		if f.open == 0 {
			fs.unlink(id)
		}
	}
}

// trim forgets the flights that are wholly below floor; they are settled.
func (fs *flights) trim(floor uint64) {
	for fs.lo < fs.hi && fs.at(fs.lo).last < floor {
		fs.lo++
	}
}

// find returns the id of the first flight whose last is at least seq, or hi.
func (fs *flights) find(seq uint64) uint64 {
	if fs.lo < fs.hi && fs.at(fs.lo).last >= seq {
		return fs.lo
	}
	n := int(fs.hi - fs.lo)
	return fs.lo + uint64(sort.Search(n, func(i int) bool { return fs.at(fs.lo+uint64(i)).last >= seq }))
}

// push appends a flight to the list of its level. A due time before the one ahead of it is raised to it, so
// that jitter keeps the list in order.
func (fs *flights) push(id uint64) {
	f := fs.at(id)
	l := &fs.lists[f.level]
	f.prev, f.next = l.tail, none
	if l.tail == none {
		l.head = id
	} else {
		tail := fs.at(l.tail)
		tail.next = id
		f.due = max(f.due, tail.due)
	}
	l.tail = id
}

func (fs *flights) unlink(id uint64) {
	f := fs.at(id)
	l := &fs.lists[f.level]
	if f.prev == none {
		l.head = f.next
	} else {
		fs.at(f.prev).next = f.next
	}
	if f.next == none {
		l.tail = f.prev
	} else {
		fs.at(f.next).prev = f.prev
	}
	f.prev, f.next = none, none
}
