package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

func spans(n int) (s []queue.LeaseSpan) {
	for i := range uint64(n) {
		s = append(s, queue.LeaseSpan{Lease: 3*i + 1, Seq: 5*i + 1, Count: 1})
	}
	return s
}

func deliverFrame(id uint32, n int) []byte {
	var b message.Builder
	for range n {
		b.Add(&message.Message{Body: []byte("x")})
	}
	data := b.Finish()[message.FrameHeaderSize:]
	d := queue.Delivery{LeaseSpan: queue.LeaseSpan{Lease: 1, Seq: 1, Count: uint64(n)}, Attempt: 1}
	return append(wire.AppendDeliverHeader(nil, id, []wire.Run{{Delivery: d, Data: data}}), data...)
}

// A broker that breaks the protocol is told how, and the streams of the connection break: a receiver never gets more than it asked
// for (G4), and nothing is taken for what it is not.
func TestBrokerFaults(t *testing.T) {
	for name, c := range map[string]struct {
		frame func(sender, receiver uint32) []byte
		want  string
	}{
		"more than credit":        {func(_, r uint32) []byte { return deliverFrame(r, 6) }, "deliver frame of stream 2 brings 6 messages in all, with credit for 5"},
		"more than credit in all": {func(_, r uint32) []byte { return append(deliverFrame(r, 3), deliverFrame(r, 3)...) }, "deliver frame of stream 2 brings 6 messages in all, with credit for 5"},
		"welcome again":           {func(_, _ uint32) []byte { return wire.AppendWelcome(nil, &wire.Welcome{}) }, "welcome frame of stream 0 came before"},
		"opened again":            {func(s, _ uint32) []byte { return wire.AppendSenderOpened(nil, s, &wire.SenderOpened{}) }, "sender opened frame of stream 1 came before"},
		"opened again, receiver":  {func(_, r uint32) []byte { return wire.AppendReceiverOpened(nil, r, &wire.ReceiverOpened{}) }, "receiver opened frame of stream 2 came before"},
		"other stream":            {func(_, r uint32) []byte { return wire.AppendAccepted(nil, r, &wire.Accepted{}) }, "accepted frame of stream 2 is not one of a receiver's stream"},
		"deliver to sender":       {func(s, _ uint32) []byte { return deliverFrame(s, 1) }, "deliver frame of stream 1 is not one of a sender's stream"},
		"unknown stream":          {func(_, _ uint32) []byte { return wire.AppendWaits(nil, 9, true, "full") }, "waits frame of stream 9 is not of a stream that was opened"},
		"a client's frame":        {func(s, _ uint32) []byte { return wire.AppendClose(nil, s, true) }, "close frame of stream 1 is none that a broker sends"},
		"malformed":               {func(s, _ uint32) []byte { return []byte(strings.Repeat("x", 30)) }, "frame has the unknown type 120"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan *wire.Error, 1)
			b := newBroker(t, func(p *peer) {
				p.greet()
				s, r := p.opened(), p.openedReceiver()
				p.expect(wire.TypeCredit)
				p.write(c.frame(s, r))
				told <- p.reason()
			})
			cl := mustDial(t, b.addr)
			sev, rev := newEvents(), newEvents()
			_, err := openSender(t.Context(), cl, sev)
			check(t, err)
			r := openReceiver(t, cl, rev)
			r.Credit(5, 1000)
			if e := <-told; e == nil || e.Code != wire.CodeProtocol || e.Error() != c.want {
				t.Errorf("the broker was told %v, want %q", e, c.want)
			}
			for _, ev := range []events{sev, rev} {
				for e := range ev {
					if strings.HasPrefix(e, "broken: ") {
						if !strings.Contains(e, c.want) {
							t.Error(e)
						}
						break
					}
				}
			}
		})
	}
}

