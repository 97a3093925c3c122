package delivery

import "github.com/holdfastmq/holdfast/delivery/window"

// Limits of the wire. They are constants, not options: both sides of any link must agree on them.
const (
	// MaxSeq is the highest sequence number, 2^53−1. The lowest is 1.
	MaxSeq = window.MaxSeq
	// MaxIDBytes is the length limit in bytes of a producer id and of an incarnation.
	MaxIDBytes = window.MaxIDBytes
	// MaxWindow is the span from its floor in which a producer's messages are accepted.
	MaxWindow = window.MaxWindow
)

// Delivery is an envelope with one or more messages of one producer under consecutive numbers.
type Delivery[B any] struct {
	// ProducerID names the producer, Incarnation its present life: what one construction minted, or what a
	// durable producer resumed. Each has 1 to MaxIDBytes bytes.
	ProducerID, Incarnation string
	// Seq is the number of the first body; the others follow without gaps.
	Seq uint64
	// Floor is the producer's lowest unsettled number: everything below it is settled. At least 1.
	Floor uint64
	// Bodies are the messages. Receivers may keep the bodies but must not change what they point to, since the
	// producer sends the same again; they must not keep the slice.
	Bodies []B
	// ReplyTo is where acknowledgements go. A link that carries envelopes to another machine puts a value of its
	// own here, which answers on the connection that the envelope came from: no address that a sender names
	// is ever dialled.
	ReplyTo ReplyTo

	// Part, Parts and Total are for a message larger than the link's frames: Bodies is then one piece, number
	// Part of 0…Parts−1, of a body of Total bytes. Parts is 0 for whole messages.
	Part, Parts, Total int
}

// Acknowledgment says that the messages First…Last of a producer's incarnation were handled.
type Acknowledgment struct {
	ProducerID, Incarnation string
	First, Last             uint64
}

// Farewell says that a producer has ended, with everything below Floor settled, and that its entry can go.
type Farewell struct {
	ProducerID, Incarnation string
	Floor                   uint64
}

// Link carries envelopes to one consumer. B is what bodies are on it: the message type within a process,
// []byte between processes.
//
// A link may lose, repeat, delay and reorder envelopes, and split them. It must not block for longer than it
// takes to put an envelope aside: what it has no room for, it loses. (A link to another machine may wait a moment for its
// connection to take more; that holds back its producer's messages and the calls of its confirmation functions.) It must be
// safe for concurrent use. An error
// says that the envelope is lost for certain; the producer counts it and goes on as after any loss.
type Link[B any] interface {
	// Deliver takes messages. The slice d.Bodies is the caller's again when it returns.
	Deliver(d Delivery[B]) error
	// Farewell takes the last word of a producer. It is best effort.
	Farewell(f Farewell) error
}

// FrameLimiter is a Link whose frames are limited. Producers cut what is larger into parts.
type FrameLimiter interface {
	// FrameLimit returns how many bytes of bodies one Delivery may have at most; 0 means no limit.
	FrameLimit() int
}

// ReplyTo takes acknowledgements. It must be safe for concurrent use, must not block for longer than it takes to
// put them aside, and must not keep the slice. An error, or a panic, is a lost acknowledgement: the producer sends
// again and is acknowledged again.
type ReplyTo interface {
	// Acknowledge takes acknowledgements of one producer's incarnation, or of several.
	Acknowledge(acks []Acknowledgment) error
}
