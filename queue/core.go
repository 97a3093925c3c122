package queue

import (
	"errors"
	"fmt"
	"math"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue/internal/column"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/holdfastmq/holdfast/queue/internal/spanmap"
	"github.com/holdfastmq/holdfast/queue/internal/timeset"
	"github.com/tidwall/btree"
)

const (
	maxSeq      = math.MaxUint64 - 1 // of a message or event
	maxPriority = message.MaxPriority
	maxIDBytes  = window.MaxIDBytes

	defaultMaxDedupIDs = 1_000_000
	defaultHoldStarted = 5_000
	defaultMoves       = 64

	// clockStep is from how many ms on a gap before a recovery may mean that the clock was set, and
	// holdExpiry for how long nothing expires then.
	clockStep  = 24 * 60 * 60 * 1000
	holdExpiry = 60_000

	// leaseWidth is how many ms late a lease may end.
	leaseWidth = 256
)

// Options are what a core is made with. The zero value means the defaults; negative values are errors.
type Options struct {
	// Config is the configuration until a Configured event says otherwise.
	Config Config
	// MaxProducers bounds the remembered producers. Default 65,536.
	MaxProducers int
	// ProducerTTL is how long a producer is remembered after its last send, in ms. Default 24 h.
	ProducerTTL int64
	// MaxDedupIDs bounds the remembered dedup ids. Default 1,000,000.
	MaxDedupIDs int
	// HoldStarted is how long started messages of a lost receiver are held for it to come back, in ms. Default 5 s.
	HoldStarted int64
	// Jitter yields numbers in [0,1) for retry delays. Default: a fixed sequence, the same in every core.
	Jitter func() float64
	// Moves bounds the messages that are on their way to another queue at once. Default 64.
	Moves int
}

// validate fills in the defaults, and reports all faults together.
func (o *Options) validate() error {
	errs := []error{o.Config.Validate()}
	check := func(field string, v int64) {
		if v < 0 {
			errs = append(errs, &message.FieldError{Field: field, Fault: fmt.Sprintf("is %d", v), Limit: "0 or more"})
		}
	}
	check("MaxProducers", int64(o.MaxProducers))
	check("ProducerTTL", o.ProducerTTL)
	check("MaxDedupIDs", int64(o.MaxDedupIDs))
	check("HoldStarted", o.HoldStarted)
	check("Moves", int64(o.Moves))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("queue options: %w", err)
	}
	o.Config = o.Config.WithDefaults()
	if o.MaxDedupIDs == 0 {
		o.MaxDedupIDs = defaultMaxDedupIDs
	}
	if o.HoldStarted == 0 {
		o.HoldStarted = defaultHoldStarted
	}
	if o.Moves == 0 {
		o.Moves = defaultMoves
	}
	if o.Jitter == nil {
		o.Jitter = fixedJitter()
	}
	return nil
}

// fixedJitter yields the fractions of the multiples of the golden ratio: spread evenly, and the same each time.
func fixedJitter() func() float64 {
	x := 0.0
	return func() float64 {
		_, x = math.Modf(x + 0.6180339887498949)
		return x
	}
}

// Core is the state of one queue, and what can be done with it. It is used by one goroutine at a time. After each method (or
// several of them) the shell calls Take, and then Deadline.
//
// Every live message is in exactly one of these: a ready set, waiting, delayed, retrying, parked, flights, moves.
// Which one is changed by apply alone, with two exceptions that are not stored because they follow from what
// is: a message that is due becomes ready, and ready messages of a blocked key wait aside.
type Core struct {
	o      Options
	cfg    Config
	paused bool

	now       int64 // of the latest command
	lastAt    int64 // of the latest event
	next      uint64
	nextLease uint64
	stored    uint64 // everything up to here is stored
	replaying bool   // until Recovered
	again     bool   // more is to be done now
	undone    *Event // that Undo returned last
	out       Output

	live     seqset.Set
	ready    [maxPriority + 1]seqset.Set
	waiting  seqset.Set // ready but for their key: see keys
	delayed  seqset.Set
	retrying seqset.Set
	parked   seqset.Set
	damaged  seqset.Set // of the parked ones, those whose bodies cannot be read; not stored
	flights  spanmap.Map[flight]
	moves    spanmap.Map[move]

	prio     [maxPriority + 1]seqset.Set // live messages of each priority but 0
	anyPrio  bool                        // any of prio has members
	foreign  seqset.Set                  // live messages that came from another queue
	isolated seqset.Set                  // live messages that are handed out alone
	entries  btree.Map[uint64, entry]
	sizes    column.Sizes
	bytes    uint64 // of all live messages
	ages     ages
	keys     keys

	due      timeset.Index // delayed and retrying
	dueNow   seqset.Set    // of it, what has come up and was not looked at yet
	expiry   timeset.Index
	expiring seqset.Set // has come up and was not looked at yet
	overdue  seqset.Set // would have expired, but is leased
	retained uint64     // retention is done up to this seq
	leaseEnd timeset.Index
	ended    seqset.Set // has come up and was not looked at yet
	holdTill int64      // nothing expires before

	senders   map[SenderID]*sender
	line      line
	full      bool // the storage is
	producers *window.Sequences
	sweepAt   int64 // when those that are not heard of any more are looked for
	unstored  []unstoredSend
	dedup     dedup

	receivers map[ReceiverID]*receiver
	lost      []*receiver // whose started messages are held, or whose messages are still to be given back
	hungry    []*receiver
	turn      int
	reserved  *receiver // is to get an isolated message once it holds nothing
	grantee   *receiver // gets the messages of the Leased event that is being applied

	orphans   map[uint64]*seqset.Set // by session, what was leased before the recovery; see abandon
	abandoned seqset.Set             // of them, what is still to be given back

	mover   mover
	redrive []redriveJob
	space   space
	snaps   []*Snapshot

	counts  counts
	said    evictions
	scratch scratch
}

