package queue

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
	StateParked   State = 6 // over the delivery limit
	StateMoving   State = 7 // on its way to another queue
)

// String returns the state as a lower-case word.
func (s State) String() string { panic("to follow") }

// ParseState returns the state of a word that String returned, or a FieldError.
func ParseState(s string) (State, error) { panic("to follow") }

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
}

// Peek returns up to limit messages in a state, StateAny for all, from seq from on.
func (c *Core) Peek(state State, from uint64, limit int) []MessageInfo { panic("to follow") }

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
func (c *Core) Stats(now int64) Stats { panic("to follow") }
