package segment

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/holdfastmq/holdfast/journal"
)

// errStored is how stage says that the change was made by an earlier call: it is done once everything up to this batch is durable.
var errStored = errors.New("stored already")

// stage checks a change against its stream and puts it into the batch. All checks of the contract are made here, in the order of
// the batches.
func (j *Journal) stage(u *unit, o *op) (*touch, error) {
	if o.kind == opSync {
		return nil, nil
	}
	if o.kind == opMove {
		return nil, j.stageMove(u, o.move)
	}
	st := o.h.st
	st.mu.Lock()
	defer st.mu.Unlock()
	switch o.kind {
	case opAppend:
		return j.stageAppend(u, st, o)
	case opAcquire:
		return j.stageAcquire(u, st, o.h)
	case opImport:
		return j.stageImport(u, st, o.h, o.from)
	case opDrop:
		return j.stageDrop(u, st, o.h)
	}
	if err := o.h.fencedLocked(); err != nil {
		return nil, err
	}
	if o.kind == opDeleteParts {
		t := u.touch(st)
		st.next.op++
		u.entry(entry{kind: entDeleteParts, stream: st.no, op: st.next.op}, func(b []byte) []byte { return appendNames(b, o.names) }, nil)
		t.changes = append(t.changes, change{kind: entDeleteParts, names: o.names})
		return t, nil
	}
	if j.space.refuses(false) {
		return nil, journal.ErrFull
	}
	t := u.touch(st)
	st.next.op++
	t.changes = append(t.changes, u.part(st, o.name, o.data, entry{kind: entPart, stream: st.no, op: st.next.op}))
	return t, nil
}

// part puts a part into the batch.
func (u *unit) part(st *stream, name string, data []byte, e entry) change {
	e.bodyCRC = journal.Checksum(data)
	p := part{payload: uint32(1 + len(name)), size: uint32(len(data)), op: e.op}
	p.off = u.entry(e, func(b []byte) []byte { return appendString(b, name) }, [][]byte{data})
	return change{kind: entPart, name: name, part: p, moved: e.flags&entMoved != 0}
}

func (j *Journal) stageAppend(u *unit, st *stream, o *op) (*touch, error) {
	h, rec := o.h, o.rec
	fenced := h.fencedLocked()
	if fenced != nil || o.after != st.next.end {
		return nil, j.settle(st, o, fenced)
	}
	if rec.PrevCRC != st.next.endCRC {
		return nil, fmt.Errorf("%w: record follows CRC %08x, seq %d has CRC %08x", journal.ErrConflict, rec.PrevCRC, st.next.end, st.next.endCRC)
	}
	if rec.Time < st.next.endTime {
		return nil, fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, st.next.end, st.next.endTime)
	}
	if j.space.refuses(rec.BodyLen > 0) {
		return nil, journal.ErrFull
	}
	t := u.touch(st)
	st.next.op++
	e := entry{kind: entRecord, stream: st.no, op: st.next.op}
	body := rec.Body
	size := uint32(0)
	for _, c := range body {
		size += uint32(len(c))
	}
	if size > 0 {
		e.bodyCRC = rec.BodyCRC
	} else if body = nil; rec.BodyLen > 0 { // an import of what was discarded
		e.flags = entStripped
	}
	off := u.record(e, &rec.Header, rec.Meta, body)
	t.changes = append(t.changes, change{kind: entRecord, slot: slot{
		first: rec.First, count: rec.Count, off: off, meta: journal.HeaderSize + rec.MetaLen, body: size, alive: size > 0,
	}})
	st.next.end, st.next.endCRC, st.next.endTime = rec.Last(), rec.CRC, rec.Time
	hdr := rec.Header
	h.last = &hdr
	u.records++
	return t, nil
}

// record puts a record into the batch.
func (u *unit) record(e entry, h *journal.Header, meta []byte, body [][]byte) int64 {
	return u.entry(e, func(b []byte) []byte { return append(journal.AppendHeader(b, h), meta...) }, body)
}

// settle decides what to say of a record that cannot be stored now: whether an earlier try of it was.
func (j *Journal) settle(st *stream, o *op, fenced error) error {
	h, rec := o.h, o.rec
	if h.last != nil && *h.last == rec.Header {
		return errStored
	}
	if rec.First <= st.next.end {
		switch stored, err := j.storedHeader(st, rec.First); {
		case err != nil:
			return fmt.Errorf("%w: %w", journal.ErrUnknown, err)
		case stored == rec.Header:
			return errStored
		}
	}
	at := &st.next
	if h.fenced {
		at = &h.endAt
	}
	if rec.Last() < st.acked.low && rec.First <= at.end {
		// Something of that epoch did stand there, and is discarded. Only the last record of an epoch can still be
		// recognised.
		if rec.Last() == at.end && rec.CRC == at.endCRC {
			return errStored
		}
		if rec.Last() < at.end {
			return fmt.Errorf("%w: seqs %d…%d were written and are discarded", journal.ErrUnknown, rec.First, rec.Last())
		}
	}
	if fenced != nil {
		return fenced
	}
	return fmt.Errorf("%w: it ends at %d", journal.ErrConflict, st.next.end)
}

