// Package client is the Go client of a broker: a [holdfast.Link] over a connection of the data protocol
// (docs/protocol.md), and the administrative calls.
//
//	c, err := client.Dial(ctx, client.Options{Addrs: []string{"broker-1:9650", "broker-2:9650"}, TLS: tlsConfig, Token: token})
//	defer c.Close()
//	q := c.Queue("orders")
//	id, err := q.Send(ctx, holdfast.Message{Body: body})
//	err = q.Consume(ctx, handle, holdfast.ConsumeOptions{})
//
// # Connections
//
// A [Client] keeps one connection, which carries all of its streams. When it ends, all streams break, and the next stream that is opened
// makes a new connection, to the next address of the list that answers. The senders and receivers of package holdfast
// open their streams again by themselves, send again what was not acknowledged under the same numbers, and go on with
// what they hold; so nothing of this is seen but a pause.
//
// An attempt goes once round the list. If no address answers, it fails, and the next one waits a growing while first.
package client
