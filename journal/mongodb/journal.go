package mongodb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfastmq/holdfast/journal"
)

// Journal is a journal in one database: a journal.Journal, journal.Importer and journal.Coordinator.
type Journal struct {
	client  *mongo.Client
	opts    Options
	limits  journal.Limits
	timeout time.Duration
	set     bool   // a replica set: reads have to be confirmed
	self    string // names the handle in the collection confirm

	// What is written, and read if it may lag behind; and, in a replica set, read linearizably.
	records, control, parts, members, confirms *mongo.Collection
	linRecords, linControl                     *mongo.Collection

	mu      sync.Mutex
	closed  bool
	calls   map[*context.CancelCauseFunc]struct{}
	running sync.WaitGroup // cleaners
}

var (
	_ journal.Journal     = (*Journal)(nil)
	_ journal.Importer    = (*Journal)(nil)
	_ journal.Coordinator = (*Journal)(nil)
)

// begin makes a call known, so that Close ends it. Its context ends with ctx and with the journal; end is to be called with the
// call's error, and returns the one for the caller.
func (j *Journal) begin(ctx context.Context) (_ context.Context, end func(error) error, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	cctx, cancel := context.WithCancelCause(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		cancel(nil)
		return nil, nil, journal.ErrClosed
	}
	j.calls[&cancel] = struct{}{}
	return cctx, func(err error) error {
		if err != nil && errors.Is(context.Cause(cctx), journal.ErrClosed) {
			err = fmt.Errorf("%w during the call: %s", journal.ErrClosed, err.Error())
		} else if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
		}
		j.mu.Lock()
		delete(j.calls, &cancel)
		j.mu.Unlock()
		cancel(nil)
		return err
	}, nil
}

// call is begin and end around f.
func (j *Journal) call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end, err := j.begin(ctx)
	if err != nil {
		return err
	}
	return end(f(ctx))
}

// Close ends all use of the handle.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	for cancel := range j.calls {
		(*cancel)(journal.ErrClosed)
	}
	j.mu.Unlock()
	j.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = j.client.Disconnect(ctx) // what does not end in time ends with its own
	return nil
}

// Limits returns what fits into one document.
func (j *Journal) Limits() journal.Limits { return j.limits }

// pause waits for d, and tells whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hooked calls f, which writes, with the hook around it, and with the timeout of one request.
func (j *Journal) hooked(ctx context.Context, op, stream string, f func(ctx context.Context) error) error {
	return j.hookedFor(ctx, 0, op, stream, f)
}

