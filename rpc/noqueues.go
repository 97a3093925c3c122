package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// noQueues is the link of a server that has none: of a program that serves consumers alone.
type noQueues struct{}

var errNoQueues = fmt.Errorf("this program serves no queues: %w", holdfast.ErrNoQueue)

func (noQueues) OpenSender(context.Context, string, holdfast.SenderConfig, holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	return nil, holdfast.SenderOpened{}, errNoQueues
}

func (noQueues) OpenReceiver(context.Context, string, holdfast.ReceiverConfig, holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	return nil, holdfast.ReceiverOpened{}, errNoQueues
}

func (noQueues) Admin() holdfast.Admin { return noAdmin{} }

type noAdmin struct{}

func (noAdmin) Create(context.Context, string, queue.Config) error           { return errNoQueues }
func (noAdmin) List(context.Context) ([]holdfast.QueueInfo, error)           { return nil, nil }
func (noAdmin) Configure(context.Context, string, queue.Config) error        { return errNoQueues }
func (noAdmin) Pause(context.Context, string, bool) error                    { return errNoQueues }
func (noAdmin) Purge(context.Context, string) (uint64, error)                { return 0, errNoQueues }
func (noAdmin) Delete(context.Context, string) error                         { return errNoQueues }
func (noAdmin) Redrive(context.Context, string, string, int) (uint64, error) { return 0, errNoQueues }

func (noAdmin) Describe(context.Context, string) (holdfast.QueueInfo, error) {
	return holdfast.QueueInfo{}, errNoQueues
}

func (noAdmin) Peek(context.Context, string, holdfast.PeekOptions) ([]holdfast.PeekedMessage, error) {
	return nil, errNoQueues
}

func (noAdmin) Settle(context.Context, string, holdfast.SettleOp, []holdfast.Receipt, time.Duration) ([]queue.Outcome, error) {
	return nil, errNoQueues
}
