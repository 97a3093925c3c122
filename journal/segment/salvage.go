package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// What is done where neither file of the checkpoint can be read.
//
// While the log is there from its first batch on, it says everything, and the checkpoint is made from it. Once segments were used again, it does
// not: of a part that is still there, nobody knows whether it was deleted in one of those. Then the store stays closed, unless the loss is
// accepted: then what is left of the log and the high-water mark are put together. That comes close to what there was, since space is only
// given back of what was discarded: bodies and parts may be back that were discarded or deleted, which the contract allows of bodies.

// errNoCheckpoint says that neither file of the checkpoint is intact.
var errNoCheckpoint = errors.New("neither is intact")

// noCheckpoint is what there is instead.
func noCheckpoint() *checkpoint {
	return &checkpoint{stale: [2]bool{true, true}, nextNo: 1}
}

// complete tells whether all batches up to a number that is known to have been on stable storage are there, from the first one on.
func (l *logScan) complete(proved uint64) bool {
	next, crc := uint64(1), uint32(0)
	for _, f := range l.batches {
		if f.n < next {
			continue
		}
		if f.n != next || f.prev != crc {
			break
		}
		next, crc = f.n+1, f.crc
	}
	return next > max(proved, l.proved)
}

// withoutCheckpoint decides what to do. It returns false if the log is to be replayed from its beginning.
func (r *recovery) withoutCheckpoint(log *logScan, cause error) (done bool, err error) {
	if r.m != nil && log.complete(r.m.pos.n) {
		r.j.log.Warn("journal: both files of the checkpoint cannot be read; the log has everything, and they are written anew", "dir", r.j.dir, "err", cause)
		return false, nil
	}
	if !r.j.opts.AcceptLoss {
		return true, fmt.Errorf("%w; what was in segments that were used again is not in the log any more: "+
			"restore the directory from a copy, or open it once with accept-loss=true to go on with what is left", cause)
	}
	if err := r.salvage(log); err != nil {
		return true, err
	}
	what := fmt.Sprintf("files %s and %s: %v; the streams are what the log and the high-water mark still have", checkpointFiles[0], checkpointFiles[1], errNoCheckpoint)
	r.loss = &LossError{What: what, Missing: r.missing()}
	for _, name := range checkpointFiles {
		r.damaged[name] = true
	}
	r.count()
	return true, nil
}

