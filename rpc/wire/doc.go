// Package wire is the codec of the data protocol holdfast/1, as docs/protocol.md describes it:
// frames of a connection that carries many streams.
//
// The package is pure: it imports no clock, context, network or storage. For each frame there is an
// Append function, which adds the whole frame to a buffer, and a Decode function, which reads its payload.
// Decode functions take any bytes: what is malformed is an [Error] with code CodeProtocol that names the
// field, and nothing is allocated before its length is known to be there.
//
// Frames of messages (Send, Deliver) are carried whole: AppendSendHeader and AppendDeliverHeader write what
// comes in front, so that the messages themselves need not be copied.
package wire
