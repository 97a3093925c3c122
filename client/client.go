package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/adminpb/holdfastv1/holdfastv1connect"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/wire"
)

const (
	firstBackoff = 50 * time.Millisecond
	// maxSeen bounds the queues whose newest epoch is remembered.
	maxSeen = 1 << 16
)

// Client is a client of one broker, or of several that share a journal. All methods may be called concurrently.
type Client struct {
	o     Options
	addrs []address
	// background runs f in a goroutine that Close waits for, under a context that ends with the client.
	background func(f func(ctx context.Context))
	end        context.CancelFunc
	work       sync.WaitGroup
	http       *http.Client
	admin      holdfastv1connect.AdminClient

	mu      sync.Mutex
	closed  bool
	cur     *conn // where new streams are opened, nil if there is none
	all     map[*conn]struct{}
	dialing *dialing  // a round over the addresses that is under way
	at      int       // address to begin with
	fails   int       // rounds in a row that found no broker
	next    time.Time // when the next round may begin
	seen    map[string]wire.Seen

	// See redirect.go.
	homes    map[string]string    // address by queue
	owners   map[string]*conn     // by address
	seeking  map[string]*dialing  // by address
	suspects map[string]time.Time // until when, by address
}

// dialing is a round over the addresses, for which several callers may wait.
type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

var _ holdfast.Link = (*Client)(nil)

// Dial makes a client and, unless Options.Lazy says otherwise, its connection, going once round the addresses. The
// error matches holdfast.ErrDenied if a broker does not let the client in, and holdfast.ErrUnavailable if none
// answers, which may be tried again. ctx is for the connecting alone.
func Dial(ctx context.Context, o Options) (*Client, error) {
	addrs, err := o.setDefaults()
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &Client{
		o: o, addrs: addrs, all: make(map[*conn]struct{}), seen: make(map[string]wire.Seen), homes: make(map[string]string),
		owners: make(map[string]*conn), seeking: make(map[string]*dialing), suspects: make(map[string]time.Time),
	}
	life, end := context.WithCancel(context.Background())
	c.background = func(f func(ctx context.Context)) { c.work.Go(func() { f(life) }) }
	c.end = end
	c.http = &http.Client{Transport: c.httpTransport()}
	c.admin = holdfastv1connect.NewAdminClient(c.http, c.baseURL(),
		connect.WithAcceptCompression("gzip", nil, nil)) // it would cost more than it saves
	c.warnOfToken()
	if !o.Lazy {
		if _, err := c.connect(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// warnOfToken warns of a secret that others can read.
func (c *Client) warnOfToken() {
	if c.o.Token == "" || c.o.TLS != nil {
		return
	}
	for _, a := range c.addrs {
		if a.network == "tcp" && !isLoopback(a.host) {
			c.o.Logger.Warn("the token goes over the network in the clear: use TLS", "address", a.text)
			return
		}
	}
}

// Queue returns a view of a queue, with which to send and receive. It does not touch the queue yet.
func (c *Client) Queue(name string) *holdfast.Queue {
	return holdfast.NewQueue(name, c, holdfast.Options{Logger: c.o.Logger})
}

// Admin implements holdfast.Link.
func (c *Client) Admin() holdfast.Admin { return admin{c} }

// Addr returns the address of the broker that the client is connected to, empty if it is to none.
func (c *Client) Addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return ""
	}
	return c.cur.addr.text
}

// Close closes the client: its streams break with holdfast.ErrClosed, what they had queued is still sent for up to a second, and
// nothing can be opened any more. Senders and receivers should be closed before. It is idempotent.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	for cn := range c.all {
		cn.t.Goodbye(errClosed, status.FromError(errClosed))
	}
	c.mu.Unlock()
	c.end()
	c.work.Wait()
	c.http.CloseIdleConnections()
}

var errClosed = fmt.Errorf("client: %w", holdfast.ErrClosed)

// connect returns the connection for a new stream, making one if there is none.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if c.cur != nil {
		defer c.mu.Unlock()
		return c.cur, nil
	}
	d := c.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		c.dialing = d
		// Nobody's context ends the round but the client's: others may wait for it too.
		c.background(func(ctx context.Context) { c.dialRound(ctx, d) })
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to broker: %w", context.Cause(ctx))
	}
}

// dialRound tries each address once.
func (c *Client) dialRound(ctx context.Context, d *dialing) {
	c.mu.Lock()
	wait, from := time.Until(c.next), c.at
	c.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	var errs []error
	for i := range c.addrs {
		at := (from + i) % len(c.addrs)
		cn, err := c.dialOne(ctx, c.addrs[at])
		if err == nil {
			c.adopt(d, cn, at)
			return
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	c.failed(d, errs)
}

// adopt makes a connection the one for new streams.
func (c *Client) adopt(d *dialing, cn *conn, at int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing, c.fails, c.at, c.next = nil, 0, at, time.Time{}
	if c.closed {
		cn.t.Goodbye(errClosed, status.FromError(errClosed))
		d.err = errClosed
	} else {
		d.conn = cn
		if cn.usable() {
			c.cur = cn
		}
	}
	close(d.done)
}

func (c *Client) failed(d *dialing, errs []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails++
	pause := min(firstBackoff<<min(c.fails-1, 20), c.o.MaxBackoff)
	c.dialing, c.next = nil, time.Now().Add(pause/2+rand.N(pause/2+1))
	switch denied := allDenied(errs); {
	case c.closed:
		d.err = errClosed
	case denied || len(errs) == 1:
		d.err = errors.Join(errs...)
	default:
		// Where one broker refuses and another does not answer, the answer is not known yet.
		d.err = unreachable{fmt.Errorf("no broker can be used: %s", strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))}
	}
	close(d.done)
}

func allDenied(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, holdfast.ErrDenied) {
			return false
		}
	}
	return len(errs) > 0
}

// left takes a connection out of use for new streams. The next one is made to the next address.
func (c *Client) left(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leftOwner(cn)
	if c.cur == cn {
		c.http.CloseIdleConnections() // they may be to the same broker, which may be gone
		c.cur = nil
		c.at = (c.at + 1) % len(c.addrs)
	}
}

// saw remembers the newest epoch of a queue's stream.
func (c *Client) saw(queue string, s wire.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, ok := c.seen[queue]
	if ok && have.StreamUID == s.StreamUID && have.Epoch >= s.Epoch {
		return
	}
	if !ok && len(c.seen) >= maxSeen {
		clear(c.seen) // it is a help, and grows again
	}
	c.seen[queue] = s
}

func (c *Client) lastSeen(queue string) wire.Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[queue]
}
