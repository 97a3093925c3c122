package segment

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// op is a change that waits to be committed.
type op struct {
	kind  opKind
	h     *hold
	after uint64
	rec   *journal.Record
	name  string
	data  []byte
	names []string
	from  *journal.Info // of an import
	move  *move
	done  chan error  // gets the outcome, once
	told  func(error) // instead, if it is set
}

// finish tells the outcome.
func (o *op) finish(err error) {
	if o.told == nil {
		o.done <- err
	} else if o.h.j.started.take(o) {
		o.told(err)
	}
}

// startedOps are the appends whose callers do not wait but are told. Close needs them when the disk hangs: whoever hears of an op then has
// no goroutine that a context could end.
type startedOps struct {
	mu  sync.Mutex
	ops map[*op]struct{}
}

func (s *startedOps) add(o *op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ops == nil {
		s.ops = map[*op]struct{}{}
	}
	s.ops[o] = struct{}{}
}

// take tells whether the outcome of an op is still to be told, which is then the caller's to do.
func (s *startedOps) take(o *op) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ops[o]
	delete(s.ops, o)
	return ok
}

// abandon tells of all that are left that nobody knows what became of them.
func (s *startedOps) abandon(err error) {
	s.mu.Lock()
	ops := s.ops
	s.ops = nil
	s.mu.Unlock()
	for o := range ops {
		o.told(fmt.Errorf("%w: %w", journal.ErrUnknown, err))
	}
}

type opKind int

const (
	opAppend opKind = iota
	opAcquire
	opImport
	opWritePart
	opDeleteParts
	opDrop
	opMove // of what is alive in a segment
	opSync // makes what was only buffered durable
)

func (k opKind) String() string {
	return [...]string{"append", "acquire", "import", "write part", "delete parts", "drop", "move", "sync"}[k]
}

// size is about what the op adds to a batch.
func (o *op) size() int {
	n := 256 + len(o.data)
	if o.rec != nil {
		n += o.rec.Size()
	}
	if o.move != nil {
		n += o.move.size
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
	if hook != nil && o.h != nil {
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
		if hook != nil && err == nil && o.h != nil {
			if err := hook(ctx, o.kind.String(), name, true); err != nil {
				return fmt.Errorf("%w: no answer: %w", journal.ErrUnknown, err)
			}
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", journal.ErrUnknown, ctx.Err())
	}
}

// opQueue is what waits for the committer. It is bounded by its callers: an owner has one append under way, and discards are handed
// over early when there are many.
type opQueue struct {
	mu     sync.Mutex
	ops    []*op
	bytes  int                  // of ops
	eager  int                  // ops that wait for no sync
	due    map[*stream]struct{} // have discards
	now    bool                 // discards are not to wait for an op
	closed bool
	wake   chan struct{}
}

func (q *opQueue) init() {
	q.due = map[*stream]struct{}{}
	q.wake = make(chan struct{}, 1)
}

func (q *opQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *opQueue) put(o *op) bool {
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
func (q *opQueue) discard(st *stream, now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due[st] = struct{}{}
	if now {
		q.now = true
		q.signal()
	}
}

// flush makes waiting discards not wait any longer.
func (q *opQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) > 0 {
		q.now = true
		q.signal()
	}
}

func (q *opQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// drained tells whether the queue was closed and is empty.
func (q *opQueue) drained() bool {
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

const (
	// batchBytes is how large a batch becomes before the rest waits for the next.
	batchBytes = 4 << 20
	// maxInFlight is how many batches wait for a sync at once.
	maxInFlight = 2
)

// leastBytes is how much has to wait for a batch to be formed while so many before it are not durable. With a little, nothing is
// gained: the next sync is the same, and what waits grows into one batch.
var leastBytes = [maxInFlight + 1]int{0, 64 << 10, math.MaxInt}

// take returns what is to be committed next. more is false if that is nothing, or less than least bytes.
func (q *opQueue) take(least, most int) (ops []*op, due map[*stream]struct{}, more bool) {
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
	if len(q.due) > 0 {
		due, q.due = q.due, map[*stream]struct{}{}
	}
	q.now = false
	return ops, due, true
}
