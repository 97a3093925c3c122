package holdfast

import (
	"context"
	"time"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// Link is what a queue's view needs of a broker. It is implemented by package broker, in
// process, and by package client, over a connection; users meet it only when they write a
// third kind.
//
// All methods may be called concurrently. Callbacks (SenderEvents, ReceiverEvents and reply functions) are
// called from the link's own goroutines, in order for each sender or receiver, never concurrently for one
// of them; they must return at once and must not call back into the link in a way that waits.
type Link interface {
	// OpenSender opens a sender's stream to a queue, creating the queue if the broker allows that. It ends any earlier
	// stream of the same producer: what that one still brings is not stored, so that Resume and a later Refused are proofs.
	OpenSender(ctx context.Context, queue string, o SenderConfig, ev SenderEvents) (SenderLink, SenderOpened, error)
	// OpenReceiver opens a receiver's stream.
	OpenReceiver(ctx context.Context, queue string, o ReceiverConfig, ev ReceiverEvents) (ReceiverLink, ReceiverOpened, error)
	// Admin returns the administrative calls.
	Admin() Admin
}

// SenderConfig describes a sender to the broker.
type SenderConfig struct {
	// Producer identifies the sender for dedup; zero means that its sends are not recognised when they are repeated.
	Producer queue.Producer
	// NoWait asks for an error instead of waiting when the queue is full.
	NoWait bool
	// Internal allows what brokers write when messages move between queues. Front doors set it for other brokers alone.
	Internal bool
}

// SenderOpened is the broker's answer.
type SenderOpened struct {
	StreamUID [16]byte
	Epoch     uint64
	// Resume is the producer seq that the queue expects next, 0 if it does not know the producer.
	Resume uint64
	Credit SendCredit
	// MaxBody and MaxFrameBytes are the broker's limits in bytes.
	MaxBody, MaxFrameBytes int
	// Buffered tells that the queue acknowledges before stable storage (durability=buffered).
	Buffered bool
	// Lent tells that the link has no use for a frame once it is answered on this stream, so that the sender may use its memory again.
	// Without it, the broker may keep frames.
	Lent bool
}

// SendCredit is how much a sender may have sent in all: the producer seq (for a sender without a producer: its
// own count of messages) and the bytes of frames, both counted from the opening of this sender's
// stream. Both only grow. A message whose frame is larger than the bytes that are left may go alone, when nothing else is
// unanswered.
type SendCredit struct {
	Messages uint64
	Bytes    uint64
}

// Accepted says that messages are stored. See queue.Accepted.
type Accepted struct {
	UpTo       uint64 // every producer seq up to here is stored
	First      uint64 // seq of the first newly stored message, 0 if none was
	Count      uint64
	Duplicates uint64
	// Suppressed are duplicates by dedup id, with the seqs of the messages that were stored instead.
	Suppressed []queue.Suppressed
	Credit     SendCredit
}

// SenderEvents is how a broker speaks to a sender.
type SenderEvents interface {
	// Accepted says that messages are stored, and gives new credit.
	Accepted(Accepted)
	// Refused says that nothing from producer seq resume on was stored (with proof).
	Refused(resume uint64, err error)
	// Waits says that the queue grants nothing more at present, and why; waits is false when that has passed.
	Waits(waits bool, reason string)
	// Broken ends the stream: nothing more comes. What was sent and not answered is unknown until the
	// sender opens a new stream under the same producer and sends it again. ErrNoQueue: the queue was deleted.
	Broken(err error)
}

// SenderLink is an open sender's stream.
type SenderLink interface {
	// Send hands over a frame (see package message), whose first message has the given producer seq. It does
	// not wait; the caller keeps within its credit. From now on nobody changes the frame: the sender keeps it, to
	// send it again, and so may the broker. Only where SenderOpened.Lent says so, and the frame was handed over once, it is the sender's again
	// when it is answered.
	// An error means that the stream is broken, which Broken tells as well.
	Send(first uint64, frame []byte) error
	// Close ends the stream. clean says that nothing is unanswered and the producer will not come back, so
	// that the broker may forget it. It does not wait. No event follows it.
	Close(clean bool)
}

// ReceiverConfig describes a receiver to the broker.
type ReceiverConfig struct {
	// Session identifies the receiver across reconnections. Zero means none.
	Session [16]byte
	// Held are messages that the receiver holds from its stream before, to go on with.
	Held       []queue.LeaseSpan
	Announces  bool          // it announces starts (Started)
	Unbound    bool          // its leases outlive the stream
	Visibility time.Duration // 0: the queue's
}

// ReceiverOpened is the broker's answer.
type ReceiverOpened struct {
	StreamUID  [16]byte
	Epoch      uint64
	Visibility time.Duration // after which a lease that is not renewed ends
	// Kept are those of Held that the receiver still holds, under the same lease numbers.
	Kept []queue.LeaseSpan
}

// Run is consecutive leased messages: message Seq+i is held under lease number Lease+i.
type Run struct {
	queue.Delivery
	// Data is Count encoded messages one after the other, as they lie in a frame. It belongs to the receiver.
	Data []byte
}

// ReceiverEvents is how a broker speaks to a receiver.
type ReceiverEvents interface {
	// Deliver hands over messages, never more than the credit given.
	Deliver(runs []Run)
	// Lost says that the receiver no longer holds messages.
	Lost(spans []queue.LeaseSpan, reason string)
	// Broken ends the stream. What the receiver holds can be kept by opening a new one with the same session. ErrNoQueue: the queue was
	// deleted.
	Broken(err error)
}

// Outcomes is called with what became of an Ack, Nack, Release, Extend or Started: nil outcomes
// mean that all of it was done. With err, all of it is unknown and can be repeated.
type Outcomes func(outcomes []queue.Outcome, err error)

// ReceiverLink is an open receiver's stream. Its calls do not wait; a nil Outcomes asks for no answer.
type ReceiverLink interface {
	// Credit says how much the receiver has been willing to take in all since it was opened: messages and
	// bytes of attributes and bodies. Both only grow.
	Credit(messages, bytes uint64)
	// Started announces that the receiver begins with messages. Deliveries with ConfirmStart are not begun before the answer.
	Started(spans []queue.LeaseSpan, reply Outcomes)
	// Ack deletes messages: they are done.
	Ack(spans []queue.LeaseSpan, reply Outcomes)
	// Nack gives messages back as failed. delay < 0 means the queue's retry policy.
	Nack(spans []queue.LeaseSpan, delay time.Duration, reply Outcomes)
	// Release gives messages back uncounted.
	Release(spans []queue.LeaseSpan, reply Outcomes)
	// Extend lets the leases end this long from now; 0 means the visibility timeout.
	Extend(spans []queue.LeaseSpan, by time.Duration, reply Outcomes)
	// Close ends the stream. clean gives everything back at once; otherwise started messages are held for a
	// while for the session to come back. It does not wait. No event follows it.
	Close(clean bool)
}

// Admin is the administrative calls of a broker. Queue names are validated; a queue that does not exist is
// ErrNoQueue, but for Create.
type Admin interface {
	// Create makes a queue with a configuration; ErrQueueExists if there is one with another.
	Create(ctx context.Context, name string, cfg queue.Config) error
	// List returns all queues, by name.
	List(ctx context.Context) ([]QueueInfo, error)
	// Describe returns one queue; it waits for its recovery.
	Describe(ctx context.Context, name string) (QueueInfo, error)
	// Configure replaces the configuration.
	Configure(ctx context.Context, name string, cfg queue.Config) error
	// Pause stops handing out, or with false goes on. Sends and acknowledgements are not touched by it.
	Pause(ctx context.Context, name string, paused bool) error
	// Purge deletes everything stored before the call, and returns how many messages.
	Purge(ctx context.Context, name string) (uint64, error)
	// Delete drops the queue with everything in it. Its streams end with ErrDeleted.
	Delete(ctx context.Context, name string) error
	// Peek returns up to limit messages without leasing them, from seq from on.
	Peek(ctx context.Context, name string, o PeekOptions) ([]PeekedMessage, error)
	// Redrive moves dead letters back to where they came from, or to target, and makes parked messages ready.
	// limit 0 means all. It returns how many were set on their way.
	Redrive(ctx context.Context, name, target string, limit int) (uint64, error)
	// Settle acks, nacks or extends by receipts, for receivers without a stream.
	Settle(ctx context.Context, name string, op SettleOp, receipts []Receipt, d time.Duration) ([]queue.Outcome, error)
}

// SettleOp is what Settle does.
type SettleOp uint8

// The operations of Settle.
const (
	SettleAck SettleOp = iota + 1
	SettleNack
	SettleRelease
	SettleExtend
)

// QueueInfo describes a queue.
type QueueInfo struct {
	Name      string
	StreamUID [16]byte
	Owner     string // the broker's advertised address
	Epoch     uint64
	Ready     bool // recovered and in use
	// Error says why the queue cannot be opened, empty if it can.
	Error  string
	Paused bool
	Config queue.Config
	Stats  queue.Stats
	// Damage says what was found last of messages whose bodies cannot be read, empty if there are none. Stats.Damaged is how many there are:
	// they are parked, and the queue goes on with everything else.
	Damage string
}

// PeekOptions select what Peek returns.
type PeekOptions struct {
	State queue.State // zero: any
	From  uint64      // lowest seq
	Limit int         // default 10, at most MaxPeek
	// Bodies asks for headers and bodies as well.
	Bodies bool
}

// MaxPeek is how many messages one Peek returns at most.
const MaxPeek = 1000

// PeekedMessage is one message as Peek sees it.
type PeekedMessage struct {
	queue.MessageInfo
	ID      ID
	Message Message // only with PeekOptions.Bodies
	// Hops are its moves between queues, oldest first; only with PeekOptions.Bodies.
	Hops []message.Hop
	// Error says why the body cannot be read: Message and Hops are empty then, and ID is where the message lies. Empty if it can; only with
	// PeekOptions.Bodies.
	Error string
}
