package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/broker"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/journals"
	"github.com/holdfastmq/holdfast/message"
)

// closePatience is how long a broker in this process may take to store what is decided.
const closePatience = 30 * time.Second

// Broker is the broker that a command talks to. It is a holdfast.Link that notices how long the broker could not be reached.
type Broker struct {
	link   holdfast.Link
	log    *slog.Logger
	health health
	shut   func(ctx context.Context) error
}

var _ holdfast.Link = (*Broker)(nil)

func newBroker(link holdfast.Link, a *cli.App, shut func(context.Context) error) *Broker {
	return &Broker{link: link, log: a.Log, shut: shut}
}

// openJournal makes a broker in this process.
func (f *Flags) openJournal(ctx context.Context, a *cli.App) (*Broker, error) {
	j, err := journals.Open(ctx, f.journal, journals.Options{MustExist: !f.creates, Logger: a.Log})
	if err != nil {
		return nil, checkJournal(err)
	}
	// Where only some queues lack something, the others can be used, and those say so themselves.
	if loss := journals.Loss(j); loss != nil && len(loss.Streams) == 0 {
		return nil, errors.Join(fmt.Errorf("open journal: %w", loss.Err), j.Close())
	}
	if err := f.unserved(ctx, j); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	o := broker.Options{Limits: message.Limits{MaxBody: int(f.maxBody)}, Lazy: true, Logger: a.Log}
	if a.Source("max-body") == cli.FromDefault {
		o.Limits.MaxBody = 0 // it depends on the journal
	}
	b, err := broker.Open(ctx, j, o)
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	shut := func(ctx context.Context) error { return errors.Join(b.Close(ctx), j.Close()) }
	return newBroker(b, a, shut), nil
}

func (b *Broker) close(ctx context.Context, a *cli.App) error {
	ctx, cancel := a.Finish(ctx, closePatience)
	defer cancel()
	return b.shut(ctx)
}

// OpenSender implements holdfast.Link.
func (b *Broker) OpenSender(ctx context.Context, queue string, c holdfast.SenderConfig, ev holdfast.SenderEvents) (holdfast.SenderLink, holdfast.SenderOpened, error) {
	done := b.health.try()
	l, o, err := b.link.OpenSender(ctx, queue, c, ev)
	done(err)
	return l, o, err
}

// OpenReceiver implements holdfast.Link.
func (b *Broker) OpenReceiver(ctx context.Context, queue string, c holdfast.ReceiverConfig, ev holdfast.ReceiverEvents) (holdfast.ReceiverLink, holdfast.ReceiverOpened, error) {
	done := b.health.try()
	l, o, err := b.link.OpenReceiver(ctx, queue, c, ev)
	done(err)
	return l, o, err
}

// Admin implements holdfast.Link.
func (b *Broker) Admin() holdfast.Admin { return patient{b.link.Admin()} }

// health notices since when opening streams has failed. Senders and receivers try again for ever; a command does not.
type health struct {
	mu    sync.Mutex
	since time.Time // of the first try since the last success; zero if there was none
	err   error     // of the last try
	up    time.Time // of the last success
	full  time.Time // since when the store under the broker has no room, as far as is known; zero if it has
}

// try notes that a stream is being opened; the returned function, how that ended.
func (h *health) try() func(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since = time.Now()
	}
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err = err; err == nil {
			h.since, h.up = time.Time{}, time.Now()
		}
	}
}

// StorageFull notes that the store under the broker has no room, or has again. A command does not wait for that for ever, as it does for a full
// queue.
func (b *Broker) StorageFull(full bool) {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	switch {
	case !full:
		b.health.full = time.Time{}
	case b.health.full.IsZero():
		b.health.full = time.Now()
	}
}

// UpSince returns since when the streams of the command have been open, and false if they are not.
func (b *Broker) UpSince() (time.Time, bool) {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	return b.health.up, b.health.since.IsZero() && !b.health.up.IsZero()
}

// watch calls cancel once streams could not be opened for the given time; 0 means never.
func (h *health) watch(limit time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	if limit == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(min(limit, time.Second) / 10)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-done:
				return
			}
			h.mu.Lock()
			since, err := h.since, h.err
			if !h.full.IsZero() && (since.IsZero() || h.full.Before(since)) {
				since, err = h.full, holdfast.ErrStorageFull
			}
			h.mu.Unlock()
			if since.IsZero() || time.Since(since) < limit {
				continue
			}
			if err == nil {
				err = errNoAnswer
			}
			cancel(fmt.Errorf("the broker could not be used for %s: %w", cli.FormatDuration(limit), err))
			return
		}
	})
	return func() { close(done); wg.Wait() }
}