// storedHeader returns the header of the record that begins at first, or a zero one. st.mu is held.
func (j *Journal) storedHeader(st *stream, first uint64) (journal.Header, error) {
	seg, s, ok := st.index.get(first)
	if !ok || s.last() < st.acked.low {
		return journal.Header{}, nil
	}
	seg.pins.Add(1)
	defer seg.pins.Add(-1)
	rec, err := j.readEntry(seg, &s, false)
	if err != nil {
		return journal.Header{}, err
	}
	return rec.Header, nil
}

func (j *Journal) stageAcquire(u *unit, st *stream, h *hold) (*touch, error) {
	if st.damage != nil {
		return nil, st.damage
	}
	// What the owner before discarded goes first: nothing of it may take effect after this.
	st.stageDiscardsLocked(u)
	if o := st.owner; o != nil {
		o.fenced, o.endAt = true, st.next
	}
	if st.next.epoch == 0 || st.next.dropped {
		_, _ = rand.Read(st.next.uid[:]) // never fails
		st.next.dropped = false
	}
	st.next.epoch++
	return u.acquired(st, h), nil
}

// acquired puts the stream's head into the batch, with h as its owner.
func (u *unit) acquired(st *stream, h *hold) *touch {
	st.owner = h
	h.acquired = st.next.info(st.name)
	t := u.touch(st)
	st.next.op++
	u.entry(entry{kind: entAcquire, stream: st.no, op: st.next.op}, func(b []byte) []byte {
		return appendHead(appendString(b, st.name), &st.next)
	}, nil)
	t.changes = append(t.changes, change{kind: entAcquire})
	return t
}

func (j *Journal) stageImport(u *unit, st *stream, h *hold, from *journal.Info) (*touch, error) {
	if st.damage != nil {
		return nil, st.damage
	}
	n := &st.next
	switch {
	case n.epoch == 0:
		n.uid, n.end, n.endCRC, n.endTime, n.low = from.UID, from.End, from.EndCRC, from.EndTime, from.End+1
	case n.uid != from.UID || n.dropped:
		return nil, fmt.Errorf("%w: another stream has that name, of uid %s (dropped: %t)", journal.ErrConflict, n.uid, n.dropped)
	default:
		st.stageDiscardsLocked(u)
		if o := st.owner; o != nil {
			o.fenced, o.endAt = true, *n
		}
	}
	n.epoch = max(n.epoch+1, from.Epoch)
	return u.acquired(st, h), nil
}

func (j *Journal) stageDrop(u *unit, st *stream, h *hold) (*touch, error) {
	if err := h.fencedLocked(); err != nil {
		if errors.Is(err, journal.ErrClosed) {
			return nil, errStored // an earlier try of this hold
		}
		return nil, err
	}
	st.stageDiscardsLocked(u)
	n := &st.next
	n.dropped, n.low = true, n.end+1
	t := u.touch(st)
	n.op++
	u.entry(entry{kind: entDrop, stream: st.no, op: n.op}, nil, nil)
	t.changes = append(t.changes, change{kind: entDrop})
	return t, nil
}

// stageDiscardsLocked puts the stream's discards into the batch.
func (st *stream) stageDiscardsLocked(u *unit) {
	d := &st.discards
	if d.empty() {
		return
	}
	t := u.touch(st)
	if len(d.ranges) > 0 {
		u.entry(entry{kind: entDiscard, stream: st.no}, func(b []byte) []byte { return appendRanges(b, d.ranges) }, nil)
	}
	if d.low > 0 {
		u.entry(entry{kind: entDiscardMeta, stream: st.no}, func(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, d.low) }, nil)
		st.next.low = max(st.next.low, d.low)
	}
	t.ranges, t.low = append(t.ranges, d.ranges...), max(t.low, d.low)
	if t.ledger == nil {
		t.ledger = d.ledger
	} else {
		for s, n := range d.ledger {
			t.ledger.add(s, n)
		}
	}
	d.ranges, d.low, d.ledger = nil, 0, ledger{}
}
