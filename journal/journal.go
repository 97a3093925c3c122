package journal

import (
	"context"
	"iter"
)

// Limits are what a driver can store in one piece. They do not change while it is open.
type Limits struct {
	// MaxRecordBytes bounds Header.Size of a record; of an imported one whose body is missing, what there is of it.
	MaxRecordBytes int
	// MaxPartBytes bounds the data of a part.
	MaxPartBytes int
}

// Info is the state of a stream in the store.
type Info struct {
	Name string
	UID  UID
	// Epoch is the newest that was ever acquired, 0 for a stream that never was.
	Epoch uint64
	// End is the highest seq ever written under this name, 0 if none. It survives
	// discarding everything, and dropping.
	End uint64
	// EndCRC is the CRC of the record that ends at End, 0 if End is 0.
	EndCRC uint32
	// EndTime is the queue time of that record, in Unix milliseconds, 0 if End is 0.
	EndTime int64
	// Low is the lowest seq whose meta is kept: End+1 if none is.
	Low uint64
	// Dropped tells that the stream was dropped and not acquired since.
	Dropped bool
}

// Range is the seqs From…To, both included. A range with From > To is empty.
type Range struct{ From, To uint64 }

// Journal is a store of streams. All methods may be called concurrently.
//
// Every call takes a context and returns soon after it ends; a change that was under way
// is then [ErrUnknown] and may still take effect.
type Journal interface {
	// Limits returns what fits into one record and one part.
	Limits() Limits

	// Acquire makes the caller the owner of a stream, under a higher epoch than any
	// before; the stream comes into being if there is none, and comes back, with a new
	// uid, if it was dropped. It waits for nobody: the owner before it is fenced by it.
	//
	// When Acquire returns, no append of an older owner can any longer be stored, and
	// Info.End and Info.EndCRC of the returned Stream are final: what older owners were
	// acknowledged is at or before End. A driver may write one record of [KindEpoch] to
	// reach that; it is then the last record, and included in End.
	//
	// Names of streams, like those of parts, are of 1…200 bytes of printable ASCII; any
	// other is ErrInvalid. See [CheckName].
	Acquire(ctx context.Context, stream string) (Stream, error)

	// Open returns a reader that does not own the stream and changes nothing. Opening a
	// stream that does not exist is not an error: it reads as empty, with End 0.
	Open(ctx context.Context, stream string) (Reader, error)

	// Streams lists the streams in no special order, dropped ones included.
	Streams(ctx context.Context) iter.Seq2[Info, error]

	// Close ends all use of the journal; calls under way end with [ErrClosed] or their
	// result. It is idempotent, and does not fence: streams can be acquired again.
	Close() error
}

// Reader reads a stream. Reads are linearizable: they see every append that was
// acknowledged before they began, by whichever owner.
type Reader interface {
	// Info returns the stream's state, read from the store.
	Info(ctx context.Context) (Info, error)

	// ReadMeta yields the records that hold any seq in from…to, in order, without their
	// bodies (Body is nil; the header still tells its length and CRC). Discarded records are skipped:
	// reading begins at Info.Low if from is below it. from > to yields nothing, and so does
	// a stream that does not exist; to may be beyond the end, e.g. math.MaxUint64.
	//
	// The driver verifies headers, metas and the [Chain]; a record that is damaged, or missing
	// without having been discarded, ends the iteration with a [CorruptError]. It needs
	// constant memory. A yielded record and its slices are valid until the next step.
	ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*Record, error]

	// ReadBodies yields the records whose first seqs are given, in that order, with Body and
	// with or without Meta. One whose body was discarded, or that is not there, is skipped:
	// the caller knows what must be alive. Bodies are verified against the header.
	// The yielded record and its slices belong to the caller.
	ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*Record, error]

	// ReadPart returns a part's data, which belongs to the caller, or [ErrNotFound].
	ReadPart(ctx context.Context, name string) ([]byte, error)

	// Parts lists the names of the stream's parts that begin with prefix, ascending.
	Parts(ctx context.Context, prefix string) ([]string, error)
}

// Starter is a [Stream] that appends without a goroutine of the caller's that waits. It is for stores that are so fast that waking such a goroutine, and
// by it the one that asked for the append, costs more than the rest of it. Where it is not offered, or an answer has to be asked for again, Append
// does the same.
type Starter interface {
	// StartAppend begins what [Stream.Append] does, for which it counts as a call of that, and returns at once. done is called once, from any
	// goroutine and perhaps before StartAppend has returned, with what Append would return; it must return at once and not call the stream. No context ends the wait: a
	// store that hangs calls it when it goes on, or when it is closed. The record is the stream's until then.
	StartAppend(after uint64, rec *Record, done func(error))
}

// Stream is an owner's hold on a stream. Append is called by one goroutine at a time; all
// other methods may be called concurrently with it and with each other.
//
// No method keeps or changes a slice that it was given after it has returned, except that a
// call which ended with [ErrUnknown] may still read them: the caller leaves a record as it
// is until its outcome is settled.
type Stream interface {
	Reader

	// Acquired returns the stream's state as it was when Acquire returned: Epoch is the
	// owner's own. It makes no call to the store.
	Acquired() Info

	// Append stores one sealed record behind seq after, which must be the last one of the
	// stream: First is after+1, Epoch is the owner's, UID the stream's, PrevCRC the CRC of the record before.
	// The store checks the owner's epoch and the stream's end in the same atomic step.
	//
	// It returns nil once the record is on stable storage (see Record.Buffered for the
	// exception), and also if that identical record, of the same epoch and CRC, already
	// stands there: so repeating a call whose outcome was unknown is safe, any number of times.
	// [ErrFenced]: another owner has acquired the stream, and this record is not stored. If an
	// earlier try of the same record had been stored before the fence, the driver returns nil. It
	// never says ErrFenced or ErrConflict of a record that is stored.
	// [ErrConflict]: the stream does not end at after. [ErrFull], [ErrTooLarge], [ErrInvalid]:
	// not stored. [ErrUnknown]: no proof either way; repeat it. Any other error means unknown too.
	//
	// At most one append of a stream is under way at a time.
	Append(ctx context.Context, after uint64, rec *Record) error

	// DiscardBodies gives back the space of the bodies of all records that lie wholly inside
	// one of the ranges. Discarding what is discarded, or never was, is no error. Space comes back without further
	// calls, if not at once. It need not be durable on return: a discard that is lost
	// by a crash only costs space until it is repeated. A range may reach beyond the end; what
	// is appended later is not touched by it.
	DiscardBodies(ctx context.Context, ranges []Range) error

	// DiscardMeta gives back the metas of the records that end before seq low, and raises
	// Info.Low to the first record kept. Bodies are not touched: those of records below low
	// stay readable until they are discarded themselves. End, EndCRC and the epoch survive.
	DiscardMeta(ctx context.Context, low uint64) error

	// WritePart stores a small named blob, durable on return, replacing one of that name. Names
	// are of 1…200 bytes of printable ASCII.
	WritePart(ctx context.Context, name string, data []byte) error

	// DeleteParts deletes parts; one that is not there is no error.
	DeleteParts(ctx context.Context, names []string) error

	// Drop discards the whole stream, parts included. What survives is its name, epoch and
	// End, with EndCRC and EndTime: acquired again, it goes on from there under a new uid.
	// The hold ends with it: later calls return ErrClosed (or ErrFenced), except that Drop
	// may be repeated, to settle an unknown outcome, and then returns nil.
	Drop(ctx context.Context) error

	// Release ends the hold without a change to the stream. Calls after it return
	// ErrClosed. It is idempotent.
	Release() error
}
