package delivery

import "context"

// ProducerJournal keeps what a durable producer must not forget: its name, its numbers and its unconfirmed
// messages. Package delivery/durable has one over any journal of this module. Its methods are called by one
// ProducerController, Append and Settled each from one goroutine at a time.
type ProducerJournal interface {
	// State returns what was stored before. It is called once, before the other methods.
	State() ProducerState

	// Append stores messages under the consecutive numbers first, first+1, …; it returns when they are on stable
	// storage, all of them or none. The bodies must not be changed and may be kept.
	//
	// An error that matches ErrFenced or ErrStopped ends the producer. Any other says that nothing was stored; the
	// same messages are then tried again.
	Append(ctx context.Context, first uint64, bodies [][]byte) error

	// Settled notes that messages are confirmed. It must not wait for storage: what of it is lost in a crash is sent
	// again, and acknowledged again by the consumer. The slice is not kept. An error is as Append's.
	Settled(settled []SeqRange) error

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
