package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

var producer = queue.Producer{ID: "p", Incarnation: "1"}

func openSender(t *testing.T, l holdfast.Link, name string, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened) {
	t.Helper()
	s, o, err := l.OpenSender(t.Context(), name, holdfast.SenderConfig{Producer: producer}, ev)
	if err != nil {
		t.Fatal(err)
	}
	return s, o
}

func openReceiver(t *testing.T, l holdfast.Link, name string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened) {
	t.Helper()
	r, o, err := l.OpenReceiver(t.Context(), name, c, ev)
	if err != nil {
		t.Fatal(err)
	}
	return r, o
}

// outcomes returns a reply function and where its answers go.
func outcomes() (holdfast.Outcomes, chan string) {
	ch := make(chan string, 100)
	return func(o []queue.Outcome, err error) {
		if err != nil {
			ch <- "error: " + kindOf(err)
			return
		}
		ch <- fmt.Sprint(o)
	}, ch
}

// Every call of a link, and every answer, goes over a connection as it is (§9), whatever the network.
func TestLinkOverConnection(t *testing.T) {
	unix, err := rpc.Listen(t.Context(), "unix:"+filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]func() *env{
		"tcp":  func() *env { return start(t, rpc.Options{}, nil) },
		"unix": func() *env { return start(t, rpc.Options{}, unix) },
		"tls":  func() *env { return startTLS(t, rpc.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			e := start()
			c := e.client(client.Options{})
			sev, rev := newSenderLog(), newReceiverLog()

			s, so := openSender(t, c, "q", sev)
			lim := message.Limits{}.WithDefaults()
			if so.MaxBody != lim.MaxBody || so.MaxFrameBytes != lim.MaxFrameBytes || so.Credit != e.link.Window || so.Epoch != 1 || so.Resume != 0 || so.StreamUID != [16]byte{'q'} {
				t.Errorf("sender opened with %+v", so)
			}
			check(t, s.Send(1, frameOf("a", "b")))
			check(t, s.Send(3, frameOf("c")))
			want(t, sev.events, "accepted 2 first 1 count 2 dup 0", "accepted 3 first 3 count 1 dup 0")
			check(t, s.Send(2, frameOf("b", "c", "d")))
			check(t, s.Send(9, frameOf("x")))
			want(t, sev.events, "accepted 4 first 4 count 1 dup 2", "refused 5: out of sequence: expected producer seq 5, got 9")

			r, ro := openReceiver(t, c, "q", holdfast.ReceiverConfig{Session: [16]byte{7}, Announces: true}, rev)
			if ro.Visibility != 30*time.Second || ro.StreamUID != so.StreamUID || ro.Epoch != 1 || ro.Kept != nil {
				t.Errorf("receiver opened with %+v", ro)
			}
			r.Credit(3, 1000)
			want(t, rev.events, "message 1 lease 1 attempt 1: a", "message 2 lease 2 attempt 1: b", "message 3 lease 3 attempt 1: c")
			reply, answers := outcomes()
			r.Started([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 3}}, reply)
			r.Ack([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}, reply)
			r.Ack([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 2}, {Lease: 9, Seq: 3, Count: 1}}, reply)
			r.Extend([]queue.LeaseSpan{{Lease: 3, Seq: 3, Count: 1}}, time.Minute, reply)
			want(t, answers, "[]", "[]", "[{{1 1 1} 1} {{2 2 1} 0} {{9 3 1} 2}]", "[]")
			r.Credit(5, 1000)
			want(t, rev.events, "message 4 lease 4 attempt 1: d")
			r.Nack([]queue.LeaseSpan{{Lease: 4, Seq: 4, Count: 1}}, -1, reply)
			want(t, answers, "[]")
			want(t, rev.events, "message 4 lease 5 attempt 2: d")
			r.Credit(6, 1000)
			r.Release([]queue.LeaseSpan{{Lease: 5, Seq: 4, Count: 1}}, reply)
			want(t, answers, "[]")
			want(t, rev.events, "message 4 lease 6 attempt 2: d")
			e.link.Lose("q", "expired")
			want(t, rev.events, "lost [{3 3 1}]: expired", "lost [{6 4 1}]: expired")

			s.Close(true)
			r.Close(true)
			if c.Addr() != e.addr {
				t.Errorf("connected to %q", c.Addr())
			}
			s2, o2 := openSender(t, c, "q", sev)
			if o2.Resume != 0 {
				t.Errorf("after a clean close the producer is still known: %+v", o2)
			}
			s2.Close(false)
			waitFor(t, func() bool { return e.link.Streams() == 0 })
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor polls a condition that has no event, with the scheduler's help.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("condition not met")
		}
	}
}

