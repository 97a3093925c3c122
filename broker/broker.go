package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/persistent"
)

// The defaults of Options.
const (
	DefaultCacheBytes = 32 << 20
	DefaultSendBudget = 256 << 20
	DefaultOpenLimit  = 4
)

// Options are what a broker is opened with. The zero value means the defaults; negative numbers are errors,
// reported together.
type Options struct {
	// Name identifies the broker in logs and as the owner of queues. Default "local".
	Name string
	// Limits bound messages and frames. MaxBody may not be more than the journal can store in one record; its default is less where that
	// is less.
	Limits message.Limits
	// NoAutoCreate makes the use of a queue that does not exist an error instead of creating it.
	NoAutoCreate bool
	// CacheBytes bounds the frames kept in memory for hand-over, for all queues together. Default 32 MiB.
	CacheBytes int64
	// SendBudget bounds what senders may have sent and not had answered, in bytes, for all of them
	// together, at least 32 KiB. Default 256 MiB. A sender that would exceed it is refused at its opening, or, by a frame larger than its credit,
	// has its stream broken, and comes again. One such frame at a time may exceed the budget. A quarter of it is kept for what senders begin with; of the rest, the senders of one queue
	// have at most as much as they leave to those of others.
	SendBudget int64
	// OpenLimit is how many queues are recovered at the same time. Default 4.
	OpenLimit int
	// Lazy leaves the queues of the journal closed until they are used. By default the broker opens all of them in the
	// background at its start, so that delays, expiries and dead letters of unused queues go on.
	Lazy bool
	// Cluster, if not nil, says which of the queues of a shared journal are this broker's. It opens none by itself then.
	Cluster Cluster
	// Persistent tunes the actors under the queues. Its callbacks are replaced by the broker's.
	Persistent persistent.Options
	// Logger gets the broker's log. Default slog.Default().
	Logger *slog.Logger
}

