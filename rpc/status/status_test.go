package status

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// Errors keep their kind, their text and their fields across a connection (G11).
func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{
		holdfast.ErrUnknown, holdfast.ErrDenied, holdfast.ErrNoQueue, holdfast.ErrQueueExists, holdfast.ErrFenced,
		holdfast.ErrUnavailable, queue.ErrFull, queue.ErrStorageFull, queue.ErrLeaseLost,
	} {
		err := fmt.Errorf("send to queue %q: %w", "q", want)
		got := travel(t, err)
		if !errors.Is(got, want) || got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
		for _, s := range sentinels {
			if s.err != want && errors.Is(got, s.err) {
				t.Errorf("%v became %v as well", err, s.err)
			}
		}
	}
	var field *message.FieldError
	if got := travel(t, fmt.Errorf("x: %w", &message.FieldError{Field: "body", Fault: "is 5", Limit: "4"})); !errors.As(got, &field) || *field != (message.FieldError{Field: "body", Fault: "is 5", Limit: "4"}) {
		t.Errorf("field error became %v", got)
	}
	var gap *queue.GapError
	if got := travel(t, &queue.GapError{Want: 3, Got: 9}); !errors.As(got, &gap) || *gap != (queue.GapError{Want: 3, Got: 9}) {
		t.Errorf("gap error became %v", got)
	}
	var moved *MovedError
	if got := travel(t, &MovedError{Address: "10.0.0.2:9650"}); !errors.As(got, &moved) || moved.Address != "10.0.0.2:9650" || !errors.Is(got, holdfast.ErrFenced) {
		t.Errorf("moved error became %v", got)
	}
}

// An end of the broker's context, or of the broker, is not one of the caller's; what is not known is a broker error.
func TestErrorsOfTheOtherSide(t *testing.T) {
	if got := travel(t, fmt.Errorf("broker: %w", holdfast.ErrClosed)); errors.Is(got, holdfast.ErrClosed) || !errors.Is(got, holdfast.ErrUnavailable) {
		t.Errorf("closed became %v", got)
	}
	if got := travel(t, fmt.Errorf("open: %w", context.DeadlineExceeded)); errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, holdfast.ErrUnavailable) {
		t.Errorf("deadline became %v", got)
	}
	if got := travel(t, errors.New("something")); !errors.Is(got, ErrInternal) {
		t.Errorf("unknown error became %v", got)
	}
	if got := ToError(&wire.Error{Code: wire.CodeProtocol, Field: "ack frame", Fault: "is truncated"}); !errors.Is(got, ErrProtocol) || got.Error() != "ack frame is truncated" {
		t.Errorf("protocol error became %v", got)
	}
	if FromError(nil) != nil || ToError(nil) != nil {
		t.Error("nil became an error")
	}
}

func travel(t *testing.T, err error) error {
	t.Helper()
	b := wire.AppendBroken(nil, 1, FromError(err))
	e, derr := wire.DecodeBroken(b[wire.HeaderSize:])
	if derr != nil {
		t.Fatal(derr)
	}
	return ToError(e)
}
