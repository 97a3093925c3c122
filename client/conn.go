package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/transport"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// maxStream is the highest stream id of a connection; after it comes another connection.
const maxStream = 1<<32 - 1

// conn is a data connection and its streams.
type conn struct {
	c        *Client
	addr     address
	t        *transport.Conn
	welcomed chan struct{} // closed when the broker's Welcome has come
	greeted  bool          // the same, of the reading goroutine

	mu      sync.Mutex
	streams map[uint32]stream
	last    uint32            // highest stream id so far
	replies map[uint64]*reply // by token
	token   uint64            // last one
	goaway  *wire.Error       // the broker takes no new streams
	ended   error             // why the connection is no more
}

// stream is an open stream, or one that is being opened. Its methods are called by the reading goroutine alone.
type stream interface {
	// frame takes a frame of the broker.
	frame(h wire.Header, payload []byte) error
	// broken ends the stream; nothing follows.
	broken(err error)
}

func newConn(c *Client, a address, nc net.Conn, buffered []byte) *conn {
	cn := &conn{
		c: c, addr: a, welcomed: make(chan struct{}),
		streams: make(map[uint32]stream), replies: make(map[uint64]*reply),
	}
	cn.t = transport.New(nc, buffered, transport.Options{
		MaxBulk: c.o.MaxFrameBytes, DeadAfter: c.o.DeadAfter, WriteTimeout: c.o.WriteTimeout, Eager: true,
		Buffer: math.MaxInt, // what a client has to write is bounded by what it holds and by the credit that it was given
	})
	return cn
}

// serve runs the connection until it ends, and breaks its streams.
func (cn *conn) serve() {
	cn.t.End(wire.AppendHello(cn.t.Begin(), &wire.Hello{Client: cn.c.o.Name, MaxFrame: uint32(cn.c.o.MaxFrameBytes)}))
	err := cn.t.Serve(cn.handle)
	cn.c.left(cn)
	reason := cn.reason()
	cn.mu.Lock()
	cn.ended = reason
	streams, replies := cn.streams, cn.replies
	cn.streams, cn.replies = nil, nil
	cn.mu.Unlock()
	if !errors.Is(reason, holdfast.ErrClosed) {
		cn.c.o.Logger.Debug("connection ended", "broker", cn.addr.text, "reason", err, "streams", len(streams))
	}
	for _, r := range replies {
		r.done(nil, reason)
	}
	for _, st := range streams {
		st.broken(reason)
	}
}

// reason says why the connection ended, for its streams.
func (cn *conn) reason() error {
	err := cn.t.Err()
	if errors.Is(err, holdfast.ErrClosed) {
		return err
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.goaway != nil {
		return fmt.Errorf("connection to %s: %w: %s", cn.addr.text, holdfast.ErrUnavailable, cn.goaway.Error())
	}
	return fmt.Errorf("connection to %s: %w: %s", cn.addr.text, holdfast.ErrUnavailable, err.Error())
}

// usable reports whether new streams can be opened on it.
func (cn *conn) usable() bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	return cn.takesStreams() && cn.t.Err() == nil
}

// takesStreams tells the same but for a connection that is ending this moment. It is called with the lock.
func (cn *conn) takesStreams() bool {
	return cn.ended == nil && cn.goaway == nil && cn.last < maxStream
}

// handle takes a frame of the broker.
func (cn *conn) handle(h wire.Header, payload []byte) error {
	switch h.Type {
	case wire.TypeWelcome:
		if _, err := wire.DecodeWelcome(payload); err != nil {
			return err
		}
		if cn.greeted {
			return outOfSequence(h, "came before")
		}
		cn.greeted = true
		close(cn.welcomed)
		return nil
	case wire.TypeGoaway:
		e, err := wire.DecodeGoaway(payload)
		if err != nil {
			return err
		}
		cn.leave(e)
		return nil
	}
	if !cn.greeted {
		return outOfSequence(h, "comes before welcome")
	}
	switch h.Type {
	case wire.TypeOutcomes:
		m, err := wire.DecodeOutcomes(payload)
		if err != nil {
			return err
		}
		cn.outcomes(h.Stream, m)
		return nil
	case wire.TypeHello, wire.TypeOpenSender, wire.TypeSend, wire.TypeOpenReceiver, wire.TypeCredit, wire.TypeStarted,
		wire.TypeAck, wire.TypeNack, wire.TypeRelease, wire.TypeExtend, wire.TypeClose,
		wire.TypeOpenDelivery, wire.TypeEnvelope, wire.TypeFarewell:
		return outOfSequence(h, "is none that a broker sends")
	}
	return cn.ofStream(h, payload)
}

