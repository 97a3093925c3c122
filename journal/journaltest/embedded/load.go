package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/queue"
)

// config makes the n-th configuration of a queue: the number is in MaxBytes, which is never reached.
func config(name string, n uint64) queue.Config {
	c := queue.Config{MaxBytes: 1<<40 + int64(n), VisibilityTimeout: time.Second, RetryFirst: 10 * time.Millisecond, RetryCap: 50 * time.Millisecond}
	switch name {
	case failing:
		c.MaxDeliveries, c.DeadLetter = 2, dead
	case keyed:
		c.MaxMessages = 200
	}
	return c
}

func configNumber(c queue.Config) uint64 { return uint64(max(0, c.MaxBytes-1<<40)) }

func (w *world) configure(name string) {
	n := w.h.tryConfig(name)
	err := w.b.Queue(name).Configure(w.ctx, config(name, n))
	if errors.Is(err, holdfast.ErrNoQueue) {
		err = w.b.Queue(name).Create(w.ctx, config(name, n))
	}
	if err == nil {
		w.h.configured(w.life, name, n)
	} else if w.ctx.Err() == nil {
		w.h.errorf("configure queue %s: %v", name, err)
	}
}

// load sets senders and receivers to work, until the context ends.
func (w *world) load() {
	for _, name := range w.queues {
		w.configure(name)
	}
	for i, name := range w.queues {
		if name == dead {
			continue
		}
		for s := range 2 {
			seed := w.rng.Uint64()
			w.work.Go(func() { w.sender(name, string(rune('a'+s)), rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		for range 2 {
			seed := w.rng.Uint64()
			w.work.Go(func() { w.receiver(name, rand.New(rand.NewPCG(seed, 0))) })
		}
	}
	seed := w.rng.Uint64()
	w.work.Go(func() { w.admin(rand.New(rand.NewPCG(seed, 0))) })
	if slices.Contains(w.queues, keyed) {
		w.work.Go(func() { w.consumer(keyed) })
	}
}

// sender sends until the end, from where an earlier life of it has come to.
func (w *world) sender(name, who string, rng *rand.Rand) {
	s, err := w.b.Queue(name).NewSender(holdfast.SenderOptions{ProducerID: who, Incarnation: "one", MaxInFlight: max(1+rng.IntN(64), w.batch)})
	if err != nil {
		w.h.errorf("sender: %v", err)
		return
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // what is under way is of no interest
	}()
	next, err := s.Resume(w.ctx)
	if err != nil {
		if w.ctx.Err() == nil {
			w.h.errorf("resume sender %s of queue %s: %v", who, name, err)
		}
		return
	}
	w.h.resumed(w.life, name, who, next)
	for w.ctx.Err() == nil {
		send := w.sendOne
		if w.pins > 0 {
			send = w.sendMany
		}
		n, err := send(s, place{name, who, next}, rng)
		if err != nil {
			if w.ctx.Err() == nil {
				w.h.errorf("send %d to queue %s: %v", next, name, err)
			}
			return
		}
		next += n
	}
}

// try notes that a message is about to be sent, and makes it.
func (w *world) try(p place) holdfast.Message {
	w.h.trySend(p)
	if w.left.Add(-1) == 0 {
		w.enough()
	}
	return w.h.message(p)
}

func (w *world) sendOne(s *holdfast.Sender, p place, rng *rand.Rand) (n uint64, err error) {
	m := w.try(p)
	if rng.IntN(10) > 0 {
		return 1, s.SendAsync(w.ctx, m, func(id holdfast.ID, err error) { w.h.sentOne(w.life, p, id, err) })
	}
	id, err := s.Send(w.ctx, m)
	if err == nil {
		w.h.sentOne(w.life, p, id, nil)
	}
	return 1, err
}

// many is how many messages are in a batch, and so in a record.
const many = 32

// sendMany sends a batch, once receivers have come so far.
func (w *world) sendMany(s *holdfast.Sender, p place, _ *rand.Rand) (n uint64, err error) {
	select {
	case w.room <- struct{}{}:
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
	batch := make([]holdfast.Message, many)
	for i := range batch {
		batch[i] = w.try(place{p.queue, p.sender, p.n + uint64(i)})
	}
	ids, err := s.SendBatch(w.ctx, batch)
	if err != nil {
		return 0, err
	}
	for i, id := range ids {
		w.h.sentOne(w.life, place{p.queue, p.sender, p.n + uint64(i)}, id, nil)
	}
	return many, nil
}

// makeRoom lets senders of batches go on by so many messages.
func (w *world) makeRoom(n int) {
	for to := w.settled.Add(int64(n)); n > 0; n-- {
		if (to-int64(n)+1)%many != 0 {
			continue
		}
		select {
		case <-w.room:
		default: // what an earlier life left comes on top
		}
	}
}

// receiver receives and settles until the end.
func (w *world) receiver(name string, rng *rand.Rand) {
	for w.ctx.Err() == nil {
		r, err := w.b.Queue(name).NewReceiver(holdfast.ReceiverOptions{})
		if err != nil {
			w.h.errorf("receiver: %v", err)
			return
		}
		for k := 5 + rng.IntN(50); k > 0 && w.ctx.Err() == nil; k-- {
			ds, err := r.Receive(w.ctx, 1+rng.IntN(20))
			if err != nil && w.ctx.Err() == nil {
				w.h.errorf("receive from queue %s: %v", name, err)
			}
			w.settle(r, ds, rng)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := r.Close(ctx); err != nil && w.ctx.Err() == nil {
			w.h.errorf("close receiver of queue %s: %v", name, err)
		}
		cancel()
	}
}

// settle does something with each delivery; some are left until the receiver closes.
func (w *world) settle(r *holdfast.Receiver, ds []*holdfast.Delivery, rng *rand.Rand) {
	var acks []*holdfast.Delivery
	var places []place
	ack := func() {
		w.makeRoom(len(acks))
		// Of several, it is not told which are deleted if one of them is not.
		if err := r.Ack(w.ctx, acks...); err == nil {
			for _, p := range places {
				w.h.deletedOne(w.life, p)
			}
		}
		acks, places = nil, nil
	}
	for _, d := range ds {
		p, ok := w.h.delivered(w.life, d)
		if !ok {
			continue
		}
		fails := 20
		switch {
		case p.queue == failing:
			fails = 40
		case w.pins > 0:
			fails = 0
		}
		switch k := rng.IntN(100); {
		case rng.IntN(1000) < w.pins:
			if d.Nack(w.ctx, time.Hour) == nil {
				w.h.failedOne(w.life, p, d)
			}
			w.makeRoom(1)
		case k < fails:
			if d.Nack(w.ctx, time.Duration(rng.IntN(20))*time.Millisecond) == nil {
				w.h.failedOne(w.life, p, d)
			}
		case k < fails+5:
			_ = d.Release(w.ctx)
		case k < fails+8: // held until the receiver closes
		default:
			w.h.tryDelete(p)
			acks, places = append(acks, d), append(places, p)
			if w.pins == 0 && rng.IntN(8) == 0 {
				ack()
			}
		}
	}
	if len(acks) > 0 {
		ack()
	}
}

// consumer is the form that most users use.
func (w *world) consumer(name string) {
	err := w.b.Queue(name).Consume(w.ctx, func(_ context.Context, d *holdfast.Delivery) error {
		p, ok := w.h.delivered(w.life, d)
		if !ok || p.n%7 == 0 && d.Attempt < 3 {
			return fmt.Errorf("delivery %d of %v fails", d.Attempt, p)
		}
		w.h.tryDelete(p)
		return nil
	}, holdfast.ConsumeOptions{Workers: 2, Prefetch: 8})
	if err != nil && w.ctx.Err() == nil {
		w.h.errorf("consume queue %s: %v", name, err)
	}
}

// admin changes configurations and purges now and then.
func (w *world) admin(rng *rand.Rand) {
	for w.ctx.Err() == nil {
		select {
		case <-time.After(time.Duration(rng.IntN(30)) * time.Millisecond):
		case <-w.ctx.Done():
			return
		}
		if w.pins > 0 || rng.IntN(4) > 0 {
			w.configure(w.queues[rng.IntN(len(w.queues))])
			continue
		}
		w.h.purge(w.life, mixed, func() error {
			_, err := w.b.Queue(mixed).Purge(w.ctx)
			return err
		})
	}
}
