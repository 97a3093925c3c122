package delivery

// ProducerStats are figures about a ProducerController. Counters count from its construction.
type ProducerStats struct {
	Sent          uint64 // messages that got a number
	Confirmed     uint64 // of them, those acknowledged
	Retransmitted uint64 // transmissions of a message beyond its first
	WindowFull    uint64 // sends that found no room in the window
	StrangeAcks   uint64 // acknowledgements ignored, of another producer id or incarnation
	LinkErrors    uint64 // envelopes that the link refused

	WindowSize       int    // how many messages may be unconfirmed
	Unconfirmed      int    // messages in the window
	UnconfirmedBytes int    // of their encoded bodies
	Buffered         int    // messages that wait in the buffer of Offer
	Blocked          int    // callers that wait for room
	NextSeq          uint64 // the number of the next message
	Floor            uint64 // the lowest unsettled number
}

// ConsumerStats are figures about a ConsumerController. Counters count messages, from its construction, unless it
// says otherwise.
type ConsumerStats struct {
	Handled      uint64 // handlers that returned nil
	Failed       uint64 // handlers that returned an error or panicked
	Panics       uint64 // of them, those that panicked
	Known        uint64 // repeated after they were settled: acknowledged again
	InProgress   uint64 // repeated while waiting or running: ignored
	NoRoom       uint64 // ignored because too much waited
	DeadLetters  uint64 // malformed, or not decodable
	AckErrors    uint64 // acknowledgements, each of a range, that could not be handed over
	Evicted      uint64 // producers that lost their entry to another
	Expired      uint64 // producers that lost their entry by the TTL
	Farewells    uint64 // producers whose entry was freed because they ended
	AssemblyLost uint64 // messages in parts that were given up because no more came

	Producers      int // producer ids with dedup state
	Unsettled      int // messages that wait or run
	UnsettledBytes int // of their encoded bodies
	Running        int // handlers that run (or are between two messages of one producer)
	Assembling     int // messages of which some parts have come
}
