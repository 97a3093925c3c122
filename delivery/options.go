package delivery

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"time"
)

const (
	// Unlimited as a number in options means no limit.
	Unlimited = math.MaxInt

	// UnlimitedTTL as a duration in options means that nothing ends by time.
	UnlimitedTTL time.Duration = math.MaxInt64
)

// Defaults of ProducerOptions.
const (
	DefaultResendTimeout = 500 * time.Millisecond
	DefaultResendCap     = 10 * time.Second
	DefaultWindowSize    = 16
	DefaultWindowBytes   = 64 << 20
	DefaultBufferSize    = 256
)

// Defaults of ConsumerOptions.
const (
	DefaultMaxProducers          = 1024
	DefaultProducerIdleTTL       = 5 * time.Minute
	DefaultMaxWaiting            = 65_536
	DefaultMaxWaitingPerProducer = 4096
	DefaultMaxWaitingBytes       = 64 << 20
	DefaultMaxAssemblyBytes      = 64 << 20
)

// ProducerOptions configures a ProducerController. Zero values are the defaults, negative ones are errors. Exactly
// one of Consumer and Remote must be set.
type ProducerOptions[T any] struct {
	// Consumer takes the messages as they are, without encoding: a ConsumerController of the same process,
	// or a link of messages around one.
	Consumer Link[T]

	// Remote takes them as bytes: a link to another process, or the Remote of a ConsumerController.
	Remote Link[[]byte]

	// Codec turns messages into bytes, for Remote and Journal. Default: JSON.
	Codec Codec[T]

	// ProducerID names the producer to the consumer, in at most MaxIDBytes bytes. Default: a random one. It does
	// not identify a life of the producer: each construction mints an incarnation.
	ProducerID string

	// WindowSize is how many messages may be unacknowledged, 1 to MaxWindow. Default: DefaultWindowSize (16).
	// An acknowledgement takes a round trip, so over distance the rate is at most WindowSize per round trip.
	WindowSize int

	// WindowBytes is how many bytes of encoded bodies may be unacknowledged, and how many may be in the buffer of
	// Offer. One message is always let through. Messages that are not encoded count nothing.
	// Default: DefaultWindowBytes (64 MiB); Unlimited allowed.
	WindowBytes int

	// BufferSize is how many messages Offer keeps while the window is full. Default: DefaultBufferSize (256).
	BufferSize int

	// ResendTimeout is how long an acknowledgement is waited for before a message is sent again for the first
	// time. Default: DefaultResendTimeout (500 ms).
	ResendTimeout time.Duration

	// ResendCap is the longest time between two transmissions; the time doubles up to it, less up to a quarter of
	// jitter. Default: DefaultResendCap (10 s), or ResendTimeout if that is longer.
	ResendCap time.Duration

	// MaxFrameBytes is how many bytes of bodies an envelope to Remote has at most; larger messages are sent in
	// parts. Default: what the link says (FrameLimiter), else no limit. Not for Consumer.
	MaxFrameBytes int

	// Journal makes the producer durable: unconfirmed messages are stored before they are sent, and sent again
	// after a crash under the same numbers. See package delivery/durable. Default: none.
	Journal ProducerJournal

	// Logger takes what an operator should know, at most one line a minute of each kind. Default: slog.Default().
	Logger *slog.Logger

	// OnRetransmit, if set, is called with each range that is sent again, on the controller's goroutine: it
	// must not block. attempt is 1 for the first repetition.
	OnRetransmit func(first, last uint64, attempt int)
}

// ConsumerOptions configures a ConsumerController. Zero values are the defaults, negative ones are errors.
type ConsumerOptions[T any] struct {
	// Codec reads the messages that come as bytes, by Remote. Default: JSON.
	Codec Codec[T]

	// MaxProducers is how many producer ids have dedup state; a new one over it evicts the least recently used.
	// An evicted producer that comes again goes on where it is, and a message of it that was handled but
	// whose acknowledgement was lost is handled again. Default: DefaultMaxProducers (1024); Unlimited allowed.
	MaxProducers int

	// ProducerIdleTTL is how long dedup state is kept unused. It is swept at its own cadence, so an idle entry
	// goes after one to two of it. It must be long beside the producers' ResendCap: under four times
	// DefaultResendCap it warns. Default: DefaultProducerIdleTTL (5 min); UnlimitedTTL allowed.
	ProducerIdleTTL time.Duration

	// MaxConcurrent is how many handlers run at once. Default: GOMAXPROCS; Unlimited allowed.
	MaxConcurrent int

	// MaxConcurrentPerProducer is how many of them may be for one producer. Default: 1, one after the other in
	// the order of arrival. More than 1 gives up the order, and is an error with InOrder.
	MaxConcurrentPerProducer int

	// InOrder runs the handlers of each producer's incarnation strictly by number: a message waits until all
	// before it were handled, also while one of them fails and comes again.
	InOrder bool

	// MaxWaiting, MaxWaitingPerProducer and MaxWaitingBytes bound the messages that are accepted and not settled:
	// in all, for each producer id, and in bytes of encoded bodies. What comes beyond is ignored, and sent
	// again by its producer after its ResendTimeout; so MaxWaitingPerProducer should be at least the
	// producers' WindowSize. Defaults: 65,536, 4096, 64 MiB; Unlimited allowed.
	MaxWaiting            int
	MaxWaitingPerProducer int
	MaxWaitingBytes       int

	// MaxAssemblyBytes bounds what messages that come in parts may reserve; a larger message is a dead letter.
	// Default: DefaultMaxAssemblyBytes (64 MiB).
	MaxAssemblyBytes int

	// Logger takes what an operator should know, at most one line a minute of each kind. Default: slog.Default().
	Logger *slog.Logger

	// The hooks, where set, are called for each event, concurrently, outside all locks. They must return soon.
	// A panic of a hook is logged.

	// OnDeadLetter is called with each malformed envelope, and each body that does not decode.
	OnDeadLetter func(DeadLetter)
	// OnHandlerError is called when a handler returned an error or panicked (*PanicError).
	OnHandlerError func(m Metadata, err error)
	// OnEvict is called with the number of producers that lost their entry to make room for another.
	OnEvict func(n int)
}

