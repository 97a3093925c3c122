package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// recovery is what a store holds, read from it.
type recovery struct {
	j       *Journal
	fl      *files
	ck      *checkpoint
	m       *mark // nil: there is none
	byNo    map[uint32]*stream
	nextNo  uint32
	last    position // of the last batch
	clean   bool     // last is where the log can go on
	loss    *LossError
	damaged map[string]bool // segments with damage
	// unplaced is the last batch of which something is lost that cannot be told whose it is.
	unplaced uint64
	where    string // the damage, in words
}

// recover reads the checkpoint and what is behind it.
func (j *Journal) recover(old map[uint64]*segment) (*recovery, error) {
	list, err := j.fs.List(j.dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", j.dir, err)
	}
	r := &recovery{j: j, byNo: map[uint32]*stream{}, damaged: map[string]bool{}, fl: &files{fs: j.fs, dir: j.dir, size: int64(j.opts.SegmentBytes)}}
	var found []*segment
	r.fl.segs, found, r.fl.next, err = j.findSegments(list, old)
	if err != nil {
		return nil, err
	}
	r.fl.free = found
	if r.m, _, err = readMark(j.fs, j.dir); err != nil {
		return nil, err
	}
	var lost error
	r.ck, err = readCheckpoint(j.fs, j.dir, r.fl.orMissing)
	if errors.Is(err, errNoCheckpoint) {
		r.ck, lost = noCheckpoint(), err
	} else if err != nil {
		return nil, err
	}
	for n, i := range r.ck.segs {
		if s := r.fl.segs[n]; s != nil && s.salt == 0 {
			s.salt = i.salt
		}
	}
	r.nextNo = r.ck.nextNo
	for _, st := range r.ck.streams {
		r.byNo[st.no] = st
	}
	var clean *position
	if r.m != nil && r.m.clean {
		clean = &r.m.pos
	}
	log, err := j.scanLog(r.fl, r.ck.pos, clean)
	if err != nil {
		return nil, err
	}
	if lost != nil {
		if done, err := r.withoutCheckpoint(log, lost); err != nil || done {
			return r, err
		}
	}
	if err := r.replay(log); err != nil {
		return nil, err
	}
	r.compare()
	r.count()
	return r, nil
}

// replay applies the batches behind the checkpoint.
func (r *recovery) replay(log *logScan) error {
	r.last = r.ck.pos
	r.where = log.broken
	proved := max(log.proved, r.ck.pos.n)
	if r.m != nil {
		proved = max(proved, r.m.pos.n)
	}
	proved = max(proved, r.j.durable.Load())
	var unproved []found
	next := r.ck.pos.n + 1
	for i := range log.batches {
		f := &log.batches[i]
		if f.n < next {
			continue // in the checkpoint, or found twice
		}
		if f.n <= proved {
			if f.n > next {
				r.lost(next, f.n-1)
			}
			if err := r.batch(f); err != nil {
				return err
			}
			r.last, next = f.position(), f.n+1
			continue
		}
		if next <= proved {
			r.lost(next, proved)
			next = proved + 1
		}
		if f.n != next || f.n > proved+1+uint64(len(unproved)) || len(unproved) > 0 && f.prev != unproved[len(unproved)-1].crc {
			break
		}
		if len(unproved) == 0 && r.last.n == proved && f.prev != r.last.crc {
			break
		}
		ok, err := verifyBatch(r.fl, f)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		unproved = append(unproved, *f)
		next++
	}
	if next <= proved {
		r.lost(next, proved)
	}
	if r.last.n < proved {
		r.last = position{n: proved, seg: r.last.seg, off: r.last.off}
	}
	r.clean = len(unproved) == 0 && r.m != nil && r.m.clean && r.m.pos == r.last
	return r.takeOver(unproved)
}

// lost notes that batches are missing that were on stable storage.
func (r *recovery) lost(from, to uint64) {
	if r.where == "" {
		r.where = fmt.Sprintf("the log ends with batch %d", from-1)
	}
	r.unplaced = max(r.unplaced, to)
	if s := r.fl.segs[r.last.seg]; s != nil {
		r.damaged[s.name] = true
	}
}

