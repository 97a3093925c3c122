package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
	"github.com/holdfastmq/holdfast/queue"
)

// Verification is what Verify has found of one stream.
type Verification struct {
	Info      journal.Info
	Parts     int    // pieces of snapshots, and others
	Snapshot  uint64 // seq of the snapshot that a recovery would begin with, 0 for none; of queues
	Records   uint64 // whose metas are kept
	Events    uint64 // in them; of queues
	Messages  uint64 // that are in the queue
	Bodies    uint64 // records whose bodies were read
	MetaBytes int64
	BodyBytes int64
	// Faults are what is damaged or missing; each names its place. There are at most MaxFaults.
	Faults []error
}

// MaxFaults bounds the faults of a stream that Verify tells.
const MaxFaults = 100

// QueueOf returns the name of the queue that a journal stream holds, and false if it holds something else.
func QueueOf(stream string) (name string, ok bool) { return strings.CutPrefix(stream, streamPrefix) }

// ReadEvents yields the events of a record of a queue's stream. See persistent.ReadEvents.
func ReadEvents(rec *journal.Record) iter.Seq2[persistent.StoredEvent[*queue.Event], error] {
	return persistent.ReadEvents(rec, codec{})
}

// verifier verifies one stream.
type verifier struct {
	r        journal.Reader
	stream   string
	v        Verification
	progress func(*Verification)
}

// Verify reads everything of a stream that is needed: all parts, all metas, and all bodies; of a queue, which is rebuilt for that in
// memory, the bodies of the messages that are in it must all be there. It changes nothing and needs no ownership. It returns an error
// only if it could not go on; damage is in Verification.Faults. progress, if not nil, is called now and then.
func Verify(ctx context.Context, j journal.Journal, stream string, progress func(*Verification)) (Verification, error) {
	r, err := j.Open(ctx, stream)
	if err != nil {
		return Verification{}, err
	}
	x := &verifier{r: r, stream: stream, progress: progress}
	if x.v.Info, err = r.Info(ctx); err != nil {
		return x.v, fmt.Errorf("verify stream %q: %w", stream, err)
	}
	if x.v.Info.Dropped {
		return x.v, nil
	}
	if err := x.parts(ctx); err != nil {
		return x.v, err
	}
	bodies, err := x.metas(ctx)
	if err != nil {
		return x.v, err
	}
	if _, ok := QueueOf(stream); ok {
		// What the metas say of a damaged stream is not to be relied on.
		if len(x.v.Faults) > 0 {
			return x.v, nil
		}
		if bodies, err = x.replay(ctx); err != nil {
			return x.v, err
		}
		return x.v, x.bodies(ctx, bodies, true)
	}
	return x.v, x.bodies(ctx, bodies, false)
}

// LiveRecords returns the first seqs, ascending, of the records of a queue's stream that hold bodies of its messages, also where their metas are discarded. It
// rebuilds the queue in memory; the stream may be in use, and what it returns is of one moment. Of a stream that holds no queue, or was dropped, it
// returns nil, and of a queue without messages an empty slice.
func LiveRecords(ctx context.Context, j journal.Journal, stream string) ([]uint64, error) {
	if _, ok := QueueOf(stream); !ok {
		return nil, nil
	}
	r, err := j.Open(ctx, stream)
	if err != nil {
		return nil, err
	}
	x := &verifier{r: r, stream: stream}
	if x.v.Info, err = r.Info(ctx); err != nil || x.v.Info.Dropped {
		return nil, err
	}
	records, err := x.replay(ctx)
	if err == nil && records == nil && len(x.v.Faults) > 0 {
		err = fmt.Errorf("rebuild the queue of stream %q: %w", stream, x.v.Faults[0])
	}
	return records, err
}

// fault notes damage, and passes on what is not.
func (x *verifier) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("verify stream %q: %w", x.stream, context.Cause(ctx))
	}
	if !errors.Is(err, journal.ErrCorrupt) {
		return fmt.Errorf("verify stream %q: %w", x.stream, err)
	}
	if len(x.v.Faults) < MaxFaults {
		x.v.Faults = append(x.v.Faults, err)
	}
	return nil
}

func (x *verifier) tell() {
	if x.progress != nil {
		x.progress(&x.v)
	}
}

// parts reads all parts.
func (x *verifier) parts(ctx context.Context) error {
	names, err := x.r.Parts(ctx, "")
	if err != nil {
		return x.fault(ctx, err)
	}
	for _, name := range names {
		if _, err := x.r.ReadPart(ctx, name); errors.Is(err, journal.ErrNotFound) {
			continue // it was replaced meanwhile
		} else if err != nil {
			if err := x.fault(ctx, fmt.Errorf("part %q: %w", name, err)); err != nil {
				return err
			}
		}
		x.v.Parts++
		x.tell()
	}
	return nil
}

// metas reads all metas, and returns the first seqs of the records with bodies. Behind damage it goes on at the next record.
func (x *verifier) metas(ctx context.Context) (bodies []uint64, err error) {
	from := x.v.Info.Low
	for len(x.v.Faults) < MaxFaults {
		var damage error
		for rec, err := range x.r.ReadMeta(ctx, from, math.MaxUint64) {
			if err != nil {
				damage = err
				break
			}
			from = rec.Last() + 1
			x.v.Records++
			x.v.MetaBytes += int64(rec.MetaLen)
			if rec.BodyLen > 0 {
				bodies = append(bodies, rec.First)
			}
			if x.v.Records%1024 == 0 {
				x.tell()
			}
		}
		if damage == nil {
			return bodies, nil
		}
		if err := x.fault(ctx, damage); err != nil {
			return nil, err
		}
		var at *journal.CorruptError
		if errors.As(damage, &at) {
			from = max(from, at.Seq)
		}
		from++
		if from > x.v.Info.End {
			return bodies, nil
		}
	}
	return bodies, nil
}

