package queue

import (
	"encoding/binary"
	"math"

	"github.com/holdfastmq/holdfast/queue/internal/records"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
	"github.com/holdfastmq/holdfast/queue/internal/wire"
)

// appendBlock writes what is known of the messages and records of the block from lo on. All seqs are relative to
// it, or to the one before them.
//
//	uint  lo ÷ block size
//	runs  live; delayed, retrying, parked, foreign, to expire; of each priority from 1 to 9; keyed
//	      moves: their number, and for each: gap, length, at, target, reason
//	      flights: their number, and for each: gap, length, lease, visibility, attempt, tries, flags,
//	      and in a chunk of version 2 the session, eight bytes
//	      entries: their number, and for each: gap, count, base, lost, due
//	      sizes: for each run of live messages the stretches of equal size, as length and size
//	      key hashes: eight bytes for each keyed message
//	      records: their number, and for each: gap, bytes
func (s *Snapshot) appendBlock(b []byte, lo uint64, sessions bool) []byte {
	hi := lo + blockSize
	b = binary.AppendUvarint(b, lo/blockSize)
	for _, set := range s.blockSets() {
		b = appendRuns(b, set, lo, hi)
	}
	b = s.appendMoves(b, lo, hi)
	b = s.appendFlights(b, lo, hi, sessions)
	b = s.appendEntries(b, lo, hi)
	for x, y := range s.live.Runs(lo, hi) {
		s.sizes.Runs(x, y, func(n uint64, size uint32) {
			b = binary.AppendUvarint(b, n)
			b = binary.AppendUvarint(b, uint64(size))
		})
	}
	for x, y := range s.keyed.Runs(lo, hi) {
		for ; x < y; x++ {
			b = binary.LittleEndian.AppendUint64(b, s.hashes.At(x))
		}
	}
	var rs []records.Record
	s.records.Each(lo, hi, func(r records.Record) { rs = append(rs, r) })
	b = binary.AppendUvarint(b, uint64(len(rs)))
	at := lo
	for _, r := range rs {
		b = binary.AppendUvarint(b, r.Start-at)
		b = binary.AppendUvarint(b, uint64(r.Bytes))
		at = r.Start
	}
	return b
}

// blockSets returns the sets that a block has, in order.
func (s *Snapshot) blockSets() []*seqset.Set {
	sets := []*seqset.Set{&s.live, &s.delayed, &s.retrying, &s.parked, &s.foreign, &s.expiring}
	for p := 1; p <= maxPriority; p++ {
		sets = append(sets, &s.prio[p])
	}
	return append(sets, &s.keyed)
}

func (s *Snapshot) appendMoves(b []byte, lo, hi uint64) []byte {
	n, at := uint64(0), lo
	var body []byte
	s.moves.Each(lo, hi, func(x, y uint64, m move) bool {
		n++
		body = binary.AppendUvarint(body, x-at)
		body = binary.AppendUvarint(body, y-x)
		body = binary.AppendUvarint(body, uint64(m.at))
		body = wire.AppendString(wire.AppendString(body, m.target), m.reason)
		at = y
		return true
	})
	return append(binary.AppendUvarint(b, n), body...)
}

// hasSessions tells whether a lease of the block from lo on has a session.
func (s *Snapshot) hasSessions(lo uint64) (has bool) {
	s.flights.Each(lo, lo+blockSize, func(_, _ uint64, f flight) bool {
		has = f.session != 0
		return !has
	})
	return has
}

func (s *Snapshot) appendFlights(b []byte, lo, hi uint64, sessions bool) []byte {
	n, at := uint64(0), lo
	var body []byte
	s.flights.Each(lo, hi, func(x, y uint64, f flight) bool {
		n++
		for _, v := range []uint64{x - at, y - x, f.lease, uint64(f.visibility), uint64(f.attempt), uint64(f.tries)} {
			body = binary.AppendUvarint(body, v)
		}
		body = append(body, byte(f.flags&^flightStarted))
		if sessions {
			body = binary.LittleEndian.AppendUint64(body, f.session)
		}
		at = y
		return true
	})
	return append(binary.AppendUvarint(b, n), body...)
}

func (s *Snapshot) appendEntries(b []byte, lo, hi uint64) []byte {
	n, at := uint64(0), lo
	var body []byte
	s.entries.Ascend(lo, func(x uint64, t entry) bool {
		if x >= hi {
			return false
		}
		n++
		due := int64(0)
		if s.retrying.Contains(x) {
			due = t.due
		}
		for _, v := range []uint64{x - at, uint64(t.count), uint64(t.base), uint64(t.lost), uint64(due)} {
			body = binary.AppendUvarint(body, v)
		}
		at = x
		return true
	})
	return append(binary.AppendUvarint(b, n), body...)
}

