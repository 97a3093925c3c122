package rpc_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// A client that breaks the protocol is told how and disconnected; its streams end, and a neighbour notices nothing (G11).
func TestProtocolFaults(t *testing.T) {
	e := start(t, rpc.Options{MaxFrameBytes: 10_000}, nil)
	neighbour := e.client(client.Options{})
	log := newSenderLog()
	s, _ := openSender(t, neighbour, "other", log)
	seq := uint64(0)

	flip := func(b []byte, i int) []byte { b = bytes.Clone(b); b[len(b)-i] ^= 0x40; return b }
	header := func(n uint32, typ wire.Type, stream uint32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, n)
		b = binary.LittleEndian.AppendUint32(append(b, byte(typ)), stream)
		return append(b, make([]byte, 4+20)...)
	}
	spans := []queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}
	ack := wire.AppendCommand(nil, 2, &wire.Command{Type: wire.TypeAck, Spans: spans})
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"garbage":                    {[]byte(strings.Repeat("hello, is this the right port? ", 10)), "frame has the unknown type 111"},
		"unknown type":               {header(0, 200, 1), "frame has the unknown type 200"},
		"type kept for delivery":     {header(0, 69, 1), "frame has the unknown type 69"},
		"send too large":             {wire.AppendSendHeader(nil, 1, 1, 10_001), "send frame has 10009 bytes (limit: 10008 bytes)"},
		"control too large":          {header(1<<20+1, wire.TypeAck, 2), "ack frame has 1048577 bytes (limit: 1048576 bytes)"},
		"length of all ones":         {header(1<<32-1, wire.TypeSend, 1), "send frame has 4294967295 bytes (limit: 10008 bytes)"},
		"damaged ack":                {flip(ack, 1), "ack frame does not match its checksum"},
		"damaged producer seq":       {flip(sendFrame(1, 1, "x"), 20), "send frame does not match its checksum"},
		"payload too long":           {header(0, wire.TypeAck, 0), "ack frame is on stream 0"},
		"hello again":                {wire.AppendHello(nil, &wire.Hello{MaxFrame: 1 << 20}), "hello frame of stream 0 is none that a client sends"},
		"a broker's frame":           {wire.AppendAccepted(nil, 1, &wire.Accepted{}), "accepted frame of stream 1 is none that a client sends"},
		"stream not opened":          {sendFrame(3, 1, "x"), "send frame of stream 3 comes before its stream was opened"},
		"close of a stream unopened": {wire.AppendClose(nil, 9, true), "close frame of stream 9 comes before its stream was opened"},
		"stream id again":            {wire.AppendOpenSender(nil, 2, &wire.OpenSender{Queue: "q"}), "open sender frame of stream 2 does not have a higher id than 2"},
		"stream id lower":            {wire.AppendOpenReceiver(nil, 1, &wire.OpenReceiver{Queue: "q"}), "open receiver frame of stream 1 does not have a higher id than 2"},
		"send to a receiver":         {sendFrame(2, 1, "x"), "send frame of stream 2 is not one of a receiver's stream"},
		"credit to a sender":         {wire.AppendCredit(nil, 1, wire.Credit{Messages: 1, Bytes: 1}), "credit frame of stream 1 is not one of a sender's stream"},
		"before it is open":          {append(wire.AppendOpenSender(nil, 3, &wire.OpenSender{Queue: "slow"}), sendFrame(3, 1, "x")...), "send frame of stream 3 comes before the stream is open"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := e.greeted()
			raw.sender(1, "q")
			raw.receiver(2, "q")
			if name == "before it is open" {
				block := make(chan struct{})
				e.link.SetBefore(func() { <-block })
				defer e.link.SetBefore(nil)
				defer close(block)
			}
			before := e.server.Metrics().ProtocolErrors
			raw.write(c.bytes)
			if got := raw.goaway(); got.Code != wire.CodeProtocol || got.Error() != c.want {
				t.Errorf("told %v %q, want %q", got.Code, got, c.want)
			}
			if _, _, err := raw.next(); err != io.EOF {
				t.Errorf("after the reason: %v", err)
			}
			raw.nc.Close()
			waitFor(t, func() bool { return e.server.Metrics().ProtocolErrors == before+1 || name == "before it is open" })
			waitFor(t, func() bool { return e.link.Streams() == 1 })
			seq++
			check(t, s.Send(seq, frameOf("y")))
			want(t, log.events, fmt.Sprintf("accepted %d first %d count 1 dup 0", seq, seq))
		})
	}
}

