package journal

import (
	"context"
	"fmt"
)

// SnapshotID names a snapshot: the state after the event Seq, which the record with the
// given CRC ends with.
type SnapshotID struct {
	Seq   uint64
	Epoch uint64 // of the owner that wrote the snapshot
	CRC   uint32 // of the record that ends at Seq
	Time  int64  // queue time of that record, in Unix milliseconds
}

// String names the snapshot in errors and logs.
func (id SnapshotID) String() string {
	return fmt.Sprintf("snapshot at seq %d of epoch %d", id.Seq, id.Epoch)
}

// A snapshot is made of parts:
//
//	c/HASH-NONCE        a piece of a chunk, named by the hash of its content: a piece that the
//	                    snapshot before has too is not written again
//	m/SEQ-EPOCH-NONCE   the manifest, written last: the SnapshotID and the pieces in order
//	m/discard           tells that metas may have been discarded, see discardMark
//
// The nonce is of the call that wrote the part. No name is ever used again once it may have been
// deleted: a write or delete that was given up as unknown, and takes effect late, meets nothing
// that matters. All other part names are free for other uses.
const (
	piecePrefix    = "c/"
	manifestPrefix = "m/"

	// discardMark is written before the first time that SaveSnapshot allows metas to be
	// discarded. With it, a stream that has lost all its manifests is told from one that never
	// had any, and is not opened as if it were empty.
	discardMark = "m/discard"
)

// mismatch tells why the stream cannot be continued from a snapshot.
type mismatch struct {
	id   SnapshotID
	what string
}

func (m *mismatch) Error() string { return fmt.Sprintf("%v: %s", m.id, m.what) }

// continues verifies that the stream goes on from the snapshot: that it ends at it, or
// that the record behind it follows the one that the snapshot ends with. A snapshot of a
// history that was lost, or whose next events are discarded, gives a *mismatch.
//
// Where that next record is damaged there is no answer, but none is needed: every earlier
// snapshot would be continued through it too, and whoever reads on will meet it.
func continues(ctx context.Context, r Reader, info Info, id SnapshotID) error {
	switch {
	case id.Seq > info.End:
		return &mismatch{id, fmt.Sprintf("beyond the end of the stream, seq %d", info.End)}
	case id.Seq == info.End && id.CRC != info.EndCRC:
		return &mismatch{id, "the stream ends with another record at that seq"}
	case id.Seq == info.End:
		return nil
	case info.Low > id.Seq+1:
		return &mismatch{id, fmt.Sprintf("the events behind it, up to seq %d, are discarded", info.Low-1)}
	}
	for rec, err := range r.ReadMeta(ctx, id.Seq+1, id.Seq+1) {
		switch {
		case isDamage(err):
			return nil
		case err != nil:
			return fmt.Errorf("read the record behind %v: %w", id, err)
		case rec.First != id.Seq+1:
			return &mismatch{id, fmt.Sprintf("no record ends there, one holds the seqs %d…%d", rec.First, rec.Last())}
		case rec.PrevCRC != id.CRC:
			return &mismatch{id, "the stream has another record at that seq"}
		}
	}
	return nil
}
