package queue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// State is where a message is.
type State uint8

// The states.
const (
	StateAny      State = 0
	StateReady    State = 1 // to be handed out
	StateBlocked  State = 2 // ready, but an earlier message of its ordering key is not settled
	StateDelayed  State = 3 // sent with a delay
	StateRetrying State = 4 // failed, and waits for its next delivery
	StateInFlight State = 5 // leased
	StateParked   State = 6 // over the delivery limit, or damaged
	StateMoving   State = 7 // on its way to another queue
)

// String returns the state as a lower-case word.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

var stateNames = [...]string{"any", "ready", "blocked", "delayed", "retrying", "in-flight", "parked", "moving"}

// ParseState returns the state of a word that String returned, or a FieldError.
func ParseState(s string) (State, error) {
	if i := slices.Index(stateNames[:], s); i >= 0 {
		return State(i), nil
	}
	return 0, &message.FieldError{Field: "state", Fault: fmt.Sprintf("is %q", clip(s)), Limit: strings.Join(stateNames[:], ", ")}
}

// MessageInfo is what the core knows of a message.
type MessageInfo struct {
	Seq      uint64
	State    State
	Size     uint32 // attributes and body, bytes
	Priority int
	// Deliveries are those that were counted; one that is under way is not among them. It never falls.
	Deliveries int
	// Due is when a delayed or retrying message becomes ready, or a lease ends, Unix ms; 0 for other states.
	Due int64
	// StoredAt is when it was stored, Unix ms. It may be late by 1.6 % of its age.
	StoredAt int64
	// Target is where a moving message goes.
	Target string
	// Damaged tells of a parked message that its body cannot be read. See Core.Damaged.
	Damaged bool
}

// stateSet is a set of the messages of a state.
type stateSet struct {
	state State
	set   *seqset.Set
}

// stateSets returns the states that are sets, but for the ready ones.
func (c *Core) stateSets() [4]stateSet {
	return [4]stateSet{{StateBlocked, &c.waiting}, {StateDelayed, &c.delayed}, {StateRetrying, &c.retrying}, {StateParked, &c.parked}}
}

// nextIn returns the first run of messages in a state from a seq on.
func (c *Core) nextIn(state State, from uint64) (lo, hi uint64, ok bool) {
	switch state {
	case StateAny:
		return c.live.NextRun(from, maxSeq)
	case StateReady:
		for p := range c.ready {
			if a, b, is := c.ready[p].NextRun(from, maxSeq); is && (!ok || a < lo) {
				lo, hi, ok = a, b, true
			}
		}
		return lo, hi, ok
	case StateInFlight:
		lo, hi, _, ok = c.flights.Next(from)
		return lo, hi, ok
	case StateMoving:
		lo, hi, _, ok = c.moves.Next(from)
		return lo, hi, ok
	}
	for _, s := range c.stateSets() {
		if s.state == state {
			return s.set.NextRun(from, maxSeq)
		}
	}
	return 0, 0, false
}

// Peek returns up to limit messages in a state, StateAny for all, from seq from on.
func (c *Core) Peek(state State, from uint64, limit int) []MessageInfo {
	var out []MessageInfo
	for len(out) < limit {
		lo, hi, ok := c.nextIn(state, from)
		if !ok {
			break
		}
		is, end := c.stateRun(lo, hi)
		if state != StateAny {
			end = hi
		}
		for x := lo; x < end && len(out) < limit; x++ {
			out = append(out, c.info(x, is))
		}
		from = end
	}
	return out
}

// info returns what is known of a message in a state.
func (c *Core) info(x uint64, state State) MessageInfo {
	t, _ := c.entries.Get(x)
	m := MessageInfo{Seq: x, State: state, Size: c.sizes.At(x), Priority: c.priority(x), Deliveries: int(t.count), StoredAt: c.ages.of(x)}
	switch state {
	case StateRetrying:
		m.Due = t.due
	case StateDelayed:
		m.Due, _ = c.due.Find(x)
		if m.Due == 0 {
			m.Due = c.now
		}
	case StateInFlight:
		_, f, _ := c.flights.Get(x)
		m.Due = f.deadline
	case StateMoving:
		_, v, _ := c.moves.Get(x)
		m.Target = v.target
	case StateParked:
		m.Damaged = c.damaged.Contains(x)
	}
	return m
}