// A frame that is cut off by the end of its connection is no frame, and takes its streams along.
func TestTruncatedFrame(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	f := sendFrame(1, 1, "a", "b", "c")
	for n := 1; n < len(f); n += 7 {
		raw := e.greeted()
		raw.sender(1, "q")
		raw.write(f[:n])
		raw.nc.Close()
		waitFor(t, func() bool { return e.link.Streams() == 0 })
	}
	if m := e.link.Messages("q"); len(m) != 0 {
		t.Errorf("stored %q", m)
	}
}

// Frames of streams that have ended were on their way; they are no fault.
func TestLateFrames(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	raw := e.greeted()
	raw.sender(1, "q")
	raw.receiver(2, "q")
	e.link.Break(holdfast.ErrFenced)
	raw.expect(wire.TypeBroken)
	raw.expect(wire.TypeBroken)
	raw.write(sendFrame(1, 1, "x"))
	raw.write(wire.AppendCredit(nil, 2, wire.Credit{Messages: 1, Bytes: 1}))
	raw.write(wire.AppendClose(nil, 2, true))
	raw.write(wire.AppendClose(nil, 2, true))
	raw.sender(3, "q")
	if m := e.link.Messages("q"); len(m) != 0 {
		t.Errorf("stored %q", m)
	}
}

// What is wrong on a stream ends the stream, with the field, and leaves the connection as it is (G11).
func TestStreamFaults(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	raw := e.greeted()
	id := uint32(0)
	for _, c := range []struct {
		frames [][]byte
		field  string
	}{
		{[][]byte{wire.AppendCredit(nil, 0, wire.Credit{Messages: 0, Bytes: 5})}, "credit in messages"},
		{[][]byte{wire.AppendCredit(nil, 0, wire.Credit{Messages: 5, Bytes: 0})}, "credit in bytes"},
		{[][]byte{wire.AppendCredit(nil, 0, wire.Credit{Messages: 1 << 63, Bytes: 5})}, "credit in messages"},
		{[][]byte{wire.AppendCredit(nil, 0, wire.Credit{Messages: 5, Bytes: 1<<64 - 1})}, "credit in bytes"},
		{[][]byte{wire.AppendCredit(nil, 0, wire.Credit{Messages: 5, Bytes: 5}), wire.AppendCredit(nil, 0, wire.Credit{Messages: 4, Bytes: 6})}, "credit in messages"},
	} {
		id++
		raw.receiver(id, "q")
		for _, f := range c.frames {
			raw.write(onStream(f, id))
		}
		e, err := wire.DecodeBroken(raw.expect(wire.TypeBroken))
		if err != nil || e.Code != wire.CodeInvalid || e.Field != c.field || e.Limit == "" {
			t.Errorf("%+v %v, want a fault of %s", e, err, c.field)
		}
	}
	id++
	raw.sender(id, "q")
	bad := sendFrame(id, 1, "abc")
	bad[len(bad)-1] ^= 1
	raw.write(bad)
	if e, err := wire.DecodeBroken(raw.expect(wire.TypeBroken)); err != nil || e.Code != wire.CodeInvalid || e.Field != "frame" {
		t.Errorf("damaged messages: %v %v", e, err)
	}
	id++
	raw.receiver(id, "q")
	raw.write(wire.AppendCommand(nil, id, &wire.Command{Type: wire.TypeAck, Token: 77}))
	if o, err := wire.DecodeOutcomes(raw.expect(wire.TypeOutcomes)); err != nil || o.Token != 77 || o.Err == nil || o.Err.Code != wire.CodeInvalid {
		t.Errorf("ack of nothing: %+v %v", o, err)
	}
	raw.write(wire.AppendCommand(nil, id, &wire.Command{Type: wire.TypeAck, Token: 78, Spans: []queue.LeaseSpan{{Lease: 1, Seq: 1, Count: 1}}}))
	if o, err := wire.DecodeOutcomes(raw.expect(wire.TypeOutcomes)); err != nil || o.Token != 78 || o.Err != nil || o.Outcomes[0].Result != queue.AckGone {
		t.Errorf("ack of what is not there: %+v %v", o, err)
	}
	waitFor(t, func() bool { return e.link.Streams() == 1 })
}

// onStream puts a control frame on another stream.
func onStream(f []byte, id uint32) []byte {
	c, err := wire.DecodeCredit(f[wire.HeaderSize:])
	if err != nil {
		panic(err)
	}
	return wire.AppendCredit(nil, id, c)
}

