// Package broker runs queues over a journal: it gives the pure rules of package queue a clock, storage
// and goroutines, and is the in-process end of a holdfast.Link.
//
// # Rooms
//
//	broker.go    the broker: options, start, stop
//	registry.go  which queues there are, opening them, on demand and in the background
//	owner.go     one queue: a persistent actor around a queue.Core; what its effects do
//	commands.go  what can be asked of an owner
//	sender.go, receiver.go  the streams of holdfast.Link
//	pump.go      bodies for hand-overs: from the cache, or read from the journal
//	cache.go     frames in memory, one budget for all queues
//	space.go     discarding dead bodies, relocating survivors
//	mover.go     messages on their way to another queue
//	admin.go     holdfast.Admin
//
// # Goroutines
//
// A queue has the actor's goroutines, and starts one more of each kind (pump, space, mover) only while there is
// something to do for it. Nothing here runs per message.
//
// # Backpressure
//
// A sender may have so much unanswered, in messages and bytes, and its window shrinks and grows with what the
// broker has to give to all of them (Options.SendBudget). Because of that a push into a queue's mailbox never
// waits, and so one full queue never holds up a connection that also serves others (G4).
package broker
