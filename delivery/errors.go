package delivery

import (
	"errors"
	"fmt"
)

var (
	// ErrStopped is the cause of what a controller refuses or gives up because it was closed.
	ErrStopped = errors.New("controller stopped")

	// ErrNotSent matches the error of a send whose message was never transmitted and never will be.
	ErrNotSent = errors.New("not sent")

	// ErrUnconfirmed matches the error of a message that was accepted and not confirmed: it may have been
	// handled, or may yet be (while its producer runs, it still sends it).
	ErrUnconfirmed = errors.New("unconfirmed")

	// ErrBufferFull matches the error of an Offer that found no room.
	ErrBufferFull = errors.New("buffer full")

	// ErrTooLarge matches the error of a message that is larger than a durable producer's journal takes.
	ErrTooLarge = errors.New("too large")

	// ErrInvalidOption matches each fault that the options of a constructor had.
	ErrInvalidOption = errors.New("invalid option")

	// ErrFenced matches the error of a durable producer whose place was taken by another one.
	ErrFenced = errors.New("fenced by another producer on the same store")
)

// outcome is an error that matches what became of the message and why.
type outcome struct {
	what, why error
}

func (o *outcome) Error() string   { return fmt.Sprintf("%v: %v", o.what, o.why) }
func (o *outcome) Unwrap() []error { return []error{o.what, o.why} }

func optionError(name, problem string, args ...any) error {
	return fmt.Errorf("%w: %s %s", ErrInvalidOption, name, fmt.Sprintf(problem, args...))
}

// PanicError is what a handler's panic is reported as.
type PanicError struct {
	// Value is what the handler panicked with; nil if it ended its goroutine (runtime.Goexit).
	Value any
	// Stack is the goroutine's stack at that time.
	Stack []byte
}

// Error tells the value.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "handler ended its goroutine"
	}
	return fmt.Sprintf("handler panicked: %v", e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
