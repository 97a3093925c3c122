package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/rpc/wire"
)

// Defaults of Options.
const (
	DefaultDeadAfter    = 10 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultBuffer       = 1 << 20
)

const (
	// linger is how long a connection that ends with a reason is kept for the peer to read it.
	linger = time.Second
	// ticks is in how many looks DeadAfter is divided. A peer of which nothing came at deadTicks of them in a row is
	// dead: it is 80 to 90 % of DeadAfter after its last byte, and the rest is for what follows.
	ticks     = 10
	deadTicks = 8
	// At every second silent look the peer is pinged, beginning at this one.
	firstPingEager = 2
	firstPing      = 3
	tlsWrite       = 64 << 10
)

// ErrDead ends a connection whose peer sent nothing for Options.DeadAfter, not even the answer to a ping.
var ErrDead = errors.New("connection is dead: nothing came from the other side")

// ErrNotRead ends a connection whose peer does not read.
var ErrNotRead = errors.New("the other side does not read")

// Options of a connection. The zero value means the defaults.
type Options struct {
	// MaxBulk is the greatest payload of messages that is taken, in bytes. Default 1 MiB + 64 KiB + 64 B.
	MaxBulk int
	// DeadAfter: see ErrDead. Default 10 s.
	DeadAfter time.Duration
	// WriteTimeout is how long a write may make no progress. Default 10 s.
	WriteTimeout time.Duration
	// Buffer is how much may wait to be written, in bytes, before reading stops: so that a peer that asks and does not read
	// the answers costs no memory. Messages do not count, since the peer gave credit for them. Default 1 MiB. The end whose
	// frames are bounded otherwise never stops (math.MaxInt): if both ends could, both might wait for each other.
	Buffer int
	// Eager pings earlier than the other end, which then need not. One end of a connection is eager.
	Eager bool
	// Written, if not nil, is called by the writing goroutine when messages that EndBulk queued have been given to
	// the operating system.
	Written func(stream uint32, messages, bytes uint64)
}

func (o Options) withDefaults() Options {
	if o.MaxBulk == 0 {
		o.MaxBulk = 1<<20 + 64<<10 + 64
	}
	if o.DeadAfter == 0 {
		o.DeadAfter = DefaultDeadAfter
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	return o
}

// Conn is one connection. All methods but Serve may be called concurrently.
type Conn struct {
	nc    net.Conn
	o     Options
	in    frameReader
	out   outbox
	reads atomic.Uint64 // how often something came
	held  atomic.Bool   // reading is held up by what waits to be written

	vector net.Buffers // what is being written, of the writer alone

	mu     sync.Mutex
	err    error // why the connection ended
	ending bool
	timer  *time.Timer
	last   uint64 // reads at the last look
	idle   int    // looks since something came
	done   chan struct{}
}

// New makes a connection of nc, of which buffered was read already. Serve must be called.
func New(nc net.Conn, buffered []byte, o Options) *Conn {
	c := &Conn{nc: nc, o: o.withDefaults(), done: make(chan struct{})}
	c.out.init()
	c.in = frameReader{src: nc, maxBulk: c.o.MaxBulk, before: c.holdReading, after: func(int) { c.reads.Add(1) }}
	if len(buffered) > 0 {
		c.in.buf = append(make([]byte, 0, max(len(buffered), firstBuffer)), buffered...)
		c.in.w = len(buffered)
	}
	return c
}

// SetMaxBulk changes Options.MaxBulk. It is called before Serve or from its function.
func (c *Conn) SetMaxBulk(n int) { c.in.maxBulk = n }

// Done is closed when the connection has begun to end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it is in use.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Begin locks the queue of what waits to be written and returns the buffer to append whole frames to. Every Begin is
// followed by an End or EndBulk with the result, without anything that waits in between.
func (c *Conn) Begin() []byte { return c.out.begin() }

// End queues what was appended.
func (c *Conn) End(b []byte) { c.out.end(b, nil, mark{}) }

// EndBulk queues what was appended and bulk behind it, which must not be changed any more. If stream is not 0,
// Options.Written tells of it.
func (c *Conn) EndBulk(b []byte, bulk [][]byte, stream uint32, messages, bytes uint64) {
	c.out.end(b, bulk, mark{stream, messages, bytes})
}

// Serve runs the connection until it ends, and returns why. handle is called for each frame, in order; it may
// keep the payload of frames of messages only. If it fails with a *wire.Error, or a frame is malformed, the peer is told why.
func (c *Conn) Serve(handle func(h wire.Header, payload []byte) error) error {
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		c.writeLoop()
	}()
	c.mu.Lock()
	c.timer = time.AfterFunc(c.o.DeadAfter/ticks, c.look)
	c.mu.Unlock()

	err := c.readLoop(handle)
	var told *wire.Error
	if errors.As(err, &told) && c.end(err, told) {
		// What is still coming must be read: closing a socket with unread input resets it, and the reason would be lost.
		_, _ = io.Copy(io.Discard, c.nc)
	}
	c.Fail(err)
	<-writer
	return c.Err()
}

