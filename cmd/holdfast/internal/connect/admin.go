package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// patient makes administrative calls again while the broker is not there, until their contexts end.
type patient struct{ holdfast.Admin }

const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// again calls f until it ends with anything but "unavailable", or with word that another broker has the queue by now. Such a call has
// changed nothing.
func again[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		v, err := f()
		passing := errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrFenced)
		if err == nil || !passing || errors.Is(err, holdfast.ErrUnknown) {
			return v, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return v, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// read is again for a call that changes nothing: when its context ended there is nothing that could be unknown.
func read[T any](ctx context.Context, f func() (T, error)) (T, error) {
	v, err := again(ctx, f)
	if ctx.Err() != nil && errors.Is(err, holdfast.ErrUnknown) {
		err = context.Cause(ctx)
	}
	return v, err
}

func againErr(ctx context.Context, f func() error) error {
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Create implements holdfast.Admin, as all of these do.
func (p patient) Create(ctx context.Context, name string, cfg queue.Config) error {
	return againErr(ctx, func() error { return p.Admin.Create(ctx, name, cfg) })
}

// List implements holdfast.Admin.
func (p patient) List(ctx context.Context) ([]holdfast.QueueInfo, error) {
	return read(ctx, func() ([]holdfast.QueueInfo, error) { return p.Admin.List(ctx) })
}

// Describe implements holdfast.Admin.
func (p patient) Describe(ctx context.Context, name string) (holdfast.QueueInfo, error) {
	return read(ctx, func() (holdfast.QueueInfo, error) { return p.Admin.Describe(ctx, name) })
}

// Configure implements holdfast.Admin.
func (p patient) Configure(ctx context.Context, name string, cfg queue.Config) error {
	return againErr(ctx, func() error { return p.Admin.Configure(ctx, name, cfg) })
}

// Pause implements holdfast.Admin.
func (p patient) Pause(ctx context.Context, name string, paused bool) error {
	return againErr(ctx, func() error { return p.Admin.Pause(ctx, name, paused) })
}

// Purge implements holdfast.Admin.
func (p patient) Purge(ctx context.Context, name string) (uint64, error) {
	return again(ctx, func() (uint64, error) { return p.Admin.Purge(ctx, name) })
}

// Delete implements holdfast.Admin.
func (p patient) Delete(ctx context.Context, name string) error {
	return againErr(ctx, func() error { return p.Admin.Delete(ctx, name) })
}

// Peek implements holdfast.Admin.
func (p patient) Peek(ctx context.Context, name string, o holdfast.PeekOptions) ([]holdfast.PeekedMessage, error) {
	return read(ctx, func() ([]holdfast.PeekedMessage, error) { return p.Admin.Peek(ctx, name, o) })
}

// Redrive implements holdfast.Admin.
func (p patient) Redrive(ctx context.Context, name, target string, limit int) (uint64, error) {
	return again(ctx, func() (uint64, error) { return p.Admin.Redrive(ctx, name, target, limit) })
}

// Settle implements holdfast.Admin.
func (p patient) Settle(ctx context.Context, name string, op holdfast.SettleOp, receipts []holdfast.Receipt, d time.Duration) ([]queue.Outcome, error) {
	return again(ctx, func() ([]queue.Outcome, error) { return p.Admin.Settle(ctx, name, op, receipts, d) })
}
