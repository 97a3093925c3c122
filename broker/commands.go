package broker

import (
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// command is something asked of an owner. Exactly one of run and fail is called: run on the actor's goroutine; fail,
// with the reason, if the actor stopped before.
type command interface {
	run(o *owner, a *turn)
	fail(o *owner, err error)
}

// cmdFunc is a command for all that is not on the hot path.
type cmdFunc struct {
	do   func(o *owner, a *turn)
	lost func(err error)
}

func (c *cmdFunc) run(o *owner, a *turn)    { c.do(o, a) }
func (c *cmdFunc) fail(_ *owner, err error) { c.lost(err) }

// cmdSend is a checked frame of a sender.
type cmdSend struct {
	s     *sender
	first uint64
	frame []byte
	info  message.Info
}

func (c *cmdSend) run(o *owner, a *turn) {
	if c.s.closed.Load() {
		return
	}
	if !c.s.sent(c) {
		return
	}
	var err error
	o.tryRoom(a, func() {
		err = o.core.Send(a.Now(), queue.SendBatch{Sender: c.s.id, ProducerSeq: c.first, Frame: c.frame, Info: c.info})
	})
	if err != nil {
		o.dropSender(a, c.s, fmt.Errorf("send to queue %q: %w", o.name, err))
	}
}

// dropSender ends the stream of a sender that broke the rules.
func (o *owner) dropSender(a *turn, s *sender, err error) {
	o.removeSender(s)
	o.core.CloseSender(a.Now(), s.id, false)
	s.broken(err)
}

// removeSender forgets a sender whose stream has ended.
func (o *owner) removeSender(s *sender) {
	delete(o.senders, s.id)
	if o.producers[s.producer] == s {
		delete(o.producers, s.producer)
	}
}

// dropReceiver ends the stream of a receiver that broke the rules.
func (o *owner) dropReceiver(a *turn, r *receiver, err error) {
	delete(o.receivers, r.id)
	o.core.CloseReceiver(a.Now(), r.id, false)
	r.broken(err)
}

func (c *cmdSend) fail(_ *owner, err error) { c.s.broken(err) }

// cmdCredit is a receiver's new credit.
type cmdCredit struct {
	r               *receiver
	messages, bytes uint64
}

func (c *cmdCredit) run(o *owner, a *turn) {
	if c.r.closed.Load() {
		return
	}
	if err := o.core.Credit(a.Now(), c.r.id, c.messages, c.bytes); err != nil {
		o.dropReceiver(a, c.r, fmt.Errorf("credit to queue %q: %w", o.name, err))
	}
}

func (c *cmdCredit) fail(_ *owner, err error) { c.r.broken(err) }

// settleOp is what a cmdSettle does.
type settleOp uint8

const (
	opStarted settleOp = iota
	opAck
	opNack
	opRelease
	opExtend
)

// cmdSettle is a word of a receiver about messages that it holds.
type cmdSettle struct {
	op    settleOp
	r     *receiver // of opStarted
	spans []queue.LeaseSpan
	d     time.Duration
	reply func(queue.Reply, error)
}

func (c *cmdSettle) run(o *owner, a *turn) { c.runAs(o, a, o.token(c.reply)) }

func (c *cmdSettle) runAs(o *owner, a *turn, t queue.Token) {
	now := a.Now()
	switch c.op {
	case opStarted:
		o.core.Started(now, t, c.r.id, c.spans)
	case opAck:
		o.core.Ack(now, t, c.spans)
	case opNack:
		ms := c.d.Milliseconds()
		if c.d < 0 {
			ms = -1
		}
		o.core.Nack(now, t, c.spans, ms)
	case opRelease:
		o.core.Release(now, t, c.spans)
	case opExtend:
		o.core.Extend(now, t, c.spans, c.d.Milliseconds())
	}
}

func (c *cmdSettle) fail(_ *owner, err error) {
	if c.reply != nil {
		c.reply(queue.Reply{}, err)
	}
}

// cmdDisconnect ends all streams.
type cmdDisconnect struct{ err error }

func (c *cmdDisconnect) run(o *owner, a *turn) {
	for id := range o.senders {
		o.core.CloseSender(a.Now(), id, false)
	}
	for id := range o.receivers {
		o.core.CloseReceiver(a.Now(), id, false)
	}
	o.disconnect(c.err)
}

func (c *cmdDisconnect) fail(*owner, error) {}
