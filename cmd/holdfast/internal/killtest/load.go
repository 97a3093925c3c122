package killtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/client"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

// Load is senders and receivers of some queues, each over a connection of its own.
type Load struct {
	t    testing.TB
	addr string
	h    *History

	senders, receivers sync.WaitGroup
	stopSending        context.CancelFunc
	stopReceiving      context.CancelFunc
	sending, receiving chan struct{} // closed when the contexts end
	draining           atomic.Bool   // work takes no time any more, and does not fail
}

// NewLoad returns a load that does nothing yet. addr may be several addresses, with commas between them.
func NewLoad(t testing.TB, addr string, h *History) *Load {
	l := &Load{t: t, addr: addr, h: h, sending: make(chan struct{}), receiving: make(chan struct{})}
	l.stopSending = sync.OnceFunc(func() { close(l.sending) })
	l.stopReceiving = sync.OnceFunc(func() { close(l.receiving) })
	t.Cleanup(func() {
		l.stopSending()
		l.stopReceiving()
		l.senders.Wait()
		l.receivers.Wait()
	})
	return l
}

// until returns a context that ends with a channel.
func until(done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-done:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// dial makes a client that goes on over kills.
func (l *Load) dial() *client.Client {
	c, err := client.Dial(context.Background(), client.Options{
		Addrs: strings.Split(l.addr, ","), Lazy: true, MaxBackoff: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// Sender is how a sender sends.
type Sender struct {
	Queue, Name string
	// Keys is how many ordering keys it uses; 0: none.
	Keys int
	// Every is the pause between two bursts of up to ten messages.
	Every time.Duration
	Seed  uint64
}

// Send sends until StopSending, and then waits for all outcomes.
func (l *Load) Send(o Sender) {
	l.senders.Go(func() {
		c := l.dial()
		defer c.Close()
		s, err := c.Queue(o.Queue).NewSender(holdfast.SenderOptions{ProducerID: o.Name, MaxInFlight: 500, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			l.t.Error(err)
			return
		}
		ctx, cancel := until(l.sending)
		defer cancel()
		r := rand.New(rand.NewPCG(o.Seed, 1))
		tick := time.NewTicker(o.Every)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; {
			for range 1 + r.IntN(10) {
				key := ""
				if o.Keys > 0 {
					key = fmt.Sprintf("key-%d", r.IntN(o.Keys))
				}
				k := n
				m := holdfast.Message{Body: l.h.Sending(o.Queue, o.Name, k, key), Key: key, Priority: 0}
				if err := s.SendAsync(ctx, m, func(id holdfast.ID, err error) { l.h.Outcome(o.Queue, o.Name, k, id, err) }); err != nil {
					l.h.Outcome(o.Queue, o.Name, k, holdfast.ID{}, err)
				}
				n++
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		end, cancelEnd := context.WithTimeout(context.Background(), clitest.Patience)
		defer cancelEnd()
		if err := s.Close(end); err != nil {
			l.t.Error(err)
		}
	})
}

// Receiver is how a receiver receives.
type Receiver struct {
	// Queue is received from; From is the queue that its messages were sent to, if that is another.
	Queue, From string
	// Consume lets the library acknowledge, instead of asking for each message and waiting for each answer.
	Consume bool
	// Fail is how many percent of messages are given back as failed, Release how many uncounted.
	Fail, Release int
	// Work is how long a message takes at most.
	Work time.Duration
	Seed uint64
}

var errFails = errors.New("this one fails")

// Receive receives until StopReceiving.
func (l *Load) Receive(o Receiver) {
	if o.From == "" {
		o.From = o.Queue
	}
	l.receivers.Go(func() {
		c := l.dial()
		defer c.Close()
		ctx, cancel := until(l.receiving)
		defer cancel()
		run := l.pull
		if o.Consume {
			run = l.consume
		}
		if err := run(ctx, c.Queue(o.Queue), o); err != nil && ctx.Err() == nil {
			l.t.Error(err)
		}
	})
}

// dice decides what becomes of messages. It can be used concurrently.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
	o  Receiver
}

func (d *dice) roll() (percent int, work time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(100), time.Duration(d.r.Int64N(int64(d.o.Work) + 1))
}

// work takes some time, but not longer than ctx.
func work(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (l *Load) consume(ctx context.Context, q *holdfast.Queue, o Receiver) error {
	dice := &dice{r: rand.New(rand.NewPCG(o.Seed, 2)), o: o}
	return q.Consume(ctx, func(ctx context.Context, d *holdfast.Delivery) error {
		l.h.Delivered(o.From, d)
		percent, took := dice.roll()
		if l.draining.Load() {
			return nil
		}
		work(ctx, took)
		switch {
		case percent < o.Fail:
			return holdfast.RetryAfter(time.Duration(percent)*time.Millisecond, errFails)
		case percent < o.Fail+o.Release:
			return holdfast.GiveBack(errFails)
		}
		return nil
	}, holdfast.ConsumeOptions{Workers: 3, Logger: slog.New(slog.DiscardHandler)})
}

func (l *Load) pull(ctx context.Context, q *holdfast.Queue, o Receiver) error {
	dice := &dice{r: rand.New(rand.NewPCG(o.Seed, 3)), o: o}
	r, err := q.NewReceiver(holdfast.ReceiverOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), clitest.Patience)
		defer cancel()
		if err := r.Close(end); err != nil {
			l.t.Error(err)
		}
	}()
	for {
		ds, err := r.Receive(ctx, 10)
		if err != nil {
			return err
		}
		// All of them have been handed out, in this order, before work on the first begins.
		for _, d := range ds {
			l.h.Delivered(o.From, d)
		}
		for _, d := range ds {
			percent, took := dice.roll()
			if l.draining.Load() {
				percent, took = 100, 0
			}
			work(ctx, took)
			end, cancel := context.WithTimeout(context.Background(), clitest.Patience)
			switch {
			case percent < o.Fail:
				err = d.Nack(end, -1)
			case percent < o.Fail+o.Release:
				err = d.Release(end)
			default:
				if err = d.Ack(end); err == nil {
					l.h.Deleted(o.From, d)
				}
			}
			cancel()
			if err != nil && !errors.Is(err, holdfast.ErrLeaseLost) {
				return err
			}
		}
	}
}

// StopSending ends the senders, and returns when all outcomes are known. Receivers hurry from then on.
func (l *Load) StopSending() {
	l.stopSending()
	l.draining.Store(true)
	l.senders.Wait()
}

// StopReceiving ends the receivers.
func (l *Load) StopReceiving() {
	l.stopReceiving()
	l.receivers.Wait()
}
