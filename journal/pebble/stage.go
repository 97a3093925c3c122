package pebble

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastmq/holdfast/journal"
)

// errStored is how stage says that the change was made by an earlier call: it is done once
// everything up to this batch is durable.
var errStored = errors.New("stored already")

// stage checks a change against its stream and puts it into the batch. All checks of the
// contract are made here, in the order of the batches.
func (j *Journal) stage(u *unit, o *op) error {
	if o.kind == opSync {
		return nil
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
		return err
	}
	if err := st.loadParts(u.e); err != nil {
		return err
	}
	if o.kind == opDeleteParts {
		u.touch(st)
		for _, name := range o.names {
			st.setPart(name, 0)
			must(u.b.Delete(partKey(st.no, name), nil))
		}
		return nil
	}
	if j.space.refuses(false) {
		return journal.ErrFull
	}
	u.touch(st)
	row := u.b.SetDeferred(5+len(o.name), partOverhead+len(o.data))
	copy(row.Key, partKey(st.no, o.name))
	binary.LittleEndian.PutUint32(row.Value, journal.Checksum(o.data))
	copy(row.Value[partOverhead:], o.data)
	must(row.Finish())
	st.setPart(o.name, len(row.Value))
	return nil
}

func (st *stream) setPart(name string, size int) {
	st.next.partBytes += int64(size - st.parts[name])
	if st.parts[name] = size; size == 0 {
		delete(st.parts, name)
	}
}

// loadParts finds out how large the parts are, to know what they count when they go.
func (st *stream) loadParts(e *engine) error {
	if st.parts != nil {
		return nil
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: prefixKey(kindPart, st.no), UpperBound: prefixEnd(kindPart, st.no)})
	if err != nil {
		return e.readError(st.name, 0, "list parts", err)
	}
	parts := map[string]int{}
	for it.First(); it.Valid(); it.Next() {
		v := it.LazyValue()
		parts[string(it.Key()[5:])] = v.Len()
	}
	if err := it.Close(); err != nil {
		return e.readError(st.name, 0, "list parts", err)
	}
	st.parts = parts
	return nil
}

func (j *Journal) stageAppend(u *unit, st *stream, o *op) error {
	h, rec := o.h, o.rec
	fenced := h.fencedLocked()
	if fenced != nil || o.after != st.next.end {
		return st.settle(u.e, o, fenced)
	}
	if rec.PrevCRC != st.next.endCRC {
		return fmt.Errorf("%w: record follows CRC %08x, seq %d has CRC %08x", journal.ErrConflict, rec.PrevCRC, st.next.end, st.next.endCRC)
	}
	if rec.Time < st.next.endTime {
		return fmt.Errorf("%w: queue time %d is before that of seq %d, %d", journal.ErrInvalid, rec.Time, st.next.end, st.next.endTime)
	}
	if j.space.refuses(rec.BodyLen > 0) {
		return journal.ErrFull
	}
	row := u.b.SetDeferred(13, metaOverhead+len(rec.Meta))
	copy(row.Key, seqKey(kindMeta, st.no, rec.First))
	v := journal.AppendHeader(row.Value[:0], &rec.Header)
	v = binary.LittleEndian.AppendUint64(v, uint64(st.next.metaTotal))
	copy(row.Value[len(v):], rec.Meta)
	must(row.Finish())
	st.next.metaTotal += int64(len(row.Value))
	if rec.BodyLen > 0 && len(rec.Body) > 0 { // an importer's may have been discarded in its source
		st.stageBody(u, rec)
	}
	st.next.end, st.next.endCRC, st.next.endTime = rec.Last(), rec.CRC, rec.Time
	hdr := rec.Header
	h.last = &hdr
	u.touch(st)
	u.records++
	return nil
}

