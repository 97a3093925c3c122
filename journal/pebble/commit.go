package pebble

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// op is a change of a stream that waits to be committed.
type op struct {
	kind  opKind
	h     *hold
	after uint64
	rec   *journal.Record
	name  string
	data  []byte
	names []string
	from  journal.Info // of an import
	done  chan error   // gets the outcome, once
}

type opKind int

const (
	opAppend opKind = iota
	opAcquire
	opImport
	opWritePart
	opDeleteParts
	opDrop
	opSync // makes what was only buffered durable
)

func (k opKind) String() string {
	return [...]string{"append", "acquire", "import", "write part", "delete parts", "drop", "sync"}[k]
}

// size is about what the op adds to a batch.
func (o *op) size() int {
	n := 256 + len(o.data)
	if o.rec != nil {
		n += o.rec.Size() + journal.HeaderSize
	}
	return n
}

// eager tells that the op waits for no sync.
func (o *op) eager() bool { return o.kind == opAppend && o.rec.Buffered }

// do hands a change to the committer and waits for its outcome.
func (j *Journal) do(ctx context.Context, o *op) error {
	name := ""
	if o.h != nil {
		name = o.h.name
	}
	hook := j.opts.hook
	if hook != nil {
		if err := hook(ctx, o.kind.String(), name, false); err != nil {
			return fmt.Errorf("%w: not sent: %w", journal.ErrUnknown, err)
		}
	}
	o.done = make(chan error, 1)
	if !j.q.put(o) {
		return journal.ErrClosed
	}
	select {
	case err := <-o.done:
		if hook != nil && err == nil {
			if err := hook(ctx, o.kind.String(), name, true); err != nil {
				return fmt.Errorf("%w: no answer: %w", journal.ErrUnknown, err)
			}
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err())
	}
}

// queue is what waits for the committer. It is bounded by its callers: an owner has one append under way,
// and discards are handed over early when there are many.
type queue struct {
	mu     sync.Mutex
	ops    []*op
	bytes  int                  // of ops
	eager  int                  // ops that wait for no sync
	due    map[*stream]struct{} // have discards
	now    bool                 // discards are not to wait for an op
	closed bool
	wake   chan struct{}
}

func (q *queue) init() {
	q.due = map[*stream]struct{}{}
	q.wake = make(chan struct{}, 1)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) put(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.ops = append(q.ops, o)
	q.bytes += o.size()
	if o.eager() {
		q.eager++
	}
	q.signal()
	return true
}

// discard notes that a stream has discards; with now they do not wait for an op.
func (q *queue) discard(st *stream, now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due[st] = struct{}{}
	if now {
		q.now = true
		q.signal()
	}
}

// flush makes waiting discards not wait any longer.
func (q *queue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) > 0 {
		q.now = true
		q.signal()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// batchBytes is how large a batch becomes before the rest waits for the next.
const batchBytes = 4 << 20

// maxInFlight is how many batches are on their way to stable storage at once.
const maxInFlight = 2

// leastBytes is how much has to wait for a batch to be formed while so many before it are not durable. With a
// little, nothing is gained: the next sync is the same, and what waits grows into one batch.
var leastBytes = [maxInFlight + 1]int{0, 64 << 10, math.MaxInt}

// take returns what is to be committed next. more is false if that is nothing, or less than least bytes.
func (q *queue) take(least, most int) (ops []*op, due map[*stream]struct{}, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ops) == 0 && !q.now || q.bytes < least && q.eager == 0 {
		return nil, nil, false
	}
	n, size := 0, 0
	for n < len(q.ops) && (n == 0 || size+q.ops[n].size() <= most) {
		size += q.ops[n].size()
		if q.ops[n].eager() {
			q.eager--
		}
		n++
	}
	q.bytes -= size
	ops, q.ops = q.ops[:n:n], q.ops[n:]
	if len(q.ops) == 0 {
		q.ops = nil
	}
	due, q.due, q.now = q.due, map[*stream]struct{}{}, false
	return ops, due, true
}

// unit is a batch on its way to stable storage.
type unit struct {
	n        uint64
	id       uint64 // another for each attempt, where n is used again if a batch comes to nothing
	e        *engine
	b        *pebble.Batch
	sync     bool
	ops      []*op // done once durable
	buffered []*op // done once applied
	dirty    []*stream
	heads    []head // of dirty, as the batch has them
	discards []stagedDiscards
	records  int
	failed   error
	began    time.Time

	barrier chan struct{} // not a batch: closed when everything before was dealt with
}