// entry is what is known of a message that was handed out before.
type entry struct {
	due   int64  // while it is retrying
	count uint32 // counted deliveries
	base  uint32 // how many of them were before the latest redrive
	lost  uint8  // times that its receiver was lost, since the latest nack; isolateAfter: it is handed out alone
}

// isolateAfter is from how many lost receivers on a message is handed out alone.
const isolateAfter = 3

// move is what is known of messages on their way to another queue.
type move struct {
	at             int64
	target, reason string
}

// After implements spanmap.Value.
func (m move) After(uint64) move { return m }

// counts are what Stats tells of the past.
type counts struct {
	sent, delivered, redelivered, acked, nacked, released, leaseExpired, disconnected uint64
	expired, purged, dropped, parked, deadLettered, redriven, unparked                uint64
	producersEvicted, dedupEvicted                                                    uint64
	duplicates, refused                                                               uint64 // since the last recovery
}

// scratch is memory that is used over and over.
type scratch struct {
	spans    []Span
	runs     []Delivery
	pieces   []piece
	outcomes []Outcome
	picked   map[uint64]bool
}

// New returns an empty queue whose next event gets firstSeq. The error joins all faults of o.
func New(o Options, firstSeq uint64) (*Core, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	firstSeq = max(firstSeq, 1)
	c := &Core{
		o: o, cfg: o.Config, next: firstSeq, nextLease: 1, stored: firstSeq - 1, replaying: true,
		senders:   make(map[SenderID]*sender),
		receivers: make(map[ReceiverID]*receiver),
		producers: window.NewSequences(o.MaxProducers, o.ProducerTTL),
		dedup:     newDedup(o.MaxDedupIDs),
		leaseEnd:  timeset.Index{MaxWidth: leaseWidth},
		mover:     newMover(),
		keys:      newKeys(),
	}
	c.scratch.picked = make(map[uint64]bool)
	return c, nil
}

// NextSeq returns the seq that the next event will get.
func (c *Core) NextSeq() uint64 { return c.next }

// Config returns the configuration in force, with its defaults filled in.
func (c *Core) Config() Config { return c.cfg }

// Untouched tells that nothing has ever happened in the queue, not even that it was configured.
func (c *Core) Untouched() bool { return c.lastAt == 0 }

// Paused tells whether the queue hands out nothing.
func (c *Core) Paused() bool { return c.paused }

// Take returns what was decided since the last Take, and leaves nothing behind.
func (c *Core) Take() Output {
	out := c.out
	c.out = Output{}
	return out
}

// begin begins a command: what was due before it is done first.
func (c *Core) begin(now int64) {
	c.now = max(c.now, now)
	if at, ok := c.Deadline(); ok && at <= c.now {
		c.tick()
	}
}

// finish ends a command: what it made possible is done.
func (c *Core) finish() {
	c.admit()
	c.distribute()
	c.issueMoves()
	c.reclaim()
	c.prune()
	c.warnOfEvictions()
}

// effect leaves an effect for Take.
func (c *Core) effect(e Effect) {
	if c.out.Effects == nil {
		c.out.Effects = make([]Effect, 0, 4)
	}
	c.out.Effects = append(c.out.Effects, e)
}

// emit decides an event: it is applied, and left for Take.
func (c *Core) emit(e Event) {
	e.At = c.now
	seq := c.next
	if e.Kind == KindAdded {
		e.Spans = []Span{{seq, e.Added.Count}}
	}
	if c.out.Events == nil {
		c.out.Events = make([]Event, 0, 2)
	}
	c.out.Events = append(c.out.Events, e)
	c.mustApply(seq, &c.out.Events[len(c.out.Events)-1])
}

// mustApply applies an event of the core's own, which cannot contradict the state.
func (c *Core) mustApply(seq uint64, e *Event) {
	if err := c.apply(seq, e); err != nil {
		panic(fmt.Errorf("queue: decided an event of kind %d at seq %d that does not apply: %w", e.Kind, seq, err))
	}
}

// readyLen returns how many messages are ready to be handed out.
func (c *Core) readyLen() (n uint64) {
	for p := range c.ready {
		n += c.ready[p].Len()
	}
	return n
}
