package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is an open store: a journal.Journal. One process has a store open at a time.
type Journal struct {
	opts  Options
	fs    vfs.FS
	dir   string
	log   *slog.Logger
	lock  io.Closer
	space space

	// mustExist keeps an engine from making a new database where there was one.
	mustExist bool
	// refusal is why changes are refused for good: nil, ErrReadOnly or a *LossError.
	refusal atomic.Pointer[error]

	mu      sync.RWMutex
	eng     *engine
	changed chan struct{} // closed when eng is replaced, or will never be
	streams map[string]*stream
	nextNo  uint32

	q        queue
	inFlight atomic.Int32 // batches whose sync is awaited, up to maxInFlight
	units    chan *unit
	durable  atomic.Uint64 // the last batch that is on stable storage
	applied  uint64        // the last batch; of the committer, as is unitID
	unitID   uint64
	unsaved  atomic.Uint64 // the last batch that was applied without a sync
	unsure   unsureHeads

	limboMu sync.Mutex
	limbo   []limbo

	marked   mark // the last one written; of maintain
	markKick chan struct{}

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	loops     sync.WaitGroup
	closers   sync.WaitGroup // of engines that were replaced

	stats   counters
	warning rateLimit
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.Importer = (*Journal)(nil)
)

// Limits returns what the options say.
func (j *Journal) Limits() journal.Limits {
	return journal.Limits{MaxRecordBytes: j.opts.MaxRecordBytes, MaxPartBytes: j.opts.MaxPartBytes}
}

// Loss returns what was found missing when the store was opened, or nil.
func (j *Journal) Loss() *LossError {
	var loss *LossError
	if p := j.refusal.Load(); p != nil && errors.As(*p, &loss) {
		return loss
	}
	return nil
}

// check refuses a call on a closed journal or with an ended context.
func (j *Journal) check(ctx context.Context) error {
	select {
	case <-j.closing:
		return journal.ErrClosed
	default:
		return ctx.Err()
	}
}

// refuse returns why changes are refused for good, or nil.
func (j *Journal) refuse() error {
	if p := j.refusal.Load(); p != nil {
		return *p
	}
	return nil
}

func (j *Journal) setRefusal(err error) {
	j.refusal.Store(&err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.engineChanged()
}

// engineChanged wakes who waits for another engine. j.mu is held.
func (j *Journal) engineChanged() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// reading runs f, which reads, again with the next engine whenever it lost its engine to an I/O error.
func (j *Journal) reading(ctx context.Context, f func() error) error {
	for {
		j.mu.RLock()
		old := j.eng
		j.mu.RUnlock()
		err := f()
		if !errors.Is(err, errReopened) {
			return err
		}
		for waiting := true; waiting; {
			j.mu.RLock()
			changed := j.changed
			waiting = j.eng == old
			j.mu.RUnlock()
			if refusal := j.refuse(); waiting && refusal != nil {
				return refusal
			}
			if waiting {
				select {
				case <-changed:
				case <-ctx.Done():
					return ctx.Err()
				case <-j.closing:
					return journal.ErrClosed
				}
			}
		}
	}
}

// use returns the engine for a reader, who calls leave on it when done.
func (j *Journal) use() (*engine, error) {
	for {
		j.mu.RLock()
		e := j.eng
		j.mu.RUnlock()
		if e.enter() {
			return e, nil
		}
		select {
		case <-j.closing:
			return nil, journal.ErrClosed
		default: // it was just replaced
		}
	}
}

func (j *Journal) engine() *engine {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.eng
}

func (j *Journal) lookup(name string) *stream {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.streams[name]
}

// lookupOrMake returns a stream; one that does not exist yet is not written before it is acquired.
func (j *Journal) lookupOrMake(name string) *stream {
	if st := j.lookup(name); st != nil {
		return st
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	st := j.streams[name]
	if st == nil {
		st = newStream(name, j.nextNo)
		j.nextNo++
		j.streams[name] = st
	}
	return st
}

func (j *Journal) allStreams() []*stream {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return slices.Collect(maps.Values(j.streams))
}

// Acquire makes the caller the stream's owner. Its epoch is on stable storage before Acquire
// returns; no record is written for it.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	h, err := j.own(ctx, name, &op{kind: opAcquire, h: &hold{}})
	if err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, err)
	}
	return h, nil
}

// Import makes the caller the owner of a copy. Like Acquire it writes no record.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	h, err := j.own(ctx, name, &op{kind: opImport, h: &hold{imports: true}, from: from})
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	return h, nil
}

// own makes the op's hold the owner of a stream.
func (j *Journal) own(ctx context.Context, name string, o *op) (*hold, error) {
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	if err := j.refuse(); err != nil {
		return nil, err
	}
	o.h.j, o.h.name, o.h.st = j, name, j.lookupOrMake(name)
	if err := j.do(ctx, o); err != nil {
		return nil, err
	}
	return o.h, nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.check(ctx); err != nil {
		return nil, fmt.Errorf("open stream %q: %w", name, err)
	}
	return &reader{j: j, name: name}, nil
}

// Streams lists the streams by name.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		all := j.allStreams()
		slices.SortFunc(all, func(a, b *stream) int {
			if a.name < b.name {
				return -1
			}
			return 1
		})
		for _, st := range all {
			if err := j.check(ctx); err != nil {
				yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
				return
			}
			info := st.info()
			if info.Epoch == 0 {
				continue // being acquired for the first time
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// closePatience is how long Close waits for readers that do not end, and for a disk that
// does not answer.
const closePatience = 10 * time.Second

// Close stores what callers wait for, writes the mark, closes the engine and gives the
// directory back. Iterations that are under way end with ErrClosed at their next step; an engine that is
// still in use after 10 s is left to the end of the process, with the lock.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		j.q.close()
		close(j.closing)
		done := make(chan error, 1)
		go func() { done <- j.shutdown() }()
		t := time.NewTimer(closePatience)
		defer t.Stop()
		select {
		case j.closeErr = <-done:
		case <-t.C:
			j.closeErr = fmt.Errorf("close %s: not done after %v", j.dir, closePatience)
		}
	})
	return j.closeErr
}

func (j *Journal) shutdown() error {
	j.loops.Wait()
	j.closers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closePatience/2)
	defer cancel()
	e := j.engine()
	err := e.close(ctx)
	if err == nil && j.refuse() == nil && !e.lost() {
		err = j.saveMark()
	}
	if err != nil {
		err = fmt.Errorf("close %s: %w", j.dir, err)
	}
	if ctx.Err() != nil {
		return err
	}
	if !j.opts.ReadOnly {
		_ = j.fs.Remove(j.fs.PathJoin(j.dir, ownerName)) // it only serves a message
	}
	return errors.Join(err, j.lock.Close())
}

// warn logs at most one line a second of its kind.
func (j *Journal) warn(msg string, args ...any) {
	if n := j.warning.take(msg); n > 0 {
		j.log.Warn(msg, append(args, "times", n)...)
	}
}

// rateLimit allows each message once a second.
type rateLimit struct {
	mu   sync.Mutex
	last map[string]time.Time
	held map[string]int
}

// take returns how often the message came since it was last allowed, or 0 if it is not now.
func (r *rateLimit) take(msg string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last, r.held = map[string]time.Time{}, map[string]int{}
	}
	r.held[msg]++
	if time.Since(r.last[msg]) < time.Second {
		return 0
	}
	n := r.held[msg]
	r.last[msg], r.held[msg] = time.Now(), 0
	return n
}
