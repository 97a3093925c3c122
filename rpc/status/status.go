// Package status turns errors into what travels over the data protocol and back, so that errors.Is and errors.As
// say the same at a client as they do beside the broker.
package status

import (
	"context"
	"errors"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// sentinels are looked for in this order: an error may wrap several, and the first says most.
var sentinels = []struct {
	err  error
	code wire.Code
}{
	{holdfast.ErrUnknown, wire.CodeUnknownState},
	{holdfast.ErrDenied, wire.CodeDenied},
	{holdfast.ErrNoQueue, wire.CodeNoQueue},
	{holdfast.ErrQueueExists, wire.CodeQueueExists},
	{queue.ErrFull, wire.CodeFull},
	{queue.ErrStorageFull, wire.CodeStorageFull},
	{queue.ErrLeaseLost, wire.CodeLeaseLost},
	{holdfast.ErrFenced, wire.CodeFenced},
	{holdfast.ErrUnavailable, wire.CodeUnavailable},
	{holdfast.ErrClosed, wire.CodeClosed},
	{queue.ErrUnknownReceiver, wire.CodeUnavailable},
	{context.Canceled, wire.CodeCanceled},
	{context.DeadlineExceeded, wire.CodeCanceled},
}

// ErrInternal says that the broker failed in a way that no other error describes. Its log says more.
var ErrInternal = errors.New("broker error")

// ErrProtocol says that one side broke the data protocol.
var ErrProtocol = errors.New("protocol error")

// MovedError is [holdfast.MovedError].
type MovedError = holdfast.MovedError

// remote is an error that came from the other side: its words, and what it is.
type remote struct {
	text string
	kind error
}

func (e *remote) Error() string { return e.text }
func (e *remote) Unwrap() error { return e.kind }

// FromError describes err for the other side. It returns nil for nil.
func FromError(err error) *wire.Error {
	if err == nil {
		return nil
	}
	var (
		travelled *wire.Error
		gap       *queue.GapError
		field     *message.FieldError
		moved     *MovedError
	)
	e := &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
	switch {
	case errors.As(err, &travelled):
		c := *travelled
		c.Message = err.Error()
		return &c
	case errors.As(err, &gap):
		e.Code, e.Want, e.Got = wire.CodeGap, gap.Want, gap.Got
		return e
	case errors.As(err, &field):
		e.Code, e.Field, e.Fault, e.Limit = wire.CodeInvalid, field.Field, field.Fault, field.Limit
		return e
	case errors.As(err, &moved):
		e.Address = moved.Address
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			e.Code = s.code
			break
		}
	}
	return e
}

// ToError returns the error that e describes. It returns nil for nil.
func ToError(e *wire.Error) error {
	if e == nil {
		return nil
	}
	return &remote{e.Error(), kind(e)}
}

func kind(e *wire.Error) error {
	switch e.Code {
	case wire.CodeInvalid:
		return &message.FieldError{Field: e.Field, Fault: e.Fault, Limit: e.Limit}
	case wire.CodeGap:
		return &queue.GapError{Want: e.Want, Got: e.Got}
	case wire.CodeFenced:
		if e.Address != "" {
			return &MovedError{Address: e.Address}
		}
	case wire.CodeProtocol:
		return ErrProtocol
	case wire.CodeCanceled, wire.CodeClosed:
		// The other side gave up or stops, not this one: what was asked for can be asked again, there or elsewhere.
		return holdfast.ErrUnavailable
	}
	for _, s := range sentinels {
		if s.code == e.Code {
			return s.err
		}
	}
	return ErrInternal
}
