package queue

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/queue/internal/column"
	"github.com/holdfastmq/holdfast/queue/internal/records"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/holdfastmq/holdfast/queue/internal/spanmap"
	"github.com/holdfastmq/holdfast/queue/internal/timeset"
	"github.com/holdfastmq/holdfast/queue/internal/wire"
	"github.com/tidwall/btree"
)

// A snapshot is a sequence of chunks, each of which begins with its type and the version:
//
//	head      the numbers of the queue, its configuration, and how many messages the chunks have together
//	producers entries in the order of their latest sends, up to 1,024 a chunk
//	dedup     ids by ordinal, cut at multiples of 4,096
//	messages  what is known of the messages, and the records, of an aligned range of seqs, see appendBlock
//	times     members of the time indexes, cut at multiples of 2^20 ms
//	homes     survivors by the record that they were stored in anew
//
// What is ready is not written: it is what is in no other state. A chunk depends on what it is about alone, so that
// it is the same from snapshot to snapshot as long as that does not change.
const (
	snapshotVersion = 1

	sessionsVersion = 2 // of a messages chunk with sessions; the newest one

	chunkHead      = 1
	chunkProducers = 2
	chunkDedup     = 3
	chunkMessages  = 4
	chunkDue       = 5
	chunkExpiry    = 6
	chunkHomes     = 7

	producersPerChunk = 1024
	dedupPerChunk     = 4096
	blockSize         = 1 << 14 // seqs that are written in one piece
	blocksTogether    = 16      // how many of them may share a chunk, aligned
	chunkBytes        = 64 << 10
	maxChunkBytes     = 256 << 10
	timesTogether     = 1 << 20 // ms
)

// Snapshot is the state of a core at one moment. It does not change with the core, with one exception: records that end at or
// before Seq and are still being stored become part of it when they are (Core.Stored), since it is to be
// saved only then.
type Snapshot struct {
	seq       uint64
	nextLease uint64
	lastAt    int64
	cfg       Config
	paused    bool
	counts    counts
	producers []producerEntry
	dedup     []dedupItem
	dedupBase uint64
	ages      []sample

	live, delayed, retrying, parked, foreign, expiring, keyed, dueNow seqset.Set
	prio                                                              [maxPriority + 1]seqset.Set
	flights                                                           *spanmap.Map[flight]
	moves                                                             *spanmap.Map[move]
	entries                                                           *btree.Map[uint64, entry]
	sizes                                                             *column.Sizes
	hashes                                                            *column.Keys
	due, expiry                                                       *timeset.Index

	records *records.Set
	homes   []home
	told    []Span
	pending *pendingRelocation
	late    []lateRecord
}

type producerEntry struct {
	key   window.Key
	entry window.Entry
}

// lateRecord is a record that was not stored when the snapshot was taken.
type lateRecord struct {
	first, last uint64
	bytes       uint32
}

// Seq returns the last seq that the snapshot covers.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Capture returns the state as it is, at little cost: it shares memory with the core until either changes.
func (c *Core) Capture() *Snapshot {
	s := &Snapshot{
		seq: c.next - 1, nextLease: c.nextLease, lastAt: c.lastAt, cfg: c.cfg, paused: c.paused, counts: c.counts,
		dedup: slices.Clip(c.dedup.order), dedupBase: c.dedup.base, ages: slices.Clone(c.ages.s),
		live: c.live.Clone(), delayed: c.delayed.Clone(), retrying: c.retrying.Clone(), parked: c.parked.Clone(),
		foreign: c.foreign.Clone(), expiring: c.expiring.Clone(), keyed: c.keys.keyed.Clone(), dueNow: c.dueNow.Clone(),
		flights: c.flights.Copy(), moves: c.moves.Copy(), entries: c.entries.Copy(),
		sizes: c.sizes.Clone(), hashes: c.keys.hashes.Clone(), due: c.due.Clone(), expiry: c.expiry.Clone(),
		records: c.space.records.Clone(), told: c.space.tellAgain(), pending: c.space.pending,
	}
	for k, e := range c.producers.All() {
		s.producers = append(s.producers, producerEntry{k, e})
	}
	for p := range c.prio {
		s.prio[p] = c.prio[p].Clone()
	}
	for lo, hi := range c.overdue.All() {
		s.expiring.AddRange(lo, hi)
	}
	for _, h := range c.space.homes {
		s.homes = append(s.homes, home{h.record, h.live.Clone()})
	}
	if c.stored < s.seq {
		c.snaps = append(c.snaps, s)
	}
	return s
}

