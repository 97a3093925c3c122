// Package pebble is the embedded journal: the storage contract of package journal on one
// directory of local disk, URL "pebble:DIR". It is the default, and needs nothing but a
// file system.
//
// The engine is Pebble, a log-structured merge tree. What this package adds:
//
//   - One committer (commit.go, stage.go, complete.go). The calls of all streams that wait are put into one batch and
//     share one sync; there is no timer, an idle store syncs at once.
//   - Heads in memory (stream.go). One process has the directory, so a stream's epoch and end are
//     checked by the committer, in the order in which batches reach the log; the head row in the same batch
//     is what survives.
//   - Cheap discards (discard.go). They ride in the next batch and have no sync of their own. What dies before
//     Pebble flushes its memtable is never written again.
//   - Guards against what the engine does not notice or does not survive: a high-water mark
//     kept apart that exposes a shortened log (mark.go, wal.go, preflight.go); a gate between the engine and the
//     file system through which a failed log write becomes close-and-reopen instead of the end
//     of the process (gate.go, engine.go); a reserve of disk space (space.go).
//
// docs/decisions/pebble.md in the repository says why, and what cannot be told apart.
//
// # Files
//
// Beside Pebble's own, the directory has FORMAT (the version of the layout), HIGHWATER-0 and
// HIGHWATER-1 (the mark, written in turn), LOCK and OWNER (which process has it), BALLAST (space
// that is given up when the disk is full).
package pebble
