package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/rpc/status"
	"github.com/holdfastmq/holdfast/rpc/transport"
)

// Where several brokers share a journal, each queue is at one of them, and the others say where. The client remembers
// that, and keeps a connection to each broker that has a queue of its.

const (
	// seekFor bounds how long an opening looks for the owner of a queue before it fails, and is tried again by whoever asked.
	seekFor = 15 * time.Second
	// seekFirst and seekCap are the pauses before brokers are asked again where the owner is that they named.
	seekFirst = 50 * time.Millisecond
	seekCap   = 400 * time.Millisecond
	// suspectFor is how long an address is not dialed again that did not answer, if others can be asked.
	suspectFor = time.Second
	// seekDial bounds the dialing of an owner's address.
	seekDial = time.Second
	// maxHops bounds how often an opening is sent on without a pause.
	maxHops = 3
)

// open opens a stream: see openOn. queue is what it is of, empty for a stream that any broker takes.
func (c *Client) open(ctx context.Context, queue string, make func(cn *conn, id uint32) (stream, *answer), ask func(b []byte, id uint32) []byte) (*answer, error) {
	began, pause, hops := time.Now(), seekFirst, 0
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		cn := c.home(queue)
		atHome := cn != nil
		if !atHome {
			var err error
			if cn, err = c.connect(ctx); err != nil {
				return nil, err
			}
		}
		a, left, err := c.openOn(ctx, cn, make, ask)
		if left {
			continue
		}
		if err == nil {
			return a, nil
		}
		var moved *holdfast.MovedError
		switch {
		case ctx.Err() != nil, queue == "", c.o.NoRedirect, time.Since(began) > seekFor:
			return nil, err
		case errors.As(err, &moved):
			if hops++; hops <= maxHops && c.follow(ctx, queue, moved.Address) {
				continue
			}
		case errors.Is(err, holdfast.ErrFenced), atHome && errors.Is(err, holdfast.ErrUnavailable):
			// It is not the owner any more, and does not know who is; the others may.
		default:
			return nil, err
		}
		// Brokers do not agree yet where the queue is, or its owner does not answer: that takes them some seconds.
		hops = 0
		c.leaveHome(queue)
		if err := wait(ctx, pause/2+rand.N(pause/2+1)); err != nil {
			return nil, err
		}
		pause = min(pause*2, seekCap)
	}
}

// findLiving sees to it that administrative calls go to a broker that answers, where there are several: one that stands still takes
// connections all the same. The data connection, which has pings, tells. Where none is to be had, the call tells why.
func (c *Client) findLiving(ctx context.Context) {
	if len(c.addrs) > 1 {
		_, _ = c.connect(ctx)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// home returns the connection to the broker where a queue was last found, nil if that is not known or not usable.
func (c *Client) home(queue string) *conn {
	if queue == "" {
		return nil
	}
	c.mu.Lock()
	cn := c.owners[c.homes[queue]]
	c.mu.Unlock()
	if cn == nil || !cn.usable() {
		return nil
	}
	return cn
}

func (c *Client) leaveHome(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.homes, queue)
}

// follow connects to the address where a queue is said to be, and reports whether it could.
func (c *Client) follow(ctx context.Context, queue, text string) bool {
	a, err := parseAddress(text)
	if err == nil {
		err = c.connectTo(ctx, a)
	}
	if err != nil {
		c.o.Logger.Debug("the owner of a queue cannot be reached", "queue", queue, "error", err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.homes) >= maxSeen {
		clear(c.homes) // it is a help, and grows again
	}
	c.homes[queue] = a.text
	return true
}

// connectTo sees to it that there is a connection to an address.
func (c *Client) connectTo(ctx context.Context, a address) error {
	c.mu.Lock()
	if cn := c.owners[a.text]; cn != nil {
		c.mu.Unlock()
		if cn.usable() {
			return nil
		}
		c.left(cn)
		c.mu.Lock()
	}
	switch {
	case c.closed:
		c.mu.Unlock()
		return errClosed
	case c.cur != nil && c.cur.addr.text == a.text:
		c.owners[a.text] = c.cur
		c.mu.Unlock()
		return nil
	case time.Now().Before(c.suspects[a.text]):
		c.mu.Unlock()
		return fmt.Errorf("connect to %s: %w: it did not answer lately", a.text, holdfast.ErrUnavailable)
	}
	d := c.seeking[a.text]
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		c.seeking[a.text] = d
		c.background(func(ctx context.Context) { c.seek(ctx, a, d) })
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// seek makes a connection for connectTo.
func (c *Client) seek(ctx context.Context, a address, d *dialing) {
	ctx, cancel := context.WithTimeoutCause(ctx, seekDial, fmt.Errorf("no answer within %v", seekDial))
	defer cancel()
	cn, err := c.dialOne(ctx, a)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seeking, a.text)
	switch {
	case c.closed && err == nil:
		cn.t.Goodbye(errClosed, status.FromError(errClosed))
		d.err = errClosed
	case err == nil && !cn.usable():
		d.err = fmt.Errorf("connect to %s: %w: the broker leaves", a.text, holdfast.ErrUnavailable)
	case err != nil:
		d.err = err
		c.suspect(a.text)
	default:
		c.owners[a.text] = cn
	}
	close(d.done)
}

// suspect notes that an address did not answer. It is called with the lock.
func (c *Client) suspect(text string) {
	if len(c.suspects) >= maxSeen {
		clear(c.suspects)
	}
	c.suspects[text] = time.Now().Add(suspectFor)
}

// leftOwner forgets a connection that takes no new streams. It is called with the lock.
func (c *Client) leftOwner(cn *conn) {
	if c.owners[cn.addr.text] == cn {
		delete(c.owners, cn.addr.text)
	}
	if errors.Is(cn.t.Err(), transport.ErrDead) {
		c.suspect(cn.addr.text)
	}
}
