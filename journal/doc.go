// Package journal is the storage contract under a queue: what a driver must
// promise, written on the interfaces, and the record format that all drivers
// share.
//
// A journal holds streams; a stream is a gapless sequence of events, numbered
// from 1, written by one owner at a time. Events are stored in groups, the
// records: a record is atomic, carries the epoch of the owner that wrote it,
// and is chained by CRC to the record before it, so that a lost, damaged or
// foreign record is found by whoever reads on.
//
// A record has two parts. The meta part holds all events without message
// bodies, the body part holds the bodies. Metas are read on recovery, in order;
// bodies are read only when they are handed out, and are discarded as soon as
// the last message in them is gone. That is why recovery costs what is alive
// and memory follows what is in flight (design §1, G7 and G8).
//
// Fencing. [Journal.Acquire] makes its caller the owner under a higher epoch
// than any before. Everything that changes a stream is checked against the
// epoch in the store itself, in the same atomic step as the change. A caller
// whose epoch is no longer the newest gets [ErrFenced] from every such call, and
// none of them has an effect.
//
// Snapshots are built on parts: small named blobs that are written and deleted
// under the epoch like everything else. [SaveSnapshot] and [LoadSnapshot] are the
// format that all queues use; a driver needs to know nothing of it.
//
// Package journaltest proves a driver against every rule that is written here.
package journal
