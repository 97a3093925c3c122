package adminpb

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

var connectCodes = map[wire.Code]connect.Code{
	wire.CodeInternal: connect.CodeInternal, wire.CodeProtocol: connect.CodeInvalidArgument,
	wire.CodeInvalid: connect.CodeInvalidArgument, wire.CodeDenied: connect.CodePermissionDenied,
	wire.CodeNoQueue: connect.CodeNotFound, wire.CodeQueueExists: connect.CodeAlreadyExists,
	wire.CodeFull: connect.CodeResourceExhausted, wire.CodeStorageFull: connect.CodeResourceExhausted,
	wire.CodeFenced: connect.CodeUnavailable, wire.CodeUnavailable: connect.CodeUnavailable,
	wire.CodeGap: connect.CodeAborted, wire.CodeClosed: connect.CodeUnavailable,
	wire.CodeLeaseLost: connect.CodeFailedPrecondition, wire.CodeUnknownState: connect.CodeUnknown,
	wire.CodeCanceled: connect.CodeCanceled,
}

// FromError makes an error of an administrative call, with an ErrorDetail. It returns nil for nil.
func FromError(err error) error {
	if err == nil {
		return nil
	}
	e := status.FromError(err)
	ce := connect.NewError(connectCodes[e.Code], errors.New(e.Message))
	d := &pb.ErrorDetail{Code: uint32(e.Code), Address: e.Address}
	for _, f := range fieldErrors(err) {
		d.Faults = append(d.Faults, &pb.Fault{Field: f.Field, Fault: f.Fault, Limit: f.Limit})
	}
	// The detail is what machines read; the code and the message stand without it.
	if detail, err := connect.NewErrorDetail(d); err == nil {
		ce.AddDetail(detail)
	}
	return ce
}

// fieldErrors finds all field errors that err wraps, joined ones too.
func fieldErrors(err error) []*message.FieldError {
	switch e := err.(type) { //nolint:errorlint // this is the walk over what is wrapped
	case nil:
		return nil
	case *message.FieldError:
		return []*message.FieldError{e}
	case interface{ Unwrap() []error }:
		var all []*message.FieldError
		for _, x := range e.Unwrap() {
			all = append(all, fieldErrors(x)...)
		}
		return all
	}
	return fieldErrors(errors.Unwrap(err))
}

// callError is an error of an administrative call as its caller sees it.
type callError struct {
	text  string
	kinds []error
}

func (e *callError) Error() string   { return e.text }
func (e *callError) Unwrap() []error { return e.kinds }

// ToError returns the error that an administrative call failed with, so that errors.Is and errors.As say what they say
// beside the broker. A call that was given up by its context has the outcome holdfast.ErrUnknown. what says what
// was being done, for errors that the broker did not make. It returns nil for nil.
func ToError(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		ce = connect.NewError(connect.CodeUnavailable, err)
	}
	for _, d := range ce.Details() {
		v, derr := d.Value()
		if derr != nil {
			continue
		}
		if m, ok := v.(*pb.ErrorDetail); ok {
			return fromDetail(ce.Message(), m)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", what, holdfast.ErrUnknown, context.Cause(ctx))
	}
	kind := holdfast.ErrUnavailable
	switch ce.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		kind = holdfast.ErrDenied
	case connect.CodeInvalidArgument, connect.CodeUnimplemented, connect.CodeInternal, connect.CodeDataLoss, connect.CodeResourceExhausted:
		kind = status.ErrInternal
	}
	return &callError{what + ": " + ce.Message(), []error{kind}}
}

func fromDetail(text string, m *pb.ErrorDetail) error {
	e := &wire.Error{Code: wire.Code(m.GetCode()), Message: text, Address: m.GetAddress()}
	if e.Code != wire.CodeInvalid || len(m.GetFaults()) == 0 {
		return status.ToError(e)
	}
	all := &callError{text: text}
	for _, f := range m.GetFaults() {
		all.kinds = append(all.kinds, &message.FieldError{Field: f.GetField(), Fault: f.GetFault(), Limit: f.GetLimit()})
	}
	return all
}
