package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// unit is a batch on its way to stable storage.
type unit struct {
	n        uint64
	seg      *segment
	off, end int64 // in the segment
	crc      uint32
	first    uint64 // batch of the segment
	sync     bool
	ops      []*op // done once durable
	touched  []touch
	entries  uint32
	records  int
	size     int64 // bytes of the batch
	began    time.Time
	failed   error

	*scratch // until it is written

	barrier chan struct{} // not a batch: closed when everything before was dealt with
}

// scratch is what a batch is formed in.
type scratch struct {
	buf    []byte // what is gathered; the batch's header first
	pieces []piece
	iov    [][]byte
}

// piece is a part of a batch: from…to of buf, or what the caller gave.
type piece struct {
	from, to int
	ext      []byte
}

// mostUnsynced is how many bytes are written at most before they are synced, where nobody waits for it.
const mostUnsynced = 16 << 20

// gatherBytes is from which size on what the caller gave is written as it is, and not copied together.
const gatherBytes = 2 << 10

// keepBuf is how large a buffer is kept for the next batch.
const keepBuf = 8 << 20

// touch is what a batch changes of a stream.
type touch struct {
	st      *stream
	head    head // after it
	changes []change
	ledger  ledger // of discards
	eager   []*op  // done once written
	waits   bool   // something waits for a sync
	shown   bool   // was made known to readers before the sync
	ranges  []journal.Range
	low     uint64
}

// change is a change of what is where.
type change struct {
	kind  entryKind
	slot  slot   // off is relative to the batch
	moved bool   // stored anew
	name  string // of a part
	part  part   // likewise
	names []string
}

// touch makes the stream part of the batch. st.mu is held.
func (u *unit) touch(st *stream) *touch {
	for i := len(u.touched) - 1; i >= 0; i-- {
		if u.touched[i].st == st {
			return &u.touched[i]
		}
	}
	u.touched = append(u.touched, touch{st: st})
	st.unacked++
	return &u.touched[len(u.touched)-1]
}

// begin makes a unit ready to take entries, formed in x. Its own buffers are used again.
func (u *unit) begin(n uint64, x *scratch) {
	touched := u.touched
	clear(touched[:cap(touched)])
	if cap(x.buf) < batchHeaderSize || cap(x.buf) > keepBuf {
		x.buf = make([]byte, batchHeaderSize, 64<<10)
	}
	x.buf, x.pieces, x.iov = x.buf[:batchHeaderSize], append(x.pieces[:0], piece{to: batchHeaderSize}), x.iov[:0]
	*u = unit{n: n, scratch: x, touched: touched[:0], size: batchHeaderSize, began: time.Now()}
}

// entry puts an entry into the batch and returns where it begins. payload appends the payload.
func (u *unit) entry(e entry, payload func(b []byte) []byte, body [][]byte) int64 {
	off := u.size
	from := len(u.buf)
	u.buf = append(u.buf, make([]byte, entryHeaderSize)...)
	if payload != nil {
		u.buf = payload(u.buf)
	}
	pay := u.buf[from+entryHeaderSize:]
	e.payload, e.payCRC = uint32(len(pay)), journal.Checksum(pay)
	for _, c := range body {
		e.body += uint32(len(c))
	}
	e.put(u.buf[from:])
	u.gathered(from)
	for _, c := range body {
		if len(c) >= gatherBytes {
			u.pieces = append(u.pieces, piece{ext: c})
			continue
		}
		from := len(u.buf)
		u.buf = append(u.buf, c...)
		u.gathered(from)
	}
	u.size += e.size()
	u.entries++
	return off
}

// gathered notes what was appended to buf from there on.
func (u *unit) gathered(from int) {
	if p := &u.pieces[len(u.pieces)-1]; p.ext == nil && p.to == from {
		p.to = len(u.buf)
		return
	}
	u.pieces = append(u.pieces, piece{from: from, to: len(u.buf)})
}

// commitLoop is the committer: it forms batches and writes them. The completer waits for the syncs.
func (j *Journal) commitLoop() {
	defer j.loops.Done()
	defer j.units.close()
	for {
		select {
		case <-j.q.wake:
		case <-j.broken:
		}
		for more := true; more; {
			if j.isBroken() && j.refuse() == nil && !j.reopen() {
				j.rejectWaiting(journal.ErrClosed)
				return
			}
			var ops []*op
			var due map[*stream]struct{}
			if ops, due, more = j.q.take(leastBytes[min(j.inFlight.Load(), maxInFlight)], batchBytes); more {
				j.commit(ops, due)
			}
		}
		if j.q.drained() {
			return
		}
	}
}

