// Package producer is the pure core of the sending side of reliable delivery: it numbers messages, bounds how
// many are unacknowledged, says what to transmit and when to transmit it again, and takes acknowledgements.
//
// It knows sequence numbers, not messages: who holds the messages (a ring, the frames of a connection)
// looks them up by number. It works in ranges, so that a thousand messages under consecutive numbers cost no
// more than one. Nothing here reads a clock, blocks, or is safe for concurrent use; a shell of one goroutine
// or one lock owns a Core.
//
// ProducerController is its shell: it transmits over links that lose and reorder, and lets Due say what to repeat.
package producer

import (
	"math/rand/v2"

	"github.com/holdfastmq/holdfast/delivery/window"
)

// Range is the messages First…Last, both included.
type Range struct{ First, Last uint64 }

// Len returns how many messages the range has.
func (r Range) Len() int { return int(r.Last - r.First + 1) }

// Resend is a range to transmit again.
type Resend struct {
	Range
	// Attempt counts the transmissions of the range before this one, 1 for the first repetition.
	Attempt int
}

// Options sets up a Core. Times are int64 of one unit, the caller's.
type Options struct {
	// Window is how many messages may be numbered and not acknowledged, 1 to window.MaxWindow.
	Window int
	// ResendTimeout is when a message is transmitted again for the first time, at least 1.
	ResendTimeout int64
	// ResendCap is the longest time between two transmissions, at least ResendTimeout.
	ResendCap int64
	// First is the number of the first message. 0 means 1; a durable producer goes on where it was.
	First uint64
	// Hold keeps numbered messages back until Release, because they are stored first.
	Hold bool
	// Seed makes the jitter of repetitions differ from producer to producer, and repeat in tests.
	Seed uint64
}

// Core is the state of one producer. Make it with New.
type Core struct {
	opts   Options
	random *rand.Rand

	// floor ≤ cursor ≤ released ≤ next, and cursor ≤ reached ≤ released.
	floor    uint64 // the lowest number not settled
	cursor   uint64 // the lowest number to transmit next
	reached  uint64 // the lowest number never transmitted
	released uint64 // the lowest number held back
	next     uint64 // the number of the next message

	unsettled int
	settled   window.Bits // the settled numbers above floor
	flights   flights
}

// New returns a Core. The options must be in their limits; they are not checked, except that a window below 1
// or above window.MaxWindow panics.
func New(o Options) *Core {
	if o.Window < 1 || o.Window > window.MaxWindow {
		panic("producer: window out of 1…MaxWindow")
	}
	first := max(o.First, 1)
	c := &Core{
		opts:     o,
		random:   rand.New(rand.NewPCG(o.Seed, o.Seed^0x9e3779b97f4a7c15)),
		floor:    first,
		cursor:   first,
		reached:  first,
		released: first,
		next:     first,
	}
	c.settled.Advance(first)
	c.flights.init(o.ResendTimeout, o.ResendCap)
	return c
}

// Restore returns a Core that goes on where a durable producer was: the next message gets the number next, and
// of the ones before it the ranges in unsettled, ascending, are not acknowledged. They count as transmitted, since
// they may have been, are stored, and are transmitted again, whatever Options.Window is. Options.First is ignored.
func Restore(o Options, next uint64, unsettled []Range) *Core {
	o.First = next
	if len(unsettled) > 0 {
		o.First = unsettled[0].First
	}
	c := New(o)
	c.next, c.released, c.reached = next, next, next
	end := c.floor
	for _, r := range unsettled {
		if r.First > end {
			c.settled.SetRange(end, r.First-1)
		}
		c.unsettled += r.Len()
		end = r.Last + 1
	}
	if end < next {
		c.settled.SetRange(end, next-1)
	}
	return c
}

// Room returns how many messages may be numbered now: the window less what is unsettled, and never so far
// beyond the floor that a consumer would refuse it.
func (c *Core) Room() int {
	room := min(uint64(max(0, c.opts.Window-c.unsettled)), c.floor+window.MaxWindow-c.next)
	return int(min(room, window.MaxSeq+1-c.next))
}

