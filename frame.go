package holdfast

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

// cellSize is how many messages share one channel that wakes their waiters. It fits the bits of a word.
const cellSize = 64

// cell holds the outcomes of up to cellSize messages of one frame. Whoever waits for one of them waits for the
// cell's channel, so that a frame of a thousand messages wakes its waiters by sixteen closed channels, and one
// that is stored only in part wakes no more than a cell's worth of them in vain.
//
// A slot's outcome is written before its bit in settled is set, and never after; so whoever sees the bit may read
// it without a lock. All else is under the sender's lock.
type cell struct {
	settled atomic.Uint64
	strange atomic.Bool // odd holds an outcome; it is read under the lock

	uid [16]byte // stream of ids, written once
	ids [cellSize]uint64
	odd map[int]outcome // outcomes that ids cannot tell: errors, and ids of another stream

	used  int           // slots that messages took
	done  chan struct{} // closed when a slot was settled, nil while nobody waits
	sizes [cellSize]uint32
	fns   []func(ID, error) // who is to be called, nil while nobody is
}

type outcome struct {
	id  ID
	err error
}

// closedChan is what waits for a cell that is settled already.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// waitOn returns the channel that is closed when another slot was settled. Under the sender's lock.
func (c *cell) waitOn() <-chan struct{} {
	if c.used > 0 && c.settled.Load() == c.full() {
		return closedChan
	}
	if c.done == nil {
		c.done = make(chan struct{})
	}
	return c.done
}

// wake wakes all who wait for the cell. Under the sender's lock.
func (c *cell) wake() {
	if c.done != nil {
		close(c.done)
		c.done = nil
	}
}

// has tells whether slot i is settled.
func (c *cell) has(i int) bool { return c.settled.Load()&(1<<i) != 0 }

// note writes the outcome of a slot. Under the sender's lock, before the slot is settled.
func (c *cell) note(i int, id ID, err error) {
	if err == nil {
		if id.Seq == 0 {
			return
		}
		if c.settled.Load() == 0 {
			c.uid = id.Stream
		}
		if c.uid == id.Stream {
			c.ids[i] = id.Seq
			return
		}
	}
	if c.odd == nil {
		c.odd = make(map[int]outcome)
	}
	c.odd[i] = outcome{id, err}
	c.strange.Store(true)
}

// full is the mask of all slots taken.
func (c *cell) full() uint64 {
	if c.used == cellSize {
		return ^uint64(0)
	}
	return 1<<c.used - 1
}

// frame is a run of messages on its way to the broker: first being filled, then pending, then in flight.
type frame struct {
	next *frame
	// no is in the order of making; Flush waits by it.
	no uint64
	// first is the producer seq of the first message, 0 while it has none: until the frame is handed to the link.
	first uint64
	count int // messages
	// sentOn is the stream on which it was sent last, sentAt when, and sent how many times it was.
	sentOn *senderStream
	sentAt time.Time
	sent   int

	cells []*cell
	off   int   // slot of the first message, counted from the start of cells
	slots []int // slot of each message, counted from off; nil if that is 0, 1, 2…
	gone  []int // slots whose senders gave up before the hand-over; taken out by compact

	b   message.Builder
	buf []byte // the encoded frame once sealed; never changed after
}

// last is the producer seq of the last message.
func (f *frame) last() uint64 { return f.first + uint64(f.count) - 1 }

// size is the length of the encoded frame in bytes.
func (f *frame) size() int {
	if f.buf != nil {
		return len(f.buf)
	}
	return f.b.Size()
}

// add appends a message to a frame that is being filled and returns its slot.
func (f *frame) add(m *Message, size int) (*cell, int) {
	i := f.count % cellSize
	if i == 0 {
		f.cells = append(f.cells, new(cell))
	}
	c := f.cells[len(f.cells)-1]
	f.b.Add(m)
	c.sizes[i] = uint32(size)
	c.used = i + 1
	f.count++
	return c, i
}

