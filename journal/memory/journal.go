package memory

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is a handle to a [Store]: a journal.Journal.
type Journal struct {
	store  *Store
	closed atomic.Bool
}

var (
	_ journal.Journal  = (*Journal)(nil)
	_ journal.Importer = (*Journal)(nil)
)

// check refuses a call on a closed journal or with an ended context.
func (j *Journal) check(ctx context.Context) error {
	if j.closed.Load() {
		return journal.ErrClosed
	}
	return ctx.Err()
}

// Limits returns what the store's options say.
func (j *Journal) Limits() journal.Limits {
	return journal.Limits{MaxRecordBytes: j.store.opts.MaxRecordBytes, MaxPartBytes: j.store.opts.MaxPartBytes}
}

// Acquire makes the caller the stream's owner.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	if err := j.check(ctx); err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, err)
	}
	st := j.store.lookupOrMake(name)
	info := st.acquire(j.store.opts.EpochRecords)
	return &owner{reader: reader{j: j, name: name}, st: st, acquired: info}, nil
}

// Import makes the caller the owner of a stream's copy.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	if err := j.check(ctx); err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	st := j.store.lookupOrMake(name)
	info, err := st.imported(from)
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	return &owner{reader: reader{j: j, name: name}, st: st, acquired: info, importing: true}, nil
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
		for _, name := range j.store.names() {
			if err := j.check(ctx); err != nil {
				yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
				return
			}
			info := j.store.lookup(name).info()
			if info.Epoch == 0 {
				continue // being acquired for the first time
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Close ends all use of this handle. The store and its other handles stay as they are.
func (j *Journal) Close() error {
	j.closed.Store(true)
	j.store.mu.Lock()
	delete(j.store.handles, j)
	j.store.mu.Unlock()
	return nil
}