// A client that says nothing, or too little, is disconnected after the handshake timeout.
func TestSlowHandshakes(t *testing.T) {
	const upgrade = "GET /holdfast HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: holdfast/1\r\n\r\n"
	hello := wire.AppendHello(nil, &wire.Hello{MaxFrame: 1 << 20})
	for name, c := range map[string]struct {
		text, want string
	}{
		"nothing":                            {"", ""},
		"half a request":                     {upgrade[:40], ""},
		"no hello":                           {upgrade, "hello frame did not come in time (limit: 5s)"},
		"half a hello":                       {upgrade + string(hello[:15]), "hello frame did not come in time (limit: 5s)"},
		"pings, no hello":                    {upgrade + string(wire.AppendPing(nil, 1)), "hello frame did not come in time (limit: 5s)"},
		"another frame":                      {upgrade + string(wire.AppendOpenSender(nil, 1, &wire.OpenSender{Queue: "q"})), "open sender frame of stream 1 comes before hello"},
		"a hello that takes next to nothing": {upgrade + string(wire.AppendHello(nil, &wire.Hello{MaxFrame: 1000})), "greatest frame is 1000 bytes (limit: 65536 bytes or more)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, rpc.Options{}, newPipeListener())
				nc, err := e.dial(t.Context(), "", "")
				check(t, err)
				defer nc.Close()
				begun := time.Now()
				go func() {
					for _, b := range []byte(c.text) { // as slowly as it goes
						if _, err := nc.Write([]byte{b}); err != nil {
							return
						}
					}
				}()
				got, _ := io.ReadAll(nc)
				if c.want != "" && !bytes.Contains(got, []byte("did not come in time")) && !bytes.Contains(got, goawayBytes(c.want)) {
					t.Errorf("told %q, want %q", got, c.want)
				}
				if took := time.Since(begun); took > rpc.DefaultHandshakeTimeout+2*time.Second {
					t.Errorf("ended after %v", took)
				}
			})
		})
	}
}

// goawayBytes is a piece of an encoded reason that tells it from others.
func goawayBytes(text string) []byte {
	if i := strings.Index(text, " (limit"); i >= 0 {
		text = text[:i]
	}
	return []byte(text[strings.LastIndex(text, " comes")+1:][:6])
}

// A client that asks for everything and reads nothing holds a bounded number of messages; its connection ends
// after the write timeout, what it was given goes to others, and those are not held up meanwhile (G4).
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, rpc.Options{}, newPipeListener())
		c := e.client(client.Options{})
		log := newSenderLog()
		s, _ := openSender(t, c, "q", log)
		body := strings.Repeat("x", 10_000)
		const n = 2000 // 20 MB
		for i := uint64(1); i <= n; i++ {
			check(t, s.Send(i, frameOf(body)))
			<-log.events
		}
		raw := e.greeted()
		raw.receiver(1, "q")
		raw.write(wire.AppendCredit(nil, 1, wire.Credit{Messages: 1 << 40, Bytes: 1 << 50}))
		begun := time.Now()
		synctest.Wait()
		given, delivered := e.link.Credit("q")
		if limit := uint64(2*(1<<20+64<<10)/10_000 + 1); given != 1<<16 || delivered == 0 || delivered > limit {
			t.Errorf("a client that does not read was given %d messages, of a credit of %d; want at most %d", delivered, given, limit)
		}
		other := newReceiverLog()
		r, _ := openReceiver(t, c, "q", holdfast.ReceiverConfig{}, other)
		r.Credit(n, 1<<30)
		for range n - int(delivered) {
			<-other.events
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("the other receiver waited %v", took)
		}
		for range delivered {
			<-other.events
		}
		if took := time.Since(begun); took < 7*time.Second || took > 10*time.Second {
			t.Errorf("its messages came back after %v", took)
		}
		synctest.Wait()
		if m := e.server.Metrics(); m.DeadConnections != 1 || m.Connections != 1 {
			t.Errorf("%+v", m)
		}
		raw.nc.Close()
	})
}

