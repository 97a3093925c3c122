package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

// Overflow says what happens to a send that finds the queue at its maximum.
type Overflow string

// The overflow policies.
const (
	OverflowBlock      Overflow = "block"       // the sender waits; the default
	OverflowReject     Overflow = "reject"      // the send is refused with ErrFull
	OverflowDropOldest Overflow = "drop-oldest" // the oldest ready messages make room; others never do
)

// Durability says what an acknowledgement of a send means.
type Durability string

// The durabilities.
const (
	DurabilitySynced   Durability = "synced"   // on stable storage; the default
	DurabilityBuffered Durability = "buffered" // handed to the store: a crash of the machine may lose the last moments
)

// Unlimited, as Config.RetryFirst, makes failed messages ready again at once.
const Unlimited = -1

// The limits and defaults of a Config.
const (
	MinVisibility            = time.Second
	MaxVisibility            = 12 * time.Hour
	DefaultVisibilityTimeout = 30 * time.Second
	DefaultRetryFirst        = time.Second
	DefaultRetryCap          = 5 * time.Minute
	DefaultDedupWindow       = 5 * time.Minute
	MaxDedupWindow           = 24 * time.Hour
	MaxNameLen               = 80 // bytes of a queue's name
	maxDeliveriesLimit       = 1_000_000
)

// Config is what a queue can be told. It can be changed while the queue is in use; all of it is
// validated together. The zero value means the defaults. Durations are whole milliseconds.
type Config struct {
	// VisibilityTimeout is how long a receiver holds a message before it becomes ready
	// again, unless renewed. Default 30 s; 1 s to 12 h.
	VisibilityTimeout time.Duration `json:"visibility_timeout"`
	// MaxDeliveries is how often a message is handed out before it moves to the dead-letter queue, or is
	// parked if there is none. Default 0: without limit. A lower limit takes effect at a message's next failure.
	MaxDeliveries int `json:"max_deliveries"`
	// DeadLetter names the queue that messages over MaxDeliveries move to. Default: none. Messages that are
	// already on their way are not redirected by a change.
	DeadLetter string `json:"dead_letter"`
	// RetryFirst is the delay before the second delivery of a message that failed; each further one waits
	// twice as long, with jitter of ±20 %, up to RetryCap. Defaults 1 s and 5 min. Unlimited (-1) in RetryFirst means no delay.
	RetryFirst time.Duration `json:"retry_first"`
	RetryCap   time.Duration `json:"retry_cap"`
	// Retention lets every message expire this long after it was stored. Default 0: never.
	Retention time.Duration `json:"retention"`
	// MaxMessages and MaxBytes bound what the queue holds, in messages and in bytes of attributes and
	// bodies. Default 0: without limit.
	MaxMessages int64 `json:"max_messages"`
	MaxBytes    int64 `json:"max_bytes"`
	// Overflow says what happens to a send that finds the queue at its maximum. Default: block.
	Overflow Overflow `json:"overflow"`
	// Durability says what the acknowledgement of a send means. Default: synced.
	Durability Durability `json:"durability"`
	// DefaultDelay holds back messages that say nothing themselves. Default 0.
	DefaultDelay time.Duration `json:"default_delay"`
	// DedupWindow is how long a dedup id is remembered. Default 5 min; up to 24 h.
	DedupWindow time.Duration `json:"dedup_window"`
}

// WithDefaults returns c with every zero field that has a default set to it.
func (c Config) WithDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.VisibilityTimeout, DefaultVisibilityTimeout)
	set(&c.RetryFirst, DefaultRetryFirst)
	set(&c.RetryCap, DefaultRetryCap)
	set(&c.DedupWindow, DefaultDedupWindow)
	if c.Overflow == "" {
		c.Overflow = OverflowBlock
	}
	if c.Durability == "" {
		c.Durability = DurabilitySynced
	}
	return c
}

// Validate reports everything that is wrong with c, as [message.FieldError]s joined together, or nil. Zero
// fields are right. That a chain of dead-letter queues has no cycle is not checked here: it takes
// the configurations of all queues.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	fail := func(field, limit, format string, args ...any) {
		errs = append(errs, &message.FieldError{Field: field, Fault: fmt.Sprintf(format, args...), Limit: limit})
	}
	span := func(field string, d, low, high time.Duration) {
		switch {
		case d < low || d > high:
			fail(field, fmt.Sprintf("%v to %v", low, high), "is %v", d)
		case d%time.Millisecond != 0:
			fail(field, "", "is %v, not a whole number of milliseconds", d)
		}
	}
	span("visibility_timeout", c.VisibilityTimeout, MinVisibility, MaxVisibility)
	if c.RetryFirst != Unlimited {
		span("retry_first", c.RetryFirst, 0, message.MaxDelay)
		if c.RetryFirst > c.RetryCap {
			fail("retry_first", fmt.Sprintf("retry_cap, %v", c.RetryCap), "is %v", c.RetryFirst)
		}
	}
	span("retry_cap", c.RetryCap, 0, message.MaxDelay)
	span("retention", c.Retention, 0, message.MaxDelay)
	span("default_delay", c.DefaultDelay, 0, message.MaxDelay)
	span("dedup_window", c.DedupWindow, time.Millisecond, MaxDedupWindow)
	if c.MaxDeliveries < 0 || c.MaxDeliveries > maxDeliveriesLimit {
		fail("max_deliveries", fmt.Sprintf("0 to %d", maxDeliveriesLimit), "is %d", c.MaxDeliveries)
	}
	if c.MaxMessages < 0 {
		fail("max_messages", "0 or more", "is %d", c.MaxMessages)
	}
	if c.MaxBytes < 0 {
		fail("max_bytes", "0 or more", "is %d", c.MaxBytes)
	}
	if c.DeadLetter != "" {
		if err := ValidName(c.DeadLetter); err != nil {
			fail("dead_letter", fmt.Sprintf("1 to %d of [A-Za-z0-9_.-]", MaxNameLen), "is %q", clip(c.DeadLetter))
		}
	}
	switch c.Overflow {
	case OverflowBlock, OverflowReject, OverflowDropOldest:
	default:
		fail("overflow", "block, reject or drop-oldest", "is %q", clip(string(c.Overflow)))
	}
	switch c.Durability {
	case DurabilitySynced, DurabilityBuffered:
	default:
		fail("durability", "synced or buffered", "is %q", clip(string(c.Durability)))
	}
	return errors.Join(errs...)
}

// ValidName reports what is wrong with the name of a queue, as a [message.FieldError], or nil: it has 1 to MaxNameLen
// letters, digits, underscores, dots and dashes.
func ValidName(name string) error {
	limit := fmt.Sprintf("1 to %d of [A-Za-z0-9_.-]", MaxNameLen)
	switch {
	case name == "":
		return &message.FieldError{Field: "queue name", Fault: "is empty", Limit: limit}
	case len(name) > MaxNameLen:
		return &message.FieldError{Field: "queue name", Fault: fmt.Sprintf("has %d bytes", len(name)), Limit: limit}
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-' {
			continue
		}
		return &message.FieldError{Field: "queue name", Fault: fmt.Sprintf("has %q at byte %d", c, i), Limit: limit}
	}
	return nil
}

func clip(s string) string {
	if len(s) > MaxNameLen {
		return s[:MaxNameLen] + "…"
	}
	return s
}