func (c *Conn) readLoop(handle func(h wire.Header, payload []byte) error) error {
	for {
		h, payload, err := c.in.next()
		if err != nil {
			return err
		}
		if c.isEnding() {
			continue
		}
		switch h.Type {
		case wire.TypePing:
			token, err := wire.DecodePing(payload)
			if err != nil {
				return err
			}
			c.End(wire.AppendPong(c.Begin(), token))
		case wire.TypePong:
			// That it came is all it says.
		default:
			if err := handle(h, payload); err != nil {
				return err
			}
		}
	}
}

func (c *Conn) isEnding() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// holdReading waits while too much is queued for writing.
func (c *Conn) holdReading() error {
	for {
		room := c.out.fullOfFrames(c.o.Buffer)
		if room == nil {
			c.held.Store(false)
			return nil
		}
		c.held.Store(true)
		select {
		case <-room:
		case <-c.done:
			c.held.Store(false)
			return nil
		}
	}
}

// look is called by the timer.
func (c *Conn) look() {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		return
	}
	n := c.reads.Load()
	switch {
	case n != c.last:
		c.last, c.idle = n, 0
	case !c.held.Load():
		c.idle++
	}
	idle := c.idle
	c.timer.Reset(c.o.DeadAfter / ticks)
	c.mu.Unlock()

	first := firstPing
	if c.o.Eager {
		first = firstPingEager
	}
	switch {
	case idle >= deadTicks:
		c.Fail(fmt.Errorf("%w for %v", ErrDead, c.o.DeadAfter))
	case idle >= first && (idle-first)%2 == 0:
		c.End(wire.AppendPing(c.Begin(), n))
	}
}

// Goodbye ends the connection with a reason that the peer is told: what is queued is still written, nothing more is
// taken or handled. It does not wait.
func (c *Conn) Goodbye(err error, e *wire.Error) { c.end(err, e) }

// end reports whether it was this call that ended the connection.
func (c *Conn) end(err error, e *wire.Error) bool {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		return false
	}
	c.ending, c.err = true, err
	if c.timer != nil {
		c.timer.Stop()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(linger))
	close(c.done)
	c.mu.Unlock()
	c.End(wire.AppendGoaway(c.Begin(), e))
	c.out.finish()
	return true
}

// Fail ends the connection at once. The first reason counts.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if !c.ending {
		c.ending, c.err = true, err
		if c.timer != nil {
			c.timer.Stop()
		}
		close(c.done)
	}
	c.mu.Unlock()
	c.out.abandon()
	_ = c.nc.Close()
}

func (c *Conn) writeLoop() {
	var b batch
	var scratch []byte
	_, isTCP := c.nc.(*net.TCPConn)
	_, isUnix := c.nc.(*net.UnixConn)
	for range c.out.wake {
		// Those that run at this moment mostly have something to add: with much to do, a system call then is for many frames, and with little this
		// costs nothing.
		runtime.Gosched()
		last := c.out.take(&b)
		var err error
		if isTCP || isUnix {
			err = c.writeVector(b.bufs)
		} else {
			scratch, err = c.writePieces(b.bufs, scratch)
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("%w: nothing could be written for %v", ErrNotRead, c.o.WriteTimeout)
			}
			c.Fail(fmt.Errorf("write: %w", err))
			return
		}
		if c.o.Written != nil {
			for _, m := range b.marks {
				c.o.Written(m.stream, m.messages, m.bytes)
			}
		}
		size, frames := b.size, b.frames
		b.done()
		if last {
			if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			return
		}
		c.out.written(size, frames)
	}
}

// writeVector writes everything with as few system calls as can be.
func (c *Conn) writeVector(bufs net.Buffers) error {
	c.vector = bufs
	for len(c.vector) > 0 {
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.o.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.vector.WriteTo(c.nc)
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
		// A slow peer is not a dead one: what counts is that something went.
	}
	return nil
}

// writePieces writes where a write that timed out cannot be continued, as with TLS: in pieces, each with its own
// deadline, small slices put together.
func (c *Conn) writePieces(bufs net.Buffers, scratch []byte) ([]byte, error) {
	write := func(p []byte) error {
		for len(p) > 0 {
			n := min(len(p), tlsWrite)
			if err := c.nc.SetWriteDeadline(time.Now().Add(c.o.WriteTimeout)); err != nil {
				return err
			}
			if _, err := c.nc.Write(p[:n]); err != nil {
				return err
			}
			p = p[n:]
		}
		return nil
	}
	scratch = scratch[:0]
	for _, s := range bufs {
		if len(scratch)+len(s) <= tlsWrite {
			scratch = append(scratch, s...)
			continue
		}
		if err := write(scratch); err != nil {
			return scratch, err
		}
		scratch = scratch[:0]
		if err := write(s); err != nil {
			return scratch, err
		}
	}
	return scratch, write(scratch)
}
