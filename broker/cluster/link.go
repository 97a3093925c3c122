package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast"
)

// OpenSender implements holdfast.Link.
func (n *Node) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	l, o, err := n.b.OpenSender(ctx, queue, c, ev)
	if link := n.elsewhere(ctx, &err); link != nil {
		return link.OpenSender(ctx, queue, c, ev)
	}
	return l, o, err
}

// OpenReceiver implements holdfast.Link.
func (n *Node) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	l, o, err := n.b.OpenReceiver(ctx, queue, c, ev)
	if link := n.elsewhere(ctx, &err); link != nil {
		return link.OpenReceiver(ctx, queue, c, ev)
	}
	return l, o, err
}

// Admin implements holdfast.Link.
func (n *Node) Admin() holdfast.Admin { return admin{n} }

// Elsewhere implements broker.Cluster. What is asked of it goes to another broker whenever the queue is there.
func (n *Node) Elsewhere() holdfast.Link { return n }

// Door returns the link for a front door of clients that can go to another broker themselves: the opening of a stream whose queue is at
// another one fails with a *holdfast.MovedError. Administrative calls are passed on.
func (n *Node) Door() holdfast.Link { return door{n} }

type door struct{ n *Node }

func (d door) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	l, o, err := d.n.b.OpenSender(ctx, queue, c, ev)
	d.n.countMoved(err)
	return l, o, err
}

func (d door) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	l, o, err := d.n.b.OpenReceiver(ctx, queue, c, ev)
	d.n.countMoved(err)
	return l, o, err
}

func (d door) Admin() holdfast.Admin { return admin(d) }

func (n *Node) countMoved(err error) {
	var moved *holdfast.MovedError
	if errors.As(err, &moved) {
		n.mu.Lock()
		n.stats.Redirected++
		n.mu.Unlock()
	}
}

// elsewhere returns the link to the broker that an error names as the owner of a queue, nil if it names none. Where that broker cannot be reached, it says so in err.
func (n *Node) elsewhere(ctx context.Context, err *error) holdfast.Link {
	var moved *holdfast.MovedError
	if !errors.As(*err, &moved) {
		return nil
	}
	link, e := n.peer(ctx, moved.Address)
	if e != nil {
		*err = fmt.Errorf("%w: the queue is at broker %s, which cannot be reached from this one: %w", holdfast.ErrUnavailable, moved.Address, e)
		return nil
	}
	n.mu.Lock()
	n.stats.Forwarded++
	n.mu.Unlock()
	return link
}

// peer is a link to another broker, and what it was made with.
type peer struct {
	PeerLink
	to Peer
}

var errNoDial = errors.New("brokers do not reach each other here")

// peer returns the link to the broker at an address.
func (n *Node) peer(ctx context.Context, address string) (holdfast.Link, error) {
	if n.o.Dial == nil {
		return nil, errNoDial
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return nil, holdfast.ErrClosed
	}
	to := Peer{}
	for _, s := range n.table.Members() {
		if !s.Self && s.Entry.Address == address {
			to = Peer{Address: address, Secret: s.Entry.Secret, Pin: s.Entry.Pin}
		}
	}
	if to.Address == "" {
		return nil, errors.New("it has left")
	}
	p := n.peers[address]
	if p != nil && p.to == to {
		return p, nil
	}
	link, err := n.o.Dial(context.WithoutCancel(ctx), to)
	if err != nil {
		return nil, err
	}
	if p != nil {
		n.work.Go(p.Close)
	}
	p = &peer{link, to}
	n.peers[address] = p
	return p, nil
}

// strangers takes out and returns the links to brokers that are no members any more. It is called with the lock.
func (n *Node) strangers() (gone []*peer) {
	known := map[string]bool{}
	for _, s := range n.table.Members() {
		known[s.Entry.Address] = true
	}
	for address, p := range n.peers {
		if !known[address] {
			gone = append(gone, p)
			delete(n.peers, address)
		}
	}
	return gone
}