// Number gives the next n messages their numbers, and returns the first. n must not exceed Room.
func (c *Core) Number(n int) (first uint64) {
	if n < 0 || n > c.Room() {
		panic("producer: more messages numbered than there is room for")
	}
	first = c.next
	c.next += uint64(n)
	c.unsettled += n
	if !c.opts.Hold {
		c.released = c.next
	}
	return first
}

// Release lets everything up to and including last be transmitted, because it is stored.
func (c *Core) Release(last uint64) {
	c.released = max(c.released, min(last+1, c.next))
}

// Transmit returns the next range of at most limit messages to be transmitted for the first time, and false if there is
// none. The caller transmits it at time now.
func (c *Core) Transmit(limit int, now int64) (Range, bool) {
	first := c.settled.NextClear(c.cursor)
	if first >= c.released || limit < 1 {
		c.cursor = max(c.cursor, min(first, c.released))
		return Range{}, false
	}
	end := min(c.released, first+uint64(limit))
	if settled, ok := c.settled.NextSet(first); ok {
		end = min(end, settled)
	}
	c.cursor = end
	c.reached = max(c.reached, end)
	r := Range{first, end - 1}
	c.flights.add(r, now)
	return r, true
}

// Waiting reports whether Transmit has something to give.
func (c *Core) Waiting() bool { return c.settled.NextClear(c.cursor) < c.released }

// Due appends to dst what is to be transmitted again at time now, because its acknowledgement is overdue.
func (c *Core) Due(dst []Resend, now int64) []Resend {
	for {
		id := c.flights.popDue(now)
		if id == none {
			return dst
		}
		f := c.flights.at(id)
		f.attempt++
		for first := c.settled.NextClear(f.first); first <= f.last; {
			last := f.last
			if settled, ok := c.settled.NextSet(first); ok && settled <= last {
				last = settled - 1
			}
			dst = append(dst, Resend{Range{first, last}, f.attempt})
			first = c.settled.NextClear(last + 1)
		}
		c.flights.schedule(id, now, c.random.Float64())
	}
}

// NextDue returns the time at which Due will have something to give if nothing is acknowledged until then, and
// false if nothing was transmitted that is not settled.
func (c *Core) NextDue() (at int64, ok bool) { return c.flights.nextDue() }

// Ack takes the acknowledgement of first…last and appends to dst the ranges of it that were not settled
// before. What was never transmitted is not touched: an acknowledgement of it is forged or mistaken.
func (c *Core) Ack(dst []Range, first, last uint64) []Range {
	first, last = max(first, c.floor), min(last, c.reached-1)
	for first <= last {
		if first = c.settled.NextClear(first); first > last {
			break
		}
		end := last
		if settled, ok := c.settled.NextSet(first); ok && settled <= last {
			end = settled - 1
		}
		r := Range{first, end}
		dst = append(dst, r)
		c.unsettled -= r.Len()
		c.flights.settle(r)
		if first == c.floor {
			c.floor = c.settled.NextClear(end + 1)
			c.settled.Advance(c.floor)
			c.flights.trim(c.floor)
			c.cursor = max(c.cursor, c.floor)
		} else {
			c.settled.SetRange(first, end)
		}
		first = end + 1
	}
	return dst
}

// Floor returns the lowest unsettled number: everything below it is settled. It is what an envelope carries.
func (c *Core) Floor() uint64 { return c.floor }

// Next returns the number that the next message gets.
func (c *Core) Next() uint64 { return c.next }

// Reached returns the lowest number that was never transmitted.
func (c *Core) Reached() uint64 { return c.reached }

// Unsettled returns how many messages are numbered and not acknowledged.
func (c *Core) Unsettled() int { return c.unsettled }

// Settled reports whether seq is settled. A number that was not given yet is not.
func (c *Core) Settled(seq uint64) bool { return seq < c.floor || c.settled.Has(seq) }
