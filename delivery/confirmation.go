package delivery

import (
	"context"
	"sync"
)

// Confirmation is the end of one accepted message, once it is known. It is settled exactly once: with nil after the
// acknowledgement, with an error matching ErrStopped and ErrUnconfirmed or ErrNotSent if the producer stops
// first. It is safe for concurrent use.
type Confirmation struct {
	// once, of capacity 1, is where the outcome goes in a confirmation that a Send waits for and uses again.
	once chan error

	mu      sync.Mutex
	settled bool
	err     error
	done    chan struct{}
}

// settle ends the confirmation. It is called once.
func (c *Confirmation) settle(err error) {
	if c.once != nil {
		c.once <- err
		return
	}
	c.mu.Lock()
	c.settled, c.err = true, err
	if c.done != nil {
		close(c.done)
	}
	c.mu.Unlock()
}

// Done is closed when the message is confirmed or given up.
func (c *Confirmation) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.settled {
			close(c.done)
		}
	}
	return c.done
}

// Err returns nil if the message was confirmed, the error if it was given up, and an error matching ErrUnconfirmed
// as long as neither is known.
func (c *Confirmation) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		return ErrUnconfirmed
	}
	return c.err
}

// Wait waits until the message is confirmed or given up and returns as Err does. If ctx ends first, the error
// matches ErrUnconfirmed and the context's; the producer goes on sending the message.
func (c *Confirmation) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.settled {
		defer c.mu.Unlock()
		return c.err
	}
	c.mu.Unlock()
	select {
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return &outcome{ErrUnconfirmed, context.Cause(ctx)}
	}
}