// Credit is passed on as what was handed over is read, so that a client that reads gets everything that it asked for.
func TestCreditIsPassedOn(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	c := e.client(client.Options{})
	log := newSenderLog()
	s, _ := openSender(t, c, "q", log)
	for i := uint64(1); i <= 500; i++ {
		check(t, s.Send(i, frameOf(strings.Repeat("x", 20_000))))
		<-log.events
	}
	rev := newReceiverLog()
	r, _ := openReceiver(t, c, "q", holdfast.ReceiverConfig{}, rev)
	r.Credit(400, 1<<40)
	for i := range 400 {
		want(t, rev.events, fmt.Sprintf("message %d lease %d attempt 1: %s", i+1, i+1, strings.Repeat("x", 40)))
	}
	given, delivered := e.link.Credit("q")
	if given != 400 || delivered != 400 || len(rev.events) != 0 {
		t.Errorf("given %d, delivered %d, more %d", given, delivered, len(rev.events))
	}
}

// A client that vanished without a word is missed within 10 s, and what it held goes on (§7, disconnect).
func TestHalfOpenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, rpc.Options{}, newPipeListener())
		raw := e.greeted()
		raw.sender(1, "q")
		raw.receiver(2, "q")
		last := time.Now()
		go func() { _, _ = io.Copy(io.Discard, raw.nc) }()
		for e.link.Streams() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(last); took > 10*time.Second {
			t.Errorf("missed after %v", took)
		}
		raw.nc.Close()
	})
}

// A client notices a broker that vanished within 10 s, and its streams break.
func TestHalfOpenBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, rpc.Options{}, newPipeListener())
		var ends []net.Conn
		c := e.client(client.Options{Dialer: e.stallable(&ends)})
		log := newSenderLog()
		openSender(t, c, "q", log)
		last := time.Now()
		ends[0].(*stallConn).stall()
		want(t, log.events, "broken: queue unavailable")
		if took := time.Since(last); took > 10*time.Second {
			t.Errorf("noticed after %v", took)
		}
	})
}

// More connections than may be open are closed at once, and a place that is given back is used again.
func TestMaxConns(t *testing.T) {
	e := start(t, rpc.Options{MaxConns: 2}, nil)
	a, b := e.greeted(), e.greeted()
	nc, err := net.Dial("tcp", e.addr)
	check(t, err)
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("a third connection is served")
	}
	nc.Close()
	a.sender(1, "q")
	b.nc.Close()
	waitFor(t, func() bool { return e.server.Metrics().Connections == 1 })
	waitFor(t, func() bool {
		resp, err := http.Get("http://" + e.addr + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	http.DefaultClient.CloseIdleConnections()
}

// A client that stops in the middle of a TLS handshake, or does it as slowly as it goes, is disconnected after the handshake timeout, and gives back its
// place among the connections.
func TestSlowTLSHandshakes(t *testing.T) {
	var first bytes.Buffer // what a client says first
	hello := tls.Client(recorder{&first}, &tls.Config{ServerName: "localhost"})
	if err := hello.HandshakeContext(t.Context()); err == nil || first.Len() < 100 {
		t.Fatalf("a first flight of %d bytes, %v", first.Len(), err)
	}
	for name, text := range map[string]string{"nothing": "", "half a client hello": first.String()[:50], "no finish": first.String(), "no TLS": "GET /holdfast HTTP/1.1\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newAuthority(t)
				e := start(t, rpc.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.sign("server")}}, MaxConns: 1}, newPipeListener())
				nc, err := e.dial(t.Context(), "", "")
				check(t, err)
				defer nc.Close()
				begun := time.Now()
				var writing sync.WaitGroup
				defer writing.Wait()
				writing.Go(func() {
					for _, b := range []byte(text) {
						if _, err := nc.Write([]byte{b}); err != nil {
							return
						}
						time.Sleep(20 * time.Millisecond) // virtual
					}
				})
				_, _ = io.Copy(io.Discard, nc)
				if took := time.Since(begun); took > rpc.DefaultHandshakeTimeout+2*time.Second {
					t.Errorf("ended after %v", took)
				}
				synctest.Wait() // its place is given back right after its connection is closed
				e.client(client.Options{TLS: &tls.Config{RootCAs: ca.pool, ServerName: "localhost"}})
			})
		})
	}
}

// recorder is a connection on which nobody answers.
type recorder struct{ io.Writer }

func (recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (recorder) Close() error                     { return nil }
func (recorder) LocalAddr() net.Addr              { return nil }
func (recorder) RemoteAddr() net.Addr             { return nil }
func (recorder) SetDeadline(time.Time) error      { return nil }
func (recorder) SetReadDeadline(time.Time) error  { return nil }
func (recorder) SetWriteDeadline(time.Time) error { return nil }
