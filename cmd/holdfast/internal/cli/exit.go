package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
)

// The exit codes.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnknown     = 3
	ExitInterrupted = 130
)

// ErrInterrupted says that the user asked to stop.
var ErrInterrupted = errors.New("interrupted")

// usageError is a mistake in how the binary was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Usage marks err as a mistake of the caller, which exits with ExitUsage. It returns nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// Usagef is Usage of a new error.
func Usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Code returns the exit code for the error that a command ended with. An outcome that is not known outweighs an interruption: the
// caller has something to find out.
func Code(err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, holdfast.ErrUnknown):
		return ExitUnknown
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	}
	return ExitFailed
}

// Flagged is Usage of what a check of values that flags gave has found: the fields of message.FieldErrors in err become the flags, by the
// names in flags, or with dashes for underscores and blanks.
func Flagged(err error, flags map[string]string) error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, err := range all.Unwrap() {
			errs = append(errs, Flagged(err, flags))
		}
		return Usage(errors.Join(errs...))
	}
	var field *message.FieldError
	if !errors.As(err, &field) {
		return Usage(err)
	}
	named := *field
	named.Field = "--" + cmp.Or(flags[field.Field], strings.NewReplacer("_", "-", " ", "-").Replace(field.Field))
	return Usage(&named)
}

// Read returns nil if err says that whoever read standard output has gone: it has had enough.
func Read(err error) error {
	if errors.Is(err, syscall.EPIPE) && !errors.Is(err, holdfast.ErrUnavailable) {
		return nil
	}
	return err
}

// Cause returns why a context ended, or err if it has not.
func Cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return cause
	}
	return err
}
