package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// What is alive in segments that hold little is moved to the end of the log, unchanged, so that the segments can be used again.

// move is a piece of work for the committer: what is to be stored anew of a stream.
type move struct {
	st      *stream
	from    *segment
	records []movedRecord
	parts   []movedPart
	size    int
}

type movedRecord struct {
	slot slot
	rec  *journal.Record
}

type movedPart struct {
	name string
	part part
	data []byte
}

const (
	// moveBytes is about how much is moved by one batch.
	moveBytes = 1 << 20
	// moveEvery is how often it is looked for what there is to move.
	moveEvery = 250 * time.Millisecond
)

// moveLoop empties segments while too much is taken up by too little.
func (j *Journal) moveLoop(ctx context.Context) {
	defer j.helpers.Done()
	t := time.NewTicker(moveEvery)
	defer t.Stop()
	var r rest
	for {
		select {
		case <-j.closing:
			return
		case <-t.C:
		case <-j.kickMove:
		}
		if r.look(j.files.logged.Load()-int64(j.stats.moved.Load()), time.Now()) {
			if err := j.giveBack(); err != nil {
				j.warn("journal: space is not given back", "dir", j.dir, "err", err)
			}
		}
		for j.refuse() == nil && !j.isBroken() && ctx.Err() == nil {
			s := j.victim(j.slack(r.is))
			if s == nil {
				break
			}
			if err := j.empty(ctx, s); err != nil {
				if ctx.Err() == nil {
					j.warn("journal: a segment cannot be emptied", "segment", s.name, "err", err)
				}
				break
			}
			if s.live.Load() != 0 {
				break // what is alive in it was discarded, and is so in the log soon; or was in use
			}
			j.stats.emptied.Add(1)
			// The segment is free once a checkpoint knows where its content is.
			if size, live, _, _ := j.files.usage(); size-live > j.files.size {
				j.wanted.Store(true)
				j.kickMark()
			}
		}
	}
}

// victim returns the segment that is worth emptying most, or nil if none has to be.
func (j *Journal) victim(slack int64) *segment {
	active, durable := j.current.Load(), j.durablePos()
	j.files.mu.Lock()
	defer j.files.mu.Unlock()
	var size, live int64
	var best *segment
	for _, s := range j.files.segs {
		l, n := s.live.Load(), s.size.Load()
		if s == active || s.number >= durable.seg || l == 0 || s.bad.Load() {
			continue
		}
		size += n
		live += l
		if best == nil || l*best.size.Load() < best.live.Load()*n {
			best = s
		}
	}
	if best == nil || size <= live+live/2+slack || best.live.Load() > best.size.Load()*3/4 || !j.space.movable() {
		return nil
	}
	return best
}

// empty moves what is alive in a segment.
func (j *Journal) empty(ctx context.Context, s *segment) error {
	s.pins.Add(1)
	defer s.pins.Add(-1)
	for _, st := range j.allStreams() {
		if err := j.moveRecords(ctx, st, s); err != nil {
			return err
		}
		if err := j.moveParts(ctx, st, s); err != nil {
			return err
		}
	}
	return nil
}

// moveRecords moves the records of a stream that are in a segment.
func (j *Journal) moveRecords(ctx context.Context, st *stream, s *segment) error {
	var buf [blockSlots]slot
	for next := uint64(0); ; {
		m := &move{st: st, from: s}
		st.mu.Lock()
		low := st.acked.low
		i := st.index.find(next)
		for i < len(st.index.blocks) && st.index.blocks[i].seg != s {
			i++
		}
		if i == len(st.index.blocks) {
			st.mu.Unlock()
			return nil
		}
		b := st.index.blocks[i]
		slots := slices.DeleteFunc(b.slots(&buf), func(x slot) bool { return x.first < next || x.live(low) == 0 })
		end := b.last + 1
		st.mu.Unlock()
		next = end
		for _, x := range slots {
			if m.size > moveBytes {
				next = x.first
				break
			}
			rec, err := j.readEntry(s, &x, x.alive)
			if err != nil {
				if errors.Is(err, journal.ErrCorrupt) || isNotExist(err) {
					s.bad.Store(true)
				}
				return fmt.Errorf("stream %q, seq %d: %w", st.name, x.first, err)
			}
			m.records = append(m.records, movedRecord{x, rec})
			m.size += int(x.live(low))
		}
		if err := j.moved(ctx, m); err != nil {
			return err
		}
	}
}

func (j *Journal) moveParts(ctx context.Context, st *stream, s *segment) error {
	st.mu.Lock()
	var all []movedPart
	for name, p := range st.parts {
		if p.seg == s {
			all = append(all, movedPart{name: name, part: p})
		}
	}
	st.mu.Unlock()
	slices.SortFunc(all, func(a, b movedPart) int { return cmp.Compare(a.part.off, b.part.off) })
	for len(all) > 0 {
		m := &move{st: st, from: s}
		for len(all) > 0 && m.size <= moveBytes {
			p := all[0]
			var err error
			if p.data, err = j.readPart(p.name, &p.part); err != nil {
				if errors.Is(err, journal.ErrCorrupt) || isNotExist(err) {
					s.bad.Store(true)
				}
				return fmt.Errorf("stream %q, part %q: %w", st.name, p.name, err)
			}
			m.parts = append(m.parts, p)
			m.size += int(p.part.bytes())
			all = all[1:]
		}
		if err := j.moved(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// moved hands a move to the committer and waits until it is done.
func (j *Journal) moved(ctx context.Context, m *move) error {
	if len(m.records)+len(m.parts) == 0 {
		return nil
	}
	j.stats.moved.Add(uint64(m.size))
	return j.do(ctx, &op{kind: opMove, move: m})
}

// stageMove puts what is still alive of a move into the batch.
func (j *Journal) stageMove(u *unit, m *move) error {
	st := m.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.next.dropped {
		return nil
	}
	var t *touch
	for i := range m.records {
		r := &m.records[i]
		seg, s, ok := st.index.get(r.slot.first)
		if !ok || seg != m.from || s.off != r.slot.off || s.live(st.acked.low) == 0 {
			continue
		}
		e := entry{kind: entRecord, flags: entMoved, stream: st.no, bodyCRC: r.rec.BodyCRC}
		body := r.rec.Body
		if !s.alive {
			e.bodyCRC, body = 0, nil
			if r.rec.BodyLen > 0 {
				e.flags |= entStripped
			}
		}
		if t == nil {
			t = u.touch(st)
		}
		c := change{kind: entRecord, moved: true, slot: s}
		c.slot.off = u.record(e, &r.rec.Header, r.rec.Meta, body)
		if body == nil {
			c.slot.body = 0
		}
		t.changes = append(t.changes, c)
	}
	for i := range m.parts {
		p := &m.parts[i]
		if now, ok := st.parts[p.name]; !ok || now != p.part {
			continue
		}
		if t == nil {
			t = u.touch(st)
		}
		t.changes = append(t.changes, u.part(st, p.name, p.data, entry{kind: entPart, flags: entMoved, stream: st.no, op: p.part.op}))
	}
	return nil
}
