package journal

import (
	"errors"
	"fmt"
)

// The errors of the contract. Drivers wrap them with what was being done to which stream;
// callers match them with errors.Is.
var (
	// ErrFenced says that another owner has acquired the stream under a newer epoch. The
	// call had no effect, and none of this owner's later calls will have one.
	ErrFenced = errors.New("fenced by a newer owner")
	// ErrConflict says that the stream does not end where the caller believed. Nothing was
	// stored.
	ErrConflict = errors.New("stream does not end at the expected seq")
	// ErrUnknown says that the store did not answer: the change may or may not have taken
	// effect. The caller settles it by repeating the identical call.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFull says that the store has no room. Nothing was stored; discards still work.
	ErrFull = errors.New("storage full")
	// ErrCorrupt says that stored data is damaged or missing. See [CorruptError].
	ErrCorrupt = errors.New("corrupt")
	// ErrTooLarge says that a record or part is larger than the driver's [Limits].
	ErrTooLarge = errors.New("too large")
	// ErrNewerFormat says that a later version of Holdfast wrote the data. Nothing was
	// changed.
	ErrNewerFormat = errors.New("written by a newer version of holdfast")
	// ErrNotFound says that there is no such part.
	ErrNotFound = errors.New("not found")
	// ErrClosed says that the journal, or this owner's hold on the stream, was closed.
	ErrClosed = errors.New("journal closed")
	// ErrLocked says that another process has the journal open. The error's text says
	// which, where that can be told.
	ErrLocked = errors.New("journal in use by another process")
	// ErrWeak says that the store's own settings promise less than durable on return.
	ErrWeak = errors.New("store is configured with too weak durability")
	// ErrInvalid says that a call's arguments break the contract: a record that is not
	// sealed or of another stream, an empty name.
	ErrInvalid = errors.New("invalid")
)

// CorruptError names the place of damaged or missing data. It matches ErrCorrupt.
type CorruptError struct {
	Stream string // empty where it is not known
	Seq    uint64 // the record or, where a part is damaged, 0
	What   string
	Err    error // the cause, or nil
}

func (e *CorruptError) Error() string {
	s := "corrupt"
	if e.Stream != "" {
		s += fmt.Sprintf(" stream %q", e.Stream)
	}
	if e.Seq != 0 {
		s += fmt.Sprintf(" at seq %d", e.Seq)
	}
	s += ": " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes every CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
