package pebble

import "sync/atomic"

// counters are what Metrics reports, counted since the store was opened.
type counters struct {
	commits, records, bytes, syncNanos, reopens atomic.Uint64
}

// Metrics is a store's state and what it did since it was opened.
type Metrics struct {
	Streams int // dropped ones included

	DiskBytes  int64 // all files of the store
	LogBytes   int64 // of them logs, with those kept for reuse
	TableBytes int64 // of them tables
	// LiveBytes is what the streams hold that is not discarded: metas and bodies with their headers, parts.
	LiveBytes int64

	FreeBytes    uint64 // of the file system, at the last look; 0 where it does not tell
	BallastBytes int64  // 0 while it is given up
	// Full tells that records with bodies are refused, Out that all are.
	Full, Out bool
	// ReadOnly tells that changes are refused for good: see Journal.Loss and Options.ReadOnly.
	ReadOnly bool

	Commits uint64 // batches that were synced
	Records uint64 // appended
	Bytes   uint64 // written to the log
	// SyncNanos is the time from handing a batch to the log until it was durable, summed over Commits.
	SyncNanos uint64

	Flushes, Compactions, Stalls uint64
	Reopens                      uint64 // after I/O errors
}

// Metrics returns the store's figures. It costs some microseconds and a lookup a stream.
func (j *Journal) Metrics() Metrics {
	e, err := j.use()
	if err != nil {
		return Metrics{}
	}
	defer e.leave()
	em := e.db.Metrics()
	m := Metrics{
		DiskBytes: int64(em.DiskSpaceUsage()), LogBytes: int64(em.WAL.PhysicalSize + em.WAL.ObsoletePhysicalSize),
		TableBytes: em.Total().TablesSize, LiveBytes: j.liveBytes(),
		ReadOnly: j.refuse() != nil,
		Commits:  j.stats.commits.Load(), Records: j.stats.records.Load(), Bytes: j.stats.bytes.Load(),
		SyncNanos: j.stats.syncNanos.Load(), Reopens: j.stats.reopens.Load(),
		Flushes: uint64(em.Flush.Count), Compactions: uint64(em.Compact.Count), Stalls: e.stalls.Load(),
	}
	j.mu.RLock()
	m.Streams = len(j.streams)
	j.mu.RUnlock()
	j.space.mu.Lock()
	if !j.space.off {
		m.FreeBytes = j.space.free.Load()
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

func (j *Journal) liveBytes() int64 {
	var n int64
	for _, st := range j.allStreams() {
		st.mu.Lock()
		n += st.acked.live()
		st.mu.Unlock()
	}
	return n
}

func (j *Journal) tableBytes() int64 {
	e, err := j.use()
	if err != nil {
		return 0
	}
	defer e.leave()
	return e.db.Metrics().Total().TablesSize
}
