// Package cluster lets several brokers share the queues of one replicated journal.
//
// A [Node] is a broker with its part of the queues, and a holdfast.Link to all of them. The rules (who lives, who is to have which
// queue, who waits) are in package placement; this package gives them the store, the clock and the broker.
//
//	beats.go   renews the broker's entry in the store, reads those of the others
//	queues.go  opens what is to be here, looks after what is, gives up what is not
//	route.go   where a queue is: for the broker (broker.Cluster) and for the front door
//	link.go    the link to all queues: here, by another broker, or told where to go
//	leave.go   the graceful end
//
// Taking over a queue is reading it, without disturbing who has it, and then Acquire, which fences who had it. That is all that
// safety rests on: brokers do not talk to each other about it, and a broker that is wrong about the others costs a pause, never a message.
//
// Brokers reach each other, with the token that each publishes in its entry, for administrative calls about a queue that
// another one has, and to move dead letters. Clients are sent on to the owner; see Node.Door.
package cluster
