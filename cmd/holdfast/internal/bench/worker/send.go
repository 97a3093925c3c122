package worker

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
)

// sampleEvery is how many messages of a sender at full speed go for each whose time is taken.
const sampleEvery = 64

// flushPatience is how long a sender waits for its last answers.
const flushPatience = time.Minute

// send is a part of kind Send.
func (p *running) send(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sending, end := context.WithCancel(ctx)
	defer end()
	senders := make([]*holdfast.Sender, p.Queues)
	for i := range senders {
		s, err := p.queue(p.QueueName(i)).NewSender(holdfast.SenderOptions{MaxInFlight: p.Window})
		if err != nil {
			return err
		}
		senders[i] = s
	}
	var wg sync.WaitGroup
	try := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil && sending.Err() == nil {
				cancel(err)
			}
		})
	}
	switch {
	case p.Rate > 0:
		try(func() error { return p.sendPaced(sending, senders, cancel) })
	case p.Blocking:
		for _, s := range senders {
			for range p.Window {
				try(func() error { return p.sendWaiting(sending, s) })
			}
		}
	default:
		for i, s := range senders {
			most := p.Messages / int64(p.Queues)
			if i == 0 {
				most += p.Messages % int64(p.Queues)
			}
			try(func() error { return p.sendAll(sending, s, most, cancel) })
		}
	}
	p.watch(ctx, end)
	wg.Wait()
	return errors.Join(context.Cause(ctx), p.closeAll(ctx, senders))
}

// closeAll waits for all answers.
func (p *running) closeAll(ctx context.Context, senders []*holdfast.Sender) error {
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	var errs []error
	for _, s := range senders {
		errs = append(errs, s.Close(ctx))
		p.frames.Add(s.Stats().Frames)
	}
	return errors.Join(errs...)
}

func newBody(size int) []byte {
	body := make([]byte, max(size, stampBytes))
	_, _ = crand.Read(body) // it never fails
	unstamp(body)
	return body
}

// sendAll sends as fast as the window lets it, until ctx ends or most messages are sent (0: no limit).
func (p *running) sendAll(ctx context.Context, s *holdfast.Sender, most int64, fail context.CancelCauseFunc) error {
	body := newBody(p.Payload)
	plain := func(_ holdfast.ID, err error) {
		if err != nil {
			fail(fmt.Errorf("a message was not stored: %w", err))
			return
		}
		p.count(1)
	}
	for n := int64(0); (most == 0 || n < most) && ctx.Err() == nil; n++ {
		done := plain
		if n%sampleEvery == 0 {
			now := time.Now()
			stamp(body, now)
			done = func(id holdfast.ID, err error) {
				if p.measuring.Load() {
					p.answer.Record(time.Since(now))
				}
				p.note()
				plain(id, err)
			}
		}
		if err := s.SendAsync(ctx, holdfast.Message{Body: body}, done); err != nil {
			return err
		}
		if n%sampleEvery == 0 {
			unstamp(body)
		}
	}
	return nil
}

// sendWaiting is one caller who sends a message and waits for its answer, again and again.
func (p *running) sendWaiting(ctx context.Context, s *holdfast.Sender) error {
	body := newBody(p.Payload)
	for n := 0; ctx.Err() == nil && (p.Messages == 0 || p.done.Load() < p.Messages); n++ {
		began := time.Time{}
		if n%16 == 0 {
			began = time.Now()
			stamp(body, began)
		}
		// The last one is waited for like any other.
		if _, err := s.Send(context.WithoutCancel(ctx), holdfast.Message{Body: body}); err != nil {
			return err
		}
		p.count(1)
		if n%16 == 0 {
			if p.measuring.Load() {
				p.answer.Record(time.Since(began))
			}
			p.note()
			unstamp(body)
		}
	}
	return nil
}

// sendPaced sends to all queues in turn at a steady rate. Each message carries when it was due.
func (p *running) sendPaced(ctx context.Context, senders []*holdfast.Sender, fail context.CancelCauseFunc) error {
	// A thread of its own is woken with less delay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exactTimers()
	body := newBody(p.Payload)
	steady := pace{began: p.began, rate: p.Rate * float64(len(senders))}
	for n := int64(0); (p.Messages == 0 || n < p.Messages) && ctx.Err() == nil; n++ {
		due := steady.next()
		waitUntil(due)
		if p.measuring.Load() {
			p.late.Record(time.Since(due))
		}
		stamp(body, due)
		done := func(_ holdfast.ID, err error) {
			if err != nil {
				fail(fmt.Errorf("a message was not stored: %w", err))
				return
			}
			if p.measuring.Load() {
				p.answer.Record(time.Since(due))
			}
			p.note()
			p.count(1)
		}
		if err := senders[n%int64(len(senders))].SendAsync(ctx, holdfast.Message{Body: body}, done); err != nil {
			return err
		}
	}
	return nil
}
