package hbase

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is a journal in a table of an HBase.
type Journal struct {
	opts  Options
	table []byte
	log   *slog.Logger
	pool  *pool
	shut  func() // closes what is below the pool
}

var (
	_ journal.Journal     = (*Journal)(nil)
	_ journal.Coordinator = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
)

// Limits returns what the options say.
func (j *Journal) Limits() journal.Limits {
	return journal.Limits{MaxRecordBytes: j.opts.MaxRecordBytes, MaxPartBytes: j.opts.MaxRecordBytes}
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.pool.open(ctx); err != nil {
		return nil, fmt.Errorf("open stream %q: %w", name, err)
	}
	return &reader{chain: j.newChain(name)}, nil
}

// Streams lists the streams, from the last row of the table to the first.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		from := j.opts.prefix + afterBuckets // behind the hash of every name
		before := ""
		for {
			const most = 64
			rows, err := j.scan(ctx, from, j.opts.prefix, true, most, colHead)
			if err != nil {
				yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
				return
			}
			for i := range rows {
				// The first row of a stream, as seen from behind, has its state.
				name, ok := j.nameOf(rows[i].key)
				if !ok || name == before {
					continue
				}
				before = name
				from = j.streamRow(name)
				e, err := (&chain{j: j, name: name, base: from}).decode(&rows[i])
				if err != nil {
					yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
					return
				}
				if !yield(e.info(name), nil) {
					return
				}
			}
			if len(rows) < most {
				return
			}
		}
	}
}

// Close ends all use of the journal, and its connections.
func (j *Journal) Close() error {
	j.pool.close()
	if j.shut != nil {
		j.shut()
	}
	return nil
}
