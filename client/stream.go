package client

import (
	"sync"
	"sync/atomic"

	"github.com/holdfastmq/holdfast"
)

// answer is what the opening of a stream waits for.
type answer struct {
	done chan struct{} // closed once, when the stream is open or has failed to open
	err  error

	// tell is held while the stream's events are being told, so that none is told beside another.
	tell     sync.Mutex
	answered bool        // done is closed; under tell
	over     atomic.Bool // no event is told any more
}

func newAnswer() *answer { return &answer{done: make(chan struct{})} }

// event runs f, which tells an event, unless the stream has ended.
func (a *answer) event(f func()) {
	a.tell.Lock()
	defer a.tell.Unlock()
	if !a.over.Load() {
		f()
	}
}

// opened reports that the stream is open. It returns false if it was before.
func (a *answer) opened() bool {
	a.tell.Lock()
	defer a.tell.Unlock()
	if a.answered {
		return false
	}
	a.answered = true
	close(a.done)
	return true
}

// isOpen reports whether the answer has come.
func (a *answer) isOpen() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// end ends the stream for a reason: what waits for its opening gets it, else broken is told.
func (a *answer) end(err error, broken func(error)) {
	a.tell.Lock()
	defer a.tell.Unlock()
	if a.over.Swap(true) {
		return
	}
	if !a.answered {
		a.answered, a.err = true, err
		close(a.done)
		return
	}
	broken(err)
}

// abandon lets no event be told any more. It does not wait for one that is being told.
func (a *answer) abandon() { a.over.Store(true) }

// gone returns why a stream cannot be used any more.
func (cn *conn) gone() error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.ended != nil {
		return cn.ended
	}
	return holdfast.ErrClosed
}
