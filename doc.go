// Package holdfast is a queue as its users see it: send, receive, acknowledge,
// whether the broker runs in the same process or at the other end of a connection.
//
//	j, err := pebble.Open("./data", nil)              // or any other journal
//	b, err := broker.Open(ctx, j, broker.Options{})   // or client.Dial for a remote one
//	q := b.Queue("orders")
//	id, err := q.Send(ctx, holdfast.Message{Body: body})             // returns once it is stored
//	err = q.Consume(ctx, handle, holdfast.ConsumeOptions{Workers: 4}) // leases, retries, drain
//
// A [Queue] is a thin view over a [Link], the small set of calls that a broker answers. The
// rules of the sending side (numbering, batches of what is waiting, sending again under the
// same number) and of the receiving side (credit, lease renewal, acknowledgement) live here
// and are the same for both kinds of link.
package holdfast