func (o *Options) setDefaults() error {
	var errs []error
	for _, f := range []struct {
		name string
		v    *int64
		def  int64
	}{{"CacheBytes", &o.CacheBytes, DefaultCacheBytes}, {"SendBudget", &o.SendBudget, DefaultSendBudget}} {
		if *f.v < 0 {
			errs = append(errs, &message.FieldError{Field: f.name, Fault: fmt.Sprintf("is %d", *f.v), Limit: "0 or more"})
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if o.SendBudget > 0 && o.SendBudget < firstWindow {
		errs = append(errs, &message.FieldError{Field: "SendBudget", Fault: fmt.Sprintf("is %d bytes, with which no sender could begin", o.SendBudget),
			Limit: fmt.Sprintf("%d or more", firstWindow)})
	}
	if o.OpenLimit < 0 {
		errs = append(errs, &message.FieldError{Field: "OpenLimit", Fault: fmt.Sprintf("is %d", o.OpenLimit), Limit: "0 or more"})
	}
	if o.OpenLimit == 0 {
		o.OpenLimit = DefaultOpenLimit
	}
	if o.Name == "" {
		o.Name = "local"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Persistent.Logger = o.Logger
	o.Limits = o.Limits.WithDefaults()
	return errors.Join(errs...)
}

// Broker runs the queues of one journal. All methods may be called concurrently.
type Broker struct {
	o         Options
	j         journal.Journal
	log       *slog.Logger
	began     time.Time
	cache     *cache
	granted   atomic.Int64           // bytes of send windows and loans
	overdraft atomic.Pointer[sender] // has a loan beyond the budget
	pending   atomic.Int64           // stored queues that are still to be opened in the background

	latency, batch histogram // of the appends of all queues

	turns persistent.Pool // of the queues' actors: an owner waits for nothing

	// life ends when the broker closes; work that nobody waits for runs under it.
	life context.Context //holdfast:allow context: the life of background work that no caller waits for
	end  context.CancelFunc
	work sync.WaitGroup

	reg registry
}

var _ holdfast.Link = (*Broker)(nil)

// Open starts a broker on a journal. It returns at once: queues are recovered in the background (see
// Options.Lazy), and a call that needs one waits for it. The journal stays the caller's to close, after Close.
func Open(ctx context.Context, j journal.Journal, o Options) (*Broker, error) {
	anyBody := o.Limits.MaxBody == 0
	if err := o.setDefaults(); err != nil {
		return nil, fmt.Errorf("open broker: %w", err)
	}
	// A frame must fit into a record with its meta: some bytes a message at most, as the format of events has it.
	if room := j.Limits().MaxRecordBytes - recordOverhead; o.Limits.MaxFrameBytes > room {
		o.Limits.MaxFrameBytes = room
		most := room - frameOverhead
		if anyBody {
			o.Limits.MaxBody = min(o.Limits.MaxBody, most)
		}
		if o.Limits.MaxBody > most {
			return nil, fmt.Errorf("open broker: %w", &message.FieldError{
				Field: "MaxBody", Fault: fmt.Sprintf("is %d bytes, more than a record of this journal takes", o.Limits.MaxBody),
				Limit: fmt.Sprintf("%d bytes", most)})
		}
	}
	b := &Broker{o: o, j: j, log: o.Logger, cache: newCache(o.CacheBytes), began: time.Now()}
	b.life, b.end = context.WithCancel(context.WithoutCancel(ctx))
	b.reg.init(o.OpenLimit)
	if !o.Lazy && o.Cluster == nil {
		b.pending.Store(1) // until it is known how many
		b.background(b.openAll)
	}
	return b, nil
}

const (
	recordOverhead = 256 << 10 // for the meta of a record that holds one full frame
	frameOverhead  = 40 << 10  // attributes, entry and frame headers around one body
)

// background runs f in a goroutine that Close waits for, unless the broker is closing.
func (b *Broker) background(f func(ctx context.Context)) bool {
	b.reg.mu.Lock()
	defer b.reg.mu.Unlock()
	if b.reg.closed {
		return false
	}
	b.work.Go(func() { f(b.life) })
	return true
}

// Queue returns a view of a queue, with which to send and receive. It does not touch the queue yet.
func (b *Broker) Queue(name string) *holdfast.Queue {
	return holdfast.NewQueue(name, b, holdfast.Options{Logger: b.log})
}

// Close stops the broker: streams are ended, what has been decided is stored, each queue writes a snapshot and is
// released. When ctx ends first, the rest is left as after a crash, which costs a longer recovery and nothing
// else. It is idempotent.
func (b *Broker) Close(ctx context.Context) error {
	handles := b.reg.close()
	b.end()
	var wg sync.WaitGroup
	errs := make([]error, len(handles))
	limit := make(chan struct{}, 8)
	for i, h := range handles {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			errs[i] = h.stop(ctx)
		})
	}
	wg.Wait()
	b.work.Wait()
	for _, h := range handles {
		h.kill()
	}
	return errors.Join(errs...)
}

// pendingBytes is what is decided and not stored, unless Options.Persistent says otherwise: the record under way and one or two that form meanwhile. More
// would make no larger records, and a receiver's acknowledgements would wait for all of it to be stored.
const pendingBytes = 2 << 20

// sharedSnapshotBytes is after how many bytes of meta a snapshot is made where several brokers share a journal, unless Options.Persistent says otherwise: some
// ten thousand small records. A successor reads all behind it while the queue waits, at ten to thirty thousand records a second from a database on a busy machine.
const sharedSnapshotBytes = 1 << 20

// persistence is the options that the actors under all queues have in common.
func (b *Broker) persistence() persistent.Options {
	po := b.o.Persistent
	if po.MaxPendingBytes == 0 {
		po.MaxPendingBytes = pendingBytes
	}
	if b.o.Cluster != nil {
		po.Preload = true
		if po.SnapshotBytes == 0 {
			po.SnapshotBytes = sharedSnapshotBytes
		}
	}
	po.Pool = &b.turns
	return po
}
