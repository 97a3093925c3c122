package adminpb

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
)

func fromDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// toDuration refuses what is no duration: more seconds than a Go duration holds, or a sign that contradicts itself.
func toDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	v := d.AsDuration()
	if err := d.CheckValid(); err != nil || v == math.MaxInt64 || v == math.MinInt64 {
		return 0, &message.FieldError{Field: field, Fault: fmt.Sprintf("is %d s and %d ns", d.GetSeconds(), d.GetNanos()), Limit: message.MaxDelay.String()}
	}
	return v, nil
}

// FromConfig makes a message of a queue's configuration.
func FromConfig(c queue.Config) *pb.QueueConfig {
	m := &pb.QueueConfig{
		VisibilityTimeout: fromDuration(c.VisibilityTimeout),
		MaxDeliveries:     int32(min(max(c.MaxDeliveries, math.MinInt32), math.MaxInt32)),
		DeadLetter:        c.DeadLetter,
		RetryCap:          fromDuration(c.RetryCap),
		Retention:         fromDuration(c.Retention),
		MaxMessages:       c.MaxMessages,
		MaxBytes:          c.MaxBytes,
		Overflow:          string(c.Overflow),
		Durability:        string(c.Durability),
		DefaultDelay:      fromDuration(c.DefaultDelay),
		DedupWindow:       fromDuration(c.DedupWindow),
	}
	if c.RetryFirst == queue.Unlimited {
		m.RetryAtOnce = true
	} else {
		m.RetryFirst = fromDuration(c.RetryFirst)
	}
	return m
}

// ToConfig returns the configuration that a message describes. Only what cannot be expressed in Go is an error; whether the rest
// is right is for queue.Config.Validate to say.
func ToConfig(m *pb.QueueConfig) (queue.Config, error) {
	c := queue.Config{
		MaxDeliveries: int(m.GetMaxDeliveries()),
		DeadLetter:    m.GetDeadLetter(),
		MaxMessages:   m.GetMaxMessages(),
		MaxBytes:      m.GetMaxBytes(),
		Overflow:      queue.Overflow(m.GetOverflow()),
		Durability:    queue.Durability(m.GetDurability()),
	}
	for _, f := range []struct {
		field string
		to    *time.Duration
		from  *durationpb.Duration
	}{
		{"visibility_timeout", &c.VisibilityTimeout, m.GetVisibilityTimeout()},
		{"retry_first", &c.RetryFirst, m.GetRetryFirst()},
		{"retry_cap", &c.RetryCap, m.GetRetryCap()},
		{"retention", &c.Retention, m.GetRetention()},
		{"default_delay", &c.DefaultDelay, m.GetDefaultDelay()},
		{"dedup_window", &c.DedupWindow, m.GetDedupWindow()},
	} {
		var err error
		if *f.to, err = toDuration(f.field, f.from); err != nil {
			return c, err
		}
	}
	if m.GetRetryAtOnce() {
		if m.RetryFirst != nil {
			return c, &message.FieldError{Field: "retry_at_once", Fault: "and retry_first are both set"}
		}
		c.RetryFirst = queue.Unlimited
	} else if c.RetryFirst == queue.Unlimited {
		return c, &message.FieldError{Field: "retry_first", Fault: "is negative", Limit: "0s or more"}
	}
	return c, nil
}

// FromInfo makes a message of a queue's description.
func FromInfo(i holdfast.QueueInfo) *pb.QueueInfo {
	return &pb.QueueInfo{
		Name: i.Name, StreamUid: hex.EncodeToString(i.StreamUID[:]), Owner: i.Owner, Epoch: i.Epoch, Ready: i.Ready,
		Error: strings.ToValidUTF8(i.Error, "\uFFFD"), Paused: i.Paused, Config: FromConfig(i.Config), Stats: fromStats(i.Stats),
		Damage: strings.ToValidUTF8(i.Damage, "\uFFFD"),
	}
}

