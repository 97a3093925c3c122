package segment

import "sync/atomic"

// counters are what Metrics reports, counted since the store was opened.
type counters struct {
	commits, records, bytes, syncNanos, reopens, checkpoints, emptied, moved atomic.Uint64
}

// Metrics is a store's state and what it did since it was opened.
type Metrics struct {
	Streams  int // dropped ones included
	Segments int // in use

	DiskBytes int64 // all segments, and the ballast
	FreeBytes int64 // of them kept to be used again
	// LiveBytes is what the segments hold that is not discarded: metas and bodies with their headers, parts. What is discarded counts until
	// that is on stable storage.
	LiveBytes int64
	// CheckpointBytes is the size of the last checkpoint.
	CheckpointBytes int64

	FreeDisk     uint64 // of the file system, at the last look; 0 where it does not tell
	BallastBytes int64  // 0 while it is given up
	// Full tells that records with bodies are refused, Out that all are.
	Full, Out bool
	// ReadOnly tells that changes are refused for good: see Journal.Loss and Options.ReadOnly.
	ReadOnly bool

	Commits uint64 // syncs
	Records uint64 // appended
	Bytes   uint64 // written to the log
	// SyncNanos is the time from writing the first batch of a sync until it was durable, summed over Commits.
	SyncNanos uint64

	Checkpoints uint64
	// Emptied is how many segments were emptied by moving what was alive, and MovedBytes how much that was.
	Emptied, MovedBytes uint64
	Reopens             uint64 // after I/O errors
}

// Metrics returns the store's figures.
func (j *Journal) Metrics() Metrics {
	size, live, free, n := j.files.usage()
	m := Metrics{
		Segments: n, DiskBytes: size + free, FreeBytes: free, LiveBytes: live,
		ReadOnly: j.refuse() != nil,
		Commits:  j.stats.commits.Load(), Records: j.stats.records.Load(), Bytes: j.stats.bytes.Load(),
		SyncNanos: j.stats.syncNanos.Load(), Reopens: j.stats.reopens.Load(),
		Checkpoints: j.stats.checkpoints.Load(), Emptied: j.stats.emptied.Load(), MovedBytes: j.stats.moved.Load(),
	}
	j.maintaining.Lock()
	m.CheckpointBytes = int64(j.ck.size)
	j.maintaining.Unlock()
	j.mu.RLock()
	m.Streams = len(j.streams)
	j.mu.RUnlock()
	j.space.mu.Lock()
	if !j.space.off {
		m.FreeDisk = j.space.free.Load()
	}
	if j.space.ballast {
		m.BallastBytes = j.space.size
		m.DiskBytes += j.space.size
	}
	j.space.mu.Unlock()
	level := j.space.level.Load()
	m.Full, m.Out = level != spaceOK, level == spaceOut
	return m
}