// touch makes the stream's head part of the batch.
func (u *unit) touch(st *stream) {
	if st.dirty != u.id {
		st.dirty = u.id
		u.dirty = append(u.dirty, st)
	}
}

// commitLoop is the committer.
func (j *Journal) commitLoop() {
	defer j.loops.Done()
	defer close(j.units)
	for {
		e := j.engine()
		died := e.g.died
		if j.refuse() != nil {
			died = nil // nothing is to be done about it
		} else if e.standIn {
			j.q.signal()
		}
		select {
		case <-j.q.wake:
		case <-died:
		}
		for more := true; more; {
			if e := j.engine(); e.lost() && j.refuse() == nil && !j.reopen(e) {
				j.rejectWaiting(journal.ErrClosed)
				return
			}
			var ops []*op
			var due map[*stream]struct{}
			if ops, due, more = j.q.take(leastBytes[min(j.inFlight.Load(), maxInFlight)], batchBytes); more {
				j.commit(ops, due)
			}
		}
		if j.q.drained() {
			return
		}
	}
}

// drained tells whether the queue was closed and is empty.
func (q *queue) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed || len(q.ops) > 0 {
		return false
	}
	if len(q.due) > 0 {
		q.now = true
		q.signal()
	}
	return len(q.due) == 0
}

// commit forms a batch and hands it to the engine.
func (j *Journal) commit(ops []*op, due map[*stream]struct{}) {
	if err := j.refuse(); err != nil {
		for _, o := range ops {
			o.done <- err
		}
		return
	}
	size := 1 << 10
	for _, o := range ops {
		size += o.size()
	}
	e := j.engine()
	j.applied++
	j.unitID++
	u := &unit{n: j.applied, id: j.unitID, e: e, began: time.Now()}
	u.b = e.db.NewBatchWithSize(size, pebble.WithMaxRetainedSizeBytes(batchBytes))
	row := u.b.SetDeferred(len(commitKey), commitValueSize)
	copy(row.Key, commitKey)
	putCommit(row.Value, u.n, j.durable.Load())
	must(row.Finish())
	for st := range due {
		st.mu.Lock()
		st.stageDiscardsLocked(u, j.tombBytes())
		st.mu.Unlock()
	}
	for _, o := range ops {
		err := j.stage(u, o)
		switch {
		case errors.Is(err, errReopened):
			o.done <- fmt.Errorf("%w: %w", journal.ErrUnknown, err)
		case err != nil && !errors.Is(err, errStored):
			o.done <- err
		case o.eager():
			u.buffered = append(u.buffered, o)
		default:
			u.ops = append(u.ops, o)
			u.sync = true
		}
	}
	if u.b.Count() == 1 && len(u.ops)+len(u.buffered) == 0 {
		j.applied--
		must(u.b.Close())
		return
	}
	u.heads = make([]head, len(u.dirty))
	for i, st := range u.dirty {
		st.mu.Lock()
		u.heads[i] = st.next
		st.mu.Unlock()
		row := u.b.SetDeferred(5, headSize)
		copy(row.Key, prefixKey(kindHead, st.no))
		appendHead(row.Value[:0], &u.heads[i])
		must(row.Finish())
	}
	j.apply(u)
}

// must is for what fails only where this package is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// apply writes a batch to the log and memtable. The completer waits for the sync.
func (j *Journal) apply(u *unit) {
	j.space.wrote(u.b.Len())
	j.stats.bytes.Add(uint64(u.b.Len()))
	u.failed = func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("engine: %v", r)
			}
		}()
		if u.sync {
			return u.e.db.ApplyNoSyncWait(u.b, pebble.Sync)
		}
		return u.e.db.Apply(u.b, pebble.NoSync)
	}()
	if u.failed == nil {
		u.failed = u.e.g.alive()
	}
	if u.failed == nil {
		for _, d := range u.discards {
			d.applied()
		}
		j.stats.records.Add(uint64(u.records))
		for _, o := range u.buffered {
			if i := slices.Index(u.dirty, o.h.st); i >= 0 {
				o.h.st.ack(u.heads[i], u.n)
			}
			o.done <- nil
		}
	}
	switch {
	case u.sync:
		j.inFlight.Add(1)
		j.units <- u
	case u.failed != nil:
		j.fail(u, u.failed)
	default: // nobody waits for it, and it waits for no sync
		j.unsaved.Store(u.n)
		j.unsure.add(u)
		for i, st := range u.dirty {
			st.ack(u.heads[i], u.n)
		}
		must(u.b.Close())
	}
}