// When a connection ends, every stream breaks, every unanswered command is unknown, and the client goes on over a new connection; a
// session gets back what it holds (§7, disconnect).
func TestConnectionLost(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	proxy := newProxy(t, e.addr)
	c := e.client(client.Options{Addrs: []string{proxy.addr}})
	sev, rev := newSenderLog(), newReceiverLog()
	s, _ := openSender(t, c, "q", sev)
	check(t, s.Send(1, frameOf("a", "b")))
	want(t, sev.events, "accepted 2 first 1 count 2 dup 0")
	r, _ := openReceiver(t, c, "q", holdfast.ReceiverConfig{Session: [16]byte{7}}, rev)
	r.Credit(2, 100)
	want(t, rev.events, "message 1 lease 1 attempt 1: a", "message 2 lease 2 attempt 1: b")

	e.link.Mute(true)
	check(t, s.Send(3, frameOf("c")))
	waitFor(t, func() bool { return len(e.link.Messages("q")) == 3 })
	proxy.stall()
	reply, answers := outcomes()
	r.Ack([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}, reply)
	proxy.cut()
	want(t, sev.events, "broken: queue unavailable")
	want(t, answers, "error: queue unavailable")
	want(t, rev.events, "broken: queue unavailable")
	if err := s.Send(4, frameOf("d")); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("send on a broken stream: %v", err)
	}
	r.Ack([]queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}, reply)
	want(t, answers, "error: queue unavailable")
	e.link.Mute(false)
	waitFor(t, func() bool { return e.link.Streams() == 0 })

	s, o := openSender(t, c, "q", sev)
	if o.Resume != 4 {
		t.Errorf("the sender resumes at %d", o.Resume)
	}
	check(t, s.Send(3, frameOf("c", "d")))
	want(t, sev.events, "accepted 4 first 4 count 1 dup 1")
	r, ro := openReceiver(t, c, "q", holdfast.ReceiverConfig{Session: [16]byte{7}, Held: []queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 2}}}, rev)
	if fmt.Sprint(ro.Kept) != "[{1 1 1} {2 2 1}]" {
		t.Errorf("kept %v", ro.Kept)
	}
	r.Ack(ro.Kept, reply)
	want(t, answers, "[]")
}

// A stream that the broker ends breaks alone; the connection and its other streams go on.
func TestStreamBrokenByBroker(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	c := e.client(client.Options{})
	sev, other := newSenderLog(), newSenderLog()
	s, _ := openSender(t, c, "q", sev)
	e.link.Break(fmt.Errorf("sender: %w", holdfast.ErrFenced))
	want(t, sev.events, "broken: queue is owned by another broker")
	if err := s.Send(1, frameOf("x")); err == nil {
		t.Error("send on a broken stream is no error")
	}
	s, _ = openSender(t, c, "q", other)
	check(t, s.Send(1, frameOf("x")))
	want(t, other.events, "accepted 1 first 1 count 1 dup 0")
	bad := frameOf("y")
	bad[len(bad)-1] ^= 1
	check(t, s.Send(2, bad))
	want(t, other.events, "broken: field frame")
	if got := e.server.Metrics(); got.Accepted != 1 || got.ProtocolErrors != 0 {
		t.Errorf("%+v", got)
	}
}

