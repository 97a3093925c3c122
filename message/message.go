package message

import (
	"fmt"
	"time"
)

// Header is one name and value of a message. Headers keep their order, and names may repeat.
type Header struct{ Name, Value string }

// Message is what a sender hands over. The zero value is a message with an empty body that is
// handed out as soon as it is stored.
type Message struct {
	// Body is the content, at most Limits.MaxBody bytes. It may be empty.
	Body []byte
	// Headers are carried along. They count towards Limits.MaxHeaders and MaxHeaderBytes.
	Headers []Header
	// Key orders: of the messages with one key, only the lowest live one is handed out, so that
	// they are processed one after the other even through retries. Empty means none.
	Key string
	// DedupID suppresses a second message with the same id within the queue's dedup
	// window, whoever sends it. Empty means none.
	DedupID string
	// Delay holds the message back for this long after it was stored. 0 means the queue's default
	// delay; negative is an error. Milliseconds.
	Delay time.Duration
	// NotBefore holds the message back until a time, by the broker's clock. The zero time means none. At
	// most one of Delay and NotBefore is set.
	NotBefore time.Time
	// TTL lets the message expire this long after it was stored, unless a receiver holds it then. It is more than Delay. 0 means
	// never; negative is an error. Milliseconds.
	TTL time.Duration
	// ExpiresAt lets the message expire at a time, by the broker's clock. At most one of TTL and
	// ExpiresAt is set.
	ExpiresAt time.Time
	// Priority is 0 (default, lowest) to 9 (first).
	Priority int
}

// Limits bound a message before anything is allocated for it. The zero value means the defaults.
type Limits struct {
	MaxBody        int // bytes; default 1 MiB
	MaxHeaders     int // count; default 64
	MaxHeaderBytes int // names and values together; default 16 KiB
	MaxFrameBytes  int // a frame; default MaxBody + 64 KiB, at least 1 MiB + 64 KiB
	MaxFrameCount  int // messages a frame; default 16,384
	// Internal allows the attributes that only brokers write (Origin, Hop).
	Internal bool
}

// Fixed limits of the format.
const (
	MaxKeyLen      = 256 // bytes of an ordering key
	MaxDedupIDLen  = 128 // bytes of a dedup id
	MaxPriority    = 9
	MaxDelay       = 366 * 24 * time.Hour // delays, times to live and retentions
	maxHeaderName  = 256
	DefaultMaxBody = 1 << 20
)

// WithDefaults returns l with every zero field set to its default.
func (l Limits) WithDefaults() Limits {
	if l.MaxBody == 0 {
		l.MaxBody = DefaultMaxBody
	}
	if l.MaxHeaders == 0 {
		l.MaxHeaders = 64
	}
	if l.MaxHeaderBytes == 0 {
		l.MaxHeaderBytes = 16 << 10
	}
	if l.MaxFrameBytes == 0 {
		l.MaxFrameBytes = max(l.MaxBody, 1<<20) + 64<<10
	}
	if l.MaxFrameCount == 0 {
		l.MaxFrameCount = 16384
	}
	return l
}

// FieldError says which field of an input is wrong, how, and what the limit is (G11).
// Nothing was changed by the refused input.
type FieldError struct {
	Field string // e.g. "body", "header name", "priority"
	Fault string // e.g. "is 5 bytes too long"
	Limit string // e.g. "1048576 bytes"; empty where there is none
}

func (e *FieldError) Error() string {
	if e.Limit == "" {
		return fmt.Sprintf("%s %s", e.Field, e.Fault)
	}
	return fmt.Sprintf("%s %s (limit: %s)", e.Field, e.Fault, e.Limit)
}

func fault(field, limit, format string, args ...any) error {
	return &FieldError{Field: field, Fault: fmt.Sprintf(format, args...), Limit: limit}
}

// Validate reports the first field of m that is outside the limits, as a FieldError.
func (m *Message) Validate(l Limits) error {
	l = l.WithDefaults()
	if len(m.Body) > l.MaxBody {
		return fault("body", fmt.Sprintf("%d bytes", l.MaxBody), "has %d bytes", len(m.Body))
	}
	if len(m.Headers) > l.MaxHeaders {
		return fault("headers", fmt.Sprintf("%d headers", l.MaxHeaders), "are %d", len(m.Headers))
	}
	total := 0
	for _, h := range m.Headers {
		if h.Name == "" || len(h.Name) > maxHeaderName {
			return fault("header name", fmt.Sprintf("1 to %d bytes", maxHeaderName), "has %d bytes", len(h.Name))
		}
		total += len(h.Name) + len(h.Value)
	}
	if total > l.MaxHeaderBytes {
		return fault("headers", fmt.Sprintf("%d bytes", l.MaxHeaderBytes), "have %d bytes", total)
	}
	if len(m.Key) > MaxKeyLen {
		return fault("key", fmt.Sprintf("%d bytes", MaxKeyLen), "has %d bytes", len(m.Key))
	}
	if len(m.DedupID) > MaxDedupIDLen {
		return fault("dedup id", fmt.Sprintf("%d bytes", MaxDedupIDLen), "has %d bytes", len(m.DedupID))
	}
	if m.Priority < 0 || m.Priority > MaxPriority {
		return fault("priority", fmt.Sprintf("0 to %d", MaxPriority), "is %d", m.Priority)
	}
	return m.validateTimes()
}

func (m *Message) validateTimes() error {
	for _, d := range []struct {
		field string
		v     time.Duration
	}{{"delay", m.Delay}, {"ttl", m.TTL}} {
		if d.v < 0 || d.v > MaxDelay {
			return fault(d.field, "0 to "+MaxDelay.String(), "is %v", d.v)
		}
	}
	for _, d := range []struct {
		field string
		v     time.Time
	}{{"not-before", m.NotBefore}, {"expires-at", m.ExpiresAt}} {
		if !d.v.IsZero() && (d.v.UnixMilli() < 1 || d.v.Year() > 9999) {
			return fault(d.field, "years 1970 to 9999", "is %v", d.v)
		}
	}
	if m.Delay != 0 && !m.NotBefore.IsZero() {
		return fault("not-before", "", "and delay are both set")
	}
	if m.TTL != 0 && !m.ExpiresAt.IsZero() {
		return fault("expires-at", "", "and ttl are both set")
	}
	if m.TTL != 0 && m.TTL <= m.Delay {
		return expiresFirst(m.TTL, m.Delay)
	}
	return nil
}

// expiresFirst is the fault of a message that would expire before anybody can receive it.
func expiresFirst(ttl, delay time.Duration) error {
	return fault("ttl", fmt.Sprintf("more than the delay, %v", delay), "is %v: it expires before it can be received", ttl)
}
