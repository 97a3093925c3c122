package delivery

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfastmq/holdfast/delivery/producer"
)

// pumpWork is what one turn of the pump does outside the lock.
type pumpWork[B any] struct {
	bodies  []B
	ranges  []pumpRange
	resends []producer.Resend
	calls   []call
	floor   uint64
	again   bool // more waits
	stop    bool
	stats   ProducerStats
}

// pumpRange is a range to transmit: its bodies are those from at on.
type pumpRange struct {
	producer.Range
	at int
}

// pump is the sender's goroutine: it transmits what is new and what is due, and makes the confirmation calls.
func (s *sender[B]) pump() {
	defer close(s.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	armed := s.born.Add(time.Hour) // when the timer fires, at the latest
	var w pumpWork[B]
	for {
		s.collect(&w)
		s.perform(&w)
		if w.stop {
			s.finish()
			return
		}
		if w.again {
			continue
		}
		due, sleep := s.rest()
		if !sleep {
			continue
		}
		if due > 0 {
			// An earlier timer is left alone: it wakes the pump for nothing, twice a second at most, which is cheaper
			// than setting it for each batch.
			if at := s.born.Add(time.Duration(due)); at.Before(armed) {
				timer.Reset(time.Until(at))
				armed = at
			}
		}
		select {
		case <-s.wake:
		case <-timer.C:
			timer.Reset(time.Hour)
			armed = time.Now().Add(time.Hour)
			s.mu.Lock()
			s.awake = true
			s.mu.Unlock()
			select {
			case <-s.wake: // both happened
			default:
			}
		}
	}
}

// finish says the last word, if all was confirmed: then the consumer need not remember this producer. A durable one
// says it only once its journal knows as well; else, after a crash, it would send again what nobody remembers.
func (s *sender[B]) finish() {
	clean := s.clean
	if s.store != nil {
		<-s.store.done
		clean = clean && s.store.saved
	}
	if !clean {
		return
	}
	f := Farewell{ProducerID: s.id, Incarnation: s.incarnation, Floor: s.core.Next()}
	if err := protect(func() error { return s.link.Farewell(f) }); err != nil {
		s.log.Debug("farewell not delivered, the consumer's entry ends by its TTL", "producer_id", s.id, "err", err)
	}
}

// rest puts the pump to sleep, until due if that is not 0, unless something came up.
func (s *sender[B]) rest() (due int64, sleep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Waiting() || len(s.calls) > 0 || s.cause != nil {
		return 0, false
	}
	s.awake = false
	due, _ = s.core.NextDue()
	return due, true
}

// collect takes what there is to do.
func (s *sender[B]) collect(w *pumpWork[B]) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(w.bodies)
	w.bodies, w.ranges, w.resends = w.bodies[:0], w.ranges[:0], w.resends[:0]
	clear(w.calls)
	w.calls, s.calls = s.calls, w.calls[:0]
	w.stop, w.again = s.cause != nil, false
	w.stats = s.counts
	if w.stop {
		return
	}
	if due, ok := s.core.NextDue(); ok && due <= now {
		w.resends = s.core.Due(w.resends, now)
		for _, r := range w.resends {
			s.counts.Retransmitted += uint64(r.Len())
			s.take(w, r.Range)
		}
	}
	for len(w.bodies) < transmitBatch {
		r, ok := s.core.Transmit(transmitBatch-len(w.bodies), now)
		if !ok {
			break
		}
		s.take(w, r)
	}
	w.again = s.core.Waiting()
	w.floor = s.core.Floor()
	w.stats = s.counts
}

// take copies the bodies of a range, so that they can be sent outside the lock.
func (s *sender[B]) take(w *pumpWork[B], r producer.Range) {
	w.ranges = append(w.ranges, pumpRange{r, len(w.bodies)})
	for seq := r.First; seq <= r.Last; seq++ {
		w.bodies = append(w.bodies, s.slots.at(seq).body)
	}
}

// perform does what was collected.
func (s *sender[B]) perform(w *pumpWork[B]) {
	for _, r := range w.resends {
		if s.opts.onRetransmit != nil {
			guard(s.log, "OnRetransmit", func() { s.opts.onRetransmit(r.First, r.Last, r.Attempt) })
		}
	}
	for _, r := range w.ranges {
		s.transmit(r.First, w.floor, w.bodies[r.at:r.at+r.Len()])
	}
	for _, c := range w.calls {
		guard(s.log, "confirmation", func() { c.fn(c.err) })
	}
	s.report(w)
}

// transmit sends bodies in as many envelopes as the frame limit asks for.
func (s *sender[B]) transmit(first, floor uint64, bodies []B) {
	d := Delivery[B]{ProducerID: s.id, Incarnation: s.incarnation, Seq: first, Floor: floor, Bodies: bodies, ReplyTo: s}
	if s.cut.limit == 0 {
		s.deliver(d)
		return
	}
	for len(bodies) > 0 {
		n, bytes := 1, s.cut.size(bodies[0])
		if bytes > s.cut.limit {
			s.transmitParts(d, bodies[0], bytes)
		} else {
			for n < len(bodies) && s.cut.size(bodies[n]) <= s.cut.limit-bytes {
				bytes += s.cut.size(bodies[n])
				n++
			}
			d.Bodies = bodies[:n]
			s.deliver(d)
		}
		bodies = bodies[n:]
		d.Seq += uint64(n)
	}
}

// transmitParts sends one body that is larger than a frame.
func (s *sender[B]) transmitParts(d Delivery[B], body B, bytes int) {
	parts := s.cut.split(body, s.cut.limit)
	d.Parts, d.Total = len(parts), bytes
	for i := range parts {
		d.Part, d.Bodies = i, parts[i:i+1]
		s.deliver(d)
	}
}

func (s *sender[B]) deliver(d Delivery[B]) {
	if err := protect(func() error { return s.link.Deliver(d) }); err != nil {
		s.lost(err)
	}
}

func (s *sender[B]) lost(err error) {
	s.mu.Lock()
	s.counts.LinkErrors++
	s.mu.Unlock()
	if n, ok := s.limits.link.add(1); ok {
		s.log.Warn("link refused envelopes, they will be sent again", "producer_id", s.id, "count", n, "err", err)
	}
}

// report logs, at most once a minute of each kind, what an operator should know.
func (s *sender[B]) report(w *pumpWork[B]) {
	if len(w.resends) > 0 {
		n := 0
		for _, r := range w.resends {
			n += r.Len()
		}
		if total, ok := s.limits.resend.add(n); ok {
			r := w.resends[0]
			s.log.Info("messages sent again, their acknowledgements are overdue", "producer_id", s.id,
				"count", total, "seq", r.First, "attempt", r.Attempt)
		}
	}
	if n, ok := s.limits.full.add(int(w.stats.WindowFull - s.loggedFull)); ok {
		s.log.Debug("window full, sends wait for acknowledgements", "producer_id", s.id, "count", n)
	}
	s.loggedFull = w.stats.WindowFull
}

// protect turns a panic of somebody else's code into an error.
func protect(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// guard calls a hook and logs its panic.
func guard(log *slog.Logger, what string, f func()) {
	if err := protect(func() error { f(); return nil }); err != nil {
		log.Error(what+" function failed", "err", err)
	}
}
