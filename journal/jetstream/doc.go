// Package jetstream is a journal on NATS JetStream: URL
//
//	nats://[USER:PASSWORD@]HOST[:PORT][,HOST…]/[STREAM][?OPTION=VALUE&…]
//
// One JetStream stream (default HOLDFAST, made if it is not there) holds all streams of the journal, on one subject each
// for records, control state, bodies and parts. Every change is one conditional publish: it names the sequence
// number that the subject's last message must have ("expected last subject sequence"), which JetStream checks in the same step.
// Acquire publishes a mark on the record subject, so that whatever an older owner sends late is refused.
//
// It needs NATS 2.12 or later. The stream may have one replica or several; with several, reads that must not be
// stale are confirmed through its Raft group. Servers that do not sync before they answer are refused; see [Open].
//
// The layout and its reasons are in docs/decisions/jetstream.md.
package jetstream