// maxReplays bounds how often a queue is rebuilt whose owner discards events while they are read.
const maxReplays = 20

// errDiscarded says that events which a snapshot does not have were discarded before they were read: there is a newer snapshot.
var errDiscarded = errors.New("the queue's owner discards faster than its events can be read; try again at a quieter time")

// replay rebuilds the queue, and returns the first seqs of the records that hold bodies of its messages. It begins again where the owner
// has replaced the snapshot meanwhile, and discarded what follows the old one: reading goes on behind that without a word, and messages would be missing.
func (x *verifier) replay(ctx context.Context) ([]uint64, error) {
	was := x.v
	for range maxReplays {
		records, err := x.replayOnce(ctx)
		if !errors.Is(err, errDiscarded) {
			return records, err
		}
		x.v = was
		if x.v.Info, err = x.r.Info(ctx); err != nil {
			return nil, fmt.Errorf("verify stream %q: %w", x.stream, err)
		}
	}
	return nil, fmt.Errorf("verify stream %q: %w", x.stream, errDiscarded)
}

func (x *verifier) replayOnce(ctx context.Context) ([]uint64, error) {
	var core *queue.Core
	loaded, err := journal.LoadSnapshot(ctx, x.r, func(_ journal.SnapshotID, chunks iter.Seq2[[]byte, error]) (err error) {
		core, err = queue.Restore(queue.Options{}, chunks)
		return err
	})
	for _, err := range loaded.Skipped {
		if len(x.v.Faults) < MaxFaults {
			x.v.Faults = append(x.v.Faults, err)
		}
	}
	if err != nil {
		return nil, x.fault(ctx, err)
	}
	x.v.Snapshot = loaded.ID.Seq
	first := loaded.ID.Seq + 1
	if loaded.ID == (journal.SnapshotID{}) {
		first = max(x.v.Info.Low, 1)
		if core, err = queue.New(queue.Options{}, first); err != nil {
			return nil, fmt.Errorf("verify stream %q: %w", x.stream, err)
		}
	}
	refused := map[uint64]*queue.Event{}
	next := first
	for rec, err := range x.r.ReadMeta(ctx, first, math.MaxUint64) {
		if err == nil && rec.First > next {
			return nil, errDiscarded
		}
		if err == nil {
			err = x.apply(core, rec, refused)
		}
		if err != nil {
			return nil, x.fault(ctx, err)
		}
		next = rec.Last() + 1
	}
	if next <= x.v.Info.End {
		return nil, errDiscarded
	}
	for seq, e := range refused {
		core.Undo(seq, e)
		core.Take()
	}
	stats := core.Stats(x.v.Info.EndTime)
	x.v.Messages = stats.Depth
	records := []uint64{}
	for _, l := range core.Locate(nil, queue.Span{Seq: 1, Count: core.NextSeq()}) {
		if n := len(records); n == 0 || records[n-1] != l.Record {
			records = append(records, l.Record)
		}
	}
	// Survivors that were stored anew lie out of order.
	slices.Sort(records)
	records = slices.Compact(records)
	return records, nil
}

// apply repeats a record, as a recovery does.
func (x *verifier) apply(core *queue.Core, rec *journal.Record, refused map[uint64]*queue.Event) error {
	corrupt := func(seq uint64, err error) error {
		if errors.Is(err, journal.ErrNewerFormat) {
			return err
		}
		return &journal.CorruptError{Stream: x.stream, Seq: seq, What: "events cannot be applied", Err: err}
	}
	if rec.Kind != journal.KindEvents {
		core.SkipTo(rec.Last() + 1)
	} else {
		for e, err := range ReadEvents(rec) {
			if err != nil {
				return corrupt(rec.First, err)
			}
			if err := core.Apply(e.Seq, e.Event); err != nil {
				return corrupt(e.Seq, err)
			}
			if e.Bodyless {
				refused[e.Seq] = e.Event
			}
			delete(refused, e.Undoes)
			x.v.Events++
		}
	}
	core.Stored(rec.First, rec.Last(), int(rec.BodyLen))
	core.Take()
	return nil
}

// bodiesAtOnce is how many records' bodies are read in one call.
const bodiesAtOnce = 64

// bodies reads bodies; all tells that each must be there.
func (x *verifier) bodies(ctx context.Context, records []uint64, all bool) error {
	for len(records) > 0 && len(x.v.Faults) < MaxFaults {
		part := records[:min(bodiesAtOnce, len(records))]
		read := 0 // of part, how many are dealt with
		var damage error
		for rec, err := range x.r.ReadBodies(ctx, part) {
			if err != nil {
				damage = err
				break
			}
			for ; part[read] != rec.First; read++ {
				x.missing(part[read], all)
			}
			read++
			x.v.Bodies++
			x.v.BodyBytes += int64(rec.BodyLen)
		}
		if damage == nil {
			for ; read < len(part); read++ {
				x.missing(part[read], all)
			}
			records = records[len(part):]
			x.tell()
			continue
		}
		if err := x.fault(ctx, damage); err != nil {
			return err
		}
		var at *journal.CorruptError
		for errors.As(damage, &at) && read < len(part) && part[read] < at.Seq {
			read++
		}
		records = records[min(read+1, len(part)):]
	}
	return nil
}

func (x *verifier) missing(seq uint64, all bool) {
	if all && len(x.v.Faults) < MaxFaults {
		x.v.Faults = append(x.v.Faults, &journal.CorruptError{Stream: x.stream, Seq: seq, What: "the body of the record is missing, and messages of it are in the queue"})
	}
}
