package adminpb

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
)

func fromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func fromMillis(ms int64) *timestamppb.Timestamp {
	if ms == 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

func toTime(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

func toMillis(m *timestamppb.Timestamp) int64 {
	if m == nil {
		return 0
	}
	return m.AsTime().UnixMilli()
}

// FromPeeked makes a message of a peeked message. bodies tells that its content was asked for.
func FromPeeked(p holdfast.PeekedMessage, bodies bool) *pb.PeekedMessage {
	m := &pb.PeekedMessage{
		Id: p.ID.String(), Seq: p.Seq, State: pb.MessageState(p.State), Size: p.Size, Priority: int32(p.Priority),
		Deliveries: int32(p.Deliveries), Due: fromMillis(p.Due), StoredAt: fromMillis(p.StoredAt), Target: p.Target,
		Damaged: p.Damaged, Error: strings.ToValidUTF8(p.Error, "\uFFFD"),
	}
	if !bodies || p.Error != "" {
		return m
	}
	c := &pb.MessageContent{
		Body: p.Message.Body, Key: []byte(p.Message.Key), DedupId: []byte(p.Message.DedupID),
		Delay: fromDuration(p.Message.Delay), NotBefore: fromTime(p.Message.NotBefore),
		Ttl: fromDuration(p.Message.TTL), ExpiresAt: fromTime(p.Message.ExpiresAt), Priority: int32(p.Message.Priority),
	}
	for _, h := range p.Message.Headers {
		c.Headers = append(c.Headers, &pb.Header{Name: []byte(h.Name), Value: []byte(h.Value)})
	}
	for _, h := range p.Hops {
		c.Hops = append(c.Hops, &pb.Hop{Queue: h.Queue, Reason: h.Reason, Deliveries: int32(h.Deliveries), Time: fromMillis(h.TimeMs)})
	}
	m.Content = c
	return m
}

// ToPeeked returns a peeked message.
func ToPeeked(m *pb.PeekedMessage) (holdfast.PeekedMessage, error) {
	p := holdfast.PeekedMessage{MessageInfo: queue.MessageInfo{
		Seq: m.GetSeq(), State: queue.State(m.GetState()), Size: m.GetSize(), Priority: int(m.GetPriority()),
		Deliveries: int(m.GetDeliveries()), Due: toMillis(m.GetDue()), StoredAt: toMillis(m.GetStoredAt()), Target: m.GetTarget(),
		Damaged: m.GetDamaged(),
	}, Error: m.GetError()}
	var err error
	if p.ID, err = holdfast.ParseID(m.GetId()); err != nil {
		return p, fmt.Errorf("peeked message %d: %w", p.Seq, err)
	}
	c := m.GetContent()
	if c == nil {
		return p, nil
	}
	p.Message = holdfast.Message{
		Body: c.GetBody(), Key: string(c.GetKey()), DedupID: string(c.GetDedupId()),
		NotBefore: toTime(c.GetNotBefore()), ExpiresAt: toTime(c.GetExpiresAt()), Priority: int(c.GetPriority()),
	}
	for _, f := range []struct {
		field string
		to    *time.Duration
		from  *durationpb.Duration
	}{{"delay", &p.Message.Delay, c.GetDelay()}, {"ttl", &p.Message.TTL, c.GetTtl()}} {
		if *f.to, err = toDuration(f.field, f.from); err != nil {
			return p, fmt.Errorf("peeked message %d: %w", p.Seq, err)
		}
	}
	for _, h := range c.GetHeaders() {
		p.Message.Headers = append(p.Message.Headers, holdfast.Header{Name: string(h.GetName()), Value: string(h.GetValue())})
	}
	for _, h := range c.GetHops() {
		p.Hops = append(p.Hops, message.Hop{Queue: h.GetQueue(), Reason: h.GetReason(), Deliveries: int(h.GetDeliveries()), TimeMs: toMillis(h.GetTime())})
	}
	return p, nil
}

// FromOutcomes makes messages of outcomes.
func FromOutcomes(outcomes []queue.Outcome) []*pb.Outcome {
	var out []*pb.Outcome
	for _, o := range outcomes {
		out = append(out, &pb.Outcome{Result: pb.Result(o.Result) + pb.Result_RESULT_DONE, Lease: o.Lease, Seq: o.Seq, Count: o.Count})
	}
	return out
}

// ToOutcomes returns outcomes.
func ToOutcomes(list []*pb.Outcome) ([]queue.Outcome, error) {
	var out []queue.Outcome
	for _, m := range list {
		r := m.GetResult() - pb.Result_RESULT_DONE
		if r < pb.Result(queue.AckDone) || r > pb.Result(queue.AckLost) {
			return nil, fmt.Errorf("outcome %v of message %d is not one", m.GetResult(), m.GetSeq())
		}
		out = append(out, queue.Outcome{Result: queue.AckOutcome(r), LeaseSpan: queue.LeaseSpan{Lease: m.GetLease(), Seq: m.GetSeq(), Count: m.GetCount()}})
	}
	return out, nil
}

// SetSettleDuration writes how long a nack holds messages back (negative: by the queue's policy), or an extension
// lasts (0: the queue's visibility timeout).
func SetSettleDuration(m *pb.SettleRequest, d time.Duration) {
	byPolicy := m.GetOp() == pb.SettleOp_SETTLE_OP_NACK && d < 0
	if !byPolicy && (d != 0 || m.GetOp() == pb.SettleOp_SETTLE_OP_NACK) {
		m.Duration = durationpb.New(d)
	}
}

// ToSettleDuration reads what SetSettleDuration wrote. A negative duration is an error.
func ToSettleDuration(m *pb.SettleRequest) (time.Duration, error) {
	if m.Duration == nil {
		if m.GetOp() == pb.SettleOp_SETTLE_OP_NACK {
			return -1, nil
		}
		return 0, nil
	}
	d, err := toDuration("duration", m.Duration)
	if err == nil && d < 0 {
		err = &message.FieldError{Field: "duration", Fault: fmt.Sprintf("is %v", d), Limit: "0s or more"}
	}
	return d, err
}
