package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/adminpb"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
)

// maxReceipts is how many receipts go in one call.
const maxReceipts = 10_000

// admin implements holdfast.Admin by the broker's administrative calls.
type admin struct{ c *Client }

// call makes one call.
func call[Q, A any](ctx context.Context, a admin, what, name string, f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	a.c.findLiving(ctx)
	r, err := f(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, adminpb.ToError(ctx, fmt.Sprintf("%s queue %q", what, name), err)
	}
	return r.Msg, nil
}

// Create implements holdfast.Admin.
func (a admin) Create(ctx context.Context, name string, cfg queue.Config) error {
	_, err := call(ctx, a, "create", name, a.c.admin.Create, &pb.CreateRequest{Name: name, Config: adminpb.FromConfig(cfg)})
	return err
}

// List implements holdfast.Admin.
func (a admin) List(ctx context.Context) ([]holdfast.QueueInfo, error) {
	var all []holdfast.QueueInfo
	after := ""
	for {
		a.c.findLiving(ctx)
		r, err := a.c.admin.List(ctx, connect.NewRequest(&pb.ListRequest{After: after}))
		if err != nil {
			return nil, adminpb.ToError(ctx, "list queues", err)
		}
		for _, m := range r.Msg.GetQueues() {
			i, err := adminpb.ToInfo(m)
			if err != nil {
				return nil, fmt.Errorf("list queues: %w", err)
			}
			all = append(all, i)
			after = i.Name
		}
		if !r.Msg.GetMore() || len(r.Msg.GetQueues()) == 0 {
			return all, nil
		}
	}
}

// Describe implements holdfast.Admin.
func (a admin) Describe(ctx context.Context, name string) (holdfast.QueueInfo, error) {
	m, err := call(ctx, a, "describe", name, a.c.admin.Describe, &pb.DescribeRequest{Name: name})
	if err != nil {
		return holdfast.QueueInfo{}, err
	}
	return adminpb.ToInfo(m.GetQueue())
}

// Configure implements holdfast.Admin.
func (a admin) Configure(ctx context.Context, name string, cfg queue.Config) error {
	_, err := call(ctx, a, "configure", name, a.c.admin.Configure, &pb.ConfigureRequest{Name: name, Config: adminpb.FromConfig(cfg)})
	return err
}

// Pause implements holdfast.Admin.
func (a admin) Pause(ctx context.Context, name string, paused bool) error {
	what := "pause"
	if !paused {
		what = "resume"
	}
	_, err := call(ctx, a, what, name, a.c.admin.Pause, &pb.PauseRequest{Name: name, Paused: paused})
	return err
}

// Purge implements holdfast.Admin.
func (a admin) Purge(ctx context.Context, name string) (uint64, error) {
	m, err := call(ctx, a, "purge", name, a.c.admin.Purge, &pb.PurgeRequest{Name: name})
	return m.GetMessages(), err
}

// Delete implements holdfast.Admin.
func (a admin) Delete(ctx context.Context, name string) error {
	_, err := call(ctx, a, "delete", name, a.c.admin.Delete, &pb.DeleteRequest{Name: name})
	return err
}

// Peek implements holdfast.Admin. An answer that the broker cut for its size is completed by further calls.
func (a admin) Peek(ctx context.Context, name string, o holdfast.PeekOptions) ([]holdfast.PeekedMessage, error) {
	var all []holdfast.PeekedMessage
	q := &pb.PeekRequest{Name: name, State: pb.MessageState(o.State), From: o.From, Limit: int32(min(max(o.Limit, math.MinInt32), math.MaxInt32)), Bodies: o.Bodies}
	for {
		m, err := call(ctx, a, "peek into", name, a.c.admin.Peek, q)
		if err != nil {
			return nil, err
		}
		for _, pm := range m.GetMessages() {
			p, err := adminpb.ToPeeked(pm)
			if err != nil {
				return nil, fmt.Errorf("peek into queue %q: %w", name, err)
			}
			all = append(all, p)
			q.From = p.Seq + 1
		}
		if !m.GetMore() || len(m.GetMessages()) == 0 {
			return all, nil
		}
		if q.Limit == 0 {
			q.Limit = defaultPeek
		}
		q.Limit -= int32(len(m.GetMessages()))
		if q.Limit <= 0 {
			return all, nil
		}
	}
}

// defaultPeek is what Peek returns at most if nothing else is said.
const defaultPeek = 10

// Redrive implements holdfast.Admin.
func (a admin) Redrive(ctx context.Context, name, target string, limit int) (uint64, error) {
	m, err := call(ctx, a, "redrive", name, a.c.admin.Redrive, &pb.RedriveRequest{Name: name, Target: target, Limit: int32(limit)})
	return m.GetMessages(), err
}

// Settle implements holdfast.Admin. More receipts than fit in one call go in several; an error tells of the first that failed, and
// those before it were done.
func (a admin) Settle(ctx context.Context, name string, op holdfast.SettleOp, receipts []holdfast.Receipt, d time.Duration) ([]queue.Outcome, error) {
	var all []queue.Outcome
	exact := false // any call has outcomes of its own
	for first := true; first || len(receipts) > 0; first = false {
		part := receipts[:min(len(receipts), maxReceipts)]
		receipts = receipts[len(part):]
		q := &pb.SettleRequest{Name: name, Op: pb.SettleOp(op)}
		for _, r := range part {
			q.Receipts = append(q.Receipts, r.String())
		}
		adminpb.SetSettleDuration(q, d)
		m, err := call(ctx, a, "settle messages of", name, a.c.admin.Settle, q)
		if err != nil {
			return nil, err
		}
		outcomes, err := adminpb.ToOutcomes(m.GetOutcomes())
		if err != nil {
			return nil, fmt.Errorf("settle messages of queue %q: %w", name, err)
		}
		if exact = exact || outcomes != nil; outcomes == nil {
			for _, r := range part {
				outcomes = append(outcomes, queue.Outcome{LeaseSpan: queue.LeaseSpan{Lease: r.Lease, Seq: r.Seq, Count: 1}, Result: queue.AckDone})
			}
		}
		all = append(all, outcomes...)
	}
	if !exact {
		return nil, nil
	}
	return all, nil
}
