package queue

import "time"

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

// Config is what a queue can be told. It can be changed while the queue is in use; all of it is
// validated together. The zero value means the defaults. Durations are whole milliseconds.
type Config struct {
	// VisibilityTimeout is how long a receiver holds a message before it becomes ready
	// again, unless renewed. Default 30 s; 1 s to 12 h.
	VisibilityTimeout time.Duration `json:"visibility_timeout"`
	// MaxDeliveries is how often a message is handed out before it moves to the dead-letter queue, or is
	// parked if there is none. Default 0: without limit.
	MaxDeliveries int `json:"max_deliveries"`
	// DeadLetter names the queue that messages over MaxDeliveries move to. Default: none.
	DeadLetter string `json:"dead_letter"`
	// RetryFirst is the delay before the second delivery of a message that failed; each further one waits
	// twice as long, with jitter of ±20 %, up to RetryCap. Defaults 1 s and 5 min. Unlimited (-1) in RetryFirst means no delay.
	RetryFirst time.Duration `json:"retry_first"`
	RetryCap   time.Duration `json:"retry_cap"`
	// Retention lets every message expire this long after it was stored. Default 0: never.
	Retention time.Duration `json:"retention"`
	// MaxMessages and MaxBytes bound what the queue holds, in messages and in bytes of attributes and
	// bodies. Default 0: without limit.
	MaxMessages int64      `json:"max_messages"`
	MaxBytes    int64      `json:"max_bytes"`
	Overflow    Overflow   `json:"overflow"`
	Durability  Durability `json:"durability"`
	// DefaultDelay holds back messages that say nothing themselves. Default 0.
	DefaultDelay time.Duration `json:"default_delay"`
	// DedupWindow is how long a dedup id is remembered. Default 5 min; up to 24 h.
	DedupWindow time.Duration `json:"dedup_window"`
}
