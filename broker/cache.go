package broker

import (
	"sort"
	"sync"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// cache keeps frames of messages that are not gone yet, so that what is handed out soon after it was
// sent is not read again. The budget is shared by all queues of a broker.
//
// A frame that does not fit is not admitted: the older ones are those that are handed out first. A queue that
// holds more than its share gives up its newest frames to one that holds less, so that a queue nobody
// receives from cannot take the cache from the others.
type cache struct {
	mu     sync.Mutex
	budget int64
	used   int64
	queues map[*bodies]struct{} // those that hold anything
}

func newCache(budget int64) *cache {
	return &cache{budget: budget, queues: make(map[*bodies]struct{})}
}

// entry is a cached frame: the messages of its span, in order.
type entry struct {
	queue.Span
	frame  []byte
	left   uint64         // messages not gone yet
	cursor message.Cursor // where the last hand-out ended
}

func (e *entry) cost() int64 { return int64(len(e.frame)) + 128 }

// bodies is the cache of one queue: entries ascending by seq, without overlap. Its fields are guarded by the
// cache's mutex: calls are one a frame or hand-over, not one a message.
type bodies struct {
	c       *cache
	entries []*entry
	used    int64
}

func (c *cache) newBodies() *bodies { return &bodies{c: c} }

// add admits a frame if there is room for it.
func (b *bodies) add(span queue.Span, frame []byte) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := newEntry(span, frame)
	if !c.makeRoom(b, e.cost()) {
		return
	}
	i := len(b.entries)
	if i > 0 && b.entries[i-1].Seq >= span.Seq {
		i = sort.Search(i, func(k int) bool { return b.entries[k].Seq >= span.Seq })
		if i < len(b.entries) && b.entries[i].Seq < span.Seq+span.Count {
			return // there already
		}
		if i > 0 && b.entries[i-1].Seq+b.entries[i-1].Count > span.Seq {
			return
		}
	}
	b.entries = append(b.entries, nil)
	copy(b.entries[i+1:], b.entries[i:])
	b.entries[i] = e
	b.used += e.cost()
	c.used += e.cost()
	c.queues[b] = struct{}{}
}

// makeRoom reports whether n more bytes may be held for b, after taking from the largest holder if b holds
// less than its share.
func (c *cache) makeRoom(b *bodies, n int64) bool {
	for c.used+n > c.budget {
		var largest *bodies
		for o := range c.queues {
			if largest == nil || o.used > largest.used {
				largest = o
			}
		}
		if largest == nil || largest == b || largest.used <= b.used+n {
			return false
		}
		largest.drop(len(largest.entries) - 1)
	}
	return true
}

func (b *bodies) drop(i int) {
	e := b.entries[i]
	b.used -= e.cost()
	b.c.used -= e.cost()
	if i == 0 { // the usual case, without moving the rest
		b.entries[0] = nil
		b.entries = b.entries[1:]
	} else {
		b.entries = append(b.entries[:i], b.entries[i+1:]...)
	}
	if len(b.entries) == 0 {
		b.entries = nil
		delete(b.c.queues, b)
	}
}

// find returns the index of the entry that holds seq, or of the first one behind it with ok false.
func (b *bodies) find(seq uint64) (int, bool) {
	es := b.entries
	if len(es) > 0 && seq >= es[0].Seq && seq < es[0].Seq+es[0].Count {
		return 0, true
	}
	i := sort.Search(len(es), func(k int) bool { return es[k].Seq+es[k].Count > seq })
	return i, i < len(es) && es[i].Seq <= seq
}

// gone tells that messages are gone for good; an entry whose last one went is dropped.
func (b *bodies) gone(spans []queue.Span) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	for _, s := range spans {
		i, _ := b.find(s.Seq)
		for i < len(b.entries) && b.entries[i].Seq < s.Seq+s.Count {
			e := b.entries[i]
			from, to := max(e.Seq, s.Seq), min(e.Seq+e.Count, s.Seq+s.Count)
			if e.left -= min(e.left, to-from); e.left == 0 {
				b.drop(i)
				continue
			}
			i++
		}
	}
}

// piece is a run of consecutive messages in encoded form.
type piece struct {
	queue.Span
	data []byte
}

// take appends the messages of span to out as far as they are cached from its beginning, and returns what is
// missing from there on.
func (b *bodies) take(span queue.Span, out []piece) ([]piece, queue.Span) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	for span.Count > 0 {
		i, ok := b.find(span.Seq)
		if !ok {
			break
		}
		e := b.entries[i]
		n := min(span.Count, e.Seq+e.Count-span.Seq)
		data, ok := cutSpan(&e.cursor, e.frame, span.Seq-e.Seq, n)
		if !ok {
			b.drop(i)
			break
		}
		out = append(out, piece{queue.Span{Seq: span.Seq, Count: n}, data})
		span.Seq += n
		span.Count -= n
	}
	return out, span
}

// cutSpan returns n messages of a frame from index from on, going on from the cursor where that is possible.
func cutSpan(c *message.Cursor, frame []byte, from, n uint64) ([]byte, bool) {
	if uint64(c.Index()) > from {
		*c = message.NewCursor(frame)
	}
	if skip := from - uint64(c.Index()); skip > 0 {
		if _, ok := c.Span(int(skip)); !ok {
			return nil, false
		}
	}
	return c.Span(int(n))
}

// clear forgets everything, when the queue is closed.
func (b *bodies) clear() {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.c.used -= b.used
	b.used, b.entries = 0, nil
	delete(b.c.queues, b)
}

func newEntry(span queue.Span, frame []byte) *entry {
	return &entry{Span: span, frame: frame, left: span.Count, cursor: message.NewCursor(frame)}
}
