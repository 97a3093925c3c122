package segment

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// errBroken says that a write or sync before this one has failed.
var errBroken = errors.New("an earlier write of the log has failed")

// unitQueue hands units from the committer to the completer, and keeps old ones for reuse.
type unitQueue struct {
	mu     sync.Mutex
	list   []*unit
	spare  []*unit
	closed bool
	wake   chan struct{}
}

func (q *unitQueue) get() *unit {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.spare); n > 0 {
		u := q.spare[n-1]
		q.spare = q.spare[:n-1]
		return u
	}
	return &unit{}
}

// put keeps a unit for reuse.
func (q *unitQueue) put(u *unit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.spare) < 2*maxInFlight {
		q.spare = append(q.spare, u)
	}
}

func (q *unitQueue) push(u *unit) {
	q.mu.Lock()
	q.list = append(q.list, u)
	q.mu.Unlock()
	q.signal()
}

func (q *unitQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *unitQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// take waits for units. There are none left once it returns nil.
func (q *unitQueue) take() []*unit {
	for {
		q.mu.Lock()
		list, closed := q.list, q.closed
		q.list = nil
		q.mu.Unlock()
		if len(list) > 0 || closed {
			return list
		}
		<-q.wake
	}
}

// completeLoop waits for the sync of each batch, in order, and wakes the callers.
func (j *Journal) completeLoop() {
	defer j.loops.Done()
	var c completer
	for list := j.units.take(); list != nil; list = j.units.take() {
		for len(list) > 0 {
			// Up to the last one that waits for a sync: one sync is for all of them.
			n := 1
			for i, u := range list {
				if u.barrier != nil {
					break
				}
				if u.sync {
					n = i + 1
				}
			}
			c.complete(j, list[:n])
			list = list[n:]
		}
	}
}

// completer is the state of completeLoop.
type completer struct {
	dirty   []*segment // written since their last sync
	written []*unit    // not synced
}

func (c *completer) complete(j *Journal, list []*unit) {
	if b := list[0].barrier; b != nil {
		c.drop(j)
		close(b)
		return
	}
	sync := false
	var err error
	for _, u := range list {
		if u.seg != nil && (len(c.dirty) == 0 || c.dirty[len(c.dirty)-1] != u.seg) {
			u.seg.pins.Add(1)
			c.dirty = append(c.dirty, u.seg)
		}
		sync = sync || u.sync
		err = errors.Join(err, u.failed)
	}
	if err == nil && j.isBroken() {
		err = errBroken
	}
	if sync && err == nil {
		err = c.sync(j)
	}
	if err != nil {
		j.breakDown(err)
		for _, u := range list {
			j.fail(u, err)
		}
		return
	}
	c.written = append(c.written, list...)
	if !sync {
		for _, u := range list {
			u.show()
		}
		return
	}
	c.completed(j)
}

// sync makes everything that was written durable.
func (c *completer) sync(j *Journal) error {
	for _, s := range c.dirty {
		f, err := j.files.handle(s)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return fmt.Errorf("sync segment %s: %w", s.name, err)
		}
	}
	c.clean()
	return nil
}

func (c *completer) clean() {
	for _, s := range c.dirty {
		s.pins.Add(-1)
	}
	c.dirty = c.dirty[:0]
}

// completed is called when all that was written is durable.
func (c *completer) completed(j *Journal) {
	last := c.written[len(c.written)-1]
	cm := Commit{Sync: time.Since(c.written[0].began)}
	for _, u := range c.written {
		u.show()
		for i := range u.touched {
			t := &u.touched[i]
			if t.ledger != nil {
				t.ledger.settle()
			}
			t.st.mu.Lock()
			t.st.sure = t.head
			t.st.mu.Unlock()
		}
		cm.Calls += len(u.ops)
		cm.Records += u.records
		cm.Bytes += int(u.size)
	}
	j.setDurable(position{n: last.n, seg: last.seg.number, off: last.end, crc: last.crc, first: last.first})
	j.stats.commits.Add(1)
	j.stats.syncNanos.Add(uint64(cm.Sync))
	if f := j.opts.OnCommit; f != nil {
		f(cm)
	}
	for _, u := range c.written {
		for _, o := range u.ops {
			o.finish(nil)
		}
		if u.sync {
			j.inFlight.Add(-1)
		}
		j.units.put(u)
	}
	c.written = c.written[:0]
	j.q.signal()
}

