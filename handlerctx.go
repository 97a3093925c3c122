package holdfast

import (
	"context"
	"sync/atomic"
	"time"
)

// handlerContext is the context of one handler. Most handlers never ask for its end, and a context that can be cancelled costs as
// much as handing a message over; so that is made only when somebody asks.
type handlerContext struct {
	worker *worker
	d      *Delivery
	end    atomic.Pointer[ending]
}

type ending struct {
	//holdfast:allow context: it is what the context above delegates to
	context.Context
	cancel context.CancelCauseFunc
}

var _ context.Context = (*handlerContext)(nil)

func (c *handlerContext) ending() *ending {
	if e := c.end.Load(); e != nil {
		return e
	}
	e := new(ending)
	e.Context, e.cancel = context.WithCancelCause(c.worker.base)
	if c.end.CompareAndSwap(nil, e) {
		return e
	}
	e.cancel(nil)
	return c.end.Load()
}

// cancel ends the context.
func (c *handlerContext) cancel(cause error) { c.ending().cancel(cause) }

// release frees what the context holds, after the handler returned.
func (c *handlerContext) release() {
	if e := c.end.Load(); e != nil {
		e.cancel(nil)
	}
}

// Deadline implements context.Context.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.worker.base.Deadline() }

// Done implements context.Context.
func (c *handlerContext) Done() <-chan struct{} { return c.ending().Done() }

// Err implements context.Context.
func (c *handlerContext) Err() error {
	if e := c.end.Load(); e != nil {
		return e.Err()
	}
	return c.worker.base.Err()
}

// Value implements context.Context. Package context finds the cause by it.
func (c *handlerContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.d
	}
	if e := c.end.Load(); e != nil {
		return e.Value(key)
	}
	return c.worker.base.Value(key)
}