// ofStream gives a frame to its stream. Frames of a stream that was closed were on their way when it was.
func (cn *conn) ofStream(h wire.Header, payload []byte) error {
	cn.mu.Lock()
	st, last := cn.streams[h.Stream], cn.last
	cn.mu.Unlock()
	switch {
	case st == nil && h.Stream > last:
		return outOfSequence(h, "is not of a stream that was opened")
	case h.Type != wire.TypeBroken:
		if st == nil {
			return nil
		}
		return st.frame(h, payload)
	}
	e, err := wire.DecodeBroken(payload)
	if err != nil || st == nil {
		return err
	}
	failure := status.ToError(e)
	for _, r := range cn.forget(h.Stream) {
		r.done(nil, failure)
	}
	st.broken(failure)
	return nil
}

func outOfSequence(h wire.Header, fault string) error {
	return &wire.Error{Code: wire.CodeProtocol, Field: h.Type.String() + " frame", Fault: fmt.Sprintf("of stream %d %s", h.Stream, fault)}
}

// leave notes that the broker takes no new streams here.
func (cn *conn) leave(e *wire.Error) {
	cn.mu.Lock()
	cn.goaway = e
	cn.mu.Unlock()
	cn.c.left(cn)
	cn.c.o.Logger.Debug("broker takes no new streams", "broker", cn.addr.text, "reason", e)
}

// forget takes a stream out and returns the commands on it that are not answered.
func (cn *conn) forget(id uint32) []*reply {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.streams, id)
	var open []*reply
	for token, r := range cn.replies {
		if r.stream == id {
			open = append(open, r)
			delete(cn.replies, token)
		}
	}
	return open
}

// close ends a stream from the client's side. What was asked before on it is still answered.
func (cn *conn) close(id uint32, clean bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.streams[id] != nil {
		delete(cn.streams, id)
		cn.t.End(wire.AppendClose(cn.t.Begin(), id, clean))
	}
}

// openOn opens a stream on a connection: make makes it for its id, ask appends the frame that asks for it, and it is open when what answered
// returns is closed. left tells that the connection takes no streams any more, and nothing was asked.
func (c *Client) openOn(ctx context.Context, cn *conn, make func(cn *conn, id uint32) (stream, *answer), ask func(b []byte, id uint32) []byte) (a *answer, left bool, err error) {
	cn.mu.Lock()
	if !cn.takesStreams() {
		cn.mu.Unlock()
		c.left(cn)
		return nil, true, nil
	}
	cn.last++
	id := cn.last
	st, a := make(cn, id)
	cn.streams[id] = st
	// Under the lock, because ids go out in order.
	cn.t.End(ask(cn.t.Begin(), id))
	cn.mu.Unlock()
	select {
	case <-a.done:
		if a.err != nil {
			return nil, false, &toldError{a.err}
		}
		return a, false, nil
	case <-ctx.Done():
		a.abandon()
		cn.close(id, false)
		return nil, false, context.Cause(ctx)
	}
}

// reply is what a command waits for.
type reply struct {
	stream   uint32
	fn       holdfast.Outcomes
	outcomes []queue.Outcome // of frames so far
}

func (r *reply) done(outcomes []queue.Outcome, err error) {
	if err != nil {
		r.fn(nil, err)
		return
	}
	r.fn(outcomes, nil)
}

// expect notes that a command is to be answered and returns its token; 0 if the connection is no more.
func (cn *conn) expect(r *reply) uint64 {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.ended != nil || cn.streams[r.stream] == nil {
		return 0
	}
	cn.token++
	cn.replies[cn.token] = r
	return cn.token
}

// outcomes takes an answer to a command.
func (cn *conn) outcomes(stream uint32, m wire.Outcomes) {
	cn.mu.Lock()
	r := cn.replies[m.Token]
	if r == nil || r.stream != stream {
		cn.mu.Unlock()
		return // its stream broke
	}
	if m.More {
		r.outcomes = append(r.outcomes, m.Outcomes...)
		cn.mu.Unlock()
		return
	}
	delete(cn.replies, m.Token)
	cn.mu.Unlock()
	if r.outcomes != nil {
		m.Outcomes = append(r.outcomes, m.Outcomes...)
	}
	r.done(m.Outcomes, status.ToError(m.Err))
}

// toldError is an error in the broker's words, which say what was being done.
type toldError struct{ error }

func (e *toldError) Unwrap() error { return e.error }

// doing says what was being done when err came about, unless it says so itself.
func doing(err error, format string, args ...any) error {
	var told *toldError
	if errors.As(err, &told) {
		return told.error
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
