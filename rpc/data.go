package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/access"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/transport"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

// dataConn is a connection of the data protocol.
type dataConn struct {
	s       *Server
	t       *transport.Conn
	who     *access.Identity
	peer    bool          // the client is another broker
	link    holdfast.Link // what it is let at
	maxSend int           // the greatest frame of messages that is taken
	remote  string
	end     context.CancelFunc // gives up the opening of streams
	opens   sync.WaitGroup

	// Of the reading goroutine alone.
	hello    *wire.Hello
	shake    *time.Timer
	maxFrame int // of a Deliver frame's payload

	mu      sync.Mutex
	streams map[uint32]stream
	last    uint32 // highest stream id so far
	leaving bool   // no new streams
	ended   bool
}

// stream is a sender's or receiver's stream, or one to a consumer.
type stream interface {
	// frame handles a frame of the client.
	frame(h wire.Header, payload []byte) error
	// close ends the stream from the client's side.
	close(clean bool)
	// kind says what it is, for errors.
	kind() string
}

// serveData turns a request into a data connection and serves it.
func (s *Server) serveData(w http.ResponseWriter, r *http.Request) {
	if unknown, err := wantsUpgrade(r); err != nil {
		code := http.StatusBadRequest
		if unknown {
			code = http.StatusUpgradeRequired
		}
		w.Header().Set("Upgrade", wire.Protocol)
		refuse(w, code, wire.CodeProtocol, err)
		return
	}
	if s.isLeaving() {
		refuse(w, http.StatusServiceUnavailable, wire.CodeUnavailable, errLeaving)
		return
	}
	nc, buffered, err := upgrade(w)
	if err != nil {
		s.log.Debug("data connection not made", "remote", r.RemoteAddr, "error", err)
		return
	}
	defer nc.Close()
	c := &dataConn{
		s: s, who: identity(r.Context()), peer: isPeer(r.Context()), link: s.linkOf(r.Context()), maxSend: s.o.MaxFrameBytes,
		remote: r.RemoteAddr, streams: make(map[uint32]stream),
	}
	if c.peer {
		c.maxSend += peerFrameBytes
	}
	// net/http ends the context of a hijacked request only with the server.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c.end = cancel
	raw := nc
	if counted, ok := nc.(*countedConn); ok {
		raw = counted.Conn // vectored writes need the socket itself
	}
	c.t = transport.New(raw, buffered, transport.Options{
		MaxBulk: c.maxSend + wire.SendHeaderSize, DeadAfter: s.o.DeadAfter, WriteTimeout: s.o.WriteTimeout, Written: c.written,
	})
	c.serve(ctx)
}

// upgrade takes the connection from net/http and answers the request.
func upgrade(w http.ResponseWriter) (nc net.Conn, buffered []byte, err error) {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err = nc.SetDeadline(time.Time{}); err == nil {
		_, err = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + wire.Protocol + "\r\n\r\n")
	}
	if err == nil {
		err = rw.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	// What the client sent behind its request. Peek cannot fail on what is there.
	buffered, _ = rw.Reader.Peek(rw.Reader.Buffered())
	return nc, buffered, nil
}

func (c *dataConn) serve(ctx context.Context) {
	s := c.s
	if !s.add(c) {
		c.t.Goodbye(errLeaving, status.FromError(errLeaving))
	}
	s.accepted.Add(1)
	c.shake = time.AfterFunc(s.o.HandshakeTimeout, func() {
		e := &wire.Error{Code: wire.CodeProtocol, Field: "hello frame", Fault: "did not come in time", Limit: s.o.HandshakeTimeout.String()}
		c.t.Goodbye(e, e)
	})
	err := c.t.Serve(func(h wire.Header, payload []byte) error { return c.handle(ctx, h, payload) })
	c.shake.Stop()
	c.closeStreams()
	s.remove(c)
	c.report(err)
}

