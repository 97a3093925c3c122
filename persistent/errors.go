package persistent

import (
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// What a function given to [Context.After] gets, and [Ask] and [Actor.Tell] return, is nil if everything that it
// waited for is stored, or an error that matches exactly one of ErrNotStored and ErrUnknown with
// errors.Is, and also its cause: journal.ErrFenced, journal.ErrFull, ErrStopped, the error of an ended context.
var (
	// ErrNotStored says with proof that nothing of the command was stored, nor ever will be; with journal.ErrFull, that
	// its events with bodies were undone.
	ErrNotStored = errors.New("not stored")
	// ErrUnknown says that it may or may not be stored. It is journal.ErrUnknown.
	ErrUnknown = journal.ErrUnknown
	// ErrStopped says that the actor does not run (any more). Every error of [Actor.Err] matches it.
	ErrStopped = errors.New("actor stopped")
)

// outcome is an error of one of two classes with its cause.
type outcome struct{ class, cause error }

func (o *outcome) Error() string { return o.class.Error() + ": " + o.cause.Error() }

func (o *outcome) Unwrap() []error { return []error{o.class, o.cause} }

// notStored and unknown class a cause. The cause may itself match the other class (a fence that was
// learnt by an unknown append, say): it is then hidden, so that exactly one class matches.
func notStored(cause error) error { return &outcome{ErrNotStored, hide(cause, ErrUnknown)} }

func unknown(cause error) error { return &outcome{ErrUnknown, hide(cause, ErrNotStored)} }

func hide(err, class error) error {
	if errors.Is(err, class) {
		return &hidden{err, class}
	}
	return err
}

// hidden is an error that does not match a class that its cause matches.
type hidden struct{ err, class error }

func (h *hidden) Error() string { return h.err.Error() }

func (h *hidden) Is(target error) bool { return target != h.class && errors.Is(h.err, target) }

func (h *hidden) As(target any) bool { return errors.As(h.err, target) }

// stopError is why an actor stopped.
type stopError struct {
	stream string
	cause  error // nil: cleanly
}

func (e *stopError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("actor %q stopped", e.stream)
	}
	return fmt.Sprintf("actor %q stopped: %v", e.stream, e.cause)
}

func (e *stopError) Is(target error) bool { return target == ErrStopped }

func (e *stopError) Unwrap() error { return e.cause }

// PanicError says that the behavior panicked, or ended the actor's goroutine.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("behavior panicked: %v", e.Value) }

// ErrMailboxFull says that TryTell found no room. It comes with ErrNotStored.
var ErrMailboxFull = errors.New("mailbox full")

// errKilled is the cause of an actor that was killed.
var errKilled = errors.New("killed")
