package pebble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/holdfastmq/holdfast/journal"
)

// engine is one opened Pebble database. The journal replaces it when its gate was killed.
type engine struct {
	db       *pebble.DB
	g        *gate
	cache    *pebble.Cache
	readOnly bool
	standIn  bool // read-only only until the store can be opened for writing
	stalls   atomic.Uint64

	mu      sync.Mutex
	users   int // readers that may be using db
	closing bool
	idle    chan struct{} // closed once closing and without users
}

// engineFormat is the version of Pebble's own format. It is pinned, as wal.go relies on it.
const engineFormat = pebble.FormatValueSeparation

// openEngine opens the database. Errors that say that a file is damaged are journal.CorruptErrors.
func (j *Journal) openEngine(readOnly bool, view *logView) (*engine, error) {
	e := &engine{readOnly: readOnly, idle: make(chan struct{})}
	e.g = newGate(j.fs, j.space.noSpace, j.space.compactable, j.kickMark)
	e.g.readOnly, e.g.view, e.g.maxLog = readOnly, view, 2*int64(j.opts.MemTableBytes)
	e.cache = pebble.NewCache(int64(j.opts.CacheBytes))
	sched := newScheduler(e.g)
	o := j.engineOptions(e)
	o.Experimental.CompactionScheduler = sched
	db, err := openDB(j.dir, o)
	e.g.opening.Store(false)
	if dead := e.g.alive(); dead != nil {
		if db != nil {
			err = db.Close() // of which nothing reaches the disk
		}
		db, err = nil, errors.Join(dead, err)
	}
	if db == nil {
		// Whatever a failed Open has left behind, it changes nothing any more.
		e.g.kill(err)
		sched.Unregister()
		e.cache.Unref()
		return nil, openError(j.dir, err)
	}
	sched.start()
	e.db = db
	return e, nil
}

// openDB is pebble.Open, whose cleaning up after a failure may panic.
func openDB(dir string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("engine: %v", r)
		}
	}()
	return pebble.Open(dir, o)
}

func openError(dir string, err error) error {
	switch {
	case isNoSpace(err):
		return fmt.Errorf("open %s: %w: %w", dir, journal.ErrFull, oneLine(err))
	case isDamage(err), errors.Is(err, pebble.ErrDBDoesNotExist):
		return &journal.CorruptError{What: "engine files in " + dir, Err: oneLine(err)}
	}
	return fmt.Errorf("open %s: %w", dir, oneLine(err))
}

func (j *Journal) engineOptions(e *engine) *pebble.Options {
	m := int64(j.opts.MemTableBytes)
	o := &pebble.Options{
		FS:                 e.g,
		Logger:             engineLog{e.g, j.log},
		Cache:              e.cache,
		ReadOnly:           e.readOnly,
		ErrorIfNotExists:   e.readOnly || j.mustExist,
		FormatMajorVersion: engineFormat,

		MemTableSize: uint64(m),
		// Two memtables: one that fills and one that is flushed. The engine keeps one log more than that for
		// reuse.
		MemTableStopWritesThreshold: 2,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               4 * m,
		MaxOpenFiles:                500,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { j.backgroundError(e, err) },
			FlushEnd: func(i pebble.FlushInfo) {
				if isNoSpace(i.Err) && e.g.alive() == nil {
					j.space.noSpace()
				}
			},
			DataCorruption:  func(i pebble.DataCorruptionInfo) { j.backgroundError(e, i.Details) },
			WriteStallBegin: func(pebble.WriteStallBeginInfo) { e.stalls.Add(1) },
		},
	}
	o.Experimental.FileCacheShards = 2
	o.Experimental.ReadSamplingMultiplier = -1 // no compactions because of reads
	// Tables of a quarter of a memtable: the bodies of a stream fill whole ones, which range
	// tombstones then drop without reading them.
	size := max(m/4, 64<<10)
	for i := range o.Levels {
		o.TargetFileSizes[i] = min(size<<i, 2*m)
		o.Levels[i].BlockSize = int(min(max(m/256, 4<<10), 32<<10))
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	return o
}

// engineLog receives what the engine logs. Its Fatalf kills the gate and returns; see gate.
type engineLog struct {
	g   *gate
	log *slog.Logger
}

func (l engineLog) Infof(string, ...any) {}

func (l engineLog) Errorf(format string, args ...any) {
	if l.g.alive() == nil {
		l.log.Warn("journal engine: " + fmt.Sprintf(format, args...))
	}
}

func (l engineLog) Fatalf(format string, args ...any) {
	l.g.kill(fmt.Errorf(format, args...))
}

// backgroundError is told of failed flushes and compactions, and of damaged files.
func (j *Journal) backgroundError(e *engine, err error) {
	if err == nil || e.g.alive() != nil || errors.Is(err, pebble.ErrCancelledCompaction) {
		return
	}
	j.warn("journal engine: background work failed", "err", oneLine(err))
}

// lost tells that the engine can store nothing, and another one has to be opened.
func (e *engine) lost() bool { return e.standIn || e.g.alive() != nil }

// enter is called before db is used by a reader; where it returns false, the engine is being
// closed. leave is called after.
func (e *engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return false
	}
	e.users++
	return true
}

func (e *engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users == 0 && e.closing {
		close(e.idle)
	}
}

// close closes the database once its readers have left, or ctx ended.
func (e *engine) close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	if e.users == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	select {
	case <-e.idle:
	case <-ctx.Done():
		return fmt.Errorf("readers have not ended: %w", ctx.Err())
	}
	err := e.db.Close()
	e.cache.Unref()
	if e.g.alive() != nil {
		return nil //nolint:nilerr // what it says then is of no interest
	}
	return oneLine(err)
}

// liveTables returns the names of the table files in use.
func (e *engine) liveTables() ([]string, error) {
	levels, err := e.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", oneLine(err))
	}
	var names []string
	for _, level := range levels {
		for _, t := range level {
			names = append(names, fmt.Sprintf("%s.sst", t.BackingSSTNum))
		}
	}
	return names, nil
}

// checkTables applies check to all live tables and calls found for those that are damaged.
func (e *engine) checkTables(ctx context.Context, dir string, check func(*sstable.Reader) error, found func(name string, err error)) error {
	names, err := e.liveTables()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		cause := e.checkTable(ctx, e.g.PathJoin(dir, name), check)
		if cause == nil {
			continue
		}
		// A compaction may have removed it meanwhile.
		now, err := e.liveTables()
		if err != nil {
			return err
		}
		if slices.Contains(now, name) {
			found(name, oneLine(cause))
		}
	}
	return nil
}

// readLayout reads all that a table has beside its data blocks.
func readLayout(r *sstable.Reader) error {
	_, err := r.Layout()
	_, perr := r.ReadPropertiesBlock(context.Background(), nil)
	return errors.Join(err, perr)
}

// checkTable opens a table file and applies check to it.
func (e *engine) checkTable(ctx context.Context, path string, check func(*sstable.Reader) error) error {
	f, err := e.g.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	opts := &pebble.Options{}
	opts.EnsureDefaults()
	r, err := sstable.NewReader(ctx, readable, opts.MakeReaderOptions())
	if err != nil {
		return err // which has closed it
	}
	return errors.Join(check(r), r.Close())
}