// drop forgets what was written and not synced: the log was broken.
func (c *completer) drop(j *Journal) {
	for _, u := range c.written {
		j.fail(u, errBroken)
	}
	c.written = nil
	c.clean()
}

// show makes the changes known to readers.
func (u *unit) show() {
	for i := range u.touched {
		t := &u.touched[i]
		if t.shown {
			continue
		}
		t.shown = true
		t.st.mu.Lock()
		t.showLocked(u)
		t.st.mu.Unlock()
		for _, o := range t.eager {
			o.finish(nil)
		}
	}
}

// showLocked puts the changes into what readers see. st.mu is held.
func (t *touch) showLocked(u *unit) {
	st := t.st
	if t.ledger == nil {
		t.ledger = ledger{}
	}
	h := t.head
	if h.uid == st.acked.uid && !h.dropped {
		h.low = max(h.low, st.acked.low) // raised by a discard that is in no batch yet
	}
	for i := range t.changes {
		t.changes[i].slot.off += u.off
		t.changes[i].part.off += u.off
		st.apply(&t.changes[i], u.seg, u.n, t.ledger)
	}
	st.acked, st.ackedAt = h, u.n
	st.unacked--
}

// apply makes a change that batch n has in a segment. acked is what it was before the batch.
func (st *stream) apply(c *change, seg *segment, n uint64, l ledger) {
	switch c.kind {
	case entRecord:
		if !c.moved {
			st.index.add(seg, &c.slot, st.acked.low, l)
		} else if from := st.index.move(seg, c.slot, st.acked.low, l); from != nil {
			from.moved(n)
		}
	case entPart:
		old, had := st.parts[c.name]
		if c.moved && (!had || old.op != c.part.op) {
			return // written anew, or deleted
		}
		if had {
			l.add(old.seg, -old.bytes())
		}
		if c.moved {
			old.seg.moved(n)
		}
		c.part.seg = seg
		st.parts[c.name] = c.part
		l.add(seg, c.part.bytes())
	case entDeleteParts:
		for _, name := range c.names {
			if old, had := st.parts[name]; had {
				l.add(old.seg, -old.bytes())
				delete(st.parts, name)
			}
		}
	case entDrop:
		st.index.clear(st.acked.low, l)
		for _, old := range st.parts {
			l.add(old.seg, -old.bytes())
		}
		clear(st.parts)
	}
}

// fail ends the changes of a batch whose fate is unknown.
func (j *Journal) fail(u *unit, err error) {
	for i := range u.touched {
		t := &u.touched[i]
		t.st.mu.Lock()
		if t.st.discards.ranges = append(slices.Clone(t.ranges), t.st.discards.ranges...); len(t.st.discards.ranges) > 0 {
			j.q.discard(t.st, false)
		}
		t.st.discards.low = max(t.st.discards.low, t.low)
		t.st.mu.Unlock()
		if !t.shown {
			for _, o := range t.eager {
				j.failOp(o, err)
			}
		}
	}
	for _, o := range u.ops {
		j.failOp(o, err)
	}
	if u.sync {
		j.inFlight.Add(-1)
	}
	j.q.signal()
}

func (j *Journal) failOp(o *op, err error) {
	if o.kind == opAppend {
		o.h.st.mu.Lock()
		o.h.last = nil
		o.h.st.mu.Unlock()
		j.limboMu.Lock()
		j.limbo = append(j.limbo, limbo{o.h, o.rec.Header})
		j.limboMu.Unlock()
	}
	o.finish(fmt.Errorf("%w: %w", journal.ErrUnknown, err))
}
