// Package rpc is a broker's front door for clients over the network: one port that speaks HTTP.
//
// Administrative calls are unary and go by connect, gRPC or JSON (see rpc/adminpb/proto). Data goes over a connection
// that begins as a request with "Upgrade: holdfast/1" and goes on as frames (see docs/protocol.md and rpc/wire). Both
// are thin: a [Server] gives every call and every frame to a [holdfast.Link], that of package broker as a rule.
//
// # A data connection
//
// The goroutine of the HTTP request reads frames, and gives each to the stream that it belongs to; the link does not
// wait, so neither does the reading. The link answers from goroutines of its own, which queue frames that one more
// goroutine writes (package rpc/transport). Opening a stream may wait for a queue to be recovered, so each runs in a goroutine of its own
// until it is open.
//
// What the server adds to the link is bounds: a receiver's credit is passed on only so far ahead of what has been
// written to its connection, so that a client that asks for everything and reads nothing costs one window.
//
// # Faults
//
// A frame that breaks the protocol ends its connection, with the reason. What is wrong with a stream (no such queue,
// no right, a frame of messages that is malformed) ends the stream only. Neither is noticed by other connections.
package rpc
