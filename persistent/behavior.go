package persistent

import (
	"fmt"
	"iter"

	"github.com/holdfastmq/holdfast/journal"
)

// Behavior is what an actor does. C is the type of its commands, E the type of its events.
//
// All methods are called on the actor's own goroutine, one at a time, so what they touch needs
// no lock. None may block on anything but computing: while one runs, the actor does nothing
// else. A panic in one of them stops this actor (see [PanicError]) and nothing else.
//
// Embed [Base] to have the methods that are not needed, all but Command and Apply.
//
// The order of calls in the life of an actor is: Restore; Apply and Stored for each record behind the
// snapshot; Recovered; then any of the others; at last Undelivered for each command that was
// not begun, and Stopped.
type Behavior[C, E any] interface {
	// Command handles one command: it decides, and persists what it decided by
	// [Context.Persist] or [Context.PersistAsync]. Whatever leaves the actor because of it (a reply,
	// a message) belongs into a function given to [Context.After], which runs once
	// everything decided so far is stored.
	Command(a *Context[E], cmd C)

	// Apply changes the state by one event. It is called exactly once for each event, in order: live,
	// at once when the event is persisted, before Persist returns; on recovery, while replaying. It must
	// depend on nothing but its arguments and the state, so that both give the same. seq is the
	// first seq that the event takes, at the queue time of its decision in Unix milliseconds.
	Apply(seq uint64, at int64, e E)

	// Stored is called for each record: live, when it is stored, before the functions
	// given to After that waited for it; on recovery, after its events were applied. Records
	// that hold no events (of another kind than journal.KindEvents) come by here too: their seqs are taken. They come
	// live when the store has room again after it was full. h is valid until Stored returns.
	Stored(a *Context[E], h *journal.Header)

	// Recovered is called once, before the first command. It may persist.
	Recovered(a *Context[E])

	// Wake is called once the queue time that was given to [Context.WakeAt] has come. It may persist.
	Wake(a *Context[E])

	// Full tells that the store has no room for bodies (true), and later that it has again
	// (false). Meanwhile what has a body should be refused. It may persist.
	Full(a *Context[E], full bool)

	// Refuse is called for an event with a body that was decided and applied, but that the store refused for lack
	// of room, as it did all later ones (see the package documentation, Full). It returns an event
	// without a body that undoes it: after Apply of both, and of anything between them, the
	// state must be as if the command had been refused; and what was decided in between must stay
	// valid. It returns false to have the event wait for room instead, and everything behind it.
	//
	// On recovery it is called for events whose undoing was not stored before a crash.
	Refuse(seq uint64, at int64, e E) (undo E, ok bool)

	// Undelivered is called for each command that was accepted by the mailbox and not begun
	// when the actor stopped. err matches [ErrNotStored].
	Undelivered(cmd C, err error)

	// Stopped is the last call. err is what [Actor.Err] tells: it matches [ErrStopped], and the cause if
	// the actor did not stop cleanly.
	Stopped(err error)

	// Capture returns the state as it is now, for a snapshot, in chunks, or nil if there is nothing to
	// be saved (then all events are replayed on recovery, and none is ever discarded).
	// It must return quickly. The sequence is ranged over at most once, in another goroutine, beside commands,
	// and so must read from what no later call changes. A chunk is valid until the next step; one
	// that is the same as in the snapshot before is not written again (see journal.SaveSnapshot). A
	// panic of the sequence ends the snapshot, which is tried again later.
	Capture() iter.Seq[[]byte]

	// Restore replaces the whole state by the one after the event id.Seq, from what Capture yielded. It is
	// called first of all; and again, with other chunks or none, if it returned an error or the snapshot turned out
	// damaged. chunks is nil if there is no snapshot: the state is then the initial one, and the first
	// record will begin with seq id.Seq+1. Chunks belong to it.
	Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error
}

// Base has every method of [Behavior] but Command and Apply, doing nothing: no snapshots, no refusals. Embed it.
type Base[C, E any] struct{}

// Stored does nothing.
func (Base[C, E]) Stored(*Context[E], *journal.Header) {}

// Recovered does nothing.
func (Base[C, E]) Recovered(*Context[E]) {}

// Wake does nothing.
func (Base[C, E]) Wake(*Context[E]) {}

// Full does nothing.
func (Base[C, E]) Full(*Context[E], bool) {}

// Refuse lets every event wait for room.
func (Base[C, E]) Refuse(uint64, int64, E) (undo E, ok bool) { return undo, false }

// Undelivered does nothing.
func (Base[C, E]) Undelivered(C, error) {}

// Stopped does nothing.
func (Base[C, E]) Stopped(error) {}

// Capture returns nil: no snapshots.
func (Base[C, E]) Capture() iter.Seq[[]byte] { return nil }

// Restore accepts the initial state, and refuses a snapshot.
func (Base[C, E]) Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	if chunks == nil {
		return nil
	}
	return fmt.Errorf("snapshot at seq %d: this behavior has no Restore", id.Seq)
}
