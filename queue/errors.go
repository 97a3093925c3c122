package queue

import (
	"errors"
	"fmt"
)

// The refusals of a queue. Nothing was changed.
var (
	// ErrFull says that the queue is at its maximum and its policy is reject.
	ErrFull = errors.New("queue is full")
	// ErrLeaseLost says that the receiver does not hold the message (any more): it lives under another
	// lease or none.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStorageFull says that the store under the queue has no room. Acknowledgements still work; sends
	// can be retried.
	ErrStorageFull = errors.New("storage full")
	// ErrUnknownReceiver says that a command names a receiver that is not open.
	ErrUnknownReceiver = errors.New("no such receiver")
	// ErrUnknownSender says that a command names a sender that is not open.
	ErrUnknownSender = errors.New("no such sender")
	// ErrOpen says that a sender or receiver of that id is open already.
	ErrOpen = errors.New("already open")
	// ErrMalformed says that stored bytes cannot be what this package wrote.
	ErrMalformed = errors.New("malformed")
	// ErrNewerFormat says that a later version wrote the bytes.
	ErrNewerFormat = errors.New("written by a newer version")
)

// GapError says that a sender left out messages: it must go on at Want.
type GapError struct{ Want, Got uint64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("out of sequence: expected producer seq %d, got %d", e.Want, e.Got)
}
