package delivery

import "context"

// ProducerJournal keeps what a durable producer must not forget: its name, its numbers and its unconfirmed
// messages. Package delivery/durable has one over any journal of this module. Its methods are called by one
// ProducerController, Append and Settled from one goroutine at a time.
type ProducerJournal interface {
	// State returns what was stored before. It is called once, before the other methods.
	State() ProducerState

	// MaxBodyBytes returns how large a body can be. A larger one is refused before it gets a number.
	MaxBodyBytes() int

	// Append stores messages under the consecutive numbers first, first+1, …; it returns when all are on stable
	// storage. The bodies must not be changed and may be kept; the slice must not be kept.
	//
	// An error that matches ErrFenced or ErrStopped ends the producer. After any other the same messages are tried
	// again; what of them is stored already must then be taken for done.
	Append(ctx context.Context, first uint64, bodies [][]byte) error

	// Settled notes that messages are confirmed. It must not wait for storage: what of it is lost in a crash is sent
	// again, and acknowledged again by the consumer. The slice must not be kept. An error is as Append's, but
	// the call is not repeated.
	Settled(settled []SeqRange) error

	// Done is closed when the journal can no longer be used: another producer has taken its place (Err then
	// matches ErrFenced), or it failed. The producer ends then, even if it has nothing to store.
	Done() <-chan struct{}
	// Err returns why Done is closed. It matches ErrFenced or ErrStopped.
	Err() error

	// Close stores what was noted, and gives up the journal. It returns when ctx ends.
	Close(ctx context.Context) error
}

// SeqRange is the numbers First…Last, both included.
type SeqRange struct{ First, Last uint64 }

// ProducerState is what a durable producer resumes with.
type ProducerState struct {
	// ProducerID and Incarnation name it; they stay the same for the life of the journal.
	ProducerID, Incarnation string
	// Next is the number that the next message gets, at least 1.
	Next uint64
	// Unconfirmed are the stored messages that are not known to be confirmed, by ascending number.
	Unconfirmed []StoredMessage
}

// StoredMessage is a message of a durable producer.
type StoredMessage struct {
	Seq  uint64
	Body []byte
}
