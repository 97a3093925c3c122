package journal

import "context"

// Importer is the optional side of a journal into which a stream of another journal can be
// copied record by record, such that nothing in it changes: uid, seqs, epochs, CRCs. So the ids of
// messages stay what they were, and snapshots fit.
type Importer interface {
	// Import makes the caller the owner of a copy. from tells where the copy begins: its UID, an Epoch not
	// below that of any record to come, and End, EndCRC and EndTime of the record before the first one that will
	// be appended (0 if the copy begins at seq 1).
	//
	// If there never was a stream of this name, it comes into being in that state: with from.UID, End at
	// from.End, Low behind it, and an epoch of at least from.Epoch. If it is there under from.UID and not
	// dropped, Import goes on with it, at the End that it has, and its epoch becomes at least from.Epoch.
	// Under any other uid, or dropped, it is another stream: [ErrConflict], and nothing changes.
	//
	// Import never writes a record of its own. The returned Stream differs from an acquired one in Append alone: it takes records
	// of any epoch up to its own, as they were sealed in the source, and a record whose body was discarded there
	// (Body nil, BodyLen not 0) is stored as one whose body is discarded here. It still refuses what
	// does not follow the record before it.
	//
	// Import fences whoever held the stream, with one exception: where a driver fences by a record (see
	// [Journal.Acquire]), of two importers at work at the same time the later record ends with ErrConflict, not with ErrFenced. Acquire
	// fences an importer like any owner.
	Import(ctx context.Context, stream string, from Info) (Stream, error)
}
