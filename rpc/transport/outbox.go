package transport

import (
	"net"
	"sync"
)

const (
	// bulkCopy is the size up to which it is cheaper to copy a slice behind the frames that wait than to write it from
	// where it is.
	bulkCopy = 4 << 10
	// chunkSize is the size of the buffers in which frames wait. All connections share them, so that a silent one
	// holds none.
	chunkSize = 32 << 10
	// mostFrame is what all but the longest frames fit in; those grow a buffer of their own.
	mostFrame = 1 << 10
)

type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// mark remembers bulk that was queued for a stream, to be told when it has been written.
type mark struct {
	stream          uint32
	messages, bytes uint64
}

// outbox collects what waits to be written: frames copied into chunks, and bulk slices left where they are.
type outbox struct {
	mu     sync.Mutex
	sealed net.Buffers // what goes before cur
	cur    []byte      // the frames appended last, and the room behind them
	used   []*chunk    // in which sealed and cur lie
	marks  []mark
	size   int  // bytes that wait, those being written among them
	frames int  // of them, those of frames without what is behind them
	ending bool // nothing more is taken; the writer ends once it has written what there is
	closed bool // what there is is not written any more
	wake   chan struct{}
	room   chan struct{} // closed when some of size was written; nil if nobody waits
}

func (o *outbox) init() { o.wake = make(chan struct{}, 1) }

// begin locks the outbox and returns the buffer to append frames to; every begin is followed by an end.
func (o *outbox) begin() []byte {
	o.mu.Lock()
	if !o.closed && cap(o.cur)-len(o.cur) < mostFrame {
		o.nextChunk()
	}
	return o.cur
}

// end takes the buffer that begin returned, with frames appended, and slices that go behind them.
func (o *outbox) end(b []byte, bulk [][]byte, m mark) {
	if o.ending || o.closed {
		o.mu.Unlock()
		return
	}
	wasEmpty := o.size == 0
	o.size += len(b) - len(o.cur)
	o.frames += len(b) - len(o.cur)
	o.cur = b
	for _, s := range bulk {
		o.size += len(s)
		if len(s) > bulkCopy {
			o.seal()
			o.sealed = append(o.sealed, s)
			continue
		}
		if cap(o.cur)-len(o.cur) < len(s) {
			o.nextChunk()
		}
		o.cur = append(o.cur, s...)
	}
	if m.stream != 0 {
		o.marks = append(o.marks, m)
	}
	wake := wasEmpty && o.size > 0
	o.mu.Unlock()
	if wake {
		o.signal()
	}
}

// seal moves cur to what is written before everything that follows.
func (o *outbox) seal() {
	if len(o.cur) > 0 {
		o.sealed = append(o.sealed, o.cur)
		o.cur = o.cur[len(o.cur):]
	}
}

func (o *outbox) nextChunk() {
	o.seal()
	c := chunks.Get().(*chunk)
	o.used = append(o.used, c)
	o.cur = c[:0]
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// batch is what the writer takes at once. It is given back for its memory.
type batch struct {
	bufs   net.Buffers
	used   []*chunk
	marks  []mark
	size   int
	frames int
}

// done forgets what was written.
func (b *batch) done() {
	clear(b.bufs)
	for i, c := range b.used {
		chunks.Put(c)
		b.used[i] = nil
	}
	b.bufs, b.used, b.marks, b.size, b.frames = b.bufs[:0], b.used[:0], b.marks[:0], 0, 0
}

// take moves everything that waits to the empty batch b. last says that nothing comes after it.
func (o *outbox) take(b *batch) (last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seal()
	o.cur = nil
	o.sealed, b.bufs = b.bufs, o.sealed
	o.used, b.used = b.used, o.used
	o.marks, b.marks = b.marks, o.marks
	b.size, b.frames = o.size, o.frames
	return o.ending
}

// written says that what was taken, so many bytes and of them so many of frames, is on its way.
func (o *outbox) written(size, frames int) {
	o.mu.Lock()
	o.size -= size
	o.frames -= frames
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	again := o.size > 0
	o.mu.Unlock()
	if again {
		o.signal()
	}
}

// full returns nil if at most limit bytes wait, else a channel that is closed when some were written.
func (o *outbox) full(limit int) <-chan struct{} { return o.over(&o.size, limit) }

// fullOfFrames is the same for frames without what is behind them: the other side has given credit for that.
func (o *outbox) fullOfFrames(limit int) <-chan struct{} { return o.over(&o.frames, limit) }

func (o *outbox) over(n *int, limit int) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *n <= limit || o.closed {
		return nil
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// finish lets the writer end after what there is; abandon at once.
func (o *outbox) finish() {
	o.mu.Lock()
	o.ending = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) abandon() {
	o.mu.Lock()
	o.ending, o.closed = true, true
	o.sealed, o.cur, o.used, o.marks, o.size, o.frames = nil, nil, nil, nil, 0, 0
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	o.mu.Unlock()
	o.signal()
}
