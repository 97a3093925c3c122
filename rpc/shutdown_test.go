package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/rpc"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// A graceful end refuses what is new, lets streams go on until the broker ends them, and then ends the connections (§8).
func TestShutdown(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	idle := e.greeted()
	c := e.client(client.Options{})
	log := newSenderLog()
	s, _ := openSender(t, c, "q", log)
	raw := e.greeted()
	raw.sender(1, "q")

	down := make(chan error)
	go func() { down <- e.server.Shutdown(t.Context()) }()
	if r := idle.goaway(); r.Code != wire.CodeUnavailable {
		t.Errorf("idle connection told %v", r)
	}
	if r := raw.goaway(); r.Code != wire.CodeUnavailable {
		t.Errorf("busy connection told %v", r)
	}
	raw.write(wire.AppendOpenSender(nil, 2, &wire.OpenSender{Queue: "q"}))
	if r, err := wire.DecodeBroken(raw.expect(wire.TypeBroken)); err != nil || r.Code != wire.CodeUnavailable {
		t.Errorf("new stream told %v %v", r, err)
	}
	check(t, s.Send(1, frameOf("x")))
	want(t, log.events, "accepted 1 first 1 count 1 dup 0")
	waitFor(t, func() bool { return c.Addr() == "" })
	if _, _, err := c.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, log); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("new stream of the client: %v", err)
	}
	select {
	case err := <-down:
		t.Fatalf("shut down with streams open: %v", err)
	default:
	}
	e.link.Break(fmt.Errorf("broker: %w", holdfast.ErrClosed))
	want(t, log.events, "broken: queue unavailable")
	if err := <-down; err != nil {
		t.Error(err)
	}
	if _, err := e.tryClient(client.Options{}); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("after the end: %v", err)
	}
	check(t, e.server.Shutdown(t.Context()))
}

// A shutdown ends with its context, whoever holds on (G9).
func TestShutdownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, rpc.Options{}, newPipeListener())
		c := e.client(client.Options{})
		log := newSenderLog()
		openSender(t, c, "q", log)
		raw := e.greeted() // does not read
		raw.sender(1, "q")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := e.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shut down: %v", err)
		}
		if took := time.Since(begun); took < time.Minute && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || took > time.Minute+5*time.Second {
			t.Errorf("after %v", took)
		}
		want(t, log.events, "broken: queue unavailable")
		raw.nc.Close()
	})
}

// A client that is closed ends its streams and its connection, twice if need be, and whatever waits (G9).
func TestClientClose(t *testing.T) {
	e := start(t, rpc.Options{}, nil)
	block := make(chan struct{})
	c := e.client(client.Options{})
	log := newSenderLog()
	openSender(t, c, "q", log)
	e.link.SetBefore(func() { <-block })
	waiting := make(chan error)
	go func() {
		_, _, err := c.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, newSenderLog())
		waiting <- err
	}()
	waitFor(t, func() bool { return e.server.Metrics().Streams == 2 })
	c.Close()
	c.Close()
	want(t, log.events, "broken: closed")
	if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("opening: %v", err)
	}
	if _, _, err := c.OpenSender(t.Context(), "q", holdfast.SenderConfig{}, log); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("open after close: %v", err)
	}
	close(block)
	waitFor(t, func() bool { return e.link.Streams() == 0 && e.server.Metrics().Connections == 0 })
}
