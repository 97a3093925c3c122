package adminpb

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
)

// What cannot be expressed in Go is refused by field, and nothing wraps around (G11).
func TestImpossibleConfigs(t *testing.T) {
	for _, c := range []struct {
		m     *pb.QueueConfig
		field string
	}{
		{&pb.QueueConfig{VisibilityTimeout: &durationpb.Duration{Seconds: math.MaxInt64}}, "visibility_timeout"},
		{&pb.QueueConfig{Retention: &durationpb.Duration{Seconds: math.MinInt64}}, "retention"},
		{&pb.QueueConfig{RetryCap: &durationpb.Duration{Seconds: 1, Nanos: -1}}, "retry_cap"},
		{&pb.QueueConfig{DefaultDelay: &durationpb.Duration{Nanos: math.MaxInt32}}, "default_delay"},
		{&pb.QueueConfig{DedupWindow: &durationpb.Duration{Seconds: 1e11}}, "dedup_window"},
		{&pb.QueueConfig{RetryFirst: durationpb.New(-1)}, "retry_first"},
		{&pb.QueueConfig{RetryFirst: durationpb.New(time.Second), RetryAtOnce: true}, "retry_at_once"},
	} {
		_, err := ToConfig(c.m)
		var field *message.FieldError
		if !errors.As(err, &field) || field.Field != c.field {
			t.Errorf("%v: %v, want a fault of %s", c.m, err, c.field)
		}
	}
	if c, err := ToConfig(nil); err != nil || c != (queue.Config{}) {
		t.Errorf("no config: %+v %v", c, err)
	}
}

// A broker's answer that makes no sense is an error, not a wrong value.
func TestImpossibleAnswers(t *testing.T) {
	if _, err := ToInfo(&pb.QueueInfo{Name: "q", StreamUid: "abcd"}); err == nil {
		t.Error("a short uid is accepted")
	}
	if _, err := ToInfo(&pb.QueueInfo{Config: &pb.QueueConfig{RetryFirst: durationpb.New(-1)}}); err == nil {
		t.Error("an impossible config is accepted")
	}
	if _, err := ToPeeked(&pb.PeekedMessage{Id: "x"}); err == nil {
		t.Error("an id that is none is accepted")
	}
	if _, err := ToPeeked(&pb.PeekedMessage{Id: holdfast.ID{}.String(), Content: &pb.MessageContent{Ttl: &durationpb.Duration{Seconds: math.MaxInt64}}}); err == nil {
		t.Error("an impossible duration is accepted")
	}
	for _, r := range []pb.Result{0, 4, -1} {
		if _, err := ToOutcomes([]*pb.Outcome{{Result: r}}); err == nil {
			t.Errorf("result %d is accepted", r)
		}
	}
}

// Errors that a broker did not make say what was being done, and are of the kind that their code says.
func TestErrorsWithoutDetail(t *testing.T) {
	for code, want := range map[connect.Code]error{
		connect.CodeUnauthenticated: holdfast.ErrDenied, connect.CodePermissionDenied: holdfast.ErrDenied,
		connect.CodeUnavailable: holdfast.ErrUnavailable, connect.CodeUnknown: holdfast.ErrUnavailable,
	} {
		if err := ToError(context.Background(), "purge", connect.NewError(code, errors.New("x"))); !errors.Is(err, want) || err.Error() != "purge: x" {
			t.Errorf("%v became %v", code, err)
		}
	}
	if err := ToError(context.Background(), "purge", connect.NewError(connect.CodeInternal, errors.New("x"))); errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("an internal error became %v", err)
	}
	if ToError(context.Background(), "purge", nil) != nil || FromError(nil) != nil {
		t.Error("nil became an error")
	}
}

// FuzzConfig reads any bytes as a configuration, and holds what it accepts against what is written back.
func FuzzConfig(f *testing.F) {
	seed, err := proto.Marshal(FromConfig(queue.Config{VisibilityTimeout: time.Minute, RetryFirst: queue.Unlimited, MaxMessages: 5}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.QueueConfig
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		c, err := ToConfig(&m)
		if err != nil {
			return
		}
		again, err := ToConfig(FromConfig(c))
		if err != nil || again != c {
			t.Fatalf("%+v became %+v (%v)", c, again, err)
		}
	})
}