// Stats is the state of a queue in numbers.
type Stats struct {
	// Messages by state; Depth is all of them.
	Depth    uint64
	Ready    uint64
	Blocked  uint64 // found out as receivers ask: messages of blocked keys that no receiver came across count as Ready
	Delayed  uint64
	Retrying uint64
	InFlight uint64
	Parked   uint64
	Damaged  uint64 // of the parked ones, those whose bodies are known to be unreadable: see Core.Damaged
	Moving   uint64
	Bytes    uint64 // attributes and bodies of all messages
	// OldestAge is how long ago the oldest message was stored, in ms.
	OldestAge int64

	// Counts since the queue came into being. Sent = Depth + Acked + Expired + Purged + Dropped + DeadLettered + Redriven.
	Sent         uint64
	Duplicates   uint64 // not stored again; since the last recovery
	Delivered    uint64 // hand-overs of messages
	Redelivered  uint64 // those of them that were not the first
	Acked        uint64
	Nacked       uint64
	Released     uint64
	LeaseExpired uint64
	Disconnected uint64 // given back because the receiver was lost or closed
	Expired      uint64
	Purged       uint64
	Dropped      uint64
	ParkedEver   uint64
	DeadLettered uint64 // moved to the dead-letter queue
	Redriven     uint64 // moved by redrive
	Unparked     uint64
	Refused      uint64 // sends refused because the queue or the store was full; since the last recovery

	Producers         int
	ProducersEvicted  uint64 // for want of room
	DedupIDs          int
	DedupIDsEvicted   uint64 // for want of room, within the window
	Receivers         int
	HeldReceivers     int // lost ones whose started messages are held
	Senders           int
	WaitingSenders    int
	CreditOutstanding uint64 // messages that receivers are willing to take now
	StoredBytes       uint64 // body parts of records that are not discarded
	LiveBytes         uint64 // what of them is needed
	Paused            bool
	StorageFull       bool
	HoldingExpiry     bool // the clock was found far ahead on recovery
}

// Stats returns the numbers of the queue. Its cost does not depend on the backlog.
func (c *Core) Stats(now int64) Stats {
	n := &c.counts
	s := Stats{
		Depth: c.live.Len(), Ready: c.readyLen(), Blocked: c.waiting.Len(), Delayed: c.delayed.Len(), Retrying: c.retrying.Len(),
		InFlight: c.flights.Len(), Parked: c.parked.Len(), Damaged: c.damaged.Len(), Moving: c.moves.Len(), Bytes: c.bytes,
		Sent: n.sent, Duplicates: n.duplicates, Delivered: n.delivered, Redelivered: n.redelivered, Acked: n.acked, Nacked: n.nacked,
		Released: n.released, LeaseExpired: n.leaseExpired, Disconnected: n.disconnected, Expired: n.expired, Purged: n.purged,
		Dropped: n.dropped, ParkedEver: n.parked, DeadLettered: n.deadLettered, Redriven: n.redriven, Unparked: n.unparked, Refused: n.refused,
		Producers: c.producers.Len(), ProducersEvicted: n.producersEvicted, DedupIDs: c.dedup.Len(), DedupIDsEvicted: n.dedupEvicted,
		HeldReceivers: len(c.lost), Receivers: len(c.receivers) - len(c.lost), Senders: len(c.senders),
		StoredBytes: c.space.records.Bytes(), LiveBytes: c.liveCost(), Paused: c.paused, StorageFull: c.full, HoldingExpiry: now < c.holdTill,
	}
	if x, ok := c.live.Min(); ok {
		s.OldestAge = max(0, now-c.ages.of(x))
	}
	for _, r := range c.receivers {
		if !r.lost {
			left := r.credit - min(r.credit, r.used)
			s.CreditOutstanding += min(left, math.MaxInt64-min(s.CreditOutstanding, math.MaxInt64)) // some ask for all there is
		}
	}
	for _, x := range c.senders {
		if x.waits {
			s.WaitingSenders++
		}
	}
	return s
}
