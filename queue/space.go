package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue/internal/records"
	"github.com/holdfastmq/holdfast/queue/internal/seqset"
)

// space knows in which records the bodies of live messages lie, names those that have none (Dead), and has the survivors of thinly
// populated ones stored anew (Relocate), so that one old message cannot pin a log (design §4).
//
// A body lies in the record of its Added event, until a Relocated event is stored: then in that one's record.
type space struct {
	records   records.Set
	relocated seqset.Set         // live messages whose body lies in a home
	homes     []*home            // ascending by record
	pending   *pendingRelocation // decided, not stored yet
	asked     bool               // the shell was asked for survivors
	askedTo   uint64             // all records below were looked at for them
	idleAt    uint64             // nothing was found as this many bytes were stored
	dead      []Span             // not told yet
	told      []Span             // since the snapshot before the last
	toldThen  int                // how many of told are from before the last
}

// home is a record with survivors of other ones.
type home struct {
	record uint64
	live   seqset.Set // of them, those that live
}

// pendingRelocation is a Relocated event that is not stored yet.
type pendingRelocation struct {
	at    uint64
	spans []Span
}

const (
	relocateSlack  = 16 << 20 // bytes of dead bodies that are always put up with
	relocateBytes  = 1 << 20  // survivors that are asked for at once
	relocateScan   = 2048     // records that one command looks at
	recordOverhead = entryHeaderSize + message.FrameHeaderSize
	bodyOverhead   = 3 // what a message takes besides its size: two lengths
)

// recordStored notes a record with bodies.
func (c *Core) recordStored(first, last uint64, bytes uint32) {
	s := &c.space
	s.records.Add(first, bytes)
	if p := s.pending; p != nil && p.at >= first && p.at <= last {
		s.pending = nil
		c.settleIn(first, p.spans)
	}
	c.checkRecord(first)
}

// settleIn notes that the bodies of survivors lie in a record now.
func (c *Core) settleIn(record uint64, spans []Span) {
	s := &c.space
	h := &home{record: record}
	for _, sp := range spans {
		for lo, hi := range c.live.Runs(sp.Seq, sp.Seq+sp.Count) {
			h.live.AddRange(lo, hi)
			s.moveOut(lo, hi)
			s.relocated.AddRange(lo, hi)
		}
	}
	if h.live.Len() > 0 {
		s.homes = append(slices.Clip(s.homes), h)
	}
	for _, sp := range spans {
		c.checkRecords(sp.Seq, sp.Seq+sp.Count)
	}
	c.checkHomes()
}

// moveOut takes messages out of the homes that they were in.
func (s *space) moveOut(lo, hi uint64) {
	if !s.relocated.Any(lo, hi) {
		return
	}
	for _, h := range s.homes {
		h.live.RemoveRange(lo, hi)
	}
}

// bodiesGone notes that messages are gone.
func (c *Core) bodiesGone(lo, hi uint64) {
	s := &c.space
	relocated := s.relocated.Any(lo, hi)
	if relocated {
		s.moveOut(lo, hi)
		s.relocated.RemoveRange(lo, hi)
	}
	if c.replaying {
		return // Recovered looks at all records
	}
	c.checkRecords(lo, hi)
	if relocated {
		c.checkHomes()
	}
}

// checkRecords looks at the records that a range of messages was added by.
func (c *Core) checkRecords(lo, hi uint64) {
	s := &c.space
	for lo < hi {
		r, ok := s.records.Find(lo)
		if !ok {
			if r, ok = s.records.Next(lo); !ok || r.Start >= hi {
				return
			}
		}
		end := c.checkRecord(r.Start)
		if end <= lo {
			return // what is not stored yet
		}
		lo = end
	}
}

// checkHomes looks at the records with survivors.
func (c *Core) checkHomes() {
	s := &c.space
	var empty []uint64
	keep := make([]*home, 0, len(s.homes))
	for _, h := range s.homes {
		if h.live.Len() == 0 {
			empty = append(empty, h.record)
		} else {
			keep = append(keep, h)
		}
	}
	if s.homes = keep; len(empty) > 0 {
		for _, r := range empty {
			c.checkRecord(r)
		}
	}
}

// end returns where the messages of a record end, at the latest: at the next record with bodies.
func (c *Core) end(record uint64) uint64 {
	if r, ok := c.space.records.Next(record + 1); ok {
		return r.Start
	}
	return c.stored + 1
}

