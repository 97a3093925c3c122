// Package consumer is the pure core of the receiving side of reliable delivery: it says of each message whether
// it is handled, acknowledged again or ignored, in what order handlers run, and what is acknowledged when.
//
// Envelopes, settlements and "now" go in; what to run and what to acknowledge comes out as values. Nothing here
// reads a clock, blocks, starts a goroutine or is safe for concurrent use; a shell with one lock owns a Core
// and runs the handlers outside it.
//
// What the core remembers of each producer is in package window. What it adds is the *lane*: the messages of
// one producer id that wait for their handler.
package consumer

import (
	"github.com/holdfastmq/holdfast/delivery/window"
)

// Options sets up a Core. All numbers are at least 1 and not checked.
type Options[B any] struct {
	// MaxProducers is the budget of producer ids with dedup state.
	MaxProducers int
	// IdleTTL is how long an unused window is kept, in the unit of now.
	IdleTTL int64
	// MaxConcurrent is how many jobs may run at once.
	MaxConcurrent int
	// PerProducer is how many of them may be of one producer; 1 with InOrder.
	PerProducer int
	// InOrder runs the messages of each incarnation strictly by seq.
	InOrder bool
	// MaxWaiting bounds the messages accepted and not settled, in all.
	MaxWaiting int
	// MaxWaitingPerProducer bounds them for each producer id.
	MaxWaitingPerProducer int
	// MaxWaitingBytes bounds the bytes of their bodies, as Size tells them. One message is always accepted.
	MaxWaitingBytes int
	// Size returns the bytes of a body. If nil, bodies count nothing.
	Size func(B) int
}

// Envelope is one or more messages of one producer under consecutive numbers.
type Envelope[B any] struct {
	Key    window.Key
	Floor  uint64
	First  uint64
	Bodies []B // kept by the core one by one; the slice is not
	// Reply is where acknowledgements go. The core hands it back with them; nil is a fault.
	Reply any
}

// Item is a message that is to be handled.
type Item[B any] struct {
	Seq  uint64
	Body B

	win  *window.Window
	size int
}

// Key returns the producer id and incarnation of the message. It is safe to call at any time, and does not change.
func (it *Item[B]) Key() *window.Key { return it.win.Key() }

// Ack is an acknowledgement to send: First…Last of Key, to Reply.
type Ack struct {
	Key         window.Key
	First, Last uint64
	Reply       any

	win *window.Window
}

// Counts says what became of the messages of an envelope.
type Counts struct {
	Accepted   int // will be handled
	Known      int // settled before: acknowledged again
	InProgress int // waiting or running: ignored
	NoRoom     int // ignored because too much waits
	Evicted    int // producers that lost their entry to make room for this one
}

// Core is the state of one consumer. Make it with New.
type Core[B any] struct {
	opts  Options[B]
	table *window.Table
	lanes map[string]*lane[B]
	spare []*lane[B]

	ready     fifo[*lane[B]] // lanes that have something to run and may run it, in turn
	running   int
	unsettled int
	bytes     int
	holders   []*state[B] // the windows that hold something back for its order

	acks []Ack
}

// state is what the core adds to a window, as its Owner.
type state[B any] struct {
	reply any

	// For InOrder: what came early waits in held until next has run.
	next   uint64
	held   map[uint64]Item[B]
	order  window.Bits // the keys of held
	holder int         // the index in Core.holders, while something is held
	many   bool        // held was large
}

// New returns a Core.
func New[B any](o Options[B]) *Core[B] {
	if o.InOrder {
		o.PerProducer = 1
	}
	c := &Core[B]{opts: o, table: window.NewTable(o.MaxProducers, o.IdleTTL), lanes: make(map[string]*lane[B])}
	c.table.OnDrop = c.purge
	return c
}

// Producers returns the number of producer ids with dedup state.
func (c *Core[B]) Producers() int { return c.table.Len() }

// Unsettled returns how many messages are accepted and not settled, and the bytes of their bodies.
func (c *Core[B]) Unsettled() (messages, bytes int) { return c.unsettled, c.bytes }

// Running returns how many jobs run.
func (c *Core[B]) Running() int { return c.running }

// Window returns the dedup state of key, or nil, to be looked at only.
func (c *Core[B]) Window(key window.Key) *window.Window { return c.table.Lookup(key) }

// Outcome says what is known of one message of a valid envelope, without changing anything.
func (c *Core[B]) Outcome(key window.Key, floor, seq uint64) window.Outcome {
	if seq < floor {
		return window.Known
	}
	if w := c.table.Lookup(key); w != nil {
		return w.Outcome(seq)
	}
	if last, ok := c.table.Closed(key); ok && seq <= last {
		return window.Known
	}
	return window.Fresh
}

