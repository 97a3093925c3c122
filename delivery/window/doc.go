// Package window keeps the bookkeeping that makes a repeated message harmless.
//
// It is pure: no clock, no goroutine, no lock, no I/O. Time comes in as a number, decisions go out as
// values, so that every rule can be tested as a script and against a naive model. Nothing in it is safe
// for concurrent use; its owner is one goroutine.
//
// Table is what the receiver of a lossy, reordering link needs: for each producer a Window that tells new
// messages from known ones and from those that are being handled, within a budget.
//
// Sequences is what a durable queue needs of its senders: messages of one sender arrive in order, so one
// number for each (producer id, incarnation) says what is new.
package window
