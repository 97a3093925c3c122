package send

import (
	"io"
	"sync"

	"github.com/holdfastmq/holdfast"
)

// maxUnprinted bounds the messages that were read and whose ids are not printed, so that a reader of the ids that is slow holds
// up the sending, and not the memory.
const maxUnprinted = 1 << 17

// outcome is what became of a message.
type outcome struct {
	known bool
	id    holdfast.ID
	err   error
}

// tracker puts the outcomes of messages in the order of the input, and prints the ids of those that are stored. It can be used
// concurrently.
type tracker struct {
	out io.Writer

	mu      sync.Mutex
	changed sync.Cond
	added   uint64    // messages that were read, since the first that is not left out
	stored  uint64    // of them, those at the beginning that are stored
	open    []outcome // of the messages behind those
	failed  error     // the first error in the order of the input
	lines   []byte    // to be printed
	unsaid  uint64    // ids in lines, or being written
	closed  bool
	outErr  error // writing failed; nothing is printed after it
	wg      sync.WaitGroup
	stop    chan struct{} // closed when it makes no sense to send more: a message failed, or writing did
	stopped bool
}

func newTracker(out io.Writer) *tracker {
	t := &tracker{out: out, stop: make(chan struct{})}
	t.changed.L = &t.mu
	t.wg.Go(t.print)
	return t
}

// add takes the next message into account, and returns its number, from 0. It waits while too many ids are unprinted.
func (t *tracker) add() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.added-t.stored+t.unsaid >= maxUnprinted && !t.stopped {
		t.changed.Wait()
	}
	n := t.added
	t.added++
	t.open = append(t.open, outcome{})
	return n
}

// settle notes what became of a message.
func (t *tracker) settle(n uint64, id holdfast.ID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < t.stored || t.open[n-t.stored].known {
		return // it was resolved before
	}
	if t.open[n-t.stored] = (outcome{true, id, err}); err != nil {
		t.end()
	}
	done := 0
	for done < len(t.open) && t.open[done].known && t.open[done].err == nil {
		t.line(t.open[done].id)
		done++
	}
	t.advance(done)
	if len(t.open) > 0 && t.open[0].known && t.failed == nil {
		t.failed = t.open[0].err
	}
	t.changed.Broadcast()
}

func (t *tracker) end() {
	if !t.stopped {
		t.stopped = true
		close(t.stop)
	}
}

// advance takes outcomes that are dealt with from the beginning of open.
func (t *tracker) advance(n int) {
	t.stored += uint64(n)
	t.open = t.open[n:]
	if len(t.open) == 0 {
		t.open = nil
	}
}

func (t *tracker) line(id holdfast.ID) {
	if t.outErr != nil {
		return
	}
	if id == (holdfast.ID{}) {
		t.lines = append(t.lines, '-')
	} else {
		t.lines = append(t.lines, id.String()...)
	}
	t.lines = append(t.lines, '\n')
	t.unsaid++
}

// resolve says that exactly the first n messages are stored: it is proved.
func (t *tracker) resolve(n uint64, notStored error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.stored < min(n, t.added) {
		o := t.open[0]
		t.line(o.id) // the zero id, unless its outcome came late
		t.advance(1)
	}
	t.failed = nil
	for i := range t.open {
		t.open[i] = outcome{known: true, err: notStored}
		t.failed = notStored
	}
	t.changed.Broadcast()
}

// unknown counts messages without a known outcome.
func (t *tracker) unknown(is func(error) bool) (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.open {
		if !o.known || is(o.err) {
			n++
		}
	}
	return n
}

// counts returns how many messages were read, and how many at their beginning are stored, and the first error.
func (t *tracker) counts() (added, stored uint64, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.added, t.stored, t.failed
}

// print writes ids as they come.
func (t *tracker) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var spare []byte
	for {
		for len(t.lines) == 0 && !t.closed {
			t.changed.Wait()
		}
		if len(t.lines) == 0 {
			return
		}
		lines, n := t.lines, t.unsaid
		t.lines = spare[:0]
		t.mu.Unlock()
		_, err := t.out.Write(lines)
		t.mu.Lock()
		spare = lines
		t.unsaid -= n
		if err != nil && t.outErr == nil {
			t.outErr, t.lines, t.unsaid = err, nil, 0
			t.end()
		}
		t.changed.Broadcast()
	}
}

// close prints what is left, and returns the error of printing.
func (t *tracker) close() error {
	t.mu.Lock()
	t.closed = true
	t.changed.Broadcast()
	t.mu.Unlock()
	t.wg.Wait()
	return t.outErr
}
