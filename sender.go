package holdfast

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// The defaults of SenderOptions.
const (
	DefaultMaxInFlight      = 1 << 16
	DefaultMaxInFlightBytes = 16 << 20
)

// SenderOptions are what a Sender is made with. The zero value means the defaults; negative numbers are
// errors, reported together.
type SenderOptions struct {
	// ProducerID names the producer in the queue's bookkeeping, 1 to 256 bytes. Default: a random one. The sender
	// makes a new incarnation of it, so the id need not be unique; it serves to tell producers apart.
	ProducerID string
	// Incarnation names the life of the producer that the sender goes on with, 1 to 256 bytes; ProducerID must be set. What
	// an earlier sender of both names has stored is counted: see Sender.Resume. The broker remembers the
	// producer after Close, and messages that are sent again under the same number are stored once, in another process too. It
	// implies Strict. Default: a random one, forgotten at Close.
	Incarnation string
	// Strict ends the sender with the first message that is refused: nothing behind it is stored, so that what is
	// stored is always a beginning of what was sent.
	Strict bool
	// MaxInFlight bounds the messages that are accepted from callers and not answered by the broker. Default
	// 65,536. A caller whose message finds no room waits.
	MaxInFlight int
	// MaxInFlightBytes bounds the same in bytes of attributes and bodies. Default 16 MiB. A single larger message
	// goes alone.
	MaxInFlightBytes int
	// NoWait asks for queue.ErrFull instead of waiting when the queue is full.
	NoWait bool
	// OnWait, if not nil, is told when the sender has waited for a second, because the queue is full or the broker
	// cannot be reached, and when that is over: because it goes on, or because nothing is left to send. It is called by the sender's own goroutine and must return soon.
	OnWait func(waits bool, reason string)
	// Logger gets the sender's log. Default slog.Default().
	Logger *slog.Logger

	// idle is how long the sender lets its stream stand unused before it closes it. 0 means for ever.
	idle time.Duration
}