func (st *stream) stageBody(u *unit, rec *journal.Record) {
	s := span{first: rec.First, last: rec.Last(), size: uint64(rec.BodyLen)}
	if st.bodyEnd > 0 {
		s.gap = rec.First - st.bodyEnd - 1
	}
	st.bodyEnd = s.last
	key := s.key(st.no)
	row := u.b.SetDeferred(len(key), journal.HeaderSize+int(rec.BodyLen))
	copy(row.Key, key)
	v := journal.AppendHeader(row.Value[:0], &rec.Header)
	for _, c := range rec.Body {
		v = append(v, c...)
	}
	must(row.Finish())
	st.next.bodyBytes += s.bytes()
}

// settle decides what to say of a record that cannot be stored now: whether an earlier try
// of it was.
func (st *stream) settle(e *engine, o *op, fenced error) error {
	h, rec := o.h, o.rec
	if h.last != nil && *h.last == rec.Header {
		return errStored
	}
	if rec.First <= st.next.end {
		switch stored, err := st.storedHeader(e, rec.First); {
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
	if rec.Last() < st.next.low && rec.First <= at.end {
		// Something of that epoch did stand there, and is discarded. Only the last record of an
		// epoch can still be recognised.
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

// storedHeader returns the header of the record that begins at first, or a zero one.
func (st *stream) storedHeader(e *engine, first uint64) (journal.Header, error) {
	v, closer, err := e.db.Get(seqKey(kindMeta, st.no, first))
	if errors.Is(err, pebble.ErrNotFound) {
		return journal.Header{}, nil
	}
	if err != nil {
		return journal.Header{}, e.readError(st.name, first, "read meta", err)
	}
	h, err := journal.ParseHeader(v)
	return h, errors.Join(err, closer.Close())
}

func (j *Journal) stageAcquire(u *unit, st *stream, h *hold) error {
	if st.next.epoch == 0 || st.next.dropped {
		rand.Read(st.next.uid[:]) // never fails
		st.next.dropped = false
	}
	j.stageOwner(u, st, h, st.next.epoch+1)
	return nil
}

func (j *Journal) stageImport(u *unit, st *stream, h *hold, from journal.Info) error {
	n := &st.next
	switch {
	case n.epoch == 0:
		n.uid, n.end, n.endCRC, n.endTime, n.low = from.UID, from.End, from.EndCRC, from.EndTime, from.End+1
	case n.uid != from.UID || n.dropped:
		return fmt.Errorf("%w: there is another stream of that name, of uid %s (dropped: %t)", journal.ErrConflict, n.uid, n.dropped)
	}
	j.stageOwner(u, st, h, max(n.epoch+1, from.Epoch))
	return nil
}

// stageOwner makes h the owner under a new epoch.
func (j *Journal) stageOwner(u *unit, st *stream, h *hold, epoch uint64) {
	// What the owner before discarded goes first: nothing of it may take effect after this.
	st.stageDiscardsLocked(u, j.tombBytes())
	if o := st.owner; o != nil {
		o.fenced, o.endAt = true, st.next
	}
	st.next.epoch = epoch
	st.owner = h
	h.acquired = st.next.info(st.name)
	if !st.named {
		st.named = true
		must(u.b.Set(nameKey(st.name), binary.BigEndian.AppendUint32(nil, st.no), nil))
	}
	u.touch(st)
}

func (j *Journal) stageDrop(u *unit, st *stream, h *hold) error {
	if err := h.fencedLocked(); err != nil {
		if errors.Is(err, journal.ErrClosed) {
			return errStored // an earlier try of this hold
		}
		return err
	}
	for _, kind := range []byte{kindBody, kindMeta, kindPart} {
		must(u.b.DeleteRange(prefixKey(kind, st.no), prefixEnd(kind, st.no), nil))
	}
	st.discards = discards{}
	st.parts = map[string]int{}
	n := &st.next
	n.dropped, n.low = true, n.end+1
	n.metaGone, n.bodyBytes, n.partBytes = n.metaTotal, 0, 0
	u.touch(st)
	return nil
}
