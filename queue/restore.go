package queue

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/holdfastmq/holdfast/delivery/window"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/holdfastmq/holdfast/queue/internal/timeset"
)

// restoring is a core that is being built from chunks.
type restoring struct {
	c       *Core
	live    uint64 // how many messages there are to be
	records int
	bytes   uint64 // of records
	blocks  uint64 // messages were read up to here
}

// Restore builds a core from the chunks of a snapshot, in order, and keeps nothing of them. The error matches ErrNewerFormat if a later
// version wrote them, ErrMalformed if nothing can have written them, or is that of chunks.
func Restore(o Options, chunks iter.Seq2[[]byte, error]) (*Core, error) {
	c, err := New(o, 1)
	if err != nil {
		return nil, err
	}
	s := restoring{c: c}
	n := 0
	for b, err := range chunks {
		if err == nil {
			err = s.chunk(n, b)
		}
		if err != nil {
			return nil, fmt.Errorf("restore queue: chunk %d: %w", n, err)
		}
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("restore queue: no chunks: %w", ErrMalformed)
	}
	if err := s.complete(); err != nil {
		return nil, fmt.Errorf("restore queue: %w", err)
	}
	return c, nil
}

func (s *restoring) chunk(n int, b []byte) error {
	if len(b) < 2 {
		return ErrMalformed
	}
	kind, version := b[0], b[1]
	if version > snapshotVersion && (version != sessionsVersion || kind != chunkMessages) || kind > chunkHomes {
		return fmt.Errorf("kind %d, version %d: %w", kind, version, ErrNewerFormat)
	}
	if version == 0 || (n == 0) != (kind == chunkHead) {
		return ErrMalformed
	}
	r := &reader{}
	r.B = b[2:]
	var err error
	switch kind {
	case chunkHead:
		err = s.head(r)
	case chunkProducers:
		s.producers(r)
	case chunkDedup:
		s.dedup(r)
	case chunkMessages:
		for len(r.B) > 0 && !r.Bad {
			s.blocks = s.c.readBlock(r, s.blocks, version == sessionsVersion)
		}
	case chunkDue:
		s.times(r, &s.c.due)
	case chunkExpiry:
		s.times(r, &s.c.expiry)
	case chunkHomes:
		s.homes(r)
	default:
		return ErrMalformed
	}
	if err == nil && !r.Done() {
		err = fmt.Errorf("kind %d: %w", kind, ErrMalformed)
	}
	return err
}

func (s *restoring) head(r *reader) error {
	c := s.c
	seq := r.Uint()
	c.nextLease, c.lastAt = r.Uint(), int64(r.Uint())
	s.live, s.records, s.bytes = r.Uint(), r.Count(0, math.MaxInt32), r.Uint()
	c.paused = r.Byte() == 1
	cfg, err := decodeConfig([]byte(r.String(1 << 16)))
	if err != nil {
		return err
	}
	c.cfg = *cfg
	all := c.counts.stored()
	n := r.Count(1, math.MaxInt32)
	if n < len(all) {
		r.Fail()
	}
	for i := range n {
		if v := r.Uint(); i < len(all) {
			*all[i] = v
		}
	}
	var last sample
	for range r.Count(3, math.MaxInt32) {
		t := sample{seq: last.seq + r.Uint(), first: last.last + int64(r.Uint())}
		t.last = t.first + int64(r.Uint())
		if t.seq < last.seq || t.first < last.last || t.last < t.first {
			r.Fail()
			break
		}
		c.ages.s = append(c.ages.s, t)
		last = t
	}
	c.space.told = readSpans(&r.Reader)
	if r.Byte() == 1 {
		c.space.pending = &pendingRelocation{at: r.Uint(), spans: readSpans(&r.Reader)}
	}
	if r.Bad || seq >= maxSeq || c.nextLease == 0 || c.lastAt < 0 {
		return errors.Join(ErrMalformed)
	}
	c.next, c.stored = seq+1, seq
	return nil
}

func (s *restoring) producers(r *reader) {
	at := int64(0)
	for range r.Count(4, producersPerChunk) {
		k := window.Key{Producer: r.String(maxIDBytes), Incarnation: r.String(maxIDBytes)}
		e := window.Entry{Last: r.Uint(), At: at + r.Int()}
		if at = e.At; r.Bad || !k.Valid() || e.Last > window.MaxSeq {
			r.Fail()
			return
		}
		s.c.producers.Load(k, e)
	}
}

