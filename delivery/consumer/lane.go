package consumer

import "github.com/holdfastmq/holdfast/delivery/window"

// lane is the messages of one producer id that wait, of all its incarnations, in the order in which they run.
type lane[B any] struct {
	producer  string
	items     fifo[Item[B]]
	running   int // jobs
	unsettled int // waiting, held back and in jobs
	queued    bool
}

// maxSpare and maxSpareItems bound what is kept of lanes that emptied, for their next use.
const (
	maxSpare      = 64
	maxSpareItems = 4096
)

func (l *lane[B]) waiting() int { return l.items.len() }

func (c *Core[B]) openLane(producer string) *lane[B] {
	var l *lane[B]
	if n := len(c.spare); n > 0 {
		l, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		l = &lane[B]{}
	}
	l.producer = producer
	c.lanes[producer] = l
	return l
}

// schedule puts a lane in the turn if it may run something, and forgets it if nothing of it is left.
func (c *Core[B]) schedule(l *lane[B]) {
	switch {
	case l.waiting() > 0 && l.running < c.opts.PerProducer && !l.queued:
		l.queued = true
		c.ready.push(l)
	case l.unsettled == 0 && l.running == 0 && !l.queued:
		delete(c.lanes, l.producer)
		l.producer = ""
		if len(c.spare) < maxSpare && cap(l.items.items) <= maxSpareItems {
			c.spare = append(c.spare, l)
		}
	}
}

// Job is what one worker runs next: messages of one producer, in order.
type Job[B any] struct {
	// Items are to be handled one after the other, each followed by Settle (perhaps some at once, later).
	Items []Item[B]
	lane  *lane[B]
}

// Begin fills buf with messages of the lane whose turn it is, at most as many as buf has room for. ok is false
// if nothing can be run now. Each job ends with End.
func (c *Core[B]) Begin(buf []Item[B]) (job Job[B], ok bool) {
	if c.running >= c.opts.MaxConcurrent {
		return job, false
	}
	for c.ready.len() > 0 {
		l := c.ready.pop()
		l.queued = false
		buf = buf[:0]
		limit := cap(buf)
		if c.opts.PerProducer > 1 { // leave something for the others
			limit = max(1, min(limit, l.waiting()/c.opts.PerProducer))
		}
		for len(buf) < limit && l.waiting() > 0 {
			it := l.items.pop()
			if it.Seq <= it.win.Contiguous() {
				c.lapse(l, &it)
				continue
			}
			buf = append(buf, it)
		}
		if len(buf) == 0 {
			c.schedule(l)
			continue
		}
		c.running++
		l.running++
		c.schedule(l) // more of it may run at once
		return Job[B]{Items: buf, lane: l}, true
	}
	return job, false
}

// Ready reports whether a lane waits for its turn.
func (c *Core[B]) Ready() bool { return c.ready.len() > 0 }

// Runnable reports whether Begin would give a job.
func (c *Core[B]) Runnable() bool { return c.ready.len() > 0 && c.running < c.opts.MaxConcurrent }

// lapse gives up on a waiting message below the floor: its producer had it acknowledged by an earlier handler,
// which this window does not know of. Running it would only handle it twice.
func (c *Core[B]) lapse(l *lane[B], it *Item[B]) {
	c.forget(l, it)
	c.table.Settle(it.win, it.Seq, false, 0)
}

// Settle ends one message of a job: handled if done, else its handler failed and its retransmission is new. A
// handled one is acknowledged, even if its window was dropped meanwhile, which marks nothing.
func (c *Core[B]) Settle(job *Job[B], i int, done bool, now int64) {
	it := &job.Items[i]
	c.forget(job.lane, it)
	there := c.table.Settle(it.win, it.Seq, done, now)
	if done {
		c.acknowledge(it.win, it.Seq)
	} else if there && c.opts.InOrder {
		c.fallBack(job.lane, it.win, it.Seq)
	}
}

// End ends a job of which the items from rest on were not run. They wait again, in front.
func (c *Core[B]) End(job *Job[B], rest int) {
	l := job.lane
	l.running--
	c.running--
	back := job.Items[rest:]
	kept := back[:0]
	for _, it := range back {
		switch st := c.state(it.win); {
		case it.win.Dropped():
			c.forget(l, &it)
		case c.opts.InOrder && it.Seq >= st.next: // one before it failed, and has perhaps come again
			c.hold(st, it)
			c.follow(l, st, it.win)
		default:
			kept = append(kept, it)
		}
	}
	if len(kept) > 0 {
		l.items.unpop(kept)
	}
	clear(job.Items)
	c.schedule(l)
}

// purge throws away what waits of a window that was dropped. What runs goes on and marks nothing.
func (c *Core[B]) purge(w *window.Window) {
	l := c.lanes[w.Key().Producer]
	if l == nil {
		return
	}
	l.items.remove(func(it *Item[B]) bool { return it.win == w }, func(it Item[B]) { c.forget(l, &it) })
	st := c.state(w)
	for _, it := range st.held {
		c.forget(l, &it)
	}
	if len(st.held) > 0 {
		c.unhold(st)
	}
	st.held, st.order = nil, window.Bits{}
	c.schedule(l)
}
