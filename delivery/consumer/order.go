package consumer

import "github.com/holdfastmq/holdfast/delivery/window"

// manyHeld is the size above which the map of a window is not kept for its next use.
const manyHeld = 256

// hold keeps back a message that came before its turn.
func (c *Core[B]) hold(st *state[B], it Item[B]) {
	if len(st.held) == 0 {
		if st.held == nil {
			st.held = make(map[uint64]Item[B])
		}
		st.holder = len(c.holders)
		c.holders = append(c.holders, st)
	}
	st.held[it.Seq] = it
	st.order.Set(it.Seq)
	st.many = st.many || len(st.held) > manyHeld
}

// take takes a message out of what is held back.
func (c *Core[B]) take(st *state[B], seq uint64) (Item[B], bool) {
	it, ok := st.held[seq]
	if !ok {
		return it, false
	}
	delete(st.held, seq)
	st.order.Clear(seq)
	if len(st.held) == 0 {
		c.unhold(st)
	}
	return it, true
}

// unhold takes a window out of those that hold something back.
func (c *Core[B]) unhold(st *state[B]) {
	last := len(c.holders) - 1
	c.holders[st.holder] = c.holders[last]
	c.holders[st.holder].holder = st.holder
	c.holders[last] = nil
	c.holders = c.holders[:last]
	if st.many {
		st.held, st.many = nil, false
	}
}

// follow lets run what was held back and is next now.
func (c *Core[B]) follow(l *lane[B], st *state[B], w *window.Window) {
	for {
		it, ok := c.take(st, st.next)
		if !ok {
			if w.Outcome(st.next) != window.Known {
				st.order.Advance(st.next)
				return
			}
		} else {
			l.items.push(it)
		}
		st.next++
	}
}

// pass moves on past what the floor has settled.
func (c *Core[B]) pass(w *window.Window, st *state[B]) {
	if st.next > w.Contiguous() {
		return
	}
	st.next = w.Contiguous() + 1
	l := c.lanes[w.Key().Producer]
	for seq, ok := st.order.NextSet(0); ok && seq < st.next; seq, ok = st.order.NextSet(seq + 1) {
		it, _ := c.take(st, seq)
		c.lapse(l, &it)
	}
	if l != nil {
		c.follow(l, st, w)
	}
}

// fallBack makes seq, which failed, the next of its window: what follows it waits until it has come again.
func (c *Core[B]) fallBack(l *lane[B], w *window.Window, seq uint64) {
	st := c.state(w)
	if seq <= w.Contiguous() || seq >= st.next {
		return
	}
	st.next = seq
	st.order = window.Bits{}
	st.order.Advance(seq)
	for s := range st.held {
		st.order.Set(s)
	}
	l.items.remove(func(it *Item[B]) bool { return it.win == w }, func(it Item[B]) { c.hold(st, it) })
}

// makeRoom reports whether a message of size bytes finds room, in its lane and in all.
//
// A message that is next in its order must not be kept out by others that wait for their turn, or everybody
// waits for ever: they are thrown out, the furthest first, and come again. In arrival order everything
// that waits will run, so there is nothing to throw out.
func (c *Core[B]) makeRoom(l *lane[B], st *state[B], next bool, size int) bool {
	for !c.fits(l, size) {
		if !next || !c.opts.InOrder || len(c.holders) == 0 {
			return false
		}
		victim := c.holders[len(c.holders)-1]
		if st != nil && len(st.held) > 0 {
			victim = st
		} else if l != nil && l.unsettled >= c.opts.MaxWaitingPerProducer {
			if victim = c.holderOf(l.producer); victim == nil {
				return false
			}
		}
		seq, _ := victim.order.Last()
		it, _ := c.take(victim, seq)
		from := c.lanes[it.win.Key().Producer]
		c.lapse(from, &it)
		if from != l {
			c.schedule(from)
		}
	}
	return true
}

// holderOf returns a window of producer that holds something back, or nil.
func (c *Core[B]) holderOf(producer string) *state[B] {
	for _, st := range c.holders {
		for _, it := range st.held {
			if it.win.Key().Producer == producer {
				return st
			}
			break
		}
	}
	return nil
}