// report says in the log and in the numbers how the connection ended.
func (c *dataConn) report(err error) {
	var e *wire.Error
	client := ""
	if c.hello != nil {
		client = c.hello.Client
	}
	switch {
	case errors.As(err, &e) && e.Code == wire.CodeProtocol:
		c.s.broken.Add(1)
		c.s.warnings.say(c.s.log, "client broke the protocol", "remote", c.remote, "who", c.who.Name(), "client", client, "error", err)
	case errors.Is(err, transport.ErrDead), errors.Is(err, transport.ErrNotRead):
		c.s.killed.Add(1)
		c.s.warnings.say(c.s.log, "client is gone", "remote", c.remote, "who", c.who.Name(), "client", client, "error", err)
	default:
		c.s.log.Debug("data connection ended", "remote", c.remote, "who", c.who.Name(), "client", client, "reason", err)
	}
}

// closeStreams ends all streams as those of a lost client, and waits for those that are being opened.
func (c *dataConn) closeStreams() {
	c.end()
	c.mu.Lock()
	c.ended = true
	all := c.streams
	c.streams = nil
	c.mu.Unlock()
	for _, st := range all {
		st.close(false)
	}
	c.opens.Wait()
}

func (c *dataConn) streamCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

// leave tells the client that no new streams are taken, and ends the connection when there are none. Streams to
// consumers end now: nobody else would end them.
func (c *dataConn) leave(e *wire.Error) {
	c.mu.Lock()
	c.leaving = true
	n := len(c.streams)
	c.mu.Unlock()
	if n == 0 {
		c.t.Goodbye(errLeaving, e)
		return
	}
	c.t.End(wire.AppendGoaway(c.t.Begin(), e))
	for _, st := range c.deliveries() {
		st.broken(errLeaving)
	}
}

// forget takes a stream out, and reports whether it was there.
func (c *dataConn) forget(id uint32) bool {
	c.mu.Lock()
	_, ok := c.streams[id]
	delete(c.streams, id)
	last := ok && c.leaving && len(c.streams) == 0 && !c.ended
	c.mu.Unlock()
	if last {
		c.t.Goodbye(errLeaving, status.FromError(errLeaving))
	}
	return ok
}

// breakStream ends a stream and tells the client why.
func (c *dataConn) breakStream(id uint32, err error) {
	// The frame comes before what forgetting the last stream may bring.
	c.t.End(wire.AppendBroken(c.t.Begin(), id, status.FromError(err)))
	c.forget(id)
}

// handle takes a frame of the client.
func (c *dataConn) handle(ctx context.Context, h wire.Header, payload []byte) error {
	if c.hello == nil {
		return c.greet(h, payload)
	}
	switch h.Type {
	case wire.TypeOpenSender:
		m, err := wire.DecodeOpenSender(payload)
		if err != nil {
			return err
		}
		return c.openSender(ctx, h.Stream, m)
	case wire.TypeOpenReceiver:
		m, err := wire.DecodeOpenReceiver(payload)
		if err != nil {
			return err
		}
		return c.openReceiver(ctx, h.Stream, m)
	case wire.TypeOpenDelivery:
		name, err := wire.DecodeOpenDelivery(payload)
		if err != nil {
			return err
		}
		return c.openDelivery(ctx, h.Stream, name)
	case wire.TypeGoaway:
		e, err := wire.DecodeGoaway(payload)
		if err != nil {
			return err
		}
		// A client says why it is about to close; it opens no more streams. That is its own business.
		c.s.log.Debug("client says goodbye", "remote", c.remote, "who", c.who.Name(), "reason", e)
		return nil
	case wire.TypeSend, wire.TypeCredit, wire.TypeStarted, wire.TypeAck, wire.TypeNack, wire.TypeRelease, wire.TypeExtend, wire.TypeClose,
		wire.TypeEnvelope, wire.TypeFarewell:
		return c.ofStream(h, payload)
	}
	return outOfSequence(h, "is none that a client sends")
}

// ofStream gives a frame to its stream. Frames of a stream that has ended were on their way when it did.
func (c *dataConn) ofStream(h wire.Header, payload []byte) error {
	c.mu.Lock()
	st, last := c.streams[h.Stream], c.last
	c.mu.Unlock()
	switch {
	case st == nil && h.Stream > last:
		return outOfSequence(h, "comes before its stream was opened")
	case st == nil:
		return nil
	case h.Type == wire.TypeClose:
		clean, err := wire.DecodeClose(payload)
		if err != nil {
			return err
		}
		if c.forget(h.Stream) {
			st.close(clean)
		}
		return nil
	}
	return st.frame(h, payload)
}