// readBlock reads what appendBlock wrote into a core. from is where the block may begin.
func (c *Core) readBlock(r *reader, from uint64, sessions bool) (end uint64) {
	lo := r.Uint()
	if lo >= maxSeq/blockSize || lo*blockSize < from {
		r.Fail()
		return 0
	}
	lo *= blockSize
	hi := lo + blockSize
	sets := []*seqset.Set{&c.live, &c.delayed, &c.retrying, &c.parked, &c.foreign, &c.expiring}
	for p := 1; p <= maxPriority; p++ {
		sets = append(sets, &c.prio[p])
	}
	for i, set := range append(sets, &c.keys.keyed) {
		r.runs(lo, min(hi, c.next), func(a, b uint64) {
			set.AddRange(a, b)
			if i > 0 && c.live.Count(a, b) != b-a {
				r.Fail()
			}
		})
	}
	c.readMoves(r, lo, hi)
	c.readFlights(r, lo, hi, sessions)
	c.readEntries(r, lo, hi)
	for a, b := range c.live.Runs(lo, hi) {
		for a < b && !r.Bad {
			n, size := r.Uint(), r.Count(0, math.MaxUint32)
			if n == 0 || n > b-a {
				r.Fail()
				break
			}
			c.sizes.Append(a, a+n, uint32(size))
			c.bytes += n * uint64(size)
			a += n
		}
	}
	for a, b := range c.keys.keyed.Runs(lo, hi) {
		c.keys.hashes.AppendRun(a, r.Bytes(8*int(b-a)))
	}
	at := lo
	for range r.Count(2, blockSize) {
		at += r.next(at, hi)
		c.space.records.Add(at, uint32(r.Count(0, math.MaxUint32)))
	}
	return hi
}

func (c *Core) readMoves(r *reader, lo, hi uint64) {
	at := lo
	for range r.Count(5, blockSize) {
		at += r.next(at, hi)
		n := r.next(at, hi)
		m := move{at: int64(r.Uint()), target: r.String(MaxNameLen), reason: r.String(MaxNameLen)}
		if r.Bad || n == 0 || c.live.Count(at, at+n) != n {
			r.Fail()
			return
		}
		c.moves.Set(at, at+n, m)
		c.mover.todo.AddRange(at, at+n)
		at += n
	}
}

func (c *Core) readFlights(r *reader, lo, hi uint64, sessions bool) {
	at := lo
	for range r.Count(7, blockSize) {
		at += r.next(at, hi)
		n := r.next(at, hi)
		f := flight{lease: r.Uint(), visibility: int64(r.Count(0, uint64(MaxVisibility.Milliseconds()))),
			attempt: uint32(r.Count(0, math.MaxUint32)), tries: uint32(r.Count(0, math.MaxUint32)), flags: flightFlags(r.Byte())}
		if sessions {
			f.session = r.Uint64()
		}
		if r.Bad || n == 0 || f.lease == 0 || f.lease > c.nextLease-n || c.live.Count(at, at+n) != n {
			r.Fail()
			return
		}
		c.flights.Set(at, at+n, f)
		at += n
	}
}

func (c *Core) readEntries(r *reader, lo, hi uint64) {
	at := lo
	for range r.Count(5, blockSize) {
		at += r.next(at, hi)
		t := entry{count: uint32(r.Count(0, math.MaxUint32)), base: uint32(r.Count(0, math.MaxUint32)),
			lost: uint8(r.Count(0, isolateAfter)), due: int64(r.Uint())}
		if r.Bad || t.base > t.count || !c.live.Contains(at) {
			r.Fail()
			return
		}
		c.entries.Set(at, t)
		if t.lost >= isolateAfter {
			c.isolated.Add(at)
		}
	}
}

// reader reads a chunk.
type reader struct{ wire.Reader }

// next takes a distance that must lead to a place within at…hi.
func (r *reader) next(at, hi uint64) uint64 {
	d := r.Uint()
	if at > hi || d > hi-at {
		r.Fail()
		return 0
	}
	return d
}

// runs reads what appendRuns wrote.
func (r *reader) runs(lo, hi uint64, f func(lo, hi uint64)) {
	at := lo
	for range r.Count(2, math.MaxInt32) {
		at += r.next(at, hi)
		n := r.next(at, hi)
		if n == 0 || r.Bad {
			r.Fail()
			return
		}
		f(at, at+n)
		at += n
	}
}