// An answer to an opening that is of the wrong kind fails it.
func TestWrongAnswerToOpening(t *testing.T) {
	b := newBroker(t, func(p *peer) {
		p.greet()
		h, _ := p.expect(wire.TypeOpenSender)
		p.write(wire.AppendAccepted(nil, h.Stream, &wire.Accepted{}))
		p.rest()
	})
	_, err := openSender(t.Context(), mustDial(t, b.addr), newEvents())
	if !retryable(err) || !strings.Contains(err.Error(), "accepted frame of stream 1 comes before the stream is open") {
		t.Error(err)
	}
}

// After a goaway, open streams go on where they are, and new ones open elsewhere.
func TestGoaway(t *testing.T) {
	leave := make(chan struct{})
	first := newBroker(t, func(p *peer) {
		p.greet()
		id := p.opened()
		<-leave
		p.write(wire.AppendGoaway(nil, &wire.Error{Code: wire.CodeUnavailable, Message: "stopping"}))
		p.write(wire.AppendWaits(nil, id, true, "full"))
		p.expect(wire.TypeSend)
		p.write(wire.AppendAccepted(nil, id, &wire.Accepted{UpTo: 7}))
		p.expect(wire.TypeClose)
	})
	second := newBroker(t, serveSenders)
	c := mustDial(t, first.addr, second.addr)
	ev := newEvents()
	s, err := openSender(t.Context(), c, ev)
	check(t, err)
	close(leave)
	if e := <-ev; e != "waits true full" {
		t.Error(e)
	}
	if _, err := openSender(t.Context(), c, newEvents()); err != nil {
		t.Error(err)
	}
	if c.Addr() != second.addr {
		t.Errorf("new streams go to %s", c.Addr())
	}
	check(t, s.Send(1, []byte("frame")))
	if e := <-ev; e != "accepted 7" {
		t.Error(e)
	}
	s.Close(true)
}

// No event follows a stream's end by its own side, but answers to what was asked before do.
func TestAfterClose(t *testing.T) {
	b := newBroker(t, func(p *peer) {
		p.greet()
		id := p.openedReceiver()
		_, ack := p.expect(wire.TypeAck)
		m, _ := wire.DecodeCommand(wire.TypeAck, ack)
		p.expect(wire.TypeClose)
		p.write(wire.AppendLost(nil, id, m.Spans, "expired"))
		p.write(wire.AppendBroken(nil, id, &wire.Error{Code: wire.CodeInternal}))
		p.write(wire.AppendOutcomes(nil, id, &wire.Outcomes{Token: 99})) // nobody's
		p.write(wire.AppendOutcomes(nil, id, &wire.Outcomes{Token: m.Token}))
		p.rest()
	})
	c := mustDial(t, b.addr)
	ev := newEvents()
	r := openReceiver(t, c, ev)
	done := make(chan error)
	r.Ack(spans(1), func(o []queue.Outcome, err error) { done <- err })
	r.Close(true)
	if err := <-done; err != nil {
		t.Errorf("ack: %v", err)
	}
	r.Credit(1, 1)
	r.Ack(spans(1), nil)
	r.Ack(spans(1), func(_ []queue.Outcome, err error) { done <- err })
	if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("ack after close: %v", err)
	}
	if len(ev) != 0 {
		t.Errorf("event %q", <-ev)
	}
}

