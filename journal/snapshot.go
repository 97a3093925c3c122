package journal

// SnapshotID names a snapshot: the state after the event Seq, which the record with the
// given CRC ends with.
type SnapshotID struct {
	Seq   uint64
	Epoch uint64 // of the owner that wrote it
	CRC   uint32 // of the record that ends at Seq
	Time  int64  // queue time of that record, in Unix milliseconds
}

// snapshots are made of parts:
//
//	c/HASH        a chunk, named by the hash of its content: an unchanged chunk is not written again
//	m/SEQ-EPOCH   the manifest (SEQ, EPOCH zero-padded hex), written last: SnapshotID, the chunk names in order, a CRC
