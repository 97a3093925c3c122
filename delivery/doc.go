// Package delivery gets messages from one place to another at least once, with repeated ones suppressed, over
// any link that may lose, repeat, delay and reorder them.
//
// It is used on its own, without a queue or a broker:
//
//	consumer, err := delivery.NewConsumerController(delivery.ConsumerOptions{}, handle)
//	producer, err := delivery.NewProducerController(delivery.ProducerOptions[Order]{Consumer: consumer})
//	err = producer.Send(ctx, order) // nil: handle(ctx, order) has returned nil
//
// # Who does what
//
// The ProducerController numbers messages from 1 and keeps each until it is acknowledged; it sends it again when
// the acknowledgement is overdue, and lets at most WindowSize be unacknowledged, so that its callers feel
// how fast the consumer is. The ConsumerController calls the handler once for each message that it has
// not seen, acknowledges when the handler returns nil, and does nothing when it fails: the producer sends again.
//
// What makes repetition harmless is the consumer's window (package window): for each producer id and
// incarnation, which numbers are settled and which are in progress. A message whose handler is slower than
// the producer's patience is in progress: it is not handled a second time, and not acknowledged before it
// is done.
//
// Each envelope carries the producer's floor, below which everything is settled. So a consumer that knows nothing
// of a producer, because it was restarted or had to forget it, goes on where the producer is.
//
// # How it is built
//
//	ProducerController   locks, goroutine, timer    │   ConsumerController   locks, workers, timer
//	  producer.Core      pure: numbers, repetition  │     consumer.Core      pure: dedup, order, bounds
//	                        ─────  Link: Delivery, Farewell  ─────▶
//	                        ◀────  ReplyTo: Acknowledgment   ─────
//
// Whatever happens to envelopes between the two is the Link's business; loss is allowed. A ConsumerController is a
// Link itself, for producers in the same process, without encoding. Its Remote method gives the form
// for links that carry bytes.
//
// Work passes between goroutines in batches of what is waiting, and acknowledgements are ranges, so that a
// message costs a few hundred nanoseconds; there is no goroutine, timer or log line for each message.
package delivery