// outOfSequence says that a frame is not allowed where it came.
func outOfSequence(h wire.Header, fault string) error {
	return &wire.Error{Code: wire.CodeProtocol, Field: h.Type.String() + " frame", Fault: fmt.Sprintf("of stream %d %s", h.Stream, fault)}
}

// greet takes the first frame.
func (c *dataConn) greet(h wire.Header, payload []byte) error {
	if h.Type != wire.TypeHello {
		return outOfSequence(h, "comes before hello")
	}
	m, err := wire.DecodeHello(payload)
	if err != nil {
		return err
	}
	if m.MaxFrame < minDeliver {
		return &wire.Error{Code: wire.CodeProtocol, Field: "greatest frame", Fault: fmt.Sprintf("is %d bytes", m.MaxFrame), Limit: fmt.Sprintf("%d bytes or more", minDeliver)}
	}
	c.hello, c.maxFrame = &m, int(m.MaxFrame)
	c.shake.Stop()
	o := &c.s.o
	c.t.End(wire.AppendWelcome(c.t.Begin(), &wire.Welcome{
		Broker: o.Advertise, Version: o.Version, MaxFrame: uint32(c.maxSend + wire.SendHeaderSize),
		MaxStreams: uint32(o.MaxStreams), DeadAfter: o.DeadAfter,
	}))
	c.s.log.Debug("data connection", "remote", c.remote, "who", c.who.Name(), "client", m.Client)
	return nil
}

// register takes a new stream in, if its id is right. refused says why it cannot be opened all the same, which ends the
// stream and not the connection.
func (c *dataConn) register(h wire.Header, st stream) (refused, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Stream <= c.last {
		return nil, outOfSequence(h, fmt.Sprintf("does not have a higher id than %d", c.last))
	}
	c.last = h.Stream
	switch {
	case c.leaving:
		return errLeaving, nil
	case len(c.streams) >= c.s.o.MaxStreams:
		return fmt.Errorf("open stream: %w: the connection has %d streams open, as many as it may", holdfast.ErrUnavailable, len(c.streams)), nil
	}
	c.streams[h.Stream] = st
	return nil, nil
}

// open runs the opening of a stream in a goroutine of its own: the queue may have to be recovered first.
func (c *dataConn) open(ctx context.Context, id uint32, right access.Right, queue string, st stream, do func(ctx context.Context) error) error {
	h := wire.Header{Type: wire.TypeOpenSender, Stream: id}
	switch st.kind() {
	case kindReceiver:
		h.Type = wire.TypeOpenReceiver
	case kindDelivery:
		h.Type = wire.TypeOpenDelivery
	}
	refused, err := c.register(h, st)
	if err != nil {
		return err
	}
	if refused == nil && !c.who.May(right, queue) {
		refused = fmt.Errorf("%w: %s may not %s queue %q", holdfast.ErrDenied, c.who.Name(), verb(right), queue)
	}
	if refused != nil {
		c.breakStream(id, refused)
		return nil
	}
	c.opens.Go(func() {
		if err := do(ctx); err != nil {
			c.breakStream(id, err)
		}
	})
	return nil
}

func verb(r access.Right) string {
	switch r {
	case access.Send:
		return "send to"
	case access.Receive:
		return "receive from"
	}
	return "administer"
}

// checkEpoch refuses to serve as an owner that the client knows to be superseded (G5).
func checkEpoch(queue string, seen, own wire.Seen) error {
	if seen.StreamUID == own.StreamUID && seen.Epoch > own.Epoch {
		return fmt.Errorf("queue %q: %w: the client met epoch %d, this broker has %d", queue, holdfast.ErrFenced, seen.Epoch, own.Epoch)
	}
	return nil
}

// written is told by the writing goroutine what of a receiver's messages has gone out.
func (c *dataConn) written(id uint32, messages, bytes uint64) {
	c.mu.Lock()
	st := c.streams[id]
	c.mu.Unlock()
	if r, ok := st.(*receiverStream); ok {
		r.written(messages, bytes)
	}
}
