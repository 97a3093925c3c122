package queue

// Span is Count messages with consecutive seqs from Seq on.
type Span struct {
	Seq   uint64
	Count uint64
}

// LeaseSpan is Count leased messages: message Seq+i is held under lease number Lease+i.
// With the stream's uid and an epoch it is a receipt for each of them.
type LeaseSpan struct {
	Lease uint64
	Seq   uint64
	Count uint64
}

// Kind is the type of an event as it is stored. Values are never reused.
type Kind uint8

// The kinds of events.
const (
	KindAdded          Kind = 1  // messages stored
	KindLeased         Kind = 2  // messages handed over
	KindStarted        Kind = 3  // the receiver confirmed that it begins with them (redelivered messages only)
	KindReturned       Kind = 4  // leases ended without a delete
	KindDeleted        Kind = 5  // acknowledged
	KindExpired        Kind = 6  // TTL or retention
	KindPurged         Kind = 7  // deleted up to a position on the user's order
	KindDropped        Kind = 8  // made room for newer ones (overflow policy drop-oldest)
	KindParked         Kind = 9  // over the delivery limit with nowhere to go, or their bodies cannot be read
	KindMoving         Kind = 10 // on their way to another queue
	KindMoved          Kind = 11 // stored there, hence gone here
	KindUnparked       Kind = 12 // parked messages made ready again by redrive
	KindConfigured     Kind = 13
	KindPaused         Kind = 14
	KindRelocated      Kind = 15 // bodies of survivors, stored anew; seqs and state unchanged
	KindProducerClosed Kind = 16 // a sender said that it will not come back
	KindSuppressed     Kind = 17 // a producer's messages were not stored, since their dedup ids were known
	KindUndone         Kind = 18 // an Added or Relocated event whose bodies the store had no room for
)

// Cause says how leases ended.
type Cause uint8

// The causes.
const (
	CauseNack         Cause = 1 // the receiver failed
	CauseRelease      Cause = 2 // the receiver gave them back
	CauseLeaseExpired Cause = 3 // the visibility timeout ran out
	CauseDisconnected Cause = 4 // the receiver was lost, or closed
)

// Event is one decided change. It is interpreted by Kind; fields that a kind does not name are zero.
// An event is immutable once decided.
type Event struct {
	Kind Kind
	At   int64 // queue time of the decision, Unix ms; every kind

	// Spans are the messages concerned: all kinds but Configured, Paused, ProducerClosed, Suppressed. Added has
	// exactly one, which is decided when the event gets its seq and not part of the encoding; Purged one: all below
	// Seq+Count; Undone one: the seqs of the event that is undone.
	Spans []Span

	Added *Added // KindAdded

	// Lease is the lease number of the first message of Spans; the others follow without gaps,
	// in order. KindLeased.
	Lease uint64
	// Announces tells that the receiver announces starts, so that the hand-over does not count yet. KindLeased.
	Announces bool
	// Visibility is for how long they are leased, in ms, 0 for the queue's visibility timeout. KindLeased.
	Visibility int64
	// Session is the receiver's, 0 for none. KindLeased.
	Session uint64

	// Cause is how the lease ended. KindReturned; KindParked and KindMoving if it was a lease's end that decided it.
	Cause Cause
	// Counted tells that the delivery counts against the limit. KindReturned, KindParked, KindMoving.
	Counted bool
	// Lost tells that the receiver was lost: if the delivery counts, one that had begun, otherwise before it announced a start.
	// KindReturned.
	Lost bool
	// Alone tells that the messages are to be handed out alone from now on. KindReturned.
	Alone bool
	// Due is the queue time at which the messages become ready again, 0 for at once. KindReturned.
	Due int64

	// Target is the queue that the messages move to, empty for the one that each came from; Reason is why. KindMoving.
	Target string
	Reason string

	Config *Config // KindConfigured
	Paused bool    // KindPaused

	// Producer is the producer that is closed, whose messages were suppressed, or whose Added event is undone.
	// KindProducerClosed, KindSuppressed, KindUndone.
	Producer Producer
	// ProducerSeq is the producer seq up to which everything is settled. KindSuppressed, KindUndone.
	ProducerSeq uint64

	// Frames are the message bodies, one frame for each of Spans. KindAdded, KindRelocated. They
	// are not part of the meta encoding.
	Frames [][]byte
}

// Producer identifies the sending side of a hop: a producer id and one life of it. Both are empty for a sender
// without dedup.
type Producer struct {
	ID          string // 1…256 bytes
	Incarnation string // 1…256 bytes
}

// IsZero tells that there is no producer.
func (p Producer) IsZero() bool { return p == Producer{} }

// Added is what an Added event says besides the bodies.
type Added struct {
	Producer Producer
	// ProducerSeq is the producer seq of the first message, and ProducerLast the one up to which the producer's messages are
	// settled by the event: it is more than ProducerSeq+Count-1 if some were suppressed by their dedup ids. Both are
	// 0 without a producer.
	ProducerSeq  uint64
	ProducerLast uint64
	Count        uint64
	// NotBefore is the queue time before which messages that say nothing themselves are held back (the queue's
	// default delay), Unix ms, 0 for none.
	NotBefore int64
	// Uniform is the size (attributes and body, bytes) of every message if Sizes is nil.
	Uniform uint32
	Sizes   []uint32
	// Specials are the messages that have something to say, by index, ascending. Times are absolute.
	Specials []Special
}

// Special is what the index must know of a message that is not plain.
type Special struct {
	Index     uint32
	NotBefore int64    // Unix ms of queue time, 0 for none
	ExpiresAt int64    // Unix ms of queue time, 0 for none
	KeyHash   uint64   // of the ordering key, 0 for none
	DedupHash [16]byte // of the dedup id, zero for none
	Priority  uint8
	Foreign   bool // it came from another queue, and can be redriven there
}

// Seqs returns how many seqs of the stream an event takes: an Added event one for each message, all others one.
func Seqs(e *Event) uint64 {
	if e.Kind == KindAdded && e.Added != nil {
		return e.Added.Count
	}
	return 1
}