// Deliver takes an envelope at time now. A fault means that it is malformed: it is a dead letter, and nothing
// was changed by it. Otherwise new messages wait to be run (Begin), known ones are acknowledged (AppendAcks), and
// what is in progress or finds no room is ignored and comes again.
func (c *Core[B]) Deliver(e Envelope[B], now int64) (n Counts, fault *window.Fault) {
	if e.Reply == nil {
		return n, &window.Fault{Field: "reply-to", Problem: "is missing"}
	}
	last := e.First + uint64(len(e.Bodies)) - 1
	if fault := window.CheckEnvelope(e.Key, e.Floor, e.First, last); fault != nil {
		return n, fault
	}
	if c.table.Lookup(e.Key) == nil {
		if end, ok := c.table.Closed(e.Key); last < e.Floor || ok && last <= end {
			c.acks = append(c.acks, Ack{Key: e.Key, First: e.First, Last: last, Reply: e.Reply})
			return Counts{Known: len(e.Bodies)}, nil
		}
		// A producer that finds no room must not cost another its entry.
		if i := max(e.First, e.Floor) - e.First; !c.makeRoom(nil, nil, e.First+i == e.Floor, c.size(e.Bodies[i])) {
			return Counts{NoRoom: len(e.Bodies)}, nil
		}
	}
	w, evicted := c.table.Open(e.Key, e.Floor, now)
	n.Evicted = evicted
	st := c.state(w)
	st.reply = e.Reply
	if c.opts.InOrder {
		c.pass(w, st)
	}
	l := c.lanes[e.Key.Producer]
	for i, body := range e.Bodies {
		seq := e.First + uint64(i)
		switch w.Outcome(seq) {
		case window.Known:
			c.acknowledge(w, seq)
			n.Known++
		case window.InProgress:
			n.InProgress++
		case window.Fresh:
			it := Item[B]{Seq: seq, Body: body, win: w, size: c.size(body)}
			if !c.makeRoom(l, st, c.opts.InOrder && seq == st.next, it.size) {
				n.NoRoom++
				continue
			}
			if l == nil {
				l = c.openLane(e.Key.Producer)
			}
			c.accept(l, st, it)
			n.Accepted++
		}
	}
	if l != nil {
		c.schedule(l)
	}
	return n, nil
}

// Farewell frees the entry of a producer that says that it ended with everything below floor settled. It
// reports whether there was one.
func (c *Core[B]) Farewell(key window.Key, floor uint64) bool {
	if floor < 1 || floor > window.MaxSeq+1 {
		return false
	}
	return c.table.Close(key, floor)
}

// Sweep drops the dedup state that was not used for IdleTTL and returns how many producers went. Called once
// per IdleTTL, it lets an idle one go after one to two of it.
func (c *Core[B]) Sweep(now int64) int { return c.table.Sweep(now) }

// AppendAcks appends to dst the acknowledgements that have come up since the last call.
func (c *Core[B]) AppendAcks(dst []Ack) []Ack {
	dst = append(dst, c.acks...)
	clear(c.acks)
	c.acks = c.acks[:0]
	return dst
}

func (c *Core[B]) size(body B) int {
	if c.opts.Size == nil {
		return 0
	}
	return c.opts.Size(body)
}

func (c *Core[B]) state(w *window.Window) *state[B] {
	if st, ok := w.Owner.(*state[B]); ok {
		return st
	}
	st := &state[B]{next: w.Contiguous() + 1}
	st.order.Advance(st.next)
	w.Owner = st
	return st
}

// acknowledge adds seq to the acknowledgements, in one range with the one before if they touch.
func (c *Core[B]) acknowledge(w *window.Window, seq uint64) {
	reply := w.Owner.(*state[B]).reply
	if n := len(c.acks); n > 0 {
		if a := &c.acks[n-1]; a.win == w && a.Last+1 == seq {
			a.Last, a.Reply = seq, reply
			return
		}
	}
	c.acks = append(c.acks, Ack{Key: *w.Key(), First: seq, Last: seq, Reply: reply, win: w})
}

func (c *Core[B]) accept(l *lane[B], st *state[B], it Item[B]) {
	c.table.Accept(it.win, it.Seq)
	c.unsettled++
	c.bytes += it.size
	l.unsettled++
	switch {
	case !c.opts.InOrder:
		l.items.push(it)
	case it.Seq == st.next:
		l.items.push(it)
		st.next++
		c.follow(l, st, it.win)
	default:
		c.hold(st, it)
	}
}

// forget takes an item that was accepted out of the counts.
func (c *Core[B]) forget(l *lane[B], it *Item[B]) {
	c.unsettled--
	c.bytes -= it.size
	l.unsettled--
}

// fits reports whether one more message of size bytes is within the bounds.
func (c *Core[B]) fits(l *lane[B], size int) bool {
	return c.unsettled < c.opts.MaxWaiting && (l == nil || l.unsettled < c.opts.MaxWaitingPerProducer) &&
		(c.unsettled == 0 || size <= c.opts.MaxWaitingBytes-c.bytes)
}
