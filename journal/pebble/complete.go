package pebble

import (
	"sync"
	"time"
)

// unsureHeads are heads that were written without a sync, and of which batch.
type unsureHeads struct {
	mu sync.Mutex
	m  map[*stream]unsureHead
}

type unsureHead struct {
	head
	n uint64
}

func (h *unsureHeads) add(u *unit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[*stream]unsureHead{}
	}
	for i, st := range u.dirty {
		h.m[st] = unsureHead{u.heads[i], u.n}
	}
}

// synced tells that everything up to batch n is on stable storage.
func (h *unsureHeads) synced(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for st, x := range h.m {
		if x.n <= n {
			st.mu.Lock()
			st.sure = x.head
			st.mu.Unlock()
			delete(h.m, st)
		}
	}
}

func (h *unsureHeads) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.m)
}

// completeLoop waits for the sync of each batch, in order, and wakes the callers.
func (j *Journal) completeLoop() {
	defer j.loops.Done()
	for u := range j.units {
		if u.barrier != nil {
			close(u.barrier)
			continue
		}
		j.complete(u)
		j.inFlight.Add(-1)
		j.q.signal()
	}
}

func (j *Journal) complete(u *unit) {
	err := u.failed
	if err == nil {
		if err = u.b.SyncWait(); err == nil {
			// The gate hides failures from the engine: without this look, a sync that never was
			// would be acknowledged.
			err = u.e.g.alive()
		}
	}
	if err != nil {
		j.unsure.clear()
		j.fail(u, err)
		return
	}
	j.durable.Store(u.n)
	j.unsure.synced(u.n)
	for i, st := range u.dirty {
		st.mu.Lock()
		st.sure = u.heads[i]
		st.mu.Unlock()
		st.ack(u.heads[i], u.n)
	}
	size := u.b.Len()
	must(u.b.Close())
	j.completed(u, size)
	for _, o := range u.ops {
		o.done <- nil
	}
}

func (j *Journal) completed(u *unit, size int) {
	took := time.Since(u.began)
	j.stats.commits.Add(1)
	j.stats.syncNanos.Add(uint64(took))
	if f := j.opts.OnCommit; f != nil {
		f(Commit{Calls: len(u.ops) + len(u.buffered), Records: u.records, Bytes: size, Sync: took})
	}
}