// DeadLetter is an envelope that could not be delivered.
type DeadLetter struct {
	// ProducerID, Incarnation, Seq and Floor are those of the envelope, as they were, however wrong. Ids longer
	// than MaxIDBytes are cut to that.
	ProducerID, Incarnation string
	Seq, Floor              uint64
	// Messages is how many the envelope carried.
	Messages int
	// Body is the body, if it is one that did not decode.
	Body []byte
	// Cause says what was wrong: a *window.Fault for a malformed envelope, or the codec's error.
	Cause error
}

// orDefault sets the default for zero, and reports a number out of range.
func orDefault(errs *[]error, name string, v *int, def, most int) {
	switch {
	case *v < 0:
		*errs = append(*errs, optionError(name, "is negative (%d)", *v))
	case *v == 0:
		*v = def
	case *v > most:
		*errs = append(*errs, optionError(name, "is %d, the limit is %d", *v, most))
	}
}

func orDefaultTime(errs *[]error, name string, v *time.Duration, def time.Duration) {
	switch {
	case *v < 0:
		*errs = append(*errs, optionError(name, "is negative (%v)", *v))
	case *v == 0:
		*v = def
	}
}

// withDefaults fills in what is not set and reports all faults together.
func (o ProducerOptions[T]) withDefaults() (ProducerOptions[T], error) {
	var errs []error
	switch {
	case o.Consumer == nil && o.Remote == nil:
		errs = append(errs, optionError("Consumer", "is missing, and so is Remote"))
	case o.Consumer != nil && o.Remote != nil:
		errs = append(errs, optionError("Consumer", "and Remote are both set"))
	}
	if len(o.ProducerID) > MaxIDBytes {
		errs = append(errs, optionError("ProducerID", "has %d bytes, the limit is %d", len(o.ProducerID), MaxIDBytes))
	}
	orDefault(&errs, "WindowSize", &o.WindowSize, DefaultWindowSize, MaxWindow)
	orDefault(&errs, "WindowBytes", &o.WindowBytes, DefaultWindowBytes, Unlimited)
	orDefault(&errs, "BufferSize", &o.BufferSize, DefaultBufferSize, Unlimited)
	orDefaultTime(&errs, "ResendTimeout", &o.ResendTimeout, DefaultResendTimeout)
	orDefaultTime(&errs, "ResendCap", &o.ResendCap, max(DefaultResendCap, o.ResendTimeout))
	if o.ResendCap < o.ResendTimeout && o.ResendCap > 0 {
		errs = append(errs, optionError("ResendCap", "of %v is shorter than ResendTimeout, %v", o.ResendCap, o.ResendTimeout))
	}
	if o.MaxFrameBytes > 0 && o.Consumer != nil {
		errs = append(errs, optionError("MaxFrameBytes", "is for Remote, there are no frames to Consumer"))
	}
	orDefault(&errs, "MaxFrameBytes", &o.MaxFrameBytes, 0, Unlimited)
	if l, ok := o.Remote.(FrameLimiter); ok {
		if n := l.FrameLimit(); n > 0 && (o.MaxFrameBytes == 0 || n < o.MaxFrameBytes) {
			o.MaxFrameBytes = n
		}
	}
	if o.Codec == nil {
		o.Codec = JSON[T]()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, errors.Join(errs...)
}

// withDefaults fills in what is not set and reports all faults together. warn is what is allowed but unwise.
func (o ConsumerOptions[T]) withDefaults(handler func(context.Context, T) error) (_ ConsumerOptions[T], warn string, err error) {
	var errs []error
	if handler == nil {
		errs = append(errs, optionError("handler", "is nil"))
	}
	orDefault(&errs, "MaxProducers", &o.MaxProducers, DefaultMaxProducers, Unlimited)
	orDefaultTime(&errs, "ProducerIdleTTL", &o.ProducerIdleTTL, DefaultProducerIdleTTL)
	orDefault(&errs, "MaxConcurrent", &o.MaxConcurrent, runtime.GOMAXPROCS(0), Unlimited)
	orDefault(&errs, "MaxConcurrentPerProducer", &o.MaxConcurrentPerProducer, 1, Unlimited)
	if o.InOrder && o.MaxConcurrentPerProducer > 1 {
		errs = append(errs, optionError("MaxConcurrentPerProducer", "of %d contradicts InOrder", o.MaxConcurrentPerProducer))
	}
	orDefault(&errs, "MaxWaiting", &o.MaxWaiting, DefaultMaxWaiting, Unlimited)
	orDefault(&errs, "MaxWaitingPerProducer", &o.MaxWaitingPerProducer, DefaultMaxWaitingPerProducer, Unlimited)
	orDefault(&errs, "MaxWaitingBytes", &o.MaxWaitingBytes, DefaultMaxWaitingBytes, Unlimited)
	orDefault(&errs, "MaxAssemblyBytes", &o.MaxAssemblyBytes, DefaultMaxAssemblyBytes, Unlimited)
	if o.Codec == nil {
		o.Codec = JSON[T]()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if least := 4 * DefaultResendCap; o.ProducerIdleTTL > 0 && o.ProducerIdleTTL < least {
		warn = "ProducerIdleTTL is under four times the producers' ResendCap: a message can be forgotten and handled again between two transmissions"
	}
	return o, warn, errors.Join(errs...)
}
