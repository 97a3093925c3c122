package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// Journal is an open store: a journal.Journal and a journal.Importer. One process has a store open at a time.
type Journal struct {
	opts  Options
	fs    vfs.FS
	dir   string
	log   *slog.Logger
	lock  io.Closer
	space space
	files *files

	// refusal is why all changes are refused for good: nil, ErrReadOnly or a *LossError.
	refusal atomic.Pointer[error]

	mu      sync.RWMutex
	streams map[string]*stream
	byNo    map[uint32]*stream
	nextNo  uint32

	q        opQueue
	started  startedOps
	patience time.Duration // closePatience, but for tests
	inFlight atomic.Int32  // batches whose sync is awaited
	units    unitQueue
	durable  atomic.Uint64 // the last batch that is on stable storage
	unsaved  atomic.Uint64 // the last batch that nobody waits for
	current  atomic.Pointer[segment]
	switched atomic.Int64            // when current was set, in Unix nanoseconds
	uncache  atomic.Pointer[segment] // was filled fast; see dropCached

	posMu sync.Mutex
	pos0  position // behind the last durable batch

	// Of the committer:
	last       uint64 // batch
	active     *segment
	pos        int64 // in active
	firstBatch uint64
	prevCRC    uint32
	unsynced   int64
	scratch    scratch

	brokenMu sync.Mutex
	broken   chan struct{} // closed when a write has failed; another one after reopening
	why      error
	life     atomic.Uint64 // counts reopenings

	limboMu sync.Mutex
	limbo   []limbo

	maintaining sync.Mutex
	wanted      atomic.Bool // a checkpoint, to make room
	ck          struct {    // under maintaining
		gen  uint64
		pos  position
		size int
		// stale are the files of it that are not as this says: older, damaged, or torn by a power cut. The other one is, and both are written
		// anew soon.
		stale [2]bool
	}
	markMu sync.Mutex
	marked mark // the last one written
	kept   map[uint32]markedStream

	kick     chan struct{}
	prepare  chan struct{}
	kickMove chan struct{}

	closing   chan struct{}
	cancel    context.CancelFunc // of what its own goroutines do
	closeOnce sync.Once
	closeErr  error
	loops     sync.WaitGroup // of committer and completer
	helpers   sync.WaitGroup // that wait for those

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
		return &LossError{What: loss.What, Missing: loss.Missing, Whole: true}
	}
	for _, st := range j.allStreams() {
		st.mu.Lock()
		d := st.damage
		st.mu.Unlock()
		if d == nil {
			continue
		}
		if loss == nil {
			loss = &LossError{What: d.What}
		}
		loss.Missing = append(loss.Missing, d.Missing...)
	}
	if loss != nil {
		slices.SortFunc(loss.Missing, func(a, b Missing) int { return strings.Compare(a.Stream, b.Stream) })
	}
	return loss
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

func (j *Journal) setRefusal(err error) { j.refusal.Store(&err) }

func (j *Journal) durablePos() position {
	j.posMu.Lock()
	defer j.posMu.Unlock()
	return j.pos0
}

func (j *Journal) setDurable(p position) {
	j.posMu.Lock()
	j.pos0 = p
	j.posMu.Unlock()
	j.durable.Store(p.n)
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
		j.streams[name], j.byNo[st.no] = st, st
	}
	return st
}

func (j *Journal) allStreams() []*stream {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return slices.Collect(maps.Values(j.streams))
}

// Acquire makes the caller the stream's owner. Its epoch is on stable storage before Acquire returns; no record is written for it.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	h, err := j.hold(ctx, name, &op{kind: opAcquire})
	if err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, err)
	}
	return h, nil
}

// Import makes the caller the owner of a stream's copy.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	h, err := j.hold(ctx, name, &op{kind: opImport, from: &from})
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	h.importing = true
	return h, nil
}

func (j *Journal) hold(ctx context.Context, name string, o *op) (*hold, error) {
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	if err := j.refuse(); err != nil {
		return nil, err
	}
	h := &hold{reader: reader{j: j, name: name}, st: j.lookupOrMake(name)}
	o.h = h
	if err := j.do(ctx, o); err != nil {
		return nil, err
	}
	return h, nil
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
		slices.SortFunc(all, func(a, b *stream) int { return strings.Compare(a.name, b.name) })
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

// closePatience is how long Close waits for readers that do not end, and for a disk that does not answer.
const closePatience = 10 * time.Second

// Close stores what callers wait for, writes a checkpoint and the mark, and gives the directory back. Iterations that are under way end with
// ErrClosed at their next step. A store that is not done after 10 s is left to the end of the process, with the lock; what waits for it is told that
// its outcome is unknown.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		if j.cancel != nil {
			j.cancel()
		}
		j.q.close()
		close(j.closing)
		done := make(chan error, 1)
		go func() { done <- j.shutdown() }()
		t := time.NewTimer(j.patience)
		defer t.Stop()
		select {
		case j.closeErr = <-done:
		case <-t.C:
			j.closeErr = fmt.Errorf("close %s: not done after %v", j.dir, j.patience)
			j.started.abandon(j.closeErr)
		}
	})
	return j.closeErr
}

func (j *Journal) shutdown() error {
	j.helpers.Wait()
	j.loops.Wait()
	var err error
	if j.refuse() == nil && !j.isBroken() {
		err = j.syncActive()
		if err == nil && j.ck.pos != j.durablePos() {
			err = j.saveCheckpoint(context.Background())
		}
		if err == nil {
			err = j.saveMark(true)
		}
	}
	j.files.closeAll()
	if err != nil {
		err = fmt.Errorf("close %s: %w", j.dir, err)
	}
	if !j.opts.ReadOnly {
		_ = j.fs.Remove(filepath.Join(j.dir, ownerName)) // it only serves a message
	}
	return errors.Join(err, j.lock.Close())
}

// syncActive makes what was only buffered durable. The loops have ended.
func (j *Journal) syncActive() error {
	if j.last == j.durable.Load() {
		return nil
	}
	f, err := j.files.handle(j.active)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("sync segment %s: %w", j.active.name, err)
	}
	for _, st := range j.allStreams() {
		st.mu.Lock()
		st.sure = st.next
		st.mu.Unlock()
	}
	j.setDurable(position{n: j.last, seg: j.active.number, off: j.pos, crc: j.prevCRC, first: j.firstBatch})
	return nil
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
