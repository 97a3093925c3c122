package persistent

import (
	"context"
	"sync"
	"sync/atomic"
)

// item is a command in the mailbox.
type item[C any] struct {
	cmd  C
	drop func(err error) // called if the command is never begun; may be nil
}

// caller is a Tell that waits for room.
type caller[C any] struct {
	item[C]
	got chan error // of capacity 1: nil once the command is in
}

// mailbox has two ways into one slice, so that the order of arrival is kept: put by callers that wait for room,
// and push by those that bound their commands by other means. The actor takes all of it at once, and one
// wake-up does for all commands that come while it is awake. What pushFirst adds goes before all of it.
//
// It is also the one place where the actor waits: whatever else there is to see to is told by poke. A wait on one channel costs a
// fraction of a select on several.
type mailbox[C any] struct {
	wake  chan struct{} // of capacity 1: gets one element for each sleep
	up    func()        // instead, if it is set: called under the lock
	hurry atomic.Bool   // there is something in first

	mu      sync.Mutex
	limit   int
	in      []item[C]
	first   []item[C]
	put     int          // of in, those that count against limit
	callers []*caller[C] // waiting, in order; only while put == limit
	state   wakefulness
	poked   bool // while it was awake
	closed  error
}

// wakefulness is whether the actor waits for wake, and what is to wake it.
type wakefulness uint8

const (
	awake   wakefulness = iota
	waiting             // by a poke alone: it may begin no command
	asleep              // by commands too
)

func newMailbox[C any](limit int) *mailbox[C] {
	return &mailbox[C]{wake: make(chan struct{}, 1), limit: limit}
}

// add puts it into the slice and wakes the actor. The lock is held.
func (m *mailbox[C]) add(it item[C]) {
	m.in = append(m.in, it)
	m.rouse(asleep)
}

// rouse wakes the actor if its sleep is at least that deep. The lock is held.
func (m *mailbox[C]) rouse(least wakefulness) bool {
	if m.state < least {
		return false
	}
	m.state = awake
	if m.up != nil {
		m.up()
	} else {
		m.wake <- struct{}{}
	}
	return true
}

// poke tells the actor that there is something to see to, besides commands.
func (m *mailbox[C]) poke() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.rouse(waiting) {
		m.poked = true
	}
}

// push adds a command whatever the limit.
func (m *mailbox[C]) push(it item[C]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil {
		return m.closed
	}
	m.add(it)
	return nil
}

// pushFirst adds a command that goes before those of the other callers, whatever the limit.
func (m *mailbox[C]) pushFirst(it item[C]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil {
		return m.closed
	}
	m.first = append(m.first, it)
	m.hurry.Store(true)
	m.rouse(asleep)
	return nil
}

// takeFirst returns what pushFirst added. used, what it returned the last time, is reused.
func (m *mailbox[C]) takeFirst(used []item[C]) []item[C] {
	if cap(used) > keep && len(used) < cap(used)/4 {
		used = nil
	}
	clear(used)
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.first
	m.first = used[:0]
	m.hurry.Store(false)
	return out
}

// tryTell adds a command if there is room and nobody waits for it.
func (m *mailbox[C]) tryTell(it item[C]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil {
		return m.closed
	}
	if m.put >= m.limit {
		return ErrMailboxFull
	}
	m.put++
	m.add(it)
	return nil
}

// tell adds a command, and waits for room until ctx ends.
func (m *mailbox[C]) tell(ctx context.Context, it item[C]) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	if m.closed != nil || m.put < m.limit {
		defer m.mu.Unlock()
		if m.closed == nil {
			m.put++
			m.add(it)
		}
		return m.closed
	}
	c := &caller[C]{it, make(chan error, 1)}
	m.callers = append(m.callers, c)
	m.mu.Unlock()

	select {
	case err := <-c.got:
		return err
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, o := range m.callers {
		if o == c {
			m.callers = append(m.callers[:i], m.callers[i+1:]...)
			return context.Cause(ctx)
		}
	}
	return <-c.got // it was let in at the same moment
}

// keep bounds the capacity that take keeps for the next time, in commands.
const keep = 1 << 10

// take returns everything that is in, and lets in who waits. used, what it returned the last time, is reused.
func (m *mailbox[C]) take(used []item[C]) []item[C] {
	if cap(used) > keep && len(used) < cap(used)/4 {
		used = nil
	}
	clear(used)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.in) == 0 && len(m.callers) == 0 {
		return used[:0]
	}
	out := m.in
	m.in, m.put = used[:0], 0
	n := min(m.limit, len(m.callers))
	for _, c := range m.callers[:n] {
		m.put++
		m.in = append(m.in, c.item)
		c.got <- nil
	}
	rest := copy(m.callers, m.callers[n:])
	clear(m.callers[rest:])
	m.callers = m.callers[:rest]
	return out
}

// sleep announces that the actor waits for an element of wake, which comes with a poke, or if commands is set with a command. It
// returns false if there is something to see to now.
func (m *mailbox[C]) sleep(commands bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.poked || commands && (len(m.in) > 0 || len(m.first) > 0) {
		m.poked = false
		return false
	}
	if m.state = waiting; commands {
		m.state = asleep
	}
	return true
}

// close refuses all later commands, and those that wait for room, with err. What is in can still be taken.
// The first close counts.
func (m *mailbox[C]) close(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed != nil {
		return
	}
	m.closed = err
	for _, c := range m.callers {
		c.got <- err
	}
	m.callers = nil
	// Whether it is asleep or just about to be, it must look again.
	if !m.rouse(waiting) {
		m.poked = true
	}
}

// drained tells whether it is closed and empty.
func (m *mailbox[C]) drained() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed != nil && len(m.in) == 0 && len(m.first) == 0
}
