package queue

// Options are what a core is made with. The zero value means the defaults.
type Options struct {
	Config Config
	// MaxProducers bounds the remembered producers. Default 65,536.
	MaxProducers int
	// ProducerTTL is how long a producer is remembered after its last send, in ms. Default 24 h.
	ProducerTTL int64
	// MaxDedupIDs bounds the remembered dedup ids. Default 1,000,000.
	MaxDedupIDs int
	// HoldStarted is how long started messages of a lost receiver are held for it to come back, in ms. Default 5 s.
	HoldStarted int64
	// Jitter yields numbers in [0,1) for retry delays. Default: a fixed sequence, the same in every core.
	Jitter func() float64
	// Moves bounds the messages that are on their way to another queue at once. Default 64.
	Moves int
}

// SendBatch is a checked frame from a sender.
type SendBatch struct {
	Sender SenderID
	// ProducerSeq is the producer seq of the first message, consecutive from there. 0 from a sender without a producer.
	ProducerSeq uint64
	Frame       []byte
	// Info is what message.Check told of the frame; its slices may be kept.
	Count    int
	Bytes    int
	Uniform  uint32
	Sizes    []uint32
	Specials []Special // times relative to now already resolved to absolute by SpecialsOf
}

// SenderOptions describe a sender as it is opened.
type SenderOptions struct {
	Producer Producer // zero: no dedup
	// NoWait makes a full queue refuse its sends with ErrFull instead of letting them wait, whatever the policy.
	NoWait bool
}

// ReceiverOptions describe a receiver as it is opened.
type ReceiverOptions struct {
	// Announces tells that the receiver announces starts: what it was handed but did not start is given back uncounted.
	Announces bool
	// Unbound leases outlive the receiver: they end by their deadline alone.
	Unbound bool
	// Visibility replaces the queue's visibility timeout, in ms. 0 means the queue's.
	Visibility int64
}

// PLEASE NOTE: the methods that the core must have; each decides, applies, and leaves its output for Take.
//
//	New(o Options, firstSeq uint64) *Core             // an empty queue whose next event gets firstSeq
//	Restore(o Options, chunks iter.Seq2[[]byte, error]) (*Core, error)
//	(c *Core) Capture() *Snapshot                     // immutable view, cheap (copy on write); Snapshot.Seq(), Snapshot.Chunks() iter.Seq[[]byte]
//	(c *Core) Apply(seq uint64, e *Event) error       // recovery: one stored event
//	(c *Core) SkipTo(seq uint64)                      // recovery: seqs before seq are no events of the queue (epoch and skip records)
//	(c *Core) Stored(first, last uint64, bodyBytes int)   // a record is stored (live and recovery): its boundaries
//	(c *Core) Recovered(now int64)                    // leases restart in full from now; Move effects for what is moving; clock step guard
//	(c *Core) NextSeq() uint64
//	(c *Core) Take() Output
//	(c *Core) Deadline() (at int64, ok bool)          // when Tick wants to be called next
//	(c *Core) Tick(now int64)                         // expiries, due messages, leases, held sessions, producer TTL
//
//	(c *Core) OpenSender(now int64, id SenderID, o SenderOptions) (resume uint64)  // last stored producer seq + 1 if known, else 0
//	(c *Core) CloseSender(now int64, id SenderID, forget bool)                     // forget: clean close frees the dedup entry
//	(c *Core) Send(now int64, b SendBatch)
//	(c *Core) StorageFull(now int64, full bool)       // refuse or let wait sends meanwhile
//
//	(c *Core) OpenReceiver(now int64, id ReceiverID, o ReceiverOptions)
//	(c *Core) Credit(now int64, id ReceiverID, messages, bytes uint64)             // cumulative totals since OpenReceiver
//	(c *Core) CloseReceiver(now int64, id ReceiverID, clean bool)                  // clean: all of it returns at once; else hold started ones
//	(c *Core) ResumeReceiver(now int64, old, id ReceiverID, o ReceiverOptions, held []LeaseSpan) []LeaseSpan   // a session came back: which of these it still holds
//	(c *Core) Started(now int64, t Token, id ReceiverID, spans []LeaseSpan)
//	(c *Core) Ack(now int64, t Token, spans []LeaseSpan)
//	(c *Core) Nack(now int64, t Token, spans []LeaseSpan, delay int64)             // delay < 0: by policy
//	(c *Core) Release(now int64, t Token, spans []LeaseSpan)
//	(c *Core) Extend(now int64, t Token, spans []LeaseSpan, by int64)
//
//	(c *Core) Configure(now int64, t Token, cfg Config)
//	(c *Core) Pause(now int64, t Token, paused bool)
//	(c *Core) Purge(now int64, t Token)               // all below NextSeq, leased too
//	(c *Core) Redrive(now int64, t Token, target string, limit int)  // dead-letter queue: move back to where each came from (target "") or to target; parked ones here become ready
//	(c *Core) MoveDone(now int64, seq uint64, err error)
//	(c *Core) Relocated(now int64, spans []Span, frames [][]byte)
//	(c *Core) Peek(state State, from uint64, limit int) []MessageInfo
//	(c *Core) Stats(now int64) Stats
//	(c *Core) BodyAt(seqs) ...                        // the record in which each body lies: see Locate
//	(c *Core) Locate(seq uint64) (record uint64)      // first seq of the record whose body part holds the message
