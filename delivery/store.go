package delivery

import (
	"context"
	"errors"
	"time"
)

// storeRetry is how long a durable producer waits after its journal refused to store.
const storeRetry = time.Second

// closeTimeout bounds how long a durable producer's journal may take to close.
const closeTimeout = 10 * time.Second

// storer is the goroutine of a durable producer that stores numbered messages, all that have come up meanwhile at
// once, and only then lets them be transmitted. Its fields but for the channels are guarded by the sender's lock.
type storer[B any] struct {
	journal ProducerJournal
	first   uint64   // the number of pending[0]
	pending [][]byte // numbered and not stored
	settled []SeqRange
	ended   bool

	wake   chan struct{} // of capacity 1
	cancel context.CancelFunc
	done   chan struct{}
	saved  bool // the journal was closed with everything stored; valid once done is closed
	log    throttle
}

func newStorer[B any](j ProducerJournal) *storer[B] {
	return &storer[B]{journal: j, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (st *storer[B]) signal() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *storer[B]) add(seq uint64, raw []byte) {
	if len(st.pending) == 0 {
		st.first = seq
	}
	st.pending = append(st.pending, raw)
	st.signal()
}

// note remembers a confirmation to be stored, together with the one before if they touch.
func (st *storer[B]) note(r SeqRange) {
	if n := len(st.settled); n > 0 && st.settled[n-1].Last+1 == r.First {
		st.settled[n-1].Last = r.Last
	} else {
		st.settled = append(st.settled, r)
	}
	st.signal()
}

// end makes the storer stop: what is being stored is not waited for.
func (st *storer[B]) end() {
	st.ended = true
	st.cancel()
	st.signal()
}

// run stores until the sender is stopped, then closes the journal.
func (st *storer[B]) run(ctx context.Context, s *sender[B]) {
	defer close(st.done)
	var pending [][]byte
	var settled []SeqRange
	for {
		select {
		case <-st.wake:
		case <-st.journal.Done():
			st.fail(s, st.journal.Err())
		}
		s.mu.Lock()
		first, ended := st.first, st.ended
		pending, st.pending = st.pending, pending[:0]
		settled, st.settled = st.settled, settled[:0]
		s.mu.Unlock()

		if len(settled) > 0 {
			if err := st.journal.Settled(settled); err != nil && !ended {
				st.fail(s, err)
			}
		}
		if ended {
			break
		}
		if len(pending) > 0 && st.append(ctx, s, first, pending) {
			s.mu.Lock()
			s.core.Release(first + uint64(len(pending)) - 1)
			s.rouse()
			s.mu.Unlock()
		}
		clear(pending)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := st.journal.Close(ctx); err != nil {
		s.log.Warn("close of a durable producer's journal failed", "producer_id", s.id, "err", err)
		return
	}
	st.saved = true
}

// append stores messages, trying again as long as the journal refuses. It reports whether they are stored.
func (st *storer[B]) append(ctx context.Context, s *sender[B], first uint64, bodies [][]byte) bool {
	for {
		err := st.journal.Append(ctx, first, bodies)
		if err == nil {
			return true
		}
		if st.fail(s, err) || ctx.Err() != nil {
			return false
		}
		t := time.NewTimer(storeRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}

// fail handles an error of the journal and reports whether it ended the sender.
func (st *storer[B]) fail(s *sender[B], err error) bool {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrStopped) {
		s.log.Error("durable producer stops, its journal is gone", "producer_id", s.id, "err", err)
		if !errors.Is(err, ErrStopped) {
			err = &outcome{ErrStopped, err}
		}
		s.stop(err)
		return true
	}
	if n, ok := st.log.add(1); ok {
		s.log.Warn("durable producer cannot store, sends wait", "producer_id", s.id, "count", n, "err", err)
	}
	return false
}