// slot is the cell and the index in it of message i.
func (f *frame) slot(i int) (*cell, int) {
	if f.slots != nil {
		i = f.slots[i]
	}
	i += f.off
	return f.cells[i/cellSize], i % cellSize
}

// withdraw takes the message in a slot out, if it is one of the frame's.
func (f *frame) withdraw(c *cell, i int) bool {
	k := slices.Index(f.cells, c)
	if k < 0 {
		return false
	}
	rel := k*cellSize + i - f.off
	if rel < 0 || (f.slots == nil && rel >= f.count) || (f.slots != nil && !slices.Contains(f.slots, rel)) {
		return false
	}
	f.gone = append(f.gone, rel)
	return true
}

// withdrawn tells whether message i was withdrawn.
func (f *frame) withdrawn(i int) bool {
	if len(f.gone) == 0 {
		return false
	}
	if f.slots != nil {
		i = f.slots[i]
	}
	return slices.Contains(f.gone, i)
}

// seal encodes the frame, without what was withdrawn. Afterwards count may be 0. lent is SenderOpened.Lent.
func (f *frame) seal(lent bool) {
	if f.buf == nil {
		f.buf = f.b.Finish()
		if !lent && cap(f.buf) > 2*len(f.buf)+1024 { // it was made for more, and may live long in the broker's cache
			f.buf = slices.Clone(f.buf)
		}
	}
	if len(f.gone) == 0 {
		return
	}
	var b message.Builder
	cur := message.NewCursor(f.buf)
	left := make([]int, 0, f.count)
	for i := range f.count {
		raw, _ := cur.Next()
		rel := i
		if f.slots != nil {
			rel = f.slots[i]
		}
		if !slices.Contains(f.gone, rel) {
			b.AddRaw(raw)
			left = append(left, rel)
		}
	}
	f.buf, f.slots, f.count, f.gone = b.Finish(), left, len(left), nil
}

// split cuts a sealed frame behind its first n messages and returns the rest.
func (f *frame) split(n int) *frame {
	rest := &frame{no: f.no, count: f.count - n, off: f.off, cells: f.cells, sentOn: f.sentOn, sentAt: f.sentAt}
	if f.first != 0 {
		rest.first = f.first + uint64(n)
	}
	if f.slots != nil {
		f.slots, rest.slots = f.slots[:n:n], f.slots[n:]
	} else {
		rest.off += n
		rest.cells = f.cells[rest.off/cellSize:]
		rest.off %= cellSize
	}
	cur := message.NewCursor(f.buf)
	head, _ := cur.Span(n)
	tail, _ := cur.Span(rest.count)
	rest.buf = message.FrameFromSpans(make([]byte, 0, message.FrameHeaderSize+len(tail)), rest.count, tail)
	f.buf = message.FrameFromSpans(make([]byte, 0, message.FrameHeaderSize+len(head)), n, head)
	f.count = n
	return rest
}

// fitting returns how many of a sealed frame's first messages make a frame of at most size bytes.
func (f *frame) fitting(size int) int {
	cur := message.NewCursor(f.buf)
	total := message.FrameHeaderSize
	for n := range f.count {
		one, _ := cur.Span(1)
		if total += len(one); total > size {
			return n
		}
	}
	return f.count
}

// frames is a queue of frames.
type frames struct {
	head, tail *frame
	n          int
}

func (q *frames) push(f *frame) {
	f.next = nil
	if q.tail == nil {
		q.head = f
	} else {
		q.tail.next = f
	}
	q.tail = f
	q.n++
}

func (q *frames) pushFront(f *frame) {
	f.next = q.head
	q.head = f
	if q.tail == nil {
		q.tail = f
	}
	q.n++
}

// insert puts rest behind f.
func (q *frames) insert(f, rest *frame) {
	rest.next = f.next
	f.next = rest
	if q.tail == f {
		q.tail = rest
	}
	q.n++
}

func (q *frames) pop() *frame {
	f := q.head
	if f == nil {
		return nil
	}
	if q.head = f.next; q.head == nil {
		q.tail = nil
	}
	q.n--
	f.next = nil
	return f
}
