package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/adminpb"
	pb "github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1"
)

const (
	// maxPage is how many queues one answer lists.
	maxPage = 1000
	// maxPeekBytes is where an answer of Peek is cut.
	maxPeekBytes = 3 << 20
	// maxReceipts is how many receipts one Settle takes.
	maxReceipts = 10_000
)

// adminService answers administrative calls from the link, for those who have the right.
type adminService struct{ s *Server }

// allowed checks a right of the caller.
func allowed(ctx context.Context, rights access.Right, name string) error {
	if id := identity(ctx); !id.May(rights, name) {
		return adminpb.FromError(fmt.Errorf("%w: %s has not the right %v on queue %q", holdfast.ErrDenied, id.Name(), rights, name))
	}
	return nil
}

// done makes the answer of a call.
func done[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		var ce *connect.Error
		if !errors.As(err, &ce) {
			err = adminpb.FromError(err)
		}
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// config checks the right to give a queue a configuration, which takes rights on its dead-letter queue too.
func config(ctx context.Context, name string, m *pb.QueueConfig) (queue.Config, error) {
	if err := allowed(ctx, access.Admin, name); err != nil {
		return queue.Config{}, err
	}
	if dead := m.GetDeadLetter(); dead != "" {
		if err := allowed(ctx, access.Admin|access.Send, dead); err != nil {
			return queue.Config{}, err
		}
	}
	return adminpb.ToConfig(m)
}

// Create implements the call.
func (a adminService) Create(ctx context.Context, r *connect.Request[pb.CreateRequest]) (*connect.Response[pb.CreateResponse], error) {
	cfg, err := config(ctx, r.Msg.GetName(), r.Msg.GetConfig())
	if err == nil {
		err = a.s.linkOf(ctx).Admin().Create(ctx, r.Msg.GetName(), cfg)
	}
	return done(&pb.CreateResponse{}, err)
}

// Configure implements the call.
func (a adminService) Configure(ctx context.Context, r *connect.Request[pb.ConfigureRequest]) (*connect.Response[pb.ConfigureResponse], error) {
	cfg, err := config(ctx, r.Msg.GetName(), r.Msg.GetConfig())
	if err == nil {
		err = a.s.linkOf(ctx).Admin().Configure(ctx, r.Msg.GetName(), cfg)
	}
	return done(&pb.ConfigureResponse{}, err)
}

// List implements the call.
func (a adminService) List(ctx context.Context, r *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	limit := int(r.Msg.GetLimit())
	if limit < 0 || limit > maxPage {
		return done[pb.ListResponse](nil, &message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", limit), Limit: fmt.Sprintf("0 to %d", maxPage)})
	}
	if limit == 0 {
		limit = maxPage
	}
	all, err := a.s.linkOf(ctx).Admin().List(ctx)
	if err != nil {
		return done[pb.ListResponse](nil, err)
	}
	id := identity(ctx)
	all = slices.DeleteFunc(all, func(q holdfast.QueueInfo) bool { return q.Name <= r.Msg.GetAfter() || !id.May(access.Any, q.Name) })
	slices.SortFunc(all, func(a, b holdfast.QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	m := &pb.ListResponse{More: len(all) > limit}
	for _, q := range all[:min(limit, len(all))] {
		m.Queues = append(m.Queues, adminpb.FromInfo(q))
	}
	return done(m, nil)
}

// Describe implements the call.
func (a adminService) Describe(ctx context.Context, r *connect.Request[pb.DescribeRequest]) (*connect.Response[pb.DescribeResponse], error) {
	if err := allowed(ctx, access.Any, r.Msg.GetName()); err != nil {
		return nil, err
	}
	info, err := a.s.linkOf(ctx).Admin().Describe(ctx, r.Msg.GetName())
	return done(&pb.DescribeResponse{Queue: adminpb.FromInfo(info)}, err)
}

// Pause implements the call.
func (a adminService) Pause(ctx context.Context, r *connect.Request[pb.PauseRequest]) (*connect.Response[pb.PauseResponse], error) {
	if err := allowed(ctx, access.Admin, r.Msg.GetName()); err != nil {
		return nil, err
	}
	return done(&pb.PauseResponse{}, a.s.linkOf(ctx).Admin().Pause(ctx, r.Msg.GetName(), r.Msg.GetPaused()))
}

// Purge implements the call.
func (a adminService) Purge(ctx context.Context, r *connect.Request[pb.PurgeRequest]) (*connect.Response[pb.PurgeResponse], error) {
	if err := allowed(ctx, access.Admin, r.Msg.GetName()); err != nil {
		return nil, err
	}
	n, err := a.s.linkOf(ctx).Admin().Purge(ctx, r.Msg.GetName())
	return done(&pb.PurgeResponse{Messages: n}, err)
}

// Delete implements the call.
func (a adminService) Delete(ctx context.Context, r *connect.Request[pb.DeleteRequest]) (*connect.Response[pb.DeleteResponse], error) {
	if err := allowed(ctx, access.Admin, r.Msg.GetName()); err != nil {
		return nil, err
	}
	return done(&pb.DeleteResponse{}, a.s.linkOf(ctx).Admin().Delete(ctx, r.Msg.GetName()))
}

// Peek implements the call.
func (a adminService) Peek(ctx context.Context, r *connect.Request[pb.PeekRequest]) (*connect.Response[pb.PeekResponse], error) {
	if err := allowed(ctx, access.Admin|access.Receive, r.Msg.GetName()); err != nil {
		return nil, err
	}
	state := r.Msg.GetState()
	if state < 0 || state > pb.MessageState_MESSAGE_STATE_MOVING {
		return done[pb.PeekResponse](nil, &message.FieldError{Field: "state", Fault: fmt.Sprintf("is %d", state)})
	}
	m := &pb.PeekResponse{}
	size, from, left := 0, r.Msg.GetFrom(), int(r.Msg.GetLimit())
	if left == 0 {
		left = 10
	}
	if left < 0 || left > holdfast.MaxPeek {
		return done[pb.PeekResponse](nil, fmt.Errorf("peek queue %q: %w", r.Msg.GetName(),
			&message.FieldError{Field: "limit", Fault: fmt.Sprintf("is %d", left), Limit: fmt.Sprintf("1 to %d", holdfast.MaxPeek)}))
	}
	for {
		// Bodies are read some at a time, so that a thousand large ones are never in memory together.
		step := left
		if r.Msg.GetBodies() {
			step = min(step, 16)
		}
		list, err := a.s.linkOf(ctx).Admin().Peek(ctx, r.Msg.GetName(), holdfast.PeekOptions{
			State: queue.State(state), From: from, Limit: step, Bodies: r.Msg.GetBodies(),
		})
		if err != nil {
			return done[pb.PeekResponse](nil, err)
		}
		for _, p := range list {
			if size += 256 + len(p.Message.Body); size > maxPeekBytes && len(m.Messages) > 0 {
				m.More = true
				return done(m, nil)
			}
			m.Messages = append(m.Messages, adminpb.FromPeeked(p, r.Msg.GetBodies()))
			from = p.Seq + 1
		}
		if left -= len(list); left <= 0 || len(list) < step {
			return done(m, nil)
		}
	}
}

// Redrive implements the call.
func (a adminService) Redrive(ctx context.Context, r *connect.Request[pb.RedriveRequest]) (*connect.Response[pb.RedriveResponse], error) {
	if err := allowed(ctx, access.Admin, r.Msg.GetName()); err != nil {
		return nil, err
	}
	if target := r.Msg.GetTarget(); target != "" {
		if err := allowed(ctx, access.Admin|access.Send, target); err != nil {
			return nil, err
		}
	}
	n, err := a.s.linkOf(ctx).Admin().Redrive(ctx, r.Msg.GetName(), r.Msg.GetTarget(), int(r.Msg.GetLimit()))
	return done(&pb.RedriveResponse{Messages: n}, err)
}

// Settle implements the call.
func (a adminService) Settle(ctx context.Context, r *connect.Request[pb.SettleRequest]) (*connect.Response[pb.SettleResponse], error) {
	if err := allowed(ctx, access.Receive, r.Msg.GetName()); err != nil {
		return nil, err
	}
	receipts, d, err := settleRequest(r.Msg)
	if err != nil {
		return done[pb.SettleResponse](nil, err)
	}
	out, err := a.s.linkOf(ctx).Admin().Settle(ctx, r.Msg.GetName(), holdfast.SettleOp(r.Msg.GetOp()), receipts, d)
	return done(&pb.SettleResponse{Outcomes: adminpb.FromOutcomes(out)}, err)
}

func settleRequest(m *pb.SettleRequest) ([]holdfast.Receipt, time.Duration, error) {
	if op := m.GetOp(); op < pb.SettleOp_SETTLE_OP_ACK || op > pb.SettleOp_SETTLE_OP_EXTEND {
		return nil, 0, &message.FieldError{Field: "op", Fault: fmt.Sprintf("is %d", op), Limit: "ack, nack, release or extend"}
	}
	if n := len(m.GetReceipts()); n == 0 || n > maxReceipts {
		return nil, 0, &message.FieldError{Field: "receipts", Fault: fmt.Sprintf("are %d", n), Limit: fmt.Sprintf("1 to %d", maxReceipts)}
	}
	receipts := make([]holdfast.Receipt, len(m.GetReceipts()))
	for i, text := range m.GetReceipts() {
		var err error
		if receipts[i], err = holdfast.ParseReceipt(text); err != nil {
			return nil, 0, err
		}
	}
	d, err := adminpb.ToSettleDuration(m)
	return receipts, d, err
}