// Chunks yields the encoded state. It may be ranged over in another goroutine, beside commands to the core, once Stored was called for
// all events up to Seq. Its chunks are cut at fixed seqs, so that what did not change is the same in the next snapshot. A
// chunk belongs to the caller.
func (s *Snapshot) Chunks() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, r := range s.late {
			s.records.Add(r.first, r.bytes)
		}
		s.late = nil
		_ = yield(s.head()) && s.producerChunks(yield) && s.dedupChunks(yield) && s.messageChunks(yield) &&
			s.timeChunks(chunkDue, s.due, &s.dueNow, yield) && s.timeChunks(chunkExpiry, s.expiry, nil, yield) && s.homeChunks(yield)
	}
}

func newChunk(kind byte) []byte { return []byte{kind, snapshotVersion} }

func (s *Snapshot) head() []byte {
	b := newChunk(chunkHead)
	for _, v := range []uint64{s.seq, s.nextLease, uint64(s.lastAt), s.live.Len(), uint64(s.records.Len()), s.records.Bytes()} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, bit(s.paused, 1))
	b = wire.AppendString(b, encodeConfig(s.cfg))
	all := s.counts.stored()
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, v := range all {
		b = binary.AppendUvarint(b, *v)
	}
	b = binary.AppendUvarint(b, uint64(len(s.ages)))
	seq, at := uint64(0), int64(0)
	for _, a := range s.ages {
		b = binary.AppendUvarint(b, a.seq-seq)
		b = binary.AppendUvarint(b, uint64(a.first-at))
		b = binary.AppendUvarint(b, uint64(a.last-a.first))
		seq, at = a.seq, a.last
	}
	b = appendSpans(b, s.told)
	if s.pending == nil {
		return append(b, 0)
	}
	return appendSpans(binary.AppendUvarint(append(b, 1), s.pending.at), s.pending.spans)
}

// stored returns the counts that a snapshot keeps. New ones come last.
func (n *counts) stored() []*uint64 {
	return []*uint64{&n.sent, &n.delivered, &n.redelivered, &n.acked, &n.nacked, &n.released, &n.leaseExpired, &n.disconnected,
		&n.expired, &n.purged, &n.dropped, &n.parked, &n.deadLettered, &n.redriven, &n.unparked, &n.producersEvicted, &n.dedupEvicted}
}

func (s *Snapshot) producerChunks(yield func([]byte) bool) bool {
	for part := range slices.Chunk(s.producers, producersPerChunk) {
		b := binary.AppendUvarint(newChunk(chunkProducers), uint64(len(part)))
		at := int64(0)
		for _, p := range part {
			b = wire.AppendString(wire.AppendString(b, p.key.Producer), p.key.Incarnation)
			b = binary.AppendUvarint(b, p.entry.Last)
			b = wire.AppendInt(b, p.entry.At-at)
			at = p.entry.At
		}
		if !yield(b) {
			return false
		}
	}
	return true
}

func (s *Snapshot) dedupChunks(yield func([]byte) bool) bool {
	for base, rest := s.dedupBase, s.dedup; len(rest) > 0; {
		n := min(len(rest), int(dedupPerChunk-base%dedupPerChunk))
		b := binary.AppendUvarint(newChunk(chunkDedup), base)
		b = binary.AppendUvarint(b, uint64(n))
		at := int64(0)
		for _, it := range rest[:n] {
			b = append(b, it.hash[:]...)
			b = binary.AppendUvarint(b, it.seq)
			b = wire.AppendInt(b, it.expires-at)
			at = it.expires
		}
		if !yield(b) {
			return false
		}
		base, rest = base+uint64(n), rest[n:]
	}
	return true
}