// batch applies a batch's entries.
func (r *recovery) batch(f *found) error {
	var w window
	at, end := f.off+batchHeaderSize, f.off+int64(f.size)
	broken := func() {
		r.unplaced = max(r.unplaced, f.n)
		r.damaged[f.seg.name] = true
		if r.where == "" {
			r.where = fmt.Sprintf("file %s is damaged at byte %d", f.seg.name, at)
		}
	}
	// What the file is too short for is not there.
	get := func(n int) ([]byte, error) {
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
			broken()
			return nil
		}
		pay, err := get(entryHeaderSize + int(e.payload))
		if err != nil {
			return err
		}
		if pay == nil || journal.Checksum(pay[entryHeaderSize:]) != e.payCRC {
			r.damaged[f.seg.name] = true
			if st := r.byNo[e.stream]; st == nil {
				broken()
			} else if e.numbered() && f.n > st.ackedAt {
				r.damage(st, e.op, fmt.Sprintf("file %s is damaged at byte %d", f.seg.name, at))
			}
		} else if err := r.entry(f, at, &e, pay[entryHeaderSize:]); err != nil {
			return err
		}
		at += e.size()
	}
	return nil
}

// damage notes that a change of a stream is lost.
func (r *recovery) damage(st *stream, op uint64, what string) {
	if st.damage == nil {
		from := st.acked.end + 1
		st.damage = &LossError{What: what, Missing: []Missing{{Stream: st.name, From: from, To: from - 1}}}
	}
	st.acked.op = max(st.acked.op, op)
}

// beyond notes that a damaged stream went on to seq end.
func beyond(st *stream, end uint64) {
	if m := &st.damage.Missing[0]; end > m.To {
		m.To = end
	}
}

// entry applies an entry.
func (r *recovery) entry(f *found, at int64, e *entry, pay []byte) error {
	st := r.byNo[e.stream]
	if st == nil {
		c := cursor{b: pay}
		if e.kind != entAcquire {
			r.unplaced = max(r.unplaced, f.n) // the entry that named it is lost
			return nil
		}
		st = newStream(c.str(), e.stream)
		r.byNo[e.stream] = st
		r.nextNo = max(r.nextNo, e.stream+1)
		if e.op != 1 {
			r.damage(st, e.op, r.gap(f))
		}
	}
	if f.n <= st.ackedAt {
		return nil // the checkpoint has it
	}
	if e.numbered() && st.damage == nil && e.op != st.acked.op+1 {
		r.damage(st, e.op, r.gap(f))
	}
	if st.damage != nil && e.numbered() {
		return r.behindDamage(st, e, pay)
	}
	if err := st.replay(f, at-f.off, e, pay); err != nil {
		if errors.Is(err, journal.ErrNewerFormat) {
			return err
		}
		r.damage(st, e.op, fmt.Sprintf("file %s, byte %d: %v", f.seg.name, at, err))
		return r.behindDamage(st, e, pay)
	}
	if e.numbered() {
		st.acked.op = e.op
	}
	return nil
}

func (r *recovery) gap(f *found) string {
	if r.where != "" {
		return r.where
	}
	return fmt.Sprintf("file %s: batch %d does not follow what is before it", f.seg.name, f.n)
}

// behindDamage notes of an entry behind what is lost only what has to be known: how far the stream went.
func (r *recovery) behindDamage(st *stream, e *entry, pay []byte) error {
	st.acked.op = max(st.acked.op, e.op)
	switch e.kind {
	case entRecord:
		if h, err := journal.ParseHeader(pay); err == nil {
			beyond(st, h.Last())
		}
	case entAcquire:
		c := cursor{b: pay}
		c.str()
		if h := c.head(); !c.short {
			st.acked.epoch = max(st.acked.epoch, h.epoch)
			beyond(st, h.end)
		}
	}
	return nil
}