// hookedFor is hooked with more patience.
func (j *Journal) hookedFor(ctx context.Context, patience time.Duration, op, stream string, f func(ctx context.Context) error) error {
	if j.opts.hook != nil {
		if err := j.opts.hook(ctx, op, stream, false); err != nil {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
	tctx, cancel := context.WithTimeout(ctx, j.timeout+patience)
	err := classify(f(tctx))
	cancel()
	if j.opts.hook != nil {
		if err := j.opts.hook(ctx, op, stream, true); err != nil {
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
	return err
}

// insert inserts a document. errTaken: there is one of its _id. A large one may take a second longer for each MiB.
func (j *Journal) insert(ctx context.Context, op, stream string, c *mongo.Collection, doc any) error {
	patience := time.Duration(0)
	switch d := doc.(type) {
	case *recordDoc:
		patience = time.Duration(len(d.Body)+len(d.Meta)) * time.Second >> 20
	case *partDoc:
		patience = time.Duration(len(d.Data)) * time.Second >> 20
	}
	return j.hookedFor(ctx, patience, op, stream, func(ctx context.Context) error {
		_, err := c.InsertOne(ctx, doc)
		return err
	})
}

// confirm makes sure that what this process has seen in the store is held by a majority, in its journal: a later write is acknowledged only
// with all before it.
func (j *Journal) confirm(ctx context.Context) error {
	tctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	_, err := j.confirms.ReplaceOne(tctx, bson.D{{Key: "_id", Value: j.self}}, bson.D{{Key: "_id", Value: j.self}, {Key: "at", Value: time.Now()}},
		options.Replace().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("confirm: %w", classify(err))
	}
	return nil
}

// read calls f, which only reads, again if it fails for reasons that pass.
func (j *Journal) read(ctx context.Context, f func(ctx context.Context) error) error {
	var err error
	for n := range 3 {
		if n > 0 && !pause(ctx, 50*time.Millisecond) {
			break
		}
		tctx, cancel := context.WithTimeout(ctx, j.timeout)
		err = f(tctx)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, mongo.ErrNoDocuments) {
			break
		}
		if err = classify(err); !errors.Is(err, errNoAnswer) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
	return err
}

// findOne reads one document into doc, and tells whether there is one.
func (j *Journal) findOne(ctx context.Context, c *mongo.Collection, filter bson.D, doc any, opts ...options.Lister[options.FindOneOptions]) (bool, error) {
	err := j.read(ctx, func(ctx context.Context) error { return c.FindOne(ctx, filter, opts...).Decode(doc) })
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, err
}

// head is what is known of a stream at one moment. A stream that never was has no ctl.
type head struct {
	ctl *control
	v   int64 // the number of the control document
	tip tip
	uid journal.UID
	low uint64 // Info.Low
	// broken says that the last record cannot be read; tip has its number alone.
	broken error
}

// info returns what the contract calls it.
func (h *head) info(name string) journal.Info {
	if h.ctl == nil {
		return journal.Info{Name: name, Low: 1}
	}
	return journal.Info{
		Name: name, UID: h.uid, Epoch: uint64(h.ctl.Epoch), Dropped: h.ctl.Dropped,
		End: h.tip.end, EndCRC: h.tip.crc, EndTime: h.tip.time, Low: h.low,
	}
}

// lastOf is the document of the highest number of a lane.
func lastOf() *options.FindOneOptionsBuilder {
	return options.FindOne().SetSort(bson.D{{Key: "_id", Value: -1}})
}

// noParts leaves meta and body out of a recordDoc.
var noParts = bson.D{{Key: "m", Value: 0}, {Key: "b", Value: 0}}

// head reads a stream's state; linear: as it is after the call began.
func (j *Journal) head(ctx context.Context, name string, linear bool) (*head, error) {
	controls, records := j.control, j.records
	if linear {
		controls, records = j.linControl, j.linRecords
	}
	var c controlDoc
	var r recordDoc
	hasC, err := j.findOne(ctx, controls, bson.D{{Key: "_id", Value: lane(name)}}, &c, lastOf())
	if err != nil {
		return nil, err
	}
	hasR, err := j.findOne(ctx, records, bson.D{{Key: "_id", Value: lane(name)}}, &r, lastOf().SetProjection(noParts))
	if err != nil {
		return nil, err
	}
	h := &head{}
	if hasR {
		if h.tip, err = parseTip(&r); err != nil {
			h.tip, h.broken = tip{pos: r.Pos, owner: uint64(r.Owner)}, fmt.Errorf("last record: %w", err)
			if !errors.Is(err, journal.ErrNewerFormat) {
				h.broken = &journal.CorruptError{Stream: name, What: "its last record", Err: err}
			}
		}
	}
	if !hasC {
		if h.tip.rec != nil {
			return nil, &journal.CorruptError{Stream: name, What: "its control state is missing"}
		}
		return h, nil
	}
	if c.State.Version > schemaVersion {
		return nil, fmt.Errorf("control state of stream %q has version %d, this binary reads up to %d: %w", name, c.State.Version, schemaVersion, journal.ErrNewerFormat)
	}
	if h.uid, err = journal.ParseUID(c.State.UID); err != nil {
		return nil, &journal.CorruptError{Stream: name, What: "control state", Err: err}
	}
	if h.tip.end < uint64(c.State.End) && h.broken == nil {
		return nil, &journal.CorruptError{Stream: name, Seq: h.tip.end + 1, What: fmt.Sprintf("it ends at seq %d, and ended at %d before", h.tip.end, c.State.End)}
	}
	h.ctl, h.v, h.low = &c.State, c.V, uint64(c.State.Low)
	if h.broken == nil && (h.low > h.tip.end || c.State.Dropped) {
		h.low = h.tip.end + 1
	}
	return h, nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := j.call(ctx, func(context.Context) error { return nil }); err != nil {
		return nil, fmt.Errorf("open stream %q: %w", name, err)
	}
	return &reader{j: j, name: name}, nil
}

// Streams lists the streams by name.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return func(yield func(journal.Info, error) bool) {
		var infos []journal.Info
		err := j.call(ctx, func(ctx context.Context) error {
			var first []struct { // control documents of number 1, which Acquire or Import has written and nothing removes
				Stream string `bson:"s"`
			}
			err := j.read(ctx, func(ctx context.Context) error {
				cur, err := j.control.Find(ctx, bson.D{{Key: "v", Value: int64(1)}}, options.Find().SetProjection(bson.D{{Key: "s", Value: 1}}))
				if err != nil {
					return err
				}
				return cur.All(ctx, &first)
			})
			if err != nil {
				return err
			}
			var names []string
			for _, d := range first {
				names = append(names, d.Stream)
			}
			slices.SortFunc(names, strings.Compare)
			for _, name := range names {
				h, err := j.head(ctx, name, false)
				if err == nil {
					err = h.broken
				}
				if err != nil {
					return fmt.Errorf("stream %q: %w", name, err)
				}
				infos = append(infos, h.info(name))
			}
			return nil
		})
		if err != nil {
			yield(journal.Info{}, fmt.Errorf("list streams: %w", err))
			return
		}
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}
