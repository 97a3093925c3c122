// Package deliverytest has a link that loses, repeats, delays and reorders what it carries, and can be cut, by a seed: to
// test what is built on package delivery, in real time or in the virtual time of testing/synctest.
//
//	network := deliverytest.NewNetwork(seed, deliverytest.Faults{Drop: 0.2, Duplicate: 0.1, MaxDelay: 50 * time.Millisecond})
//	producer, err := delivery.NewProducerController(delivery.ProducerOptions[Order]{
//		Consumer: deliverytest.Over(network, consumer),
//	})
package deliverytest

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/delivery"
)

// Faults says how bad a network is. The probabilities are from 0 to 1. The zero value is a perfect network.
type Faults struct {
	// Drop is the probability that an envelope, or an acknowledgement, is lost.
	Drop float64
	// Duplicate is the probability that one is carried twice (and each copy perhaps again).
	Duplicate float64
	// MinDelay and MaxDelay bound how long one is on its way. Each has a delay of its own, so they reorder.
	// With a MaxDelay of 0 everything arrives at once, before the call returns.
	MinDelay, MaxDelay time.Duration
	// Split is the probability that an envelope of several messages is cut in two, and each half
	// perhaps again, so that its messages have different fates.
	Split float64
	// Refuse is the probability that the link says by an error that it lost an envelope.
	Refuse float64
}

// Stats are the counts of what a network did, in envelopes and acknowledgements.
type Stats struct {
	Carried, Dropped, Duplicated, Refused int
	// InFlight is how many copies are on their way now.
	InFlight int
}

// Network is what links over it share: the faults, the seed, and whether it is cut. Its methods may be called
// concurrently. As long as they are called in the same order, the same seed makes the same decisions.
type Network struct {
	mu     sync.Mutex
	random *rand.Rand
	faults Faults
	cut    bool
	stats  Stats
}

// NewNetwork returns a network.
func NewNetwork(seed uint64, f Faults) *Network {
	return &Network{random: rand.New(rand.NewPCG(seed, seed+1)), faults: f}
}

// SetFaults changes how bad the network is from now on.
func (n *Network) SetFaults(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
}

// Cut makes the network lose everything, in both directions, also what is on its way; until Heal.
func (n *Network) Cut() { n.setCut(true) }

// Heal ends a Cut.
func (n *Network) Heal() { n.setCut(false) }

func (n *Network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// Stats returns what the network did so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// copies draws what becomes of one thing: the delays of its copies, none if it is lost.
func (n *Network) copies() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut || n.random.Float64() < n.faults.Drop {
		n.stats.Dropped++
		return nil
	}
	delays := []time.Duration{n.delay()}
	for len(delays) < 10 && n.random.Float64() < n.faults.Duplicate {
		delays = append(delays, n.delay())
		n.stats.Duplicated++
	}
	n.stats.Carried += len(delays)
	n.stats.InFlight += len(delays)
	return delays
}

func (n *Network) delay() time.Duration {
	spread := n.faults.MaxDelay - n.faults.MinDelay
	if spread <= 0 {
		return n.faults.MinDelay
	}
	return n.faults.MinDelay + time.Duration(n.random.Int64N(int64(spread)+1))
}

// chance draws whether something of probability p happens.
func (n *Network) chance(p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.Float64() < p
}

// carry has arrive called for each copy of something, after its delay.
func (n *Network) carry(arrive func()) {
	for _, d := range n.copies() {
		land := func() {
			n.mu.Lock()
			n.stats.InFlight--
			lost := n.cut
			n.mu.Unlock()
			if !lost {
				arrive()
			}
		}
		if d <= 0 {
			land()
		} else {
			time.AfterFunc(d, land)
		}
	}
}

// Over returns a link to to that goes over n, and whose acknowledgements come back over n.
func Over[B any](n *Network, to delivery.Link[B]) delivery.Link[B] {
	return &link[B]{n: n, to: to, replies: make(map[delivery.ReplyTo]*reply)}
}

type link[B any] struct {
	n  *Network
	to delivery.Link[B]

	mu      sync.Mutex
	replies map[delivery.ReplyTo]*reply
}

// errRefused is what a link says of what it refuses.
type errRefused struct{}

func (errRefused) Error() string { return "deliverytest: refused by the network" }

// Deliver implements delivery.Link.
func (l *link[B]) Deliver(d delivery.Delivery[B]) error {
	l.n.mu.Lock()
	f := l.n.faults
	l.n.mu.Unlock()
	if l.n.chance(f.Refuse) {
		l.n.mu.Lock()
		l.n.stats.Refused++
		l.n.mu.Unlock()
		return errRefused{}
	}
	d.Bodies = append([]B(nil), d.Bodies...)
	if d.ReplyTo != nil {
		d.ReplyTo = l.reply(d.ReplyTo)
	}
	l.send(d, f.Split)
	return nil
}

func (l *link[B]) send(d delivery.Delivery[B], split float64) {
	if k := len(d.Bodies) / 2; k > 0 && l.n.chance(split) {
		first, second := d, d
		first.Bodies, second.Bodies = d.Bodies[:k], d.Bodies[k:]
		second.Seq += uint64(k)
		l.send(first, split)
		l.send(second, split)
		return
	}
	// What a link reports of an envelope that is on its way is nobody's business any more.
	l.n.carry(func() { _ = l.to.Deliver(d) })
}

// Farewell implements delivery.Link.
func (l *link[B]) Farewell(f delivery.Farewell) error {
	l.n.carry(func() { _ = l.to.Farewell(f) })
	return nil
}

// FrameLimit implements delivery.FrameLimiter.
func (l *link[B]) FrameLimit() int {
	if to, ok := l.to.(delivery.FrameLimiter); ok {
		return to.FrameLimit()
	}
	return 0
}

func (l *link[B]) reply(to delivery.ReplyTo) *reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.replies[to]
	if r == nil {
		r = &reply{n: l.n, to: to}
		l.replies[to] = r
	}
	return r
}

// reply carries acknowledgements back.
type reply struct {
	n  *Network
	to delivery.ReplyTo
}

// Acknowledge implements delivery.ReplyTo.
func (r *reply) Acknowledge(acks []delivery.Acknowledgment) error {
	for _, a := range acks {
		r.n.carry(func() { _ = r.to.Acknowledge([]delivery.Acknowledgment{a}) })
	}
	return nil
}