// nextBlock returns the first block from seq on that has messages or records.
func (s *Snapshot) nextBlock(seq uint64) (lo uint64, ok bool) {
	x, ok := s.live.Next(seq)
	if r, is := s.records.Next(seq); is && (!ok || r.Start < x) {
		x, ok = r.Start, true
	}
	return x &^ (blockSize - 1), ok
}

// messageChunks writes blocks, several of an aligned group in a chunk if they are small.
func (s *Snapshot) messageChunks(yield func([]byte) bool) bool {
	const group = blockSize * blocksTogether
	lo, ok := s.nextBlock(0)
	for ok {
		base := lo &^ (group - 1)
		var blocks [blocksTogether]block
		for ; ok && lo < base+group; lo, ok = s.nextBlock(lo + blockSize) {
			sessions := s.hasSessions(lo)
			blocks[(lo-base)/blockSize] = block{s.appendBlock(nil, lo, sessions), sessions}
		}
		if !yieldBlocks(blocks[:], yield) {
			return false
		}
	}
	return true
}

// block is an encoded block, and whether it has sessions in it.
type block struct {
	b        []byte
	sessions bool
}

// yieldBlocks yields blocks in one chunk, or, if they are too large for that, or some have sessions and others have none, each half of
// them in its own.
func yieldBlocks(blocks []block, yield func([]byte) bool) bool {
	size, with, without := 0, false, false
	for _, b := range blocks {
		size += len(b.b)
		if len(b.b) > 0 {
			with, without = with || b.sessions, without || !b.sessions
		}
	}
	if size == 0 {
		return true
	}
	if n := len(blocks); n > 1 && (size > chunkBytes || with && without) {
		return yieldBlocks(blocks[:n/2], yield) && yieldBlocks(blocks[n/2:], yield)
	}
	b := append(make([]byte, 0, size+2), newChunk(chunkMessages)...)
	if with {
		b[1] = sessionsVersion
	}
	for _, x := range blocks {
		b = append(b, x.b...)
	}
	return yield(b)
}

func (s *Snapshot) timeChunks(kind byte, x *timeset.Index, first *seqset.Set, yield func([]byte) bool) bool {
	var b []byte
	more := true
	window := int64(-1)
	flush := func() {
		if b != nil && more {
			more = yield(b)
		}
		b = nil
	}
	add := func(end int64, members *seqset.Set) bool {
		if end/timesTogether != window || len(b) > maxChunkBytes {
			flush()
			window = end / timesTogether
		}
		if b == nil {
			b = newChunk(kind)
		}
		b = appendRuns(binary.AppendUvarint(b, uint64(end)), members, 0, maxSeq)
		return more
	}
	if first != nil && first.Len() > 0 {
		add(0, first)
	}
	x.Buckets(add)
	flush()
	return more
}

func (s *Snapshot) homeChunks(yield func([]byte) bool) bool {
	var b []byte
	for i := range s.homes {
		if b == nil {
			b = newChunk(chunkHomes)
		}
		b = appendRuns(binary.AppendUvarint(b, s.homes[i].record), &s.homes[i].live, 0, maxSeq)
		if len(b) >= chunkBytes {
			if !yield(b) {
				return false
			}
			b = nil
		}
	}
	return b == nil || yield(b)
}

// appendRuns appends the runs of a set in a range: their number, and for each the gap before it and its length.
func appendRuns(b []byte, s *seqset.Set, lo, hi uint64) []byte {
	n := uint64(0)
	for range s.Runs(lo, hi) {
		n++
	}
	b = binary.AppendUvarint(b, n)
	at := lo
	for x, y := range s.Runs(lo, hi) {
		b = binary.AppendUvarint(b, x-at)
		b = binary.AppendUvarint(b, y-x)
		at = y
	}
	return b
}