// checkRecord notes that a record is dead, if it is, and returns where it ends.
func (c *Core) checkRecord(record uint64) uint64 {
	s := &c.space
	end := c.end(record)
	if c.needed(record, end) || c.replaying {
		return end
	}
	s.records.Remove(record)
	if n := len(s.dead); n > 0 && s.dead[n-1].Seq+s.dead[n-1].Count == record {
		s.dead[n-1].Count += end - record
	} else if end > record {
		s.dead = append(s.dead, Span{record, end - record})
	}
	return end
}

// needed tells whether any live body lies in a record.
func (c *Core) needed(record, end uint64) bool {
	s := &c.space
	if s.relocated.Len() == 0 {
		return c.live.Any(record, end)
	}
	for lo, hi := range c.live.Runs(record, end) {
		if s.relocated.Count(lo, hi) < hi-lo {
			return true
		}
	}
	return s.homeAt(record) != nil
}

// homeAt returns the survivors of other records that lie in a record, nil if there are none.
func (s *space) homeAt(record uint64) *home {
	i, ok := slices.BinarySearchFunc(s.homes, record, func(h *home, r uint64) int { return cmp.Compare(h.record, r) })
	if !ok || s.homes[i].live.Len() == 0 {
		return nil
	}
	return s.homes[i]
}

// maxTold bounds the dead ranges that a snapshot names again.
const maxTold = 1 << 14

// flushDead tells the shell which records are dead. What it was told is kept for the next snapshots: a discard is not durable when it
// is done, and after a crash nobody else would know of it.
func (c *Core) flushDead() {
	s := &c.space
	if len(s.dead) == 0 || c.replaying {
		return
	}
	c.effect(Dead{s.dead})
	for _, d := range s.dead {
		if len(s.told) > s.toldThen {
			s.told = appendSpan(s.told, d.Seq, d.Seq+d.Count)
		} else {
			s.told = append(s.told, d)
		}
	}
	if n := len(s.told) - maxTold; n > 0 {
		s.told, s.toldThen = slices.Clone(s.told[n:]), max(0, s.toldThen-n)
	}
	s.dead = nil
}

// tellAgain returns the dead ranges that a snapshot names, and begins those of the next.
func (s *space) tellAgain() []Span {
	out := slices.Clone(s.told)
	s.told = slices.Clone(s.told[s.toldThen:])
	s.toldThen = len(s.told)
	return out
}

// reclaimAll looks at all records, after a recovery, and names those that are dead: what was discarded before may not have been for
// good.
func (c *Core) reclaimAll() {
	s := &c.space
	s.dead = s.told
	s.told, s.toldThen = nil, 0
	first := c.stored + 1
	var dead []uint64
	s.records.Each(0, maxSeq, func(r records.Record) {
		if end := c.end(r.Start); c.needed(r.Start, end) {
			first = min(first, r.Start)
		} else {
			dead = append(dead, r.Start)
			s.dead = appendSpan(s.dead, r.Start, end)
		}
	})
	for _, d := range dead {
		s.records.Remove(d)
	}
	if first > 1 {
		// Everything before the first record that is needed, whether it was named before or not.
		s.dead = slices.DeleteFunc(s.dead, func(d Span) bool { return d.Seq+d.Count <= first })
		s.dead = append(s.dead, Span{1, first - 1})
	}
	c.checkHomes()
}

// Located says that the bodies of the messages of a span lie in the record whose first seq is Record.
type Located struct {
	Record uint64
	Span
}

// Locate appends to dst where the bodies of messages lie, in order, split where the record changes. Messages that are gone, or
// whose record is not stored yet, are left out.
func (c *Core) Locate(dst []Located, sp Span) []Located {
	s := &c.space
	for lo, hi := range c.live.Runs(sp.Seq, min(sp.Seq+sp.Count, c.stored+1)) {
		for lo < hi {
			if a, b, ok := s.relocated.NextRun(lo, hi); !ok || a > lo {
				if !ok {
					a = hi
				}
				dst, lo = c.locateAdded(dst, lo, a), a
			} else {
				dst, lo = s.locateHome(dst, lo, b), b
			}
		}
	}
	return dst
}

func (c *Core) locateAdded(dst []Located, lo, hi uint64) []Located {
	for lo < hi {
		r, ok := c.space.records.Find(lo)
		if !ok {
			break
		}
		end := min(hi, c.end(r.Start))
		dst = append(dst, Located{r.Start, Span{lo, end - lo}})
		lo = end
	}
	return dst
}