func (o *SenderOptions) setDefaults() error {
	var errs []error
	if len(o.ProducerID) > 256 {
		errs = append(errs, &message.FieldError{Field: "ProducerID", Fault: fmt.Sprintf("has %d bytes", len(o.ProducerID)), Limit: "256 bytes"})
	}
	if len(o.Incarnation) > 256 {
		errs = append(errs, &message.FieldError{Field: "Incarnation", Fault: fmt.Sprintf("has %d bytes", len(o.Incarnation)), Limit: "256 bytes"})
	}
	if o.Incarnation != "" && o.ProducerID == "" {
		errs = append(errs, &message.FieldError{Field: "Incarnation", Fault: "is set without ProducerID"})
	}
	o.Strict = o.Strict || o.Incarnation != ""
	errs = append(errs,
		defaultTo("MaxInFlight", &o.MaxInFlight, DefaultMaxInFlight),
		defaultTo("MaxInFlightBytes", &o.MaxInFlightBytes, DefaultMaxInFlightBytes))
	if o.ProducerID == "" {
		o.ProducerID = randomID()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// defaultTo gives an option that is zero its default and refuses a negative one.
func defaultTo[T int | time.Duration](name string, v *T, def T) error {
	if *v < 0 {
		return &message.FieldError{Field: name, Fault: fmt.Sprintf("is %v", *v), Limit: "0 or more"}
	}
	if *v == 0 {
		*v = def
	}
	return nil
}

// randomID returns 128 random bits in hexadecimal.
func randomID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Sender sends to one queue. It numbers its messages from 1 under a random incarnation, carries what is waiting
// in one frame, and sends again under the same number until the broker has answered, over any number of
// lost connections: a message is stored once (G3), in the order in which it was sent (G6).
//
// A send has three outcomes, told apart (G10): stored (no error), not stored (an error that is not ErrUnknown), and
// unknown (ErrUnknown), when the caller's context ended after the message had been handed over. The sender
// goes on with an unknown message all the same; sending it again by another call may store it twice.
//
// When the stream breaks, the sender opens it again, for ever, with growing pauses of at most five seconds. Errors that
// time does not heal (no such queue, no permission, a closed client or broker) end what is waiting instead.
//
// Memory is bounded by MaxInFlight and MaxInFlightBytes. All methods may be called concurrently.
type Sender struct {
	queue string
	link  Link
	o     SenderOptions
	log   *slog.Logger

	limits atomic.Pointer[message.Limits] // nil until the first stream was opened

	mu sync.Mutex
	// What is accepted from callers: numbers and bytes of messages without an outcome, and who waits for room.
	inFlight, inBytes int
	waiting           admissions
	end               *sharedEnd // of the context that callers waited with last, nil if that has none
	spare             *admission // to be used again
	admitted          int        // have room, are not in a frame yet

	frameNo uint64
	open    *frame // the last of pending, if it takes more messages
	pending frames // not handed to the link
	held    *frame // between pending and flight: being sealed by the writer
	flight  frames // handed to the link, unanswered, in order of producer seq
	resend  *frame // the first of flight that the current stream does not have; nil if it has all
	nextSeq uint64 // producer seq of the next message that is handed over
	hint    int    // size of the last frame

	producer queue.Producer
	streams  int // on which this incarnation was used
	// renew: the numbers from nextSeq on were used up by messages that were refused. Once nothing is in flight, a new
	// incarnation begins. Numbers are never used for other content under the same incarnation.
	renew bool

	stream  *senderStream
	dead    []SenderLink // streams that the writer is to close
	uid     [16]byte     // of the queue's stream, with its highest epoch seen
	epoch   uint64
	lent    bool // SenderOpened.Lent of the last stream
	backoff backoff
	retryAt time.Time

	calls   []callback // outcomes for done functions, oldest first
	calling bool
	queued  uint64 // callbacks ever put into calls
	called  uint64 // of them, how many have returned

	running bool // the writer goroutine
	idle    bool // it waits for wake
	alone   bool // a caller sends instead of it
	wake    chan struct{}
	abort   context.CancelFunc
	aborted bool
	closing bool
	ended   error         // why a strict sender takes nothing more
	moved   chan struct{} // closed and replaced when something was settled and someone waits for that
	watched bool

	waits waitReport
	stats SenderStats
}

// SenderStats are counters of a sender, for metrics.
type SenderStats struct {
	// InFlight and InFlightBytes are the messages without an outcome, and their bytes.
	InFlight, InFlightBytes int
	Stored                  uint64 // messages that the broker said are stored
	Duplicates              uint64 // of them, those that it had stored before, or suppressed by dedup id
	Refused                 uint64 // messages that were not stored
	Unknown                 uint64 // messages given up without an answer
	Frames                  uint64 // frames handed to the link
	Resent                  uint64 // of them, those sent again
	Streams                 uint64 // streams opened: one, and one for each reconnection, refusal or idle time
	// Waits tells that the sender has waited for more than a second; Reason is why.
	Waits  bool
	Reason string
	// Buffered tells that the queue acknowledges before stable storage (durability=buffered).
	Buffered bool
}

func newSender(name string, link Link, o SenderOptions) *Sender {
	incarnation := o.Incarnation
	if incarnation == "" {
		incarnation = randomID()
	}
	return &Sender{
		queue: name, link: link, o: o, log: o.Logger.With("queue", name),
		producer: queue.Producer{ID: o.ProducerID, Incarnation: incarnation},
		nextSeq:  1, wake: make(chan struct{}, 1), moved: make(chan struct{}),
	}
}

// Send sends a message and returns its id once it is stored. The message is copied. The id is zero, without an error,
// if the message is stored and only its id was lost: the answer to its first transmission did not arrive, or its
// dedup id suppressed it.
func (s *Sender) Send(ctx context.Context, m Message) (ID, error) {
	p, err := s.admit(ctx, &m, nil)
	if err != nil {
		return ID{}, s.notStored(err)
	}
	return s.await(ctx, p)
}

// SendAsync sends a message and returns once it is accepted into the sender's window; it blocks only while that is
// full, or until the sender's first stream is open. The message is copied. If it returns nil, done is called exactly once with
// the outcome, as Send returns it; else the message is not stored and done is not called. The context bounds
// only the call.
//
// done is called by a goroutine of the sender, in the order in which outcomes come, which is that of the sends but for
// refusals. It must return soon and must not wait for the same sender: what it delays is the next outcome, and with that the
// room in the window.
func (s *Sender) SendAsync(ctx context.Context, m Message, done func(ID, error)) error {
	if done == nil {
		return s.notStored(&message.FieldError{Field: "done", Fault: "is nil"})
	}
	if _, err := s.admit(ctx, &m, done); err != nil {
		return s.notStored(err)
	}
	return nil
}

// Resume opens the sender's first stream and returns the number of the message that the queue expects next from the incarnation
// that SenderOptions.Incarnation names: 1 if it knows none of it, n+1 if the first n messages are stored. The next message that is sent
// gets that number, so that the caller leaves out what is stored. It is called before the first send.
func (s *Sender) Resume(ctx context.Context) (next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return 0, fmt.Errorf("resume sender to queue %q: %w", s.queue, ErrClosed)
	}
	if s.limits.Load() == nil {
		if err := s.wait(ctx, 0); err != nil {
			return 0, fmt.Errorf("resume sender to queue %q: %w", s.queue, err)
		}
		s.admitted--
		s.release(1, 0)
	}
	return s.nextSeq, nil
}

// Producer returns what the sender is called in the queue's bookkeeping. Its incarnation changes when the sender has to begin a new one,
// unless it is Strict.
func (s *Sender) Producer() queue.Producer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.producer
}

