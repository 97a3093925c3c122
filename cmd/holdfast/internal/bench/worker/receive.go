package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
)

// stuckFor is how long a message stays away whose handler is to fail.
const stuckFor = 10 * time.Hour

var errStuck = errors.New("left in the queue on purpose")

// receive is a part of kind Receive.
func (p *running) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	receiving, end := context.WithCancel(ctx)
	defer end()
	handle := func(_ context.Context, d *holdfast.Delivery) error {
		n := p.count(1)
		if n == 1 || n%sampleEvery == 0 {
			p.note()
		}
		if at, ok := stamped(d.Body); ok && p.measuring.Load() {
			p.endToEnd.Record(time.Since(at))
		}
		if n == p.Messages {
			end()
		}
		if p.StuckEvery > 0 && n%p.StuckEvery == 0 {
			return holdfast.RetryAfter(stuckFor, errStuck)
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range p.Queues {
		wg.Go(func() {
			if err := p.queue(p.QueueName(i)).Consume(receiving, handle, holdfast.ConsumeOptions{Workers: p.Workers}); err != nil {
				cancel(err)
			}
		})
	}
	if p.Messages > 0 {
		p.watch(ctx, end)
		select {
		case <-receiving.Done():
		case <-p.stop:
			end()
		}
	} else {
		p.watch(ctx, end)
	}
	wg.Wait() // everything is acknowledged
	if p.done.Load() >= p.Messages {
		p.note()
	}
	return context.Cause(ctx)
}
