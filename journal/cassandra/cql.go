package cassandra

// What the driver sends. Deletions are of what is dead by the head of its stream and can never be written again. Their timestamp, in microseconds, is far beyond any
// clock: such a deletion hides what was written before it, whoever's clock went wrong, and what a late owner writes behind it.
const grave = " USING TIMESTAMP 2305843009213693952 "

// Kinds of rows in a bucket.
const (
	kindMeta = 0
	kindBody = 1
)

// The head of a stream, and its buckets.
const (
	cqlStreams = `SELECT DISTINCT stream FROM streams`
	cqlHead    = `SELECT fence, uid, low, tail, dropped, base_end, base_crc, base_time, fences, parts, next_slot, rev FROM streams WHERE stream = ? LIMIT 1`
	cqlBuckets = `SELECT start, gone FROM streams WHERE stream = ? AND start >= ?`
	// The bucket that holds the seq behind a given one, and what of the head says whether its records are alive.
	cqlBucketOf = `SELECT fence, uid, dropped, base_end, start, gone FROM streams WHERE stream = ? AND start <= ? ORDER BY start DESC LIMIT 1`

	cqlCreate = `UPDATE streams SET fence = ?, uid = ?, low = ?, tail = ?, dropped = false, base_end = ?, base_crc = ?, base_time = ?, rev = 0, gone = 0x
		WHERE stream = ? AND start = ? IF fence = ?`
	cqlRaise   = `UPDATE streams SET fence = ? WHERE stream = ? IF fence = ?`
	cqlFences  = `UPDATE streams SET fences = ? WHERE stream = ? IF fence = ?`
	cqlAdvance = `UPDATE streams SET tail = ?, gone = 0x WHERE stream = ? AND start = ? IF fence = ? AND tail = ?`
	// Changes within an epoch carry a revision: a random number, in place of that of the change before. So one that arrives late, behind its own repetition, does nothing.
	cqlSetLow   = `UPDATE streams SET low = ?, rev = ? WHERE stream = ? IF fence = ? AND rev = ?`
	cqlSetGone  = `UPDATE streams SET gone = ?, rev = ? WHERE stream = ? AND start = ? IF fence = ? AND rev = ?`
	cqlSetParts = `UPDATE streams SET parts = ?, next_slot = ?, rev = ? WHERE stream = ? IF fence = ? AND rev = ?`
	cqlDropped  = `UPDATE streams SET dropped = true, low = ?, base_end = ?, base_crc = ?, base_time = ?, parts = ?
		WHERE stream = ? IF fence = ? AND dropped = false`
	cqlDropRows = `DELETE FROM streams` + grave + `WHERE stream = ? AND start > ? AND start < ?`
)

// The head of a bucket, and its records.
const (
	cqlBucket = `SELECT fence, end_seq, end_crc, end_time, closed, records, bytes FROM records WHERE stream = ? AND start = ? LIMIT 1`
	cqlOpen   = `UPDATE records SET fence = ?, end_seq = ?, end_crc = ?, end_time = ?, closed = false, records = 0, bytes = 0
		WHERE stream = ? AND start = ? IF fence = NULL`
	cqlRaiseBucket = `UPDATE records SET fence = ? WHERE stream = ? AND start = ? IF fence < ?`

	cqlAppend = `UPDATE records SET end_seq = ?, end_crc = ?, end_time = ?, closed = ?, records = ?, bytes = ?, header = ?, data = ?
		WHERE stream = ? AND start = ? AND kind = 0 AND seq = ? IF fence = ? AND end_seq = ? AND end_crc = ? AND closed = false`
	cqlAppendBody = `BEGIN BATCH ` + cqlAppend + `; UPDATE records SET header = ?, data = ? WHERE stream = ? AND start = ? AND kind = 1 AND seq = ?; APPLY BATCH`
	cqlAppendRef  = `BEGIN BATCH ` + cqlAppend + `; UPDATE records SET header = ? WHERE stream = ? AND start = ? AND kind = 1 AND seq = ?; APPLY BATCH`

	cqlMetas    = `SELECT seq, header, data FROM records WHERE stream = ? AND start = ? AND kind = 0 AND seq >= ? AND seq <= ?`
	cqlLastMeta = `SELECT seq, header FROM records WHERE stream = ? AND start = ? AND kind = 0 AND seq <= ? ORDER BY kind DESC, seq DESC LIMIT 1`
	cqlMetaAt   = `SELECT header FROM records WHERE stream = ? AND start = ? AND kind = 0 AND seq = ?`
	cqlBodyRows = `SELECT seq, header FROM records WHERE stream = ? AND start = ? AND kind = 1 AND seq > ? AND seq <= ?`
	cqlBodies   = `SELECT seq, header, data FROM records WHERE stream = ? AND start = ? AND kind = 1 AND seq IN ?`

	cqlPutBig = `INSERT INTO bodies (stream, start, seq, epoch, crc, data) VALUES (?, ?, ?, ?, ?, ?)`
	cqlBig    = `SELECT data FROM bodies WHERE stream = ? AND start = ? AND seq = ? AND epoch = ? AND crc = ?`

	cqlDropRecords = `DELETE FROM records` + grave + `WHERE stream = ? AND start = ?`
	cqlDropBodies  = `DELETE FROM bodies` + grave + `WHERE stream = ? AND start = ?`
	cqlCutRecords  = `DELETE FROM records` + grave + `WHERE stream = ? AND start = ? AND kind = 1 AND seq >= ? AND seq <= ?`
	cqlCutBodies   = `DELETE FROM bodies` + grave + `WHERE stream = ? AND start = ? AND seq >= ? AND seq <= ?`
)

// Parts, members, and a change of nothing.
const (
	cqlPutPart  = `INSERT INTO parts (stream, slot, id, data) VALUES (?, ?, ?, ?)`
	cqlPart     = `SELECT data FROM parts WHERE stream = ? AND slot = ? AND id = ?`
	cqlDropPart = `DELETE FROM parts` + grave + `WHERE stream = ? AND slot = ?`

	// The stamp is a new random number each time, in place of the one before: the servers order the changes, not the members' clocks, and one that arrives
	// late does nothing.
	cqlPutMember    = `UPDATE members SET data = ?, stamp = ? WHERE id = ? IF stamp = ?`
	cqlDeleteMember = `DELETE FROM members WHERE id = ? IF stamp = ?`
	cqlMember       = `SELECT stamp FROM members WHERE id = ?`
	cqlMembers      = `SELECT id, data FROM members`

	cqlProbe = `DELETE FROM holdfast WHERE name = 'probe' IF EXISTS`
)