// commit forms a batch and writes it.
func (j *Journal) commit(ops []*op, due map[*stream]struct{}) {
	if err := j.refuse(); err != nil {
		for _, o := range ops {
			o.finish(err)
		}
		return
	}
	u := j.units.get()
	u.begin(j.last+1, &j.scratch)
	for st := range due {
		st.mu.Lock()
		st.stageDiscardsLocked(u)
		st.mu.Unlock()
	}
	for _, o := range ops {
		t, err := j.stage(u, o)
		switch {
		case err != nil && !errors.Is(err, errStored):
			o.finish(err)
		case o.eager() && t != nil:
			t.eager = append(t.eager, o)
		default:
			u.ops = append(u.ops, o)
			u.sync = true
			if t != nil {
				t.waits = true
			}
		}
	}
	if u.entries == 0 && len(u.ops) == 0 {
		j.units.put(u)
		return
	}
	for i := range u.touched {
		t := &u.touched[i]
		t.st.mu.Lock()
		t.head = t.st.next
		t.st.mu.Unlock()
	}
	j.last++
	if j.unsynced += u.size; j.unsynced > mostUnsynced {
		u.sync = true
	}
	if u.sync {
		j.unsynced = 0
	}
	u.failed = j.write(u)
	clear(u.pieces) // what the callers gave is theirs again, or will be soon
	clear(u.iov)
	u.scratch = nil
	if u.failed == nil {
		j.stats.records.Add(uint64(u.records))
		for i := range u.touched {
			if t := &u.touched[i]; !t.waits {
				t.showEarly(u)
			}
		}
	} else {
		j.breakDown(u.failed)
	}
	if u.sync {
		j.inFlight.Add(1)
	} else {
		j.unsaved.Store(u.n)
	}
	j.units.push(u)
}

// showEarly makes what was only buffered known before the sync, if nothing of the stream is not known before it.
func (t *touch) showEarly(u *unit) {
	t.st.mu.Lock()
	if t.shown = t.st.unacked == 1; t.shown {
		t.showLocked(u)
	}
	t.st.mu.Unlock()
	if !t.shown {
		return
	}
	for _, o := range t.eager {
		o.finish(nil)
	}
}

// write writes a batch behind the one before it.
func (j *Journal) write(u *unit) error {
	if j.isBroken() {
		return errBroken
	}
	if s := j.active; s == nil || j.pos+u.size > j.files.size && j.pos > headerBlock {
		if err := j.nextSegment(u.n); err != nil {
			return err
		}
	}
	s := j.active
	h := batchHeader{salt: s.salt, n: u.n, durable: j.durable.Load(), first: j.firstBatch, size: uint32(u.size), entries: u.entries, prev: j.prevCRC}
	h.put(u.buf)
	u.seg, u.off, u.crc, u.first = s, j.pos, h.crc, j.firstBatch
	u.end = afterBatch(u.off, u.size)
	for _, p := range u.pieces {
		b := p.ext
		if b == nil {
			b = u.buf[p.from:p.to]
		}
		u.iov = append(u.iov, b)
	}
	// Up to the end of a page, so that no page has to be read for it, and nothing old stands behind it.
	padded := alignUp(u.off+u.size, pageSize)
	if n := padded - (u.off + u.size); n > 0 {
		u.iov = append(u.iov, zeros[:n])
	}
	j.space.wrote(int(padded - u.off))
	j.files.logged.Add(alignUp(padded-u.off, pageSize))
	j.stats.bytes.Add(uint64(padded - u.off))
	if err := s.writeAt(j.files, u.iov, u.off, padded); err != nil {
		return err
	}
	j.pos, j.prevCRC = u.end, u.crc
	if u.size < zeroBatch && s.size.Load()-j.pos < zeroStep/2 {
		j.kickPrepare()
	}
	return nil
}

// zeroBatch is from which size of batches on no zeros are written ahead: there would soon be too many.
const zeroBatch = 32 << 10

var zeros [pageSize]byte

// writeAt writes to the segment; end is behind what is written.
func (s *segment) writeAt(fl *files, bufs [][]byte, off, end int64) error {
	f, err := fl.handle(s)
	if err != nil {
		return fmt.Errorf("write segment %s: %w", s.name, err)
	}
	if end > s.size.Load() {
		s.growing.Lock()
		defer s.growing.Unlock()
		if err = f.WriteAt(bufs, off); err == nil {
			s.size.Store(max(s.size.Load(), end))
		}
	} else {
		err = f.WriteAt(bufs, off)
	}
	if err != nil {
		return fmt.Errorf("write segment %s: %w", s.name, err)
	}
	return nil
}

// nextSegment makes another segment the one that is written to, from batch n on.
func (j *Journal) nextSegment(n uint64) error {
	s, err := j.files.take()
	if err != nil {
		return err
	}
	s.began = time.Now()
	if old := j.active; old != nil && s.began.Sub(old.began) < uncachedWithin {
		j.uncache.Store(old)
	}
	j.active, j.pos, j.firstBatch = s, headerBlock, n
	j.current.Store(s)
	j.switched.Store(s.began.UnixNano())
	j.kickPrepare()
	j.kickMark() // there may be a segment to be used again
	select {
	case j.kickMove <- struct{}{}: // and one to be emptied
	default:
	}
	return nil
}
