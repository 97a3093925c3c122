// Package segment is the segment log: the storage contract of package journal on one directory of local disk, URL "segment:DIR", in one
// log for all streams that it writes once.
//
// # How it works
//
// The calls of all streams that wait are formed into a batch, written with one system call behind the batch before it, and made durable
// with one sync (queue.go, stage.go, commit.go, complete.go). There is no timer: an idle store writes at once. Bodies are written from
// where the caller has them. The log is cut into segments: files of 64 MiB that are used again, since a disk syncs blocks that were
// written before three times as fast as those that a file grows by (files.go). A few zeros are written ahead of the end of a log that
// grows slowly; a log that grows fast is written once, and not twice.
//
// Where records are, and which bodies are alive, is in memory, packed to some bytes a record (index.go). A checkpoint has it all, twice, with
// the heads of the streams and the names of the parts; opening reads it and the log behind it (checkpoint.go, scan.go, recover.go). A segment in
// which nothing is alive is used again; where too much space is held by too little, what is alive is stored anew (move.go).
//
// # What is told apart
//
// Each batch has a number, the CRC of the header of the one before it, the salt of its segment, and the number of the last batch that was
// durable when it was formed. So a write that a power cut left unfinished is told from damage: behind the last batch that anything says was
// durable, the log ends at the first batch that is not whole; before it, nothing may be missing. Each change of a stream has a number too, and
// the high-water mark, kept apart and refreshed twice a second, has that of each stream (mark.go). What is lost is so told by stream, and only
// those streams are closed for changes; where it cannot be told, all are.
//
// docs/decisions/segment-log.md in the repository says why, with figures, and what cannot be told apart.
//
// # Files
//
// N.seg are the segments, in the order of their hexadecimal numbers; FORMAT is the version of the layout; CHECKPOINT-0 and -1; HIGHWATER-0 and -1
// (the mark, written in turn); LOCK and OWNER (which process has it); BALLAST (space that is given up when the disk is full).
package segment
