package queue

// SenderID and ReceiverID are handles of the shell's choosing, unique among those that are open.
type (
	SenderID   uint64
	ReceiverID uint64
)

// Token marks a command whose reply the shell must bring back to somebody. 0 asks for no reply.
type Token uint64

// Effect is something for the shell to do, once everything that was decided before it is stored. It is
// one of Accepted, Refused, SenderWaits, Deliver, LeaseLost, Reply, Dead, Move, Relocate.
type Effect interface{ effect() }

// Accepted tells a sender that messages of it are stored, or were stored before.
type Accepted struct {
	Sender SenderID
	// UpTo is the producer seq up to which everything is stored (cumulative). For a sender without a producer it
	// is the sender's own count of messages.
	UpTo uint64
	// First is the seq of the first message that this acceptance stored, 0 if all of them had been stored before
	// (their ids are not known any more). Count is how many it stored.
	First uint64
	Count uint64
	// Duplicates is how many messages of the batch were suppressed: stored before under the same producer seq, or
	// with a dedup id that was seen within the window.
	Duplicates uint64
}

// Refused tells a sender that a batch was not stored, nor anything that it sent behind it: it goes on from
// Resume.
type Refused struct {
	Sender SenderID
	// Resume is the producer seq that the queue expects next.
	Resume uint64
	// Err is ErrFull, ErrPaused…, or a *GapError.
	Err error
}

// SenderWaits tells that a sender's messages wait for room (Waits), or no longer do.
type SenderWaits struct {
	Sender SenderID
	Waits  bool
	Reason string // "full", "storage full"
}

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
	Reason   string // "expired", "purged", "deleted"
}

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
// repeated after a recovery for each message that is still moving.
type Move struct {
	Seq        uint64
	Target     string
	Reason     string
	Deliveries int
}

// Relocate asks the shell to read the bodies of survivors of thinly populated records, and to give them back by
// Relocated.
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

// Output is what a command decided.
type Output struct {
	// Events are to be stored in this order. The shell owns them.
	Events []Event
	// Effects are to be carried out in this order, after Events and all events before them are stored.
	Effects []Effect
}