// replay applies an entry that is intact and follows. rel is where it begins in its batch.
func (st *stream) replay(f *found, rel int64, e *entry, pay []byte) error {
	l := ledger{}
	c := change{kind: e.kind, moved: e.flags&entMoved != 0}
	off := f.off + rel
	switch e.kind {
	case entRecord:
		h, err := journal.ParseHeader(pay)
		if err != nil {
			return err
		}
		c.slot = slot{first: h.First, count: h.Count, off: off, meta: e.payload, body: e.body, alive: e.body > 0}
		if !c.moved {
			if a := &st.acked; h.First != a.end+1 || h.PrevCRC != a.endCRC || h.UID != a.uid {
				return fmt.Errorf("record of seq %d does not follow seq %d: %w", h.First, a.end, journal.ErrCorrupt)
			}
			st.acked.end, st.acked.endCRC, st.acked.endTime = h.Last(), h.CRC, h.Time
		}
		st.apply(&c, f.seg, f.n, l)
	case entAcquire:
		d := cursor{b: pay}
		name, h := d.str(), d.head()
		if d.short || name != st.name {
			return fmt.Errorf("stream %q in its place: %w", name, journal.ErrCorrupt)
		}
		h.low = max(h.low, st.acked.low)
		st.acked = h
	case entDiscard:
		ranges, err := parseRanges(pay)
		if err != nil {
			return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
		}
		for _, r := range ranges {
			st.index.discard(r.From, r.To, st.acked.low, l)
		}
	case entDiscardMeta:
		if len(pay) != 8 {
			return journal.ErrCorrupt
		}
		low := binary.LittleEndian.Uint64(pay)
		if low = st.index.lowAfter(low, st.acked.end); low > st.acked.low {
			st.index.raise(st.acked.low, low, l)
			st.acked.low = low
		}
	case entPart:
		d := cursor{b: pay}
		c.name = d.str()
		c.part = part{off: off, payload: e.payload, size: e.body, op: e.op}
		if d.short {
			return journal.ErrCorrupt
		}
		st.apply(&c, f.seg, f.n, l)
	case entDeleteParts:
		names, err := parseNames(pay)
		if err != nil {
			return fmt.Errorf("%w: %w", journal.ErrCorrupt, err)
		}
		c.names = names
		st.apply(&c, f.seg, f.n, l)
	case entDrop:
		st.apply(&c, f.seg, f.n, l)
		st.acked.dropped, st.acked.low = true, st.acked.end+1
	default:
		return fmt.Errorf("entry of kind %d: %w", e.kind, journal.ErrNewerFormat)
	}
	return nil
}

// compare finds what the mark has and the log has not.
func (r *recovery) compare() {
	if r.m == nil {
		r.loss = &LossError{What: fmt.Sprintf("the high-water mark (files %s, %s) is missing or damaged", markFiles[0], markFiles[1])}
		return
	}
	for no, s := range r.m.streams {
		st := r.byNo[no]
		if st == nil {
			st = newStream(s.name, no)
			st.acked.epoch, st.acked.uid = s.head.epoch, s.head.uid
			r.byNo[no] = st
			r.nextNo = max(r.nextNo, no+1)
		}
		if st.acked.op < s.head.op {
			what := r.where
			if what == "" {
				what = "it ends before the high-water mark"
			}
			r.damage(st, s.head.op, what)
		}
		if st.damage != nil {
			st.acked.epoch = max(st.acked.epoch, s.head.epoch)
			beyond(st, s.head.end)
		}
	}
	if r.unplaced > r.m.pos.n {
		r.loss = &LossError{What: fmt.Sprintf("%s, so that batches up to %d are lost, which were on stable storage", r.where, r.unplaced)}
	}
	if r.loss != nil {
		r.loss.Missing = r.missing()
	}
}

// missing lists what is missing of which stream.
func (r *recovery) missing() []Missing {
	var all []Missing
	for _, st := range r.byNo {
		if st.damage != nil {
			all = append(all, st.damage.Missing...)
		}
	}
	slices.SortFunc(all, func(a, b Missing) int { return strings.Compare(a.Stream, b.Stream) })
	return all
}

// count finds out what is alive in each segment, and which are not needed.
func (r *recovery) count() {
	for _, s := range r.fl.segs {
		s.live.Store(0)
		s.bad.Store(s.size.Load() == 0 || r.damaged[s.name])
	}
	var buf [blockSlots]slot
	used := map[*segment]bool{}
	for _, st := range r.byNo {
		for _, b := range st.index.blocks {
			used[b.seg] = true
			for _, s := range b.slots(&buf) {
				b.seg.live.Add(s.live(st.acked.low))
			}
		}
		for _, p := range st.parts {
			used[p.seg] = true
			p.seg.live.Add(p.bytes())
		}
	}
	for n, s := range maps.Clone(r.fl.segs) {
		if used[s] || s.bad.Load() || r.loss != nil || s.pins.Load() > 0 { // somebody may still read it, or it is kept as it is
			continue
		}
		if n < r.ck.pos.seg && s.movedAt.Load() <= r.ck.pos.n || n > r.last.seg {
			delete(r.fl.segs, n)
			r.fl.free = append(r.fl.free, s)
		}
	}
}
