package persistent

import (
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Stats are figures about an actor since it was opened. They are a little behind while it works.
type Stats struct {
	UID   journal.UID
	Epoch uint64
	// NextSeq is the seq that the next event will get; up to StoredSeq everything is stored.
	NextSeq, StoredSeq uint64
	// PendingBytes are decided and not stored.
	PendingBytes int
	// Records, Events and Bytes are what was appended; AppendTime is how long that took in all.
	Records, Events, Bytes int64
	AppendTime             time.Duration
	// Full tells that the store has no room for bodies.
	Full bool
	// SnapshotSeq is the seq of the newest snapshot, 0 if there is none.
	SnapshotSeq uint64
}

type statsBox struct {
	mu sync.Mutex
	s  Stats
}

func (b *statsBox) read() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

func (b *statsBox) recovered(own journal.Info, snapshot uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s = Stats{UID: own.UID, Epoch: own.Epoch, NextSeq: own.End + 1, StoredSeq: own.End, SnapshotSeq: snapshot}
}

func (b *statsBox) appended(h *journal.Header, events int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.StoredSeq = h.Last()
	b.s.Records++
	b.s.Events += int64(events)
	b.s.Bytes += int64(h.Size())
	b.s.AppendTime += took
}

func (b *statsBox) snapshot(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.SnapshotSeq = seq
}

func (b *statsBox) state(next uint64, pending int, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.NextSeq, b.s.PendingBytes, b.s.Full = next, pending, full
}
