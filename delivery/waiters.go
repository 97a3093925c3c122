package delivery

// waiter is a message that is not numbered yet: of a caller that is blocked, or in the buffer of Offer.
type waiter[B any] struct {
	m          message[B]
	raw        []byte     // see sender.admit
	admitted   chan error // of capacity 1: where a blocked caller is told; nil in the buffer
	prev, next *waiter[B]
	queued     bool
}

// waiters is a queue out of whose middle a waiter can go, because its caller gave up.
type waiters[B any] struct {
	head, tail *waiter[B]
	len        int
}

func (q *waiters[B]) push(w *waiter[B]) {
	w.prev, w.next, w.queued = q.tail, nil, true
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.len++
}

func (q *waiters[B]) remove(w *waiter[B]) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.len--
}

// slots holds the unacknowledged messages by number: a ring that grows to the span between the floor and the next
// number, which the core bounds.
type slots[B any] struct {
	ring []message[B] // a power of two long
}

// at returns the slot of a number that was put.
func (t *slots[B]) at(seq uint64) *message[B] { return &t.ring[seq&uint64(len(t.ring)-1)] }

// put sets the slot of a new number.
func (t *slots[B]) put(seq, floor uint64, m message[B]) {
	if seq-floor >= uint64(len(t.ring)) {
		n := max(16, len(t.ring))
		for uint64(n) <= seq-floor {
			n *= 2
		}
		bigger := slots[B]{ring: make([]message[B], n)}
		for s := floor; s < seq && len(t.ring) > 0; s++ {
			*bigger.at(s) = *t.at(s)
		}
		t.ring = bigger.ring
	}
	*t.at(seq) = m
}
