package queue

import (
	"iter"

	"github.com/holdfastmq/holdfast/message"
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

// Core is the state of one queue, and what can be done with it. It is used by one goroutine at a time. After each method (or
// several of them) the shell calls Take, and then Deadline.
type Core struct{}

// SendBatch is a checked frame from a sender. The core keeps Frame and Info until it is stored or refused.
type SendBatch struct {
	Sender SenderID
	// ProducerSeq is the producer seq of the first message, consecutive from there. A sender without a producer counts its own
	// messages from 1, or says 0 for the next.
	ProducerSeq uint64
	// Floor is the producer's lowest seq that is not settled, 0 if it is not known: it tells a producer whose entry was
	// evicted, or that gave up on messages, from one that left a gap.
	Floor uint64
	Frame []byte
	// Info is what message.Check told of Frame. Delays and times to live count from the moment of storing.
	Info message.Info
}

// SenderOptions describe a sender as it is opened.
type SenderOptions struct {
	Producer Producer // zero: no dedup
	// NoWait makes a full queue refuse its sends with ErrFull instead of letting them wait, whatever the policy.
	NoWait bool
}

// ReceiverOptions describe a receiver as it is opened.
type ReceiverOptions struct {
	// Announces tells that the receiver announces starts: what it was handed but did not start is given back uncounted.
	Announces bool
	// Unbound leases outlive the receiver: they end by their deadline alone.
	Unbound bool
	// Visibility replaces the queue's visibility timeout, in ms. 0 means the queue's.
	Visibility int64
}

// New returns an empty queue whose next event gets firstSeq. The error joins all faults of o.
func New(o Options, firstSeq uint64) (*Core, error) { panic("to follow") }

// Snapshot is the state of a core at one moment. It does not change with the core, with one exception: records that end at or
// before Seq and are still being stored become part of it when they are (Core.Stored), since it is to be
// saved only then.
type Snapshot struct{}

// Seq returns the last seq that the snapshot covers.
func (s *Snapshot) Seq() uint64 { panic("to follow") }

// Chunks yields the encoded state. It may be ranged over in another goroutine, beside commands to the core, once Stored was called for
// all events up to Seq. Its chunks are cut at fixed seqs, so that what did not change is the same in the next snapshot. A
// chunk belongs to the caller.
func (s *Snapshot) Chunks() iter.Seq[[]byte] { panic("to follow") }

// Capture returns the state as it is, at little cost: it shares memory with the core until either changes.
func (c *Core) Capture() *Snapshot { panic("to follow") }

// Restore builds a core from the chunks of a snapshot, in order, and keeps nothing of them. The error matches ErrNewerFormat if a later
// version wrote them, ErrMalformed if nothing can have written them, or is that of chunks.
func Restore(o Options, chunks iter.Seq2[[]byte, error]) (*Core, error) { panic("to follow") }

// Apply repeats a stored event on recovery. Events must come in order; seqs may be left out (see SkipTo). The error matches
// ErrMalformed: the event contradicts the state, which must not be used any more.
func (c *Core) Apply(seq uint64, e *Event) error { panic("to follow") }

// SkipTo says that the seqs before seq, from NextSeq on, are no events of the queue: epoch and skip records.
func (c *Core) SkipTo(seq uint64) { panic("to follow") }

// Stored says that the record of the seqs first…last is stored, live and on recovery (after its events were applied), with a
// body part of so many bytes. It must be called before the effects that waited for the record are carried out, and followed
// by Take: it may let senders go on, and find bodies that died before they were stored.
func (c *Core) Stored(first, last uint64, bodyBytes int) { panic("to follow") }

// Undo undoes an Added or Relocated event whose bodies the store refused for lack of room (see persistent.Behavior.Refuse), and
// returns the event that is stored in its place. It is applied already. Its messages are gone, as if the send had been refused;
// credit that was used up by their hand-overs, which must not be carried out, is given back. It is used live
// and on recovery. It returns nil for events of other kinds: those have no bodies.
func (c *Core) Undo(seq uint64, e *Event) *Event { panic("to follow") }

// Recovered ends the recovery at queue time now: all leases restart in full, messages that are moving get their Move effects,
// and the bodies of dead records are named again by Dead effects. If now is more than a day beyond the last stored time, the clock
// may have been set: expiry is then held back for a minute, with a Warning.
func (c *Core) Recovered(now int64) { panic("to follow") }

// NextSeq returns the seq that the next event will get.
func (c *Core) NextSeq() uint64 { panic("to follow") }

// Config returns the configuration in force, with its defaults filled in.
func (c *Core) Config() Config { panic("to follow") }

// Paused tells whether the queue hands out nothing.
func (c *Core) Paused() bool { panic("to follow") }

// Take returns what was decided since the last Take, and leaves nothing behind.
func (c *Core) Take() Output { panic("to follow") }

// Deadline returns the queue time at which Tick is to be called next, if any. It may be in the past: more is to be done now, and
// was only put off to keep each call short.
func (c *Core) Deadline() (at int64, ok bool) { panic("to follow") }

// Tick does what is due by now: leases that end, retries and delayed messages that become ready, expiry, sessions that
// are not held any longer, moves that are tried again, the rest of what earlier calls have put off. Calling it early is
// harmless.
func (c *Core) Tick(now int64) { panic("to follow") }

// OpenSender opens a sender under a new id. resume is the producer seq that the queue expects next, 0 if it does not know the
// producer (or there is none). It counts decided events: it may be told once they are stored.
// ErrOpen, or a FieldError for a producer of which only one part is there or one is too long.
func (c *Core) OpenSender(now int64, id SenderID, o SenderOptions) (resume uint64, err error) {
	panic("to follow")
}

// CloseSender closes a sender; what of it still waits for room is dropped without an answer. forget says that the producer will not come
// back and has nothing unanswered, so that its dedup entry is freed. An unknown id is no error.
func (c *Core) CloseSender(now int64, id SenderID, forget bool) { panic("to follow") }

// Send stores a batch, or has it wait for room, or refuses it: one or more effects Accepted and Refused follow, now or later. The
// batches of one sender are stored in order. The error, ErrUnknownSender or a FieldError for a batch that is none, changes nothing.
func (c *Core) Send(now int64, b SendBatch) error { panic("to follow") }

// StorageFull says that the store has no room for bodies (true), or has again. Meanwhile senders wait, or are refused with
// ErrStorageFull where they do not wish to wait or the policy is reject.
func (c *Core) StorageFull(now int64, full bool) { panic("to follow") }

// OpenReceiver opens a receiver, without credit, under a new id. ErrOpen, or a FieldError for options out of range.
func (c *Core) OpenReceiver(now int64, id ReceiverID, o ReceiverOptions) error { panic("to follow") }

// Credit says how many messages and bytes (of attributes and bodies) the receiver has been willing to take in all since it was
// opened. Totals below earlier ones are taken for those. A message larger than the bytes that are left is handed out nevertheless if some
// are left and the receiver holds nothing, so that it cannot starve.
func (c *Core) Credit(now int64, id ReceiverID, messages, bytes uint64) error { panic("to follow") }

// CloseReceiver closes a receiver. clean gives everything back at once. Otherwise what it did not start is given back at once,
// and the rest is held for Options.HoldStarted for ResumeReceiver. Unbound leases go on. An unknown id is no error.
func (c *Core) CloseReceiver(now int64, id ReceiverID, clean bool) { panic("to follow") }

// ResumeReceiver opens a receiver that goes on where another one was lost, and returns which of the messages in held it still
// holds, with their leases renewed. old is the lost receiver, open or closed, 0 if it is not known: then only leases from before a
// recovery can be taken over. What old holds and held does not name is given back.
func (c *Core) ResumeReceiver(now int64, old, id ReceiverID, o ReceiverOptions, held []LeaseSpan) ([]LeaseSpan, error) {
	panic("to follow")
}

// Started says that the receiver begins with messages, so that the delivery counts however it ends, but for a release. From the second
// delivery on that is stored, and the Reply confirms it.
func (c *Core) Started(now int64, t Token, id ReceiverID, spans []LeaseSpan) { panic("to follow") }

// Ack deletes messages.
func (c *Core) Ack(now int64, t Token, spans []LeaseSpan) { panic("to follow") }

// Nack gives messages back as failed; they become ready after delay ms, by the queue's policy if it is negative.
func (c *Core) Nack(now int64, t Token, spans []LeaseSpan, delay int64) { panic("to follow") }

// Release gives messages back, ready at once and uncounted.
func (c *Core) Release(now int64, t Token, spans []LeaseSpan) { panic("to follow") }

// Extend lets the leases end in by ms from now, or in the visibility timeout if by is 0. That is not stored.
func (c *Core) Extend(now int64, t Token, spans []LeaseSpan, by int64) { panic("to follow") }

// Configure replaces the configuration.
func (c *Core) Configure(now int64, t Token, cfg Config) { panic("to follow") }

// Pause stops handing out, or goes on. Sends, acks and everything else are not touched by it.
func (c *Core) Pause(now int64, t Token, paused bool) { panic("to follow") }

// Purge deletes all messages below NextSeq, leased and moving ones too. Reply.N is how many.
func (c *Core) Purge(now int64, t Token) { panic("to follow") }

// Redrive makes parked messages ready again, and sends ready ones (those that wait for a retry or for their key, too) to the queue
// target, or, if that is empty, those that came from another queue back to it. Their delivery budget begins anew. limit bounds
// how many, lowest seqs first, 0 for all. Reply.N is how many were set on their way.
func (c *Core) Redrive(now int64, t Token, target string, limit int) { panic("to follow") }

// MoveDone answers a Move: nil deletes the message here, an error has it tried again later. Other seqs than such are ignored.
func (c *Core) MoveDone(now int64, seq uint64, err error) { panic("to follow") }

// Relocated answers a Relocate with the bodies of spans, one frame for each. Without any, the request is given up, to come again.
// What has died meanwhile may be among them. The error is a FieldError: nothing was changed.
func (c *Core) Relocated(now int64, spans []Span, frames [][]byte) error { panic("to follow") }

// Located says that the bodies of the messages of a span lie in the record whose first seq is Record.
type Located struct {
	Record uint64
	Span
}

// Locate appends to dst where the bodies of messages lie, in order, split where the record changes. Messages that are gone, or
// whose record is not stored yet, are left out.
func (c *Core) Locate(dst []Located, s Span) []Located { panic("to follow") }
