package hbase

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/hbase/internal/thrift2"
)

// maxIdle is how long a connection may have rested and still be used. The gateway closes those that rest for a
// minute, which would be noticed only by the call that then fails.
const maxIdle = 30 * time.Second

// maxMessage bounds what a gateway may answer, in bytes.
const maxMessage = 256 << 20

// conn is a connection to a gateway. One call at a time uses it.
type conn struct {
	client *thrift2.THBaseServiceClient
	// cut makes a call that is under way on it fail, unless the call's context does so by itself (then it is nil).
	cut func()
	// close ends it, when no call is under way.
	close func()
	// used is when it was given back.
	used time.Time
}

// pool lends connections. One on which anything went wrong is closed: what comes next on it may be the answer to
// another call.
type pool struct {
	dial     func(ctx context.Context, address string) (*conn, error)
	gateways []string
	timeout  time.Duration
	slots    chan struct{} // one for each connection lent
	closed   chan struct{}

	mu    sync.Mutex
	next  int                          // the gateway that is dialed first
	idle  []*conn                      // the last one was used last
	lent  map[*conn]context.CancelFunc // each ends the call that is under way
	ended bool
}

func newPool(o *Options, dial func(ctx context.Context, address string) (*conn, error)) *pool {
	return &pool{
		dial: dial, gateways: o.Gateways, timeout: o.Timeout,
		slots: make(chan struct{}, o.Connections), closed: make(chan struct{}), lent: map[*conn]context.CancelFunc{},
	}
}

// do makes a call on a connection, within the timeout. The error of a call that the context's end or
// Close has cut off says so.
func (p *pool) do(ctx context.Context, f func(ctx context.Context, c *thrift2.THBaseServiceClient) error) error {
	if err := p.open(ctx); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	c, err := p.get(call, cancel)
	if err == nil {
		err = p.use(call, c, f)
	}
	if err == nil {
		return nil
	}
	p.turn()
	switch {
	case p.isClosed():
		return fmt.Errorf("%w (%w)", journal.ErrClosed, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	case call.Err() != nil:
		return &timeoutError{p.timeout, err}
	}
	return err
}

// open refuses calls on a closed pool or with an ended context.
func (p *pool) open(ctx context.Context) error {
	if p.isClosed() {
		return journal.ErrClosed
	}
	return ctx.Err()
}

func (p *pool) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// use makes the call on a connection that was lent, and gives it back or closes it.
func (p *pool) use(ctx context.Context, c *conn, f func(ctx context.Context, c *thrift2.THBaseServiceClient) error) error {
	// The client itself does not look at the context while it waits.
	whole := true
	if c.cut != nil {
		stop := context.AfterFunc(ctx, c.cut)
		defer func() { p.giveBack(c, stop() && whole) }()
	} else {
		defer func() { p.giveBack(c, whole) }()
	}
	err := f(ctx, c.client)
	whole = err == nil
	return err
}

// get lends a connection: the one that was used last, or a new one. cancel ends the call that it is for.
func (p *pool) get(ctx context.Context, cancel context.CancelFunc) (*conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("all %d connections are in use: %w", cap(p.slots), ctx.Err())
	case <-p.closed:
		return nil, journal.ErrClosed
	}
	c := p.rested()
	if c == nil {
		var err error
		if c, err = p.connect(ctx); err != nil {
			<-p.slots
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		c.close()
		<-p.slots
		return nil, journal.ErrClosed
	}
	p.lent[c] = cancel
	return c, nil
}

// rested returns an idle connection, or nil, and closes those that have rested too long.
func (p *pool) rested() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].used) > maxIdle {
		p.idle[old].close()
		old++
	}
	p.idle = append(p.idle[:0], p.idle[old:]...)
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	c := p.idle[n]
	p.idle = p.idle[:n]
	return c
}

// connect dials the gateways in turn, beginning with the one that was reached last.
func (p *pool) connect(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	first := p.next
	p.mu.Unlock()
	var errs []error
	for i := range p.gateways {
		n := (first + i) % len(p.gateways)
		// One that does not answer leaves time for the others.
		one, cancel := context.WithTimeout(ctx, p.timeout/time.Duration(len(p.gateways)))
		c, err := p.dial(one, p.gateways[n])
		cancel()
		if err == nil {
			p.mu.Lock()
			p.next = n
			p.mu.Unlock()
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, &unreachableError{errors.Join(errs...)}
}

// giveBack ends the loan.
func (p *pool) giveBack(c *conn, good bool) {
	p.mu.Lock()
	delete(p.lent, c)
	if good && !p.ended {
		c.used = time.Now()
		p.idle = append(p.idle, c)
	} else {
		c.close()
	}
	p.mu.Unlock()
	<-p.slots
}

// turn makes later calls begin with the gateway after the present one, where there are several: what fails through one
// may not through another.
func (p *pool) turn() {
	if len(p.gateways) == 1 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = (p.next + 1) % len(p.gateways)
	for _, c := range p.idle {
		c.close()
	}
	p.idle = p.idle[:0]
}

// close ends all connections, also those in use.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	close(p.closed)
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
	for _, cancel := range p.lent {
		cancel()
	}
}

// dialSocket connects to a gateway that speaks its own protocol, plain or framed.
func dialSocket(framed bool) func(ctx context.Context, address string) (*conn, error) {
	cfg := &thrift.TConfiguration{MaxMessageSize: maxMessage, MaxFrameSize: maxMessage}
	return func(ctx context.Context, address string) (*conn, error) {
		var d net.Dialer
		sock, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		var t thrift.TTransport = thrift.NewTSocketFromConnConf(sock, cfg)
		if framed {
			t = thrift.NewTFramedTransportConf(t, cfg)
		} else {
			t = thrift.NewTBufferedTransport(t, 64<<10)
		}
		c := newConn(t, cfg)
		c.cut = func() { _ = sock.Close() }
		c.close = c.cut
		return c, nil
	}
}

func newConn(t thrift.TTransport, cfg *thrift.TConfiguration) *conn {
	p := thrift.NewTBinaryProtocolConf(t, cfg)
	return &conn{client: thrift2.NewTHBaseServiceClient(thrift.NewTStandardClient(p, p))}
}
