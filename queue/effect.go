package queue

// SenderID and ReceiverID are handles of the shell's choosing, unique among those that are open.
type (
	SenderID   uint64
	ReceiverID uint64
)

// Token marks a command whose reply the shell must bring back to somebody. 0 asks for no reply.
type Token uint64

// Effect is something for the shell to do, once everything that was decided before it is stored. It is
// one of Accepted, Refused, SenderWaits, Deliver, LeaseLost, Reply, Dead, Move, Relocate, Warning.
type Effect interface{ effect() }

// Accepted tells a sender that messages of it are stored, or were stored before.
type Accepted struct {
	Sender SenderID
	// UpTo is the producer seq up to which everything is stored (cumulative). For a sender without a producer it
	// is the sender's own count of messages.
	UpTo uint64
	// First is the seq of the first message that this acceptance stored, 0 if all of them had been stored before
	// (their ids are not known any more). Count is how many it stored, with consecutive seqs.
	First uint64
	Count uint64
	// Duplicates is how many messages of the batch were not stored again: stored before under the same producer seq, or
	// with a dedup id that was seen within the window.
	Duplicates uint64
	// Suppressed are those of them that were recognised by their dedup ids, ascending. The Count messages stored are
	// the last ones up to UpTo that are not in it.
	Suppressed []Suppressed
}

// Suppressed is a message that was not stored since its dedup id was known.
type Suppressed struct {
	ProducerSeq uint64 // or the sender's own count, see Accepted.UpTo
	Seq         uint64 // of the message that was stored with the same dedup id
}

// Refused tells a sender that a batch, or the rest of it, was not stored, nor anything that it sent behind it: it goes on
// from Resume. Each batch of a sender that arrives before it does so is refused too, by a GapError.
type Refused struct {
	Sender SenderID
	// Resume is the producer seq that the queue expects next.
	Resume uint64
	// Err is ErrFull, ErrStorageFull, a *GapError, or a *message.FieldError for a message that the queue can never hold.
	Err error
}

// SenderWaits tells that a sender's messages wait for room (Waits), or no longer do.
type SenderWaits struct {
	Sender SenderID
	Waits  bool
	Reason string // WaitsFull, WaitsStorageFull; empty if Waits is false
}

// The reasons of waiting.
const (
	WaitsFull        = "full"
	WaitsStorageFull = "storage full"
)

// Delivery is one leased run of messages on their way to a receiver.
type Delivery struct {
	LeaseSpan
	// Attempt is the number of this delivery for each of the messages, from 1 (runs have equal ones).
	Attempt int
	// ConfirmStart tells that the receiver must have its start confirmed before it begins (design §7).
	ConfirmStart bool
}

// Deliver hands messages to a receiver. The shell adds the bodies.
type Deliver struct {
	Receiver ReceiverID
	Runs     []Delivery
}

// LeaseLost tells a receiver that it no longer holds messages.
type LeaseLost struct {
	Receiver ReceiverID
	Spans    []LeaseSpan
	Reason   string // LostExpired, LostPurged
}

// The reasons of lost leases.
const (
	LostExpired = "expired" // the visibility timeout
	LostPurged  = "purged"  // the messages are gone
)

// AckOutcome is what became of one run of an Ack, Nack, Release, Extend or Started.
type AckOutcome uint8

// The outcomes. Only Done changed anything.
const (
	AckDone AckOutcome = iota
	AckGone            // the message was gone already: as good as done for an ack
	AckLost            // the message lives, under another lease or none (ErrLeaseLost)
)

// Outcome is the outcome of a run of messages.
type Outcome struct {
	LeaseSpan
	Result AckOutcome
}

// Reply answers a command that had a token.
type Reply struct {
	Token Token
	// Outcomes are in the order of the command's spans, split where they differ. nil means that all are AckDone.
	Outcomes []Outcome
	// N is how many messages an administrative command touched.
	N   uint64
	Err error
}

// Dead names the seqs of records whose bodies are no longer needed: the shell discards them, whenever it suits.
type Dead struct{ Ranges []Span }

// Move asks the shell to store a message in another queue, keeping its id, and then to call MoveDone. It is
// repeated after a failure, and after a recovery for each message that is still moving; the fields are the same each time.
type Move struct {
	Seq        uint64
	At         int64  // queue time of the decision, Unix ms
	Target     string // empty: the queue that its last Hop names
	Reason     string // ReasonMaxDeliveries, ReasonRedrive
	Deliveries int    // counted here
}

// The reasons of moves.
const (
	ReasonMaxDeliveries = "max-deliveries"
	ReasonRedrive       = "redrive"
)

// Warning is something that an operator should know, for the log.
type Warning struct{ Text string }

// Relocate asks the shell to read the bodies of survivors of thinly populated records, and to give them back by
// Relocated. There is one at a time.
type Relocate struct{ Spans []Span }

func (Accepted) effect()    {}
func (Refused) effect()     {}
func (SenderWaits) effect() {}
func (Deliver) effect()     {}
func (LeaseLost) effect()   {}
func (Reply) effect()       {}
func (Dead) effect()        {}
func (Move) effect()        {}
func (Relocate) effect()    {}
func (Warning) effect()     {}

// Output is what a command decided.
type Output struct {
	// Events are to be stored in this order. They need not go into one record: the state after each of them is a
	// valid one. The slice belongs to the shell; what the events point to is shared and never changes.
	Events []Event
	// Effects are to be carried out in this order, after Events and all events before them are stored.
	Effects []Effect
}