// ToInfo returns the description of a queue.
func ToInfo(m *pb.QueueInfo) (holdfast.QueueInfo, error) {
	i := holdfast.QueueInfo{
		Name: m.GetName(), Owner: m.GetOwner(), Epoch: m.GetEpoch(), Ready: m.GetReady(),
		Error: m.GetError(), Paused: m.GetPaused(), Stats: toStats(m.GetStats()), Damage: m.GetDamage(),
	}
	b, err := hex.DecodeString(m.GetStreamUid())
	if err != nil || len(b) != 0 && len(b) != len(i.StreamUID) {
		return i, fmt.Errorf("queue %q: stream uid %q is not one", i.Name, m.GetStreamUid())
	}
	copy(i.StreamUID[:], b)
	if i.Config, err = ToConfig(m.GetConfig()); err != nil {
		return i, fmt.Errorf("queue %q: %w", i.Name, err)
	}
	return i, nil
}

func fromStats(s queue.Stats) *pb.Stats {
	return &pb.Stats{
		Depth: s.Depth, Ready: s.Ready, Blocked: s.Blocked, Delayed: s.Delayed, Retrying: s.Retrying, InFlight: s.InFlight,
		Parked: s.Parked, Moving: s.Moving, Bytes: s.Bytes, OldestAge: fromDuration(time.Duration(s.OldestAge) * time.Millisecond),
		Sent: s.Sent, Duplicates: s.Duplicates, Delivered: s.Delivered, Redelivered: s.Redelivered, Acked: s.Acked,
		Nacked: s.Nacked, Released: s.Released, LeaseExpired: s.LeaseExpired, Disconnected: s.Disconnected, Expired: s.Expired,
		Purged: s.Purged, Dropped: s.Dropped, ParkedEver: s.ParkedEver, DeadLettered: s.DeadLettered, Redriven: s.Redriven,
		Unparked: s.Unparked, Refused: s.Refused,
		Producers: uint64(s.Producers), ProducersEvicted: s.ProducersEvicted, DedupIds: uint64(s.DedupIDs), DedupIdsEvicted: s.DedupIDsEvicted,
		Receivers: uint64(s.Receivers), HeldReceivers: uint64(s.HeldReceivers), Senders: uint64(s.Senders), WaitingSenders: uint64(s.WaitingSenders),
		CreditOutstanding: s.CreditOutstanding, StoredBytes: s.StoredBytes, LiveBytes: s.LiveBytes,
		Paused: s.Paused, StorageFull: s.StorageFull, HoldingExpiry: s.HoldingExpiry, Damaged: s.Damaged,
	}
}

func toStats(m *pb.Stats) queue.Stats {
	return queue.Stats{
		Depth: m.GetDepth(), Ready: m.GetReady(), Blocked: m.GetBlocked(), Delayed: m.GetDelayed(), Retrying: m.GetRetrying(), InFlight: m.GetInFlight(),
		Parked: m.GetParked(), Moving: m.GetMoving(), Bytes: m.GetBytes(), OldestAge: m.GetOldestAge().AsDuration().Milliseconds(),
		Sent: m.GetSent(), Duplicates: m.GetDuplicates(), Delivered: m.GetDelivered(), Redelivered: m.GetRedelivered(), Acked: m.GetAcked(),
		Nacked: m.GetNacked(), Released: m.GetReleased(), LeaseExpired: m.GetLeaseExpired(), Disconnected: m.GetDisconnected(), Expired: m.GetExpired(),
		Purged: m.GetPurged(), Dropped: m.GetDropped(), ParkedEver: m.GetParkedEver(), DeadLettered: m.GetDeadLettered(), Redriven: m.GetRedriven(),
		Unparked: m.GetUnparked(), Refused: m.GetRefused(),
		Producers: int(m.GetProducers()), ProducersEvicted: m.GetProducersEvicted(), DedupIDs: int(m.GetDedupIds()), DedupIDsEvicted: m.GetDedupIdsEvicted(),
		Receivers: int(m.GetReceivers()), HeldReceivers: int(m.GetHeldReceivers()), Senders: int(m.GetSenders()), WaitingSenders: int(m.GetWaitingSenders()),
		CreditOutstanding: m.GetCreditOutstanding(), StoredBytes: m.GetStoredBytes(), LiveBytes: m.GetLiveBytes(),
		Paused: m.GetPaused(), StorageFull: m.GetStorageFull(), HoldingExpiry: m.GetHoldingExpiry(), Damaged: m.GetDamaged(),
	}
}
