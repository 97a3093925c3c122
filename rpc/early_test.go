package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/memlink"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// eagerLink tells events before it has answered the opening.
type eagerLink struct{ *memlink.Link }

func (l eagerLink) OpenSender(ctx context.Context, name string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	s, o, err := l.Link.OpenSender(ctx, name, c, ev)
	ev.Waits(true, "full")
	if name == "breaks" {
		ev.Broken(fmt.Errorf("queue %q: %w", name, holdfast.ErrFenced))
	}
	ev.Waits(false, "")
	return s, o, err
}

func (l eagerLink) OpenReceiver(ctx context.Context, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	r, o, err := l.Link.OpenReceiver(ctx, name, c, ev)
	ev.Lost([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}, "expired")
	return r, o, err
}

// The answer to an opening goes before everything else on its stream, whenever the link tells that; and a stream that breaks while it
// is being opened is answered once.
func TestEventsBeforeTheAnswer(t *testing.T) {
	link := memlink.New()
	defer link.Close()
	l := newPipeListener()
	s, err := rpc.NewServer(eagerLink{link}, rpc.Options{Insecure: true, Logger: quiet})
	check(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	raw := (&env{t: t, dial: l.dial}).greeted()
	raw.write(wire.AppendOpenSender(nil, 1, &wire.OpenSender{Queue: "q"}))
	raw.expect(wire.TypeSenderOpened)
	raw.expect(wire.TypeWaits)
	raw.expect(wire.TypeWaits)
	raw.write(wire.AppendOpenReceiver(nil, 2, &wire.OpenReceiver{Queue: "q"}))
	raw.expect(wire.TypeReceiverOpened)
	raw.expect(wire.TypeLost)
	raw.write(wire.AppendOpenSender(nil, 3, &wire.OpenSender{Queue: "breaks"}))
	if e, err := wire.DecodeBroken(raw.expect(wire.TypeBroken)); err != nil || e.Code != wire.CodeFenced {
		t.Errorf("told %v %v", e, err)
	}
	waitFor(t, func() bool { return link.Streams() == 2 }) // the link's side of it is closed
	raw.write(wire.AppendPing(nil, 7))
	raw.expect(wire.TypePong) // and nothing before it
	raw.nc.Close()
	waitFor(t, func() bool { return link.Streams() == 0 })
	s.Close()
	if err := <-served; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}
