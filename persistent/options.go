package persistent

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Never, in an option that says when to snapshot, switches that reason off.
const Never = math.MaxInt64

// The defaults of [Options].
const (
	DefaultMailbox         = 1024
	DefaultMaxBatchBytes   = 1<<20 - 64<<10
	DefaultMaxPendingBytes = 8 << 20
	DefaultAppendTimeout   = 10 * time.Second
	DefaultRetryFirst      = 20 * time.Millisecond
	DefaultRetryCap        = 2 * time.Second
	DefaultFullRetry       = time.Second
	DefaultSnapshotBytes   = 8 << 20
	DefaultSnapshotEvents  = 200_000
	DefaultSnapshotEvery   = 10 * time.Minute
)

// Options are what an actor is opened with. The zero value means the defaults; a negative number is an error,
// and all errors are reported together.
type Options struct {
	// Mailbox bounds the commands that wait by Tell: at most so many wait to be taken out, and at most as many
	// again have been taken out and not been begun. Commands given by Push are not counted. Default 1024.
	Mailbox int
	// MaxBatchBytes is the size at which a record is closed, in bytes of meta and body. A group of events
	// that is larger by itself still makes one record, within the journal's limit. Default 960 KiB, so
	// that such records can be copied into NATS, whose messages have at most 1 MiB unless that is raised.
	MaxBatchBytes int
	// MaxPendingBytes bounds what is decided and not stored, in bytes of meta and body: beyond it no
	// command is begun until something is stored. The last one begun may exceed it. Default 8 MiB.
	MaxPendingBytes int

	// AppendTimeout is how long one try of an append may take before it is repeated. Default 10 s.
	AppendTimeout time.Duration
	// RetryFirst and RetryCap are the waits between tries of an append whose outcome is unknown: each
	// is twice the one before it. Defaults 20 ms and 2 s.
	RetryFirst, RetryCap time.Duration
	// FullRetry is how long after a refusal for lack of room the store is asked again. Default 1 s.
	FullRetry time.Duration

	// SnapshotBytes, SnapshotEvents and SnapshotEvery say after how many bytes of meta, how many events
	// or how much time since the last snapshot another one is made, whichever comes first. Bytes also wait
	// until they are as many as the last snapshot took, so that large states do not mean writing all the time. Nothing
	// is saved while there are no new events. Never switches one off. Defaults 8 MiB, 200,000 and 10 min.
	SnapshotBytes  int64
	SnapshotEvents int64
	SnapshotEvery  time.Duration
	// NoFinalSnapshot leaves out the snapshot at Stop.
	NoFinalSnapshot bool

	// Pool, if not nil, has the actor's turns done by goroutines that it shares with others, instead of by one of its own. Its behavior must not wait.
	Pool *Pool

	// Preload reads the stream before it is acquired, so that an owner who is being replaced goes on until there is little left to
	// read,
	// and is not disturbed if the stream cannot be read at all. The behavior may have to restore more than once.
	Preload bool

	// Clock replaces time.Now. It may be called from any goroutine. Where its times have no monotonic reading, a step
	// back is ignored.
	Clock func() time.Time
	// Logger gets one line a recovery, and what goes wrong. Default slog.Default().
	Logger *slog.Logger
	// OnProgress is called on the actor's goroutine now and then during recovery, with the seq that was
	// reached and the end of the stream.
	OnProgress func(seq, end uint64)
	// OnAppend is called for each record stored, with its header, the number of events in it, and the time from its
	// first try to its storing. It is called on the actor's goroutine and must return quickly; h is
	// valid until then.
	OnAppend func(h *journal.Header, events int, took time.Duration)
}

// withDefaults returns the options with defaults filled in.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	integer(&errs, "Mailbox", &o.Mailbox, DefaultMailbox)
	integer(&errs, "MaxBatchBytes", &o.MaxBatchBytes, DefaultMaxBatchBytes)
	integer(&errs, "MaxPendingBytes", &o.MaxPendingBytes, DefaultMaxPendingBytes)
	integer(&errs, "AppendTimeout", &o.AppendTimeout, DefaultAppendTimeout)
	integer(&errs, "RetryFirst", &o.RetryFirst, DefaultRetryFirst)
	integer(&errs, "RetryCap", &o.RetryCap, max(DefaultRetryCap, o.RetryFirst))
	integer(&errs, "FullRetry", &o.FullRetry, DefaultFullRetry)
	integer(&errs, "SnapshotBytes", &o.SnapshotBytes, DefaultSnapshotBytes)
	integer(&errs, "SnapshotEvents", &o.SnapshotEvents, DefaultSnapshotEvents)
	integer(&errs, "SnapshotEvery", &o.SnapshotEvery, DefaultSnapshotEvery)
	if o.RetryCap < o.RetryFirst {
		errs = append(errs, fmt.Errorf("persistent: option RetryCap is %v, less than RetryFirst, which is %v", o.RetryCap, o.RetryFirst))
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

func integer[T int | int64 | time.Duration](errs *[]error, name string, v *T, def T) {
	switch {
	case *v < 0:
		*errs = append(*errs, fmt.Errorf("persistent: option %s is %v, want 0 (default %v) or more", name, *v, def))
	case *v == 0:
		*v = def
	}
}