// A command of any length is answered once, as a whole, although it goes in several frames and is answered in several.
func TestLongCommands(t *testing.T) {
	const n = 2*wire.MaxSpans + 5
	for name, c := range map[string]struct {
		answer func(part int, m wire.Command) []wire.Outcomes
		want   string
	}{
		"all done": {func(int, wire.Command) []wire.Outcomes { return []wire.Outcomes{{}} }, "[] <nil>"},
		"one lost": {func(part int, m wire.Command) []wire.Outcomes {
			if part != 1 {
				return []wire.Outcomes{{}}
			}
			out := []queue.Outcome{{LeaseSpan: m.Spans[0], Result: queue.AckLost}}
			for _, s := range m.Spans[1:] {
				out = append(out, queue.Outcome{LeaseSpan: s})
			}
			return []wire.Outcomes{{More: true, Outcomes: out[:100]}, {More: true, Outcomes: out[100:200]}, {Outcomes: out[200:]}}
		}, fmt.Sprintf("%d outcomes, lost %v <nil>", n, []int{wire.MaxSpans})},
		"one unknown": {func(part int, m wire.Command) []wire.Outcomes {
			if part == 2 {
				return []wire.Outcomes{{Err: &wire.Error{Code: wire.CodeUnavailable, Message: "no"}}}
			}
			return []wire.Outcomes{{}}
		}, "[] no"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, func(p *peer) {
				p.greet()
				id := p.openedReceiver()
				for part := range 3 {
					_, b := p.expect(wire.TypeNack)
					m, err := wire.DecodeCommand(wire.TypeNack, b)
					if err != nil {
						t.Error(err)
					}
					for _, o := range c.answer(part, m) {
						o.Token = m.Token
						p.write(wire.AppendOutcomes(nil, id, &o))
					}
				}
				p.rest()
			})
			cl := mustDial(t, b.addr)
			r := openReceiver(t, cl, newEvents())
			all := spans(n)
			got := make(chan string, 2)
			r.Nack(all, -1, func(o []queue.Outcome, err error) {
				if o == nil {
					got <- fmt.Sprint(o, " ", err)
					return
				}
				var lost []int
				for i := range o {
					if o[i].LeaseSpan != all[i] {
						t.Errorf("outcome %d is of %v, want %v", i, o[i].LeaseSpan, all[i])
						break
					}
					if o[i].Result == queue.AckLost {
						lost = append(lost, i)
					}
				}
				got <- fmt.Sprintf("%d outcomes, lost %v %v", len(o), lost, err)
			})
			if g := <-got; g != c.want {
				t.Errorf("%s, want %s", g, c.want)
			}
		})
	}
}

// An opening that is given up is closed at the broker, and its answer, which comes late, is no fault.
func TestOpeningGivenUp(t *testing.T) {
	asked, closedIt := make(chan struct{}), make(chan struct{})
	b := newBroker(t, func(p *peer) {
		p.greet()
		h, _ := p.expect(wire.TypeOpenSender)
		close(asked)
		p.expect(wire.TypeClose)
		p.write(wire.AppendSenderOpened(nil, h.Stream, &wire.SenderOpened{}))
		p.write(wire.AppendWaits(nil, h.Stream, true, "full"))
		close(closedIt)
		p.opened()
		p.rest()
	})
	c := mustDial(t, b.addr)
	ctx, cancel := context.WithCancel(t.Context())
	ev := newEvents()
	done := make(chan error)
	go func() { _, err := openSender(ctx, c, ev); done <- err }()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-closedIt
	if _, err := openSender(t.Context(), c, ev); err != nil {
		t.Error(err)
	}
	if len(ev) != 0 {
		t.Errorf("event %q", <-ev)
	}
}

// The newest life of a queue that the client met goes with its next openings (G5).
func TestSeenEpochIsTold(t *testing.T) {
	uid := [16]byte{5}
	told := make(chan wire.Seen, 10)
	b := newBroker(t, func(p *peer) {
		p.greet()
		for epoch := uint64(7); ; epoch-- {
			h, payload, err := p.next()
			if err != nil || h.Type == wire.TypeGoaway {
				return
			}
			m, err := wire.DecodeOpenSender(payload)
			if err != nil {
				t.Error(err)
			}
			told <- m.Seen
			p.write(wire.AppendSenderOpened(nil, h.Stream, &wire.SenderOpened{StreamUID: uid, Epoch: epoch}))
		}
	})
	c := mustDial(t, b.addr)
	for _, want := range []wire.Seen{{}, {StreamUID: uid, Epoch: 7}, {StreamUID: uid, Epoch: 7}} {
		_, err := openSender(t.Context(), c, newEvents())
		check(t, err)
		if got := <-told; got != want {
			t.Errorf("told %v, want %v", got, want)
		}
	}
}
