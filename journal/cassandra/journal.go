package cassandra

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is a handle to a keyspace: a journal.Journal, journal.Coordinator and journal.Importer.
type Journal struct {
	o       Options
	lim     journal.Limits
	session *gocql.Session
	watch   *watch

	closed atomic.Bool
	stop   context.CancelFunc
	done   sync.WaitGroup
}

var (
	_ journal.Journal     = (*Journal)(nil)
	_ journal.Coordinator = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
)

// setUpTimeout is the least time that a change of the tables is given: all nodes have to agree on it.
const setUpTimeout = 20 * time.Second

// slack is what a statement has besides the record.
const slack = 64 << 10

// Open opens a journal; see [Options]. It makes the tables where they are missing, and verifies version, replication,
// consistency, rights, and the commit log of each node. Errors say what to change; those about durability match
// journal.ErrWeak, and tables of a later version are journal.ErrNewerFormat and stay as they are. Whoever opened it closes it.
func Open(ctx context.Context, o Options) (*Journal, error) {
	fail := func(err error) (*Journal, error) { return nil, fmt.Errorf("open cassandra journal: %w", err) }
	if err := o.validate(); err != nil {
		return fail(err)
	}
	if err := prepare(ctx, &o); err != nil {
		return fail(err)
	}
	w := newWatch(&o)
	c := o.cluster(o.Timeout)
	c.Keyspace = o.Keyspace
	c.Metadata.HostListener.HostStateChangeListener, c.Metadata.HostListener.TopologyChangeListener = w, w
	s, err := dial(ctx, c)
	if err != nil {
		return fail(o.explain(err))
	}
	w.session = s
	j := &Journal{o: o, session: s, watch: w}
	if err := j.check(ctx); err != nil {
		s.Close()
		return fail(err)
	}
	watching, stop := context.WithCancel(context.Background())
	j.stop = stop
	j.done.Go(func() { w.run(watching) })
	return j, nil
}

// prepare makes and checks the tables, with a session of more patience.
func prepare(ctx context.Context, o *Options) error {
	session := func(o Options) (*gocql.Session, error) {
		s, err := dial(ctx, o.cluster(max(o.Timeout, setUpTimeout)))
		if err != nil && ctx.Err() == nil {
			err = o.explain(err)
		}
		return s, err
	}
	// Without a filter at first: it would leave nothing of a cluster whose datacenters have other names.
	everywhere := *o
	everywhere.Local, everywhere.Datacenter = false, ""
	s, err := session(everywhere)
	if err != nil {
		return err
	}
	defer func() { s.Close() }()
	if err := o.checkDatacenter(s); err != nil {
		return err
	}
	if o.Local {
		local, err := session(*o)
		if err != nil {
			return err
		}
		s.Close()
		s = local
	}
	return setUp(ctx, s, o)
}

// check verifies the nodes' settings and the right to write, and sets the limits.
func (j *Journal) check(ctx context.Context) error {
	f, err := j.watch.verify(ctx)
	if err != nil {
		return err
	}
	if away := append(f.down, f.silent...); len(away) > 0 {
		if f.answers == 0 {
			return fmt.Errorf("no node answers a query about its settings: %s", strings.Join(away, ", "))
		}
		j.o.Logger.Warn("cassandra journal: nodes do not answer; their settings are verified when they come up", "nodes", away)
	}
	limit := f.limit
	most := int(min(limit-slack, 1<<30))
	switch {
	case j.o.MaxRecordBytes > most:
		return fmt.Errorf("max-record is %d bytes, but the nodes take statements of %d bytes; lower it, or raise their commitlog_segment_size and native_transport_max_… settings", j.o.MaxRecordBytes, limit)
	case j.o.MaxPartBytes > most:
		return fmt.Errorf("max-part is %d bytes, but the nodes take statements of %d bytes", j.o.MaxPartBytes, limit)
	case j.o.MaxRecordBytes == 0:
		j.o.MaxRecordBytes = min(DefaultMaxRecordBytes, most)
	}
	j.lim = journal.Limits{MaxRecordBytes: j.o.MaxRecordBytes, MaxPartBytes: j.o.MaxPartBytes}
	if j.o.ReadOnly {
		return nil
	}
	// A change of nothing: it needs the right to change, and a majority that answers.
	if _, err := j.session.Query(cqlProbe).MapScanCASContext(ctx, map[string]any{}); err != nil {
		var few *gocql.RequestErrUnavailable
		if errors.As(err, &few) {
			return fmt.Errorf("%d replicas answer, %d are needed; start the nodes that are down: %w", few.Alive, few.Required, err)
		}
		return fmt.Errorf("change nothing, as a test: %w", j.o.rights(err))
	}
	return nil
}

// Limits returns what a record and a part may be.
func (j *Journal) Limits() journal.Limits { return j.lim }

// usable refuses a call on a closed journal or with an ended context.
func (j *Journal) usable(ctx context.Context) error {
	if j.closed.Load() {
		return journal.ErrClosed
	}
	return ctx.Err()
}

// writable is usable, and refuses changes that would not be durable.
func (j *Journal) writable(ctx context.Context) error {
	if err := j.usable(ctx); err != nil {
		return err
	}
	if j.o.ReadOnly {
		return ErrReadOnly
	}
	return j.watch.err()
}

// key is the name of a stream or member as it is stored; name turns it back.
func (j *Journal) key(name string) string { return j.o.prefix + name }

func (j *Journal) name(key string) string { return key[len(j.o.prefix):] }

// write makes one write, with the hook around it. Its error is an unknown outcome, unless it says otherwise.
func (j *Journal) write(ctx context.Context, op, stream string, f func() error) error {
	if j.o.hook != nil {
		if err := j.o.hook(ctx, op, stream, false); err != nil {
			return unknown(err)
		}
	}
	if err := f(); err != nil {
		return err
	}
	if j.o.hook != nil {
		if err := j.o.hook(ctx, op, stream, true); err != nil {
			return unknown(err)
		}
	}
	return nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.usable(ctx); err != nil {
		return nil, failed("open", name, err)
	}
	return &reader{j: j, name: name, key: j.key(name)}, nil
}

// Streams lists the streams.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		fail := func(err error) { yield(journal.Info{}, fmt.Errorf("list streams: %w", err)) }
		if err := j.usable(ctx); err != nil {
			fail(err)
			return
		}
		it := j.session.Query(cqlStreams).PageSize(500).IterContext(ctx)
		defer it.Close() //nolint:errcheck // looked at below, where it matters
		var key string
		for it.Scan(&key) {
			name, ours := strings.CutPrefix(key, j.o.prefix)
			if !ours {
				continue
			}
			r := reader{j: j, name: name, key: key}
			info, err := r.Info(ctx)
			if err != nil {
				fail(err)
				return
			}
			if info.Epoch > 0 && !yield(info, nil) {
				return
			}
		}
		if err := it.Close(); err != nil {
			fail(j.ended(ctx, j.o.rights(err)))
		}
	}
}

// Close ends all use of this handle.
func (j *Journal) Close() error {
	if j.closed.Swap(true) {
		return nil
	}
	j.stop()
	j.done.Wait()
	j.session.Close()
	return nil
}
