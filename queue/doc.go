// Package queue is the queue itself, as a pure state machine: commands and "now"
// come in, events and effects come out as values. It knows no clock, no storage,
// no network and no goroutine; package broker gives it those.
//
// # How a command goes
//
// The shell calls a method of [Core]. The core decides, applies the events that it
// decided to its own state at once (so that the next command sees them), and keeps
// them with the effects until the shell takes both by [Core.Take]. The shell stores
// the events, and carries out the effects only once everything that had been
// decided before them is stored: an acknowledgement, a hand-over, even the refusal of a
// duplicate speak of state that must not be lost afterwards (design §3, G1).
//
// On recovery the shell gives a snapshot to [Restore] and the stored events behind it
// to [Core.Apply], which is what the commands themselves use.
//
// # Numbers
//
// Every event takes at least one seq of the stream: an Added event one for each
// message, all others one. The seq of a message, with the uid of the stream, is its id.
// A hand-over gives each message a lease number, which never repeats in the stream.
//
// # Time
//
// now is the queue time in Unix milliseconds: the shell's wall clock as it was at
// recovery plus monotonic time since, never less than any stored time. The core compares
// and adds; it never asks for it.
package queue
