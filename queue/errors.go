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
	// ErrUnknownReceiver says that a command names a receiver or sender that is not open.
	ErrUnknownReceiver = errors.New("no such receiver or sender")
)

// GapError says that a sender left out messages: it must go on at Want.
type GapError struct{ Want, Got uint64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("out of sequence: expected producer seq %d, got %d", e.Want, e.Got)
}
