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
// Every command first does what is due ([Core.Tick]), then its own work, and then what that made
// possible: senders that waited for room go on, ready messages are handed to receivers with
// credit, moves are asked for, dead records are named. What is too much for one command is put off;
// [Core.Deadline] tells when to call again.
//
// On recovery the shell gives a snapshot to [Restore] and the stored events behind it
// to [Core.Apply], which is what the commands themselves use. [Core.Stored] tells, live and on recovery,
// where records begin and end.
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
//
// # States of a message
//
//	           delayed ──due──┐                       ┌──> parked ──redrive──> ready
//	             │            v                       │(limit, no dead-letter queue)
//	sent ────────┴─────────> ready ──> in flight ─────┼──> moving ──> gone
//	                          ^ │         │  │        │(limit, or redrive)
//	       key free ── blocked┘ └──expiry │  │        │
//	                          ^           │  └─ nack ─┴──> retrying ──due──> ready
//	                          └───────────┴─ release, lease ended, receiver lost
//
// A message whose body cannot be read is parked from whatever state it is in (see Core.Damaged). An acknowledged message is
// gone, and so is one that expired, was purged or dropped, or moved. Delayed, blocked and ready are told apart by what is, and not by
// events: see [Core].
//
// # Where to find what
//
//	core.go        the state; Take; what a command begins and ends with
//	event.go       events, and codec.go their encoding; body.go the body part of records
//	effect.go      effects
//	config.go      configuration, names
//	apply.go       what events do to the state; flight.go to leases
//	recovery.go    Apply, Recovered, Stored, Undo
//	send.go        senders, their batches in line; store.go what is stored of a batch
//	receive.go     receivers, credit, hand-overs; sessions.go their end and return
//	settle.go      ack, nack, release, extend, started
//	keys.go        ordering keys
//	tick.go        what is due; ages.go when messages were stored; dedup.go dedup ids
//	move.go        dead-letter moves and redrive; admin.go the other administrative commands
//	space.go       records, dead bodies, relocation; damage.go bodies that cannot be read
//	snapshot.go    snapshots, snapshot_block.go what they say of messages, restore.go the way back
//	stats.go       statistics, peek
//
// The indexes under it are packages of their own: internal/seqset (sets of seqs), internal/spanmap (what is said of runs of
// messages), internal/column (sizes, keys), internal/timeset (times), internal/records.
package queue
