// Package cassandra is a journal on Apache Cassandra, 5.0 or later: URL "cassandra://…". See [ParseURL] for the URL and [Open].
//
// # Tables
//
// Each is made by the driver in the keyspace that the URL names. A stream is cut into buckets, each a partition that dies as a whole;
// a bucket is named by its start, which is the stream's end when it began, so its successor's name is its own last seq.
//
//	streams  (stream) start        statics: the head of the stream; a row for each bucket: which bodies are gone
//	records  (stream, start) kind, seq   statics: the head of the bucket; rows: metas (kind 0), bodies (kind 1), each with the header
//	bodies   (stream, start) seq, epoch, crc   bodies above Options.InlineBytes
//	parts    (stream, slot) id     the data of parts; their directory is in the head of the stream
//	members  (id)                  the table of members
//	holdfast (name)                version and consistency of all this
//
// # Fencing
//
// Every change is a compare-and-set (a lightweight transaction) on one of the two heads, both of which hold a fence: twice the epoch, and one more while
// the stream is being dropped. Acquire raises it in the head of the stream, which ends everything but appends, and then in the head of the newest bucket. An append compares
// fence, end and CRC in the head of its bucket. Before the first append in a new bucket its owner names it in the head of the stream, under its fence: without that step, an
// owner that was held up opens a bucket that its successor has dropped, finds nothing there to compare with, and is told that it has appended.
//
// # Discards
//
// A discard is a mark in the head of the stream, made under the fence; what is marked is dead for every reader. The rows are deleted afterwards, whole buckets by
// one partition tombstone. Seqs and buckets never come twice, so these deletions need no fence: they carry a timestamp in the far future, which makes
// them independent of clocks, and what a late owner writes below them is never seen.
//
// # Unknown outcomes
//
// Cassandra's own "timeout" of a compare-and-set says nothing about it. It is settled by the identical request: if that is refused, the answer shows whether
// the bucket ends with the very record; if not, the record's place is read behind a serial read of the bucket's head, which completes or excludes whatever was under way.
package cassandra
