// Package transport runs one connection of the data protocol, at either end: it reads frames, writes what
// is waiting, keeps the connection alive, and ends it with a reason.
//
// # Goroutines
//
// Serve reads in the goroutine that calls it and hands each frame to a function. One more goroutine writes
// what others have queued with Begin and End (or EndBulk): everything that waits goes out with one system call, and
// nothing waits for more to come. A timer looks ten times in DeadAfter whether anything was read.
//
// # Bounds
//
// Queueing never blocks, so that a broker's actor can answer without waiting for a socket. What bounds the queue is
// credit in both directions, and, for what is not under credit (answers, pongs), that Serve stops reading
// while more than Options.Buffer is queued: a peer that does not read is not read from. A write that makes no
// progress for WriteTimeout ends the connection.
package transport