// BatchError says which messages of a batch have no id because they are not stored, or may not be.
type BatchError struct {
	// Errs has an entry for each message of the batch, nil for those that are stored.
	Errs []error
}

func (e *BatchError) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e.Errs {
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d messages: %v", failed, len(e.Errs), first)
}

// Unwrap returns the errors of the messages that have one.
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// SendBatch sends messages in order and returns their ids once all have an outcome. A batch is not a
// transaction: if some messages are not stored, or may not be, the error is a *BatchError that tells which.
func (s *Sender) SendBatch(ctx context.Context, batch []Message) ([]ID, error) {
	ids, errs := make([]ID, len(batch)), make([]error, len(batch))
	places := make([]place, 0, len(batch))
	for k := range batch {
		p, err := s.admit(ctx, &batch[k], nil)
		if err != nil {
			// What comes behind would be stored without it, out of order.
			for ; k < len(batch); k++ {
				errs[k] = s.notStored(err)
			}
			break
		}
		places = append(places, p)
	}
	failed := len(places) < len(batch)
	for k, p := range places {
		ids[k], errs[k] = s.await(ctx, p)
		failed = failed || errs[k] != nil
	}
	if failed {
		return ids, &BatchError{errs}
	}
	return ids, nil
}

func (s *Sender) notStored(err error) error {
	return fmt.Errorf("send to queue %q: not stored: %w", s.queue, err)
}

func (s *Sender) unknown(err error) error {
	return fmt.Errorf("send to queue %q: %w: %w", s.queue, ErrUnknown, err)
}

// Stats returns the sender's counters.
func (s *Sender) Stats() SenderStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.InFlight, st.InFlightBytes = s.inFlight, s.inBytes
	st.Waits, st.Reason = s.waits.told, s.waits.reason
	return st
}

// Flush waits until every message that was accepted before the call has an outcome, and the done functions of
// those have returned. It returns an error only if ctx ends first.
func (s *Sender) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.admitted > 0 { // on their way into a frame
		if err := s.watch(ctx); err != nil {
			return s.flushError(err)
		}
	}
	limit := s.frameNo
	for s.lowest() <= limit {
		if err := s.watch(ctx); err != nil {
			return s.flushError(err)
		}
	}
	for queued := s.queued; s.called < queued; {
		if err := s.watch(ctx); err != nil {
			return s.flushError(err)
		}
	}
	return nil
}

func (s *Sender) flushError(err error) error {
	return fmt.Errorf("flush sender to queue %q: %w", s.queue, err)
}

// lowest is the number of the oldest frame without an outcome.
func (s *Sender) lowest() uint64 {
	low := s.frameNo + 1
	for _, f := range []*frame{s.flight.head, s.pending.head, s.held} {
		if f != nil {
			low = min(low, f.no)
		}
	}
	return low
}

// watch gives the lock away until something was settled.
func (s *Sender) watch(ctx context.Context) error {
	s.watched = true
	moved := s.moved
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// progress tells those who watch that something changed.
func (s *Sender) progress() {
	if s.watched {
		close(s.moved)
		s.moved, s.watched = make(chan struct{}), false
	}
}

// Close lets no further message in, waits until all have an outcome, and ends the stream so that the broker
// may forget the producer. When ctx ends first, what was not handed over is not stored (ErrClosed), what was handed over is
// ErrUnknown, and Close returns an error. It is idempotent.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.waiting.fail(ErrClosed)
	s.kick()
	s.mu.Unlock()
	err := s.Flush(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.running {
		s.aborted = true
		s.abort()
		s.failAll(ErrClosed)
		s.kick()
		err = fmt.Errorf("close sender to queue %q: %w", s.queue, err)
	}
	for s.running {
		// The writer is on its way out, whatever ctx says: it waits for nothing but the cancelled opening of a stream.
		_ = s.watch(context.WithoutCancel(ctx))
	}
	return err
}
