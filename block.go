package holdfast

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// bitset holds a bit for each message of a block.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (s bitset) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// set sets the bits from…to-1 and returns how many of them were not set before.
func (s bitset) set(from, to int) (fresh int) {
	for from < to {
		w, lo := from/64, from%64
		n := min(64-lo, to-from)
		mask := (^uint64(0) >> (64 - n)) << lo
		fresh += bits.OnesCount64(mask &^ s[w])
		s[w] |= mask
		from += n
	}
	return fresh
}

// block is one hand-over: consecutive messages under consecutive leases. Its fields are under the intake's
// lock, but for those that never change and touched.
type block struct {
	prev, next *block // of those with unsettled messages, in order of arrival

	lease, seq uint64
	n          int
	attempt    int
	confirm    bool
	stream     *intakeStream // that brought it

	// done are the messages that are settled or lost; left counts the others.
	done bitset
	left int
	// touched tells that messages which nobody has taken or finished may be done: whoever is about to begin
	// with one looks first.
	touched atomic.Bool

	since   time.Time // when it arrived
	renewed time.Time // its leases are good for the visibility timeout from then on
	final   bool      // not renewed any more
}

// span is the leases of messages from…to-1.
func (b *block) span(from, to int) queue.LeaseSpan {
	return queue.LeaseSpan{Lease: b.lease + uint64(from), Seq: b.seq + uint64(from), Count: uint64(to - from)}
}

// within returns which messages of the block a span of leases covers, as from…to-1.
func (b *block) within(s queue.LeaseSpan) (from, to int) {
	lo, hi := max(s.Lease, b.lease), min(s.Lease+s.Count, b.lease+uint64(b.n))
	if lo >= hi || s.Seq-s.Lease != b.seq-b.lease {
		return 0, 0
	}
	return int(lo - b.lease), int(hi - b.lease)
}

// open appends the leases of messages from…to-1 that are not done.
func (b *block) open(out []queue.LeaseSpan, from, to int) []queue.LeaseSpan {
	for from < to {
		if b.done.has(from) {
			from++
			continue
		}
		end := from + 1
		for end < to && !b.done.has(end) {
			end++
		}
		out = append(out, b.span(from, end))
		from = end
	}
	return out
}

// blocks is a list of blocks.
type blocks struct{ head, tail *block }

func (l *blocks) push(b *block) {
	b.prev, b.next = l.tail, nil
	if l.tail == nil {
		l.head = b
	} else {
		l.tail.next = b
	}
	l.tail = b
}

func (l *blocks) remove(b *block) {
	if b.prev == nil {
		l.head = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		l.tail = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil
}

// portion is messages from…to-1 of a block on their way to a handler.
type portion struct {
	b         *block
	from, to  int
	cur       message.Cursor // before from
	announced bool           // their start was
}

// size is the sum of the sizes of its messages.
func (p *portion) size() (bytes int) {
	cur := p.cur
	for range p.to - p.from {
		raw, _ := cur.Next()
		bytes += raw.Size()
	}
	return bytes
}

// portions is a queue of what waits for a handler.
type portions struct {
	items []portion
	head  int
	n     int // messages
}

func (q *portions) push(p portion) {
	if q.head > 64 && q.head*2 > len(q.items) {
		k := copy(q.items, q.items[q.head:])
		clear(q.items[k:])
		q.items, q.head = q.items[:k], 0
	}
	q.items = append(q.items, p)
	q.n += p.to - p.from
}

// putBack puts a portion in front.
func (q *portions) putBack(p portion) {
	if q.head > 0 {
		q.head--
		q.items[q.head] = p
	} else {
		q.items = append([]portion{p}, q.items...)
	}
	q.n += p.to - p.from
}

// cut takes up to n messages from the end, of the last portion alone.
func (q *portions) cut(n int) portion {
	last := &q.items[len(q.items)-1]
	n = min(n, last.to-last.from)
	out := *last
	out.from = out.to - n
	out.cur.Span(out.from - last.from)
	q.n -= n
	if last.to = out.from; last.to > last.from {
		return out
	}
	*last = portion{}
	if q.items = q.items[:len(q.items)-1]; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return out
}

// first returns the portion in front; nil if there is none.
func (q *portions) first() *portion {
	if q.head == len(q.items) {
		return nil
	}
	return &q.items[q.head]
}

// take takes up to n messages from the portion in front.
func (q *portions) take(n int) portion {
	p := q.first()
	n = min(n, p.to-p.from)
	out := *p
	out.to = p.from + n
	q.n -= n
	if p.from += n; p.from < p.to {
		p.cur.Span(n)
		return out
	}
	*p = portion{}
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return out
}
