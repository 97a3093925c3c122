package window

import "fmt"

const (
	// MaxSeq is the highest sequence number of a message, 2^53−1: the largest integer that every
	// language's JSON carries exactly. Sequence numbers start at 1.
	MaxSeq uint64 = 1<<53 - 1

	// MaxWindow is the span of sequence numbers, counted from a producer's floor, in which a message is
	// accepted. It bounds what is remembered out of order.
	MaxWindow = 65_536

	// MaxIDBytes is the length limit, in bytes, of a producer id and of an incarnation. Neither may be empty.
	MaxIDBytes = 256
)

// Key names one life of one producer: an entry is kept for each.
type Key struct {
	// Producer is the producer id, 1 to MaxIDBytes bytes, the same over restarts if the user chose it.
	Producer string
	// Incarnation is what one construction of the producer minted, 1 to MaxIDBytes bytes.
	Incarnation string
}

// Valid reports whether both parts are within the limits of the wire.
func (k Key) Valid() bool {
	return checkID("", k.Producer) == nil && checkID("", k.Incarnation) == nil
}

// Fault says what is wrong with an envelope. It is an error.
type Fault struct {
	// Field is the field at fault: "producer id", "incarnation", "seq", "floor" or "reply-to".
	Field string
	// Problem says what is wrong with it, with the value and the limit.
	Problem string
}

// Error returns the field and the problem.
func (f *Fault) Error() string { return f.Field + " " + f.Problem }

// CheckEnvelope returns the fault of an envelope that carries the messages first…last of key with the given
// floor, or nil. Messages below the floor are no fault: they are settled, and acknowledged again.
func CheckEnvelope(key Key, floor, first, last uint64) *Fault {
	for _, id := range [...]struct{ field, value string }{{"producer id", key.Producer}, {"incarnation", key.Incarnation}} {
		if f := checkID(id.field, id.value); f != nil {
			return f
		}
	}
	for _, n := range [...]struct {
		field string
		value uint64
	}{{"seq", first}, {"seq", last}, {"floor", floor}} {
		if n.value < 1 || n.value > MaxSeq {
			return &Fault{n.field, fmt.Sprintf("%d is not in 1…%d", n.value, MaxSeq)}
		}
	}
	if last < first {
		return &Fault{"seq", fmt.Sprintf("%d…%d is empty", first, last)}
	}
	if last >= floor+MaxWindow {
		return &Fault{"seq", fmt.Sprintf("%d is %d beyond floor %d, the window is %d", last, last-floor, floor, MaxWindow)}
	}
	return nil
}

func checkID(field, id string) *Fault {
	switch {
	case id == "":
		return &Fault{field, "is empty"}
	case len(id) > MaxIDBytes:
		return &Fault{field, fmt.Sprintf("has %d bytes, the limit is %d", len(id), MaxIDBytes)}
	}
	return nil
}