// An opening that fails says why, one that is given up is given up at the broker too, and neither disturbs
// anything (G9, G11).
func TestOpenings(t *testing.T) {
	e := start(t, rpc.Options{MaxStreams: 2}, nil)
	began, ended := make(chan string, 10), make(chan string, 10)
	e.link.Opening = func(ctx context.Context, name string) error {
		switch name {
		case "none":
			return fmt.Errorf("queue %q: %w", name, holdfast.ErrNoQueue)
		case "slow":
			began <- name
			<-ctx.Done()
			ended <- name
			return ctx.Err()
		}
		return nil
	}
	c := e.client(client.Options{})
	open := func(ctx context.Context, name string) error {
		_, _, err := c.OpenSender(ctx, name, holdfast.SenderConfig{}, newSenderLog())
		_, _, err2 := c.OpenReceiver(ctx, name, holdfast.ReceiverConfig{}, newReceiverLog())
		if a, b := kindOf(err), kindOf(err2); a != strings.Replace(b, "receiver from", "sender to", 1) {
			t.Errorf("%v, but %v", a, b)
		}
		return err
	}
	if err := open(t.Context(), "none"); !errors.Is(err, holdfast.ErrNoQueue) || err.Error() != `queue "none": no such queue` {
		t.Errorf("no queue: %v", err)
	}
	for _, name := range []string{"", "a/b", strings.Repeat("x", 81)} {
		var field *message.FieldError
		if err := open(t.Context(), name); !errors.As(err, &field) || field.Field != "queue name" {
			t.Errorf("name %q: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	given := make(chan error)
	go func() { given <- open(ctx, "slow") }()
	<-began
	cancel(errors.New("changed my mind"))
	if err := <-given; err == nil || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("given up: %v", err)
	}
	<-ended

	s1, _ := openSender(t, c, "q", newSenderLog())
	openReceiver(t, c, "q", holdfast.ReceiverConfig{}, newReceiverLog())
	if err := open(t.Context(), "q"); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "2 streams open") {
		t.Errorf("third stream: %v", err)
	}
	s1.Close(false)
	openSender(t, c, "q", newSenderLog())

	_, _, err := c.OpenSender(t.Context(), "q", holdfast.SenderConfig{Producer: queue.Producer{ID: strings.Repeat("x", 257), Incarnation: "1"}}, newSenderLog())
	if kindOf(err) != "field producer id" {
		t.Errorf("long producer id: %v", err)
	}
	// A connection that ends takes its openings with it.
	raw := e.greeted()
	raw.write(wire.AppendOpenSender(nil, 1, &wire.OpenSender{Queue: "slow"}))
	<-began
	raw.nc.Close()
	<-ended
}

// A frame larger than the broker takes breaks its stream at the client already, and not the connection.
func TestOversizeFrameOfOwnClient(t *testing.T) {
	e := start(t, rpc.Options{MaxFrameBytes: 1000}, nil)
	c := e.client(client.Options{})
	sev := newSenderLog()
	s, o := openSender(t, c, "q", sev)
	if o.MaxFrameBytes != 1000 {
		t.Errorf("limit %d", o.MaxFrameBytes)
	}
	if err := s.Send(1, frameOf(strings.Repeat("x", 2000))); kindOf(err) != "field frame" {
		t.Errorf("send: %v", err)
	}
	want(t, sev.events, "broken: field frame")
	s, _ = openSender(t, c, "q", sev)
	check(t, s.Send(1, frameOf("x")))
	want(t, sev.events, "accepted 1 first 1 count 1 dup 0")
}

// An owner of a lower epoch than the client has met is refused (G5).
func TestSupersededOwner(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	c := e.greeted()
	uid := [16]byte{'q'}
	c.write(wire.AppendOpenSender(nil, 1, &wire.OpenSender{Queue: "q", Seen: wire.Seen{StreamUID: uid, Epoch: 2}}))
	if err, derr := wire.DecodeBroken(c.expect(wire.TypeBroken)); derr != nil || err.Code != wire.CodeFenced {
		t.Errorf("sender: %v %v", err, derr)
	}
	c.write(wire.AppendOpenReceiver(nil, 2, &wire.OpenReceiver{Queue: "q", Seen: wire.Seen{StreamUID: uid, Epoch: 2}}))
	if err, derr := wire.DecodeBroken(c.expect(wire.TypeBroken)); derr != nil || err.Code != wire.CodeFenced {
		t.Errorf("receiver: %v %v", err, derr)
	}
	// Another stream under the same name is another matter.
	c.write(wire.AppendOpenSender(nil, 3, &wire.OpenSender{Queue: "q", Seen: wire.Seen{StreamUID: [16]byte{1}, Epoch: 2}}))
	c.expect(wire.TypeSenderOpened)
	waitFor(t, func() bool { return e.link.Streams() == 1 })
}
