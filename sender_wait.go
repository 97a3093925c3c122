package holdfast

import (
	"context"
	"sync/atomic"
)

// place is where the outcome of a message will be.
type place struct {
	c    *cell
	i    int
	done <-chan struct{} // nil for messages with a done function
	end  *sharedEnd      // set if it sees to it that the end of the caller's context closes done; nil if the caller does
}

// sharedEnd watches for the end of a context that many callers wait with at the same time, as the workers of
// one program do. A select on its channel by each of them would have them all queue for that channel's lock.
type sharedEnd struct {
	done  <-chan struct{}
	users atomic.Int64 // callers who rely on it

	// Under the sender's lock.
	stop  func() bool // nil while only one caller was seen
	ended bool
}

// endOf returns the watch over ctx for a caller who is about to wait, and whether it may rely on it: the first one with a
// context selects on it by itself, and whoever comes while others wait with another context does, too. The lock is held.
func (s *Sender) endOf(ctx context.Context) *sharedEnd {
	done := ctx.Done()
	if done == nil {
		return nil
	}
	e := s.end
	if e == nil || e.done != done {
		if e != nil && e.users.Load() > 0 {
			return nil
		}
		s.forgetEnd()
		s.end = &sharedEnd{done: done}
		return nil
	}
	if e.stop == nil {
		e.stop = context.AfterFunc(ctx, func() { s.contextEnded(e) })
	}
	if e.ended {
		return nil
	}
	e.users.Add(1)
	return e
}

// forgetEnd ends the watch over the last context. The lock is held.
func (s *Sender) forgetEnd() {
	if s.end != nil && s.end.stop != nil {
		s.end.stop()
	}
	s.end = nil
}

// contextEnded wakes all who wait: those whose context it is give up.
func (s *Sender) contextEnded(e *sharedEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ended = true
	for _, f := range []*frame{s.pending.head, s.held, s.flight.head} {
		for ; f != nil; f = f.next {
			for _, c := range f.cells {
				c.wake()
			}
		}
	}
}

// await waits for the outcome of a message.
func (s *Sender) await(ctx context.Context, p place) (ID, error) {
	end := ctx.Done()
	if p.end != nil {
		defer p.end.users.Add(-1)
		end = nil
	}
	for {
		if end == nil {
			<-p.done
		} else {
			select {
			case <-p.done:
			case <-end:
				return s.giveUp(ctx, p.c, p.i)
			}
		}
		if p.c.has(p.i) {
			return s.result(p.c, p.i)
		}
		// Only a part of the cell was settled, or a context ended.
		s.mu.Lock()
		if p.end != nil && p.end.ended {
			s.mu.Unlock()
			return s.giveUp(ctx, p.c, p.i)
		}
		p.done = p.c.waitOn()
		s.mu.Unlock()
	}
}

// giveUp ends the wait for a message whose caller's context ended: if the link never had it, it will not have it.
func (s *Sender) giveUp(ctx context.Context, c *cell, i int) (ID, error) {
	s.mu.Lock()
	if c.has(i) {
		s.mu.Unlock()
		return s.result(c, i)
	}
	defer s.mu.Unlock()
	for f := s.pending.head; f != nil; f = f.next {
		if !f.withdraw(c, i) {
			continue
		}
		c.settled.Store(c.settled.Load() | 1<<i)
		s.release(1, int(c.sizes[i]))
		s.stats.Refused++
		s.kick()
		return ID{}, s.notStored(context.Cause(ctx))
	}
	s.stats.Unknown++
	return ID{}, s.unknown(context.Cause(ctx))
}

func (s *Sender) result(c *cell, i int) (ID, error) {
	if c.strange.Load() {
		s.mu.Lock()
		o, ok := c.odd[i]
		s.mu.Unlock()
		if ok {
			return o.id, o.err
		}
	}
	if c.ids[i] == 0 {
		return ID{}, nil
	}
	return ID{c.uid, c.ids[i]}, nil
}
