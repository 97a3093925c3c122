package holdfast

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// Message is what a sender hands over.
type Message = message.Message

// Header is one name and value of a message.
type Header = message.Header

// ID identifies a message for good: the stream that it was first stored in, and its seq there. It is kept
// through dead-lettering, redrive and copying.
type ID struct {
	Stream [16]byte
	Seq    uint64
}

// String returns the id as 32 hexadecimal digits, a dash and the decimal seq.
func (id ID) String() string {
	return hex.EncodeToString(id.Stream[:]) + "-" + strconv.FormatUint(id.Seq, 10)
}

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	u, n, ok := strings.Cut(s, "-")
	seq, err := strconv.ParseUint(n, 10, 64)
	if b, e := hex.DecodeString(u); !ok || err != nil || e != nil || copy(id.Stream[:], b) != 16 || len(b) != 16 {
		return ID{}, &message.FieldError{Field: "message id", Fault: fmt.Sprintf("%q is not one", clip(s))}
	}
	id.Seq = seq
	return id, nil
}

// Receipt is the right to acknowledge one delivery of one message. It does not repeat: neither another
// delivery nor another message has the same one.
type Receipt struct {
	Stream [16]byte
	Epoch  uint64
	Lease  uint64
	Seq    uint64
}

// String returns the receipt in a form without spaces that ParseReceipt reads.
func (r Receipt) String() string {
	return fmt.Sprintf("%s-%x-%x-%x", hex.EncodeToString(r.Stream[:]), r.Epoch, r.Lease, r.Seq)
}

// ParseReceipt reads what String wrote.
func ParseReceipt(s string) (Receipt, error) {
	var r Receipt
	bad := &message.FieldError{Field: "receipt", Fault: fmt.Sprintf("%q is not one", clip(s))}
	p := strings.Split(s, "-")
	if len(p) != 4 {
		return r, bad
	}
	b, err := hex.DecodeString(p[0])
	if err != nil || len(b) != 16 {
		return r, bad
	}
	copy(r.Stream[:], b)
	for i, dst := range []*uint64{&r.Epoch, &r.Lease, &r.Seq} {
		if *dst, err = strconv.ParseUint(p[i+1], 16, 64); err != nil {
			return Receipt{}, bad
		}
	}
	return r, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// The errors of queues. They are wrapped with what was being done to which queue.
var (
	// ErrNoQueue says that the queue does not exist, and may not come into being by use.
	ErrNoQueue = errors.New("no such queue")
	// ErrDeleted says that the queue was deleted while a sender or receiver of it was open. It matches ErrNoQueue too. Of a send: not stored, or
	// deleted with the queue.
	ErrDeleted = fmt.Errorf("queue was deleted: %w", ErrNoQueue)
	// ErrQueueExists says that the queue exists with another configuration.
	ErrQueueExists = errors.New("queue exists with another configuration")
	// ErrUnknown says that a send may or may not be stored: the wait for the answer was given up.
	ErrUnknown = errors.New("outcome unknown")
	// ErrConflict says that a strict sender cannot go on where it was: the queue has more or fewer of its messages than it was
	// told, because another sender uses the same producer id and incarnation, or because the queue lost what it had
	// acknowledged (durability=buffered, after a crash of the machine).
	ErrConflict = errors.New("sender out of step with the queue")
	// ErrClosed says that the sender, receiver, client or broker was closed. Of a send: not stored.
	ErrClosed = errors.New("closed")
	// ErrFenced says that another broker owns the queue now.
	ErrFenced = errors.New("queue is owned by another broker")
	// ErrDenied says that the caller's token or certificate does not give the right.
	ErrDenied = errors.New("permission denied")
	// ErrFull says that the queue is at its maximum and the sender is not to wait. Of a send: not stored.
	ErrFull = queue.ErrFull
	// ErrStorageFull says that the store under the queue has no room; the send can be tried again later.
	ErrStorageFull = queue.ErrStorageFull
	// ErrLeaseLost says that the receiver does not hold the message any more: another may have it, or it is gone.
	ErrLeaseLost = queue.ErrLeaseLost
	// ErrUnavailable says that the queue cannot be used at present: it is recovering, or its storage is damaged.
	ErrUnavailable = errors.New("queue unavailable")
)

// MovedError says that another broker owns the queue. It matches [ErrFenced]. A client of package client follows it by itself.
type MovedError struct {
	// Address is where that broker can be reached.
	Address string
}

// Error tells the address.
func (e *MovedError) Error() string { return ErrFenced.Error() + ": " + e.Address }

// Unwrap returns ErrFenced.
func (e *MovedError) Unwrap() error { return ErrFenced }
