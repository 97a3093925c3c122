// Package message is a message as its sender and its receiver see it, and the
// frame: the unit in which messages travel.
//
// A frame is formed by the sender from the messages that are waiting. It is
// checked once by the broker, stored as it came in the body part of a record, and
// handed out as slices of it. So the work per message on its way through a
// broker is a walk over two lengths, unless the message has something to say: a
// delay, a time to live, an ordering key, a priority, a dedup id, headers.
//
// The package is pure: it imports no clock, context, network or storage. All
// functions may be called concurrently on different values.
package message
