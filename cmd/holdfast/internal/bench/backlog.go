package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

// backlog is "bench backlog": a queue grows, the broker is started again in good order and after SIGKILL, and the queue is drained.
func backlog(ctx context.Context, b *bench, dir string) (r *measure.Run, err error) {
	s, err := b.open(ctx, dir, map[string]int{"": b.o.queues})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r = &measure.Run{}
	if _, err := s.fill(ctx, r, b.o.messages); err != nil {
		return nil, err
	}
	left := b.o.messages
	written := int64(0)
	if s.own != nil {
		u, known := s.crew.use()
		if known {
			r.Add("broker memory (RSS), full", "B", float64(u.RSS))
		}
		for _, kill := range []bool{false, true} {
			if u, ok := s.crew.use(); ok {
				written += u.Written
			}
			if err := s.restart(ctx, r, kill); err != nil {
				return nil, err
			}
			left--
		}
		if u, ok := s.crew.use(); ok {
			r.Add("broker memory (RSS), started again", "B", float64(u.RSS))
		}
	}
	every := int64(0)
	if b.o.stuck > 0 {
		every = int64(math.Round(100 / b.o.stuck))
	}
	if err := s.drain(ctx, r, left, every); err != nil {
		return nil, err
	}
	if u, ok := s.crew.use(); ok && s.own != nil {
		r.Add(writtenPer+", all in all", "", float64(written+u.Written)/(float64(b.o.messages)*float64(b.o.payload)))
	}
	return r, nil
}

// restart ends the broker and starts it again, and measures the time to its answer and to the first message.
func (s *site) restart(ctx context.Context, r *measure.Run, kill bool) error {
	s.c.Close()
	how := "after a stop"
	if kill {
		how = "after SIGKILL"
		s.b.show(func() string { return "killing the broker" })
		if err := s.own.Kill(); err != nil {
			return err
		}
	} else {
		s.b.show(func() string { return "stopping the broker" })
		began := time.Now()
		if err := s.own.stop(ctx); err != nil {
			return err
		}
		r.Add("time to stop", "s", time.Since(began).Seconds())
	}
	s.b.show(func() string { return "starting the broker again" })
	began := time.Now()
	if err := s.own.start(ctx); err != nil {
		return err
	}
	s.crew.broker = s.own.PID()
	var err error
	if s.c, err = s.b.dial(ctx, s.own.addr); err != nil {
		return err
	}
	r.Add(how+": start to answer", "s", time.Since(began).Seconds())
	receiver, err := s.c.Queue(s.all[0]).NewReceiver(holdfast.ReceiverOptions{})
	if err != nil {
		return err
	}
	ds, err := receiver.Receive(ctx, 1)
	if err == nil {
		r.Add(how+": start to first message", "s", time.Since(began).Seconds())
		err = receiver.Ack(ctx, ds...)
	}
	if err = errors.Join(err, receiver.Close(ctx)); err != nil {
		return fmt.Errorf("receive the first message: %w", err)
	}
	return nil
}