// salvage puts together what the log and the mark have.
func (r *recovery) salvage(log *logScan) error {
	var marked map[uint32]markedStream
	proved := log.proved
	if r.m != nil {
		marked, proved = r.m.streams, max(proved, r.m.pos.n)
	}
	for no, s := range marked {
		st := newStream(s.name, no)
		st.acked.uid = s.head.uid
		r.byNo[no] = st
	}
	r.last = position{n: proved}
	var before *found
	for i := range log.batches {
		f := &log.batches[i]
		switch {
		case before != nil && f.n == before.n:
			continue // found twice
		case f.n > proved && (f.n != r.last.n+1 || before != nil && before.n == r.last.n && f.prev != before.crc):
			continue // what nothing proves ends at the first that is not whole
		case f.n > proved:
			if ok, err := verifyBatch(r.fl, f); err != nil {
				return err
			} else if !ok {
				continue
			}
			r.last.n = f.n
		}
		if err := r.salvageBatch(f); err != nil {
			return err
		}
		before = f
	}
	for no, st := range r.byNo {
		if s, ok := marked[no]; ok && s.head.op >= st.acked.op {
			low := st.acked.low
			if st.acked = s.head; !s.head.dropped {
				st.acked.low = max(st.acked.low, low)
			}
		}
		st.ackedAt = r.last.n
		r.nextNo = max(r.nextNo, no+1)
		if err := r.chain(st); err != nil {
			return err
		}
	}
	// What was read may only be in the page cache.
	for _, s := range r.fl.segs {
		if s.size.Load() > 0 {
			if err := r.syncSegment(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// salvageBatch takes what is intact of a batch.
func (r *recovery) salvageBatch(f *found) error {
	var w window
	at, end := f.off+batchHeaderSize, f.off+int64(f.size)
	get := func(n int) ([]byte, error) { // nil where the file is too short
		b, err := w.get(r.fl, f.seg, at, n)
		if errors.Is(err, journal.ErrCorrupt) {
			return nil, nil
		}
		return b, err
	}
	for range f.entries {
		b, err := get(entryHeaderSize)
		if err != nil {
			return err
		}
		e, ok := parseEntry(b)
		if !ok || at+e.size() > end {
			return nil // where the next one begins is not known
		}
		if b, err = get(entryHeaderSize + int(e.payload)); err != nil {
			return err
		}
		if b != nil && journal.Checksum(b[entryHeaderSize:]) == e.payCRC {
			if err := r.salvageEntry(f, at, &e, b[entryHeaderSize:]); err != nil {
				return err
			}
		}
		at += e.size()
	}
	return nil
}

// salvageEntry applies an entry, whatever is missing before it.
func (r *recovery) salvageEntry(f *found, at int64, e *entry, pay []byte) error {
	st := r.byNo[e.stream]
	if st == nil {
		if e.kind != entAcquire {
			return nil // nobody knows the stream's name
		}
		c := cursor{b: pay}
		st = newStream(c.str(), e.stream)
		r.byNo[e.stream] = st
	}
	c := change{kind: e.kind, moved: e.flags&entMoved != 0}
	switch e.kind {
	case entRecord:
		h, err := journal.ParseHeader(pay)
		if err != nil {
			return err
		}
		st.index.put(f.seg, slot{first: h.First, count: h.Count, off: at, meta: e.payload, body: e.body, alive: e.body > 0})
		if a := &st.acked; !c.moved && e.op > a.op {
			a.uid, a.op, a.end, a.endCRC, a.endTime = h.UID, e.op, h.Last(), h.CRC, h.Time
			a.epoch, a.dropped = max(a.epoch, h.Epoch), false
		}
		return nil
	case entPart:
		d := cursor{b: pay}
		c.name = d.str()
		c.part = part{seg: f.seg, off: at, payload: e.payload, size: e.body, op: e.op}
		if old, had := st.parts[c.name]; !d.short && (!had || old.op <= e.op) {
			st.parts[c.name] = c.part
		}
	case entDeleteParts:
		names, _ := parseNames(pay) // nil if they cannot be read
		for _, name := range names {
			if old, had := st.parts[name]; had && old.op < e.op {
				delete(st.parts, name)
			}
		}
	case entAcquire:
		d := cursor{b: pay}
		d.str()
		if h := d.head(); !d.short && h.op > st.acked.op {
			h.low = max(h.low, st.acked.low)
			st.acked = h
		}
	case entDrop:
		st.index, st.parts = index{}, map[string]part{}
		st.acked.dropped, st.acked.low = true, st.acked.end+1
	case entDiscard:
		ranges, _ := parseRanges(pay)
		for _, d := range ranges {
			st.index.discard(d.From, d.To, 1, ledger{})
		}
	case entDiscardMeta:
		if len(pay) == 8 {
			st.acked.low = max(st.acked.low, binary.LittleEndian.Uint64(pay))
		}
	default:
		return fmt.Errorf("entry of kind %d: %w", e.kind, journal.ErrNewerFormat)
	}
	if !c.moved && e.op > st.acked.op {
		st.acked.op = e.op
	}
	return nil
}

// put puts a record in, in place of what overlaps with it.
func (x *index) put(seg *segment, s slot) {
	if n := len(x.blocks); n == 0 || s.first > x.blocks[n-1].last {
		x.add(seg, &s, 1, ledger{})
		return
	}
	i := x.find(s.first)
	j := i
	var before, after []*block
	var buf [blockSlots]slot
	for ; j < len(x.blocks) && x.blocks[j].first <= s.last(); j++ {
		b := x.blocks[j]
		slots := slices.Clone(b.slots(&buf))
		if k := slices.IndexFunc(slots, func(o slot) bool { return o.last() >= s.first }); k > 0 {
			before = append(before, newBlock(b.seg, slots[:k]))
		}
		if k := slices.IndexFunc(slots, func(o slot) bool { return o.first > s.last() }); k >= 0 {
			after = append(after, newBlock(b.seg, slots[k:]))
		}
	}
	x.blocks = slices.Replace(x.blocks, i, j, slices.Concat(before, []*block{newBlock(seg, []slot{s})}, after)...)
}

// chain keeps of a stream's records what belongs together: the last ones without a gap, up to the stream's end, and the bodies before.
func (r *recovery) chain(st *stream) error {
	h := &st.acked
	var keep []*block
	var buf [blockSlots]slot
	low, chain := h.end+1, journal.Chain{}
	last := journal.Header{First: h.end + 1} // of the chain
	for _, b := range st.index.blocks {
		var slots []slot
		for _, s := range b.slots(&buf) {
			if s.first > h.end {
				break // written, and never acknowledged
			}
			rec, err := r.header(b.seg, &s)
			if err != nil && !errors.Is(err, journal.ErrCorrupt) && !isNotExist(err) {
				return err
			}
			if err != nil || rec.UID != h.uid {
				continue
			}
			slots = append(slots, s)
			if s.last() < h.low {
				continue
			}
			if low > h.end || chain.Next(rec) != nil {
				low, chain = s.first, journal.Chain{}
				_ = chain.Next(rec) // the first one is never refused
			}
			last = *rec
		}
		if len(slots) > 0 {
			keep = append(keep, newBlock(b.seg, slots))
		}
	}
	st.index.blocks = keep
	switch {
	case h.dropped || h.low > h.end:
		low = h.end + 1
	case low > h.end:
		r.without(st, h.low, h.end)
	case last.Last() != h.end || last.CRC != h.endCRC:
		r.without(st, last.Last()+1, max(h.end, last.Last()+1))
		h.end, h.endCRC, h.endTime = last.Last(), last.CRC, last.Time
	case low > h.low:
		r.without(st, h.low, low-1)
	}
	h.low = low
	st.index.tidy(0, len(st.index.blocks), low)
	return nil
}

// without notes which seqs are not there.
func (r *recovery) without(st *stream, from, to uint64) {
	st.damage = &LossError{What: errNoCheckpoint.Error(), Missing: []Missing{{Stream: st.name, From: from, To: to}}}
}

// header reads a record's header.
func (r *recovery) header(seg *segment, s *slot) (*journal.Header, error) {
	b := make([]byte, s.entry())
	if err := r.fl.readAt(seg, b, s.off); err != nil {
		return nil, err
	}
	rec, _, err := openRecord(b, s)
	return &rec.Header, err
}