func (s *restoring) dedup(r *reader) {
	d := &s.c.dedup
	base := r.Uint()
	n := r.Count(18, dedupPerChunk)
	if len(d.order) == 0 {
		d.base = base
	}
	if base != d.base+uint64(len(d.order)) {
		r.Fail()
	}
	at := int64(0)
	for range n {
		var it dedupItem
		copy(it.hash[:], r.Bytes(len(it.hash)))
		it.seq, it.expires = r.Uint(), at+r.Int()
		if at = it.expires; r.Bad {
			return
		}
		d.order = append(d.order, it)
		if it.seq != 0 {
			d.byHash[it.hash] = it
		}
	}
}

// times reads members of a time index. Only live messages are of interest, so the others are left out.
func (s *restoring) times(r *reader, x *timeset.Index) {
	var lo, hi uint64 // a run of live messages
	for len(r.B) > 0 && !r.Bad {
		end := int64(r.Uint())
		if end < 0 {
			r.Fail()
		}
		r.runs(0, s.c.next, func(a, b uint64) {
			for a < b {
				if a < lo || a >= hi {
					var ok bool
					if lo, hi, ok = s.c.live.NextRun(a, s.c.next); !ok || lo >= b {
						return
					}
					a = lo
				}
				x.Load(end, a, min(b, hi))
				a = min(b, hi)
			}
		})
	}
}

func (s *restoring) homes(r *reader) {
	sp := &s.c.space
	for len(r.B) > 0 && !r.Bad {
		h := &home{record: r.Uint()}
		if n := len(sp.homes); n > 0 && sp.homes[n-1].record >= h.record {
			r.Fail()
		}
		r.runs(0, s.c.next, func(lo, hi uint64) {
			for a, b := range s.c.live.Runs(lo, hi) {
				if sp.relocated.AddRange(a, b) != b-a {
					r.Fail()
				}
				h.live.AddRange(a, b)
			}
		})
		sp.homes = append(sp.homes, h)
	}
}

// complete derives what is not in the snapshot.
func (s *restoring) complete() error {
	c := s.c
	if c.live.Len() != s.live || c.space.records.Len() != s.records || c.space.records.Bytes() != s.bytes {
		return fmt.Errorf("%d messages and %d records of %d bytes, want %d and %d of %d: %w", c.live.Len(),
			c.space.records.Len(), c.space.records.Bytes(), s.live, s.records, s.bytes, ErrMalformed)
	}
	rest := c.live.Clone()
	whole := true
	take := func(lo, hi uint64) { whole = whole && rest.RemoveRange(lo, hi) == hi-lo }
	for _, set := range []*seqset.Set{&c.delayed, &c.retrying, &c.parked} {
		for lo, hi := range set.All() {
			take(lo, hi)
		}
	}
	c.flights.Each(0, maxSeq, func(lo, hi uint64, _ flight) bool { take(lo, hi); return true })
	c.moves.Each(0, maxSeq, func(lo, hi uint64, _ move) bool { take(lo, hi); return true })
	for p := range c.prio {
		c.anyPrio = c.anyPrio || c.prio[p].Len() > 0
		for q := range p {
			commonRuns(&c.prio[p], &c.prio[q], 0, maxSeq, func(uint64, uint64) { whole = false })
		}
	}
	if !whole {
		return fmt.Errorf("messages in two states: %w", ErrMalformed)
	}
	for lo, hi := range rest.All() {
		c.makeReady(lo, hi)
	}
	c.keys.restored(c)
	if p := c.space.pending; p != nil {
		if r, ok := c.space.records.Find(p.at); ok {
			c.space.pending = nil
			c.settleIn(r.Start, p.spans)
		}
	}
	return nil
}

// restored derives which keys are blocked.
func (k *keys) restored(c *Core) {
	k.perPrio[0] = k.keyed.Len()
	for p := 1; p <= maxPriority; p++ {
		commonRuns(&c.prio[p], &k.keyed, 0, maxSeq, func(lo, hi uint64) {
			k.perPrio[p] += hi - lo
			k.perPrio[0] -= hi - lo
		})
	}
	for lo, hi := range c.retrying.All() {
		k.block(c, lo, hi)
	}
	c.flights.Each(0, maxSeq, func(lo, hi uint64, _ flight) bool { k.block(c, lo, hi); return true })
	c.moves.Each(0, maxSeq, func(lo, hi uint64, _ move) bool { k.block(c, lo, hi); return true })
}
