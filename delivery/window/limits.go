package window

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
func (k Key) Valid() bool { return validID(k.Producer) && validID(k.Incarnation) }

func validID(s string) bool { return len(s) >= 1 && len(s) <= MaxIDBytes }
