// Package persistent runs persistent actors: each owns one stream of a journal, and keeps a
// state that is the result of the events in that stream.
//
// An actor is a goroutine with a mailbox. Its [Behavior] gets one command at a time, decides,
// and persists events. Events change the state at once, when they are decided, so that the next command
// sees them; replies and everything else that leaves the actor wait in [Context.After] until
// the events are stored. After a crash the state is rebuilt from a snapshot and the events behind it.
// Since one actor can keep what it did together with how far it got, it is the way to process a
// sequence of messages effectively once: see the example of Open.
//
// # Group commit
//
// One append is under way at a time. What is decided meanwhile becomes the next record, so an actor that is
// busy stores many commands with one sync, and an idle one stores its first command at once; no timer is in
// the way. [Context.Persist] holds up later commands until its events are stored,
// [Context.PersistAsync] does not.
//
// # Three outcomes
//
// Who waits is told that a command is stored (nil), not stored with proof ([ErrNotStored]), or unknown
// ([ErrUnknown]).
//
// An append that is not answered is repeated as it is, with growing pauses, until it is. The actor keeps its state and
// goes on deciding, until Options.MaxPendingBytes are not stored; then commands wait in the mailbox, and
// their callers by their contexts. Only a newer owner (journal.ErrFenced), a stream that is not as it
// should be (journal.ErrConflict), damage, a closed journal or a panic of the behavior stop the actor. It is
// then opened again, which rebuilds the state from what is stored.
//
// # Full
//
// When the store has no room for a record, events that were decided and applied cannot be stored. They can't be taken
// back either, since others were decided on top of them; and waiting for room would hold up
// just what makes room: deletes. So they are undone. For each event with a body that is not stored, the
// actor calls [Behavior.Refuse], which returns an event without a body that undoes it. The records are formed
// anew: the events keep their seqs and order, the bodies are left out, the undoing comes last. That is small,
// and a store keeps some room for records without bodies. Once a refused event is stored without its body, the functions
// given to After for it are told ErrNotStored with journal.ErrFull; all others go on as if
// nothing had happened, deletes in the same record too. If a crash comes between a bodyless
// event and what undoes it, recovery finds the one without the other and calls Refuse again.
//
// While the store is full, which [Behavior.Full] and [Context.Full] tell, the behavior is to refuse bodies up front. Every
// Options.FullRetry the actor asks the store, by a small record of no meaning that has a body: nothing is stored if
// there is no room, and if there is, the behavior is told. It takes one seq, and comes by Stored as journal.KindEpoch.
//
// Events without bodies, and those that Refuse returns false for, are not refused: they wait, and what is
// behind them too, until there is room.
//
// # Snapshots
//
// The state is captured by [Behavior.Capture] where a record ends, waits until that record is stored, and is encoded and
// saved by another goroutine, beside commands. Then the metas behind the older of the two snapshots that
// are kept are discarded. It happens by bytes, events and time (see [Options]), after a long replay, which counts like
// what is appended, and at a clean stop.
//
// # Time
//
// Events carry the queue time at which they were decided, see [Context.Now]: it never decreases, is the same
// on replay, and goes on at the rate of time however the wall clock is set. Timers are those of package
// time; in a testing/synctest bubble all of it is virtual.
package persistent