func (s *space) locateHome(dst []Located, lo, hi uint64) []Located {
	for lo < hi {
		end := lo + 1
		for _, h := range s.homes {
			if a, b, ok := h.live.NextRun(lo, hi); ok && a == lo {
				dst, end = append(dst, Located{h.record, Span{lo, b - lo}}), b
				break
			}
		}
		lo = end
	}
	return dst
}

// liveCost returns about how many bytes of body parts the live messages take.
func (c *Core) liveCost() uint64 { return c.bytes + bodyOverhead*c.live.Len() }

// storedCost returns how many bytes the body parts take, but for what each record takes whatever is in it.
func (c *Core) storedCost() uint64 {
	s := &c.space.records
	return s.Bytes() - min(s.Bytes(), recordOverhead*uint64(s.Len()))
}

// reclaim tells of dead records, and asks for survivors if too much of what is stored is dead.
func (c *Core) reclaim() {
	c.flushDead()
	if x, ok := c.live.Min(); ok {
		c.ages.trim(x)
	} else {
		c.ages.trim(c.next)
	}
	s := &c.space
	stored, live := c.storedCost(), c.liveCost()
	if s.asked || s.pending != nil || c.full || c.replaying || stored <= live+max(relocateSlack, live) ||
		max(stored, s.idleAt)-min(stored, s.idleAt) < relocateSlack/16 {
		return
	}
	spans, done := c.survivors()
	switch {
	case len(spans) > 0:
		s.asked, s.idleAt = true, 0
		c.effect(Relocate{spans})
	case done:
		s.idleAt = stored
	default:
		c.again = true
	}
}

// survivors looks for records of which less than half is alive, from where it ended the last time, and returns the messages in them.
// done tells that it has come to the end, and begins anew the next time.
func (c *Core) survivors() (spans []Span, done bool) {
	s := &c.space
	defer func() { slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Seq, b.Seq) }) }()
	found := uint64(0)
	for range relocateScan {
		r, ok := s.records.Next(s.askedTo)
		if !ok {
			s.askedTo = 0
			return spans, true
		}
		end := c.end(r.Start)
		s.askedTo = r.Start + 1
		var in []Span
		cost := uint64(0)
		add := func(lo, hi uint64) {
			in = appendSpan(in, lo, hi)
			cost += c.sizes.Sum(lo, hi) + bodyOverhead*(hi-lo)
		}
		for lo, hi := range c.live.Runs(r.Start, end) {
			for lo < hi {
				a, b, ok := s.relocated.NextRun(lo, hi)
				if !ok {
					a, b = hi, hi
				}
				if lo < a {
					add(lo, a)
				}
				lo = b
			}
		}
		if h := s.homeAt(r.Start); h != nil {
			for lo, hi := range h.live.All() {
				add(lo, hi)
			}
		}
		if len(in) == 0 || cost*2 >= uint64(r.Bytes) {
			continue
		}
		spans = append(spans, in...)
		if found += cost; found >= relocateBytes || len(spans) >= maxSpans {
			break
		}
	}
	return spans, false
}

// giveUp forgets that survivors were asked for.
func (s *space) giveUp() { s.asked = false }

// undo forgets a Relocated event that was refused.
func (s *space) undo(seq uint64) {
	if s.pending != nil && s.pending.at == seq {
		s.pending = nil
	}
}

// Relocated answers a Relocate with the bodies of spans, one frame for each. Without any, the request is given up, to come again.
// What has died meanwhile may be among them. The error is a FieldError: nothing was changed.
func (c *Core) Relocated(now int64, spans []Span, frames [][]byte) error {
	if len(spans) != len(frames) {
		return fmt.Errorf("relocate: %w", &message.FieldError{Field: "frames", Fault: fmt.Sprintf("are %d for %d spans", len(frames), len(spans))})
	}
	end := uint64(0)
	for i, s := range spans {
		if s.Seq < max(end, 1) || s.Count == 0 || s.Seq+s.Count > c.next || uint64(message.Count(frames[i])) != s.Count {
			return fmt.Errorf("relocate: %w", &message.FieldError{Field: "spans", Fault: fmt.Sprintf("%d…%d out of order or not of the frame", s.Seq, s.Seq+s.Count-1)})
		}
		end = s.Seq + s.Count
	}
	c.begin(now)
	asked := c.space.asked
	c.space.giveUp()
	any := slices.ContainsFunc(spans, func(s Span) bool { return c.live.Any(s.Seq, s.Seq+s.Count) })
	if asked && any && !c.full {
		c.emit(Event{Kind: KindRelocated, Spans: slices.Clone(spans), Frames: slices.Clone(frames)})
	}
	c.finish()
	return nil
}
