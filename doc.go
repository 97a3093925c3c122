// Package holdfast is a queue as its users see it: send, receive, acknowledge,
// whether the broker runs in the same process or at the other end of a connection.
//
//	j, err := segment.Open("./data", segment.Options{}) // or any other journal
//	b, err := broker.Open(ctx, j, broker.Options{})     // or client.Dial for a remote one
//	q := b.Queue("orders")
//	id, err := q.Send(ctx, holdfast.Message{Body: body})              // returns once it is stored
//	err = q.Consume(ctx, handle, holdfast.ConsumeOptions{Workers: 4}) // leases, retries, drain
//
// A [Queue] is a thin view over a [Link], the small set of calls that a broker answers. The
// rules of the sending side (numbering, batches of what is waiting, sending again under the
// same number) and of the receiving side (credit, lease renewal, acknowledgement) live here
// and are the same for both kinds of link.
//
// # Rooms
//
//	queue.go, typed.go    Queue, and the view of it for messages of one Go type
//	sender.go             Sender: the calls of users
//	sender_window.go      admission, and what becomes of messages
//	sender_writer.go      the goroutine that opens streams and hands frames over
//	sender_events.go      what the broker says
//	frame.go              messages on their way, and who waits for them
//	consume.go, worker.go Consume: handlers
//	receiver.go           Receiver: messages on demand
//	delivery.go           Delivery: a message in a receiver's hands
//	intake.go             what both have below them: streams and the keeper goroutine
//	intake_stream.go      what the broker says, credit, lost leases
//	intake_settle.go      acknowledgements and their like, renewal
//	block.go              leased messages
//	link.go, types.go     the contract with the broker
//
// # Goroutines
//
// A Sender has one goroutine while it has a stream or something to send, and one for done functions while there are any to
// call. A consumer has one beside its workers. Nothing here runs, waits or allocates a channel per message.
package holdfast
