package queue

import (
	"fmt"
	"math"

	"github.com/holdfastmq/holdfast/message"
)

// plan is what is to be stored of a batch.
type plan struct {
	from, to   int              // the messages that it settles
	runs       [][2]int         // those of them that are stored, from…to; nil: all
	suppressed []Suppressed     // those that are not
	hashes     map[int][16]byte // of dedup ids, by message
	count      int              // stored
	bytes      uint64
	barred     bool // the next message repeats one that is not stored yet
}

// store stores what there is room for of the first batch of a sender, from message skip on.
func (c *Core) store(s *sender, b *waitingBatch, skip int) step {
	if c.full {
		if c.refuses(s) {
			return c.refuseFull(s, b, skip, ErrStorageFull)
		}
		return stepFull
	}
	if err := c.tooLarge(b, skip); err != nil {
		c.refuse(s, b.ProducerSeq+uint64(skip), err)
		return stepDone
	}
	if c.cfg.Overflow == OverflowDropOldest {
		p := c.plan(b, skip, math.MaxUint64, math.MaxUint64)
		if p.count > 0 && !c.makeRoom(uint64(p.count), p.bytes) {
			c.makeRoom(1, uint64(b.size(skip)))
		}
	}
	messages, bytes := c.room()
	p := c.plan(b, skip, messages, bytes)
	if p.to == skip {
		switch {
		case p.barred:
			return c.bar(b)
		case c.refuses(s):
			return c.refuseFull(s, b, skip, ErrFull)
		}
		return stepFull
	}
	last := b.ProducerSeq + uint64(p.to) - 1
	a := Accepted{UpTo: last, Count: uint64(p.count), Suppressed: p.suppressed, Duplicates: uint64(max(skip-b.done, 0) + len(p.suppressed))}
	switch {
	case p.count > 0:
		a.First = c.next
		c.emit(c.addedEvent(s, b, &p))
	case !s.o.Producer.IsZero():
		c.emit(Event{Kind: KindSuppressed, Producer: s.o.Producer, ProducerSeq: last})
	}
	if s.o.Producer.IsZero() {
		s.last = last
	}
	c.answer(s, b, p.to, a)
	return stepDone
}

func (c *Core) refuseFull(s *sender, b *waitingBatch, skip int, err error) step {
	c.counts.refused++
	c.refuse(s, b.ProducerSeq+uint64(skip), err)
	return stepDone
}

// tooLarge refuses a batch whose next message the queue could not even hold alone.
func (c *Core) tooLarge(b *waitingBatch, at int) error {
	if size := b.size(at); c.cfg.MaxBytes > 0 && int64(size) > c.cfg.MaxBytes {
		return &message.FieldError{Field: "message", Fault: fmt.Sprintf("has %d bytes, more than the queue can hold", size),
			Limit: fmt.Sprintf("max_bytes, %d", c.cfg.MaxBytes)}
	}
	return nil
}

// size returns the size of a message of a batch.
func (b *waitingBatch) size(i int) uint32 {
	if b.Info.Sizes == nil {
		return b.Info.Uniform
	}
	return b.Info.Sizes[i]
}

// room returns how many messages and bytes the queue can take.
func (c *Core) room() (messages, bytes uint64) {
	messages, bytes = math.MaxUint64, math.MaxUint64
	if m := uint64(c.cfg.MaxMessages); m > 0 {
		messages = m - min(m, c.live.Len())
	}
	if m := uint64(c.cfg.MaxBytes); m > 0 {
		bytes = m - min(m, c.bytes)
	}
	return messages, bytes
}

// plan chooses which messages of a batch, from one on, are settled now: as many as there is room for.
func (c *Core) plan(b *waitingBatch, from int, messages, bytes uint64) plan {
	p := plan{from: from, to: from}
	if !b.anyDedup() && b.Info.Sizes == nil {
		n := uint64(b.Info.Count - from)
		if size := uint64(b.Info.Uniform); size > 0 {
			n = min(n, bytes/size)
		}
		n = min(n, messages)
		p.to, p.count, p.bytes = from+int(n), int(n), n*uint64(b.Info.Uniform)
		return p
	}
	var inBatch map[[16]byte]int // dedup ids of the messages that this plan stores
	sp := b.specialsFrom(from)
	run := from
	for ; p.to < b.Info.Count; p.to++ {
		hash := [16]byte{}
		if len(sp) > 0 && sp[0].Index == p.to {
			if id := sp[0].Attrs.DedupID; len(id) > 0 {
				hash = HashDedupID(id)
			}
			sp = sp[1:]
		}
		if hash != [16]byte{} {
			seq, known := c.dedup.find(hash, c.now)
			if !known {
				var n int
				if n, known = inBatch[hash]; known {
					seq = c.next + uint64(n)
				}
			} else if seq > c.stored {
				p.barred = true
				break
			}
			if known {
				if run < p.to {
					p.runs = append(p.runs, [2]int{run, p.to})
				}
				run = p.to + 1
				p.suppressed = append(p.suppressed, Suppressed{ProducerSeq: b.ProducerSeq + uint64(p.to), Seq: seq})
				continue
			}
		}
		size := uint64(b.size(p.to))
		if messages == 0 || bytes < size {
			break
		}
		if hash != [16]byte{} {
			if inBatch == nil {
				inBatch, p.hashes = make(map[[16]byte]int), make(map[int][16]byte)
			}
			inBatch[hash] = p.count
			p.hashes[p.to] = hash
		}
		messages--
		bytes -= size
		p.count++
		p.bytes += size
	}
	if p.suppressed != nil && run < p.to {
		p.runs = append(p.runs, [2]int{run, p.to})
	}
	return p
}

// anyDedup tells whether any message of a batch has a dedup id.
func (b *waitingBatch) anyDedup() bool {
	for i := range b.Info.Specials {
		if len(b.Info.Specials[i].Attrs.DedupID) > 0 {
			return true
		}
	}
	return false
}

// specialsFrom returns the specials of the messages from one on.
func (b *waitingBatch) specialsFrom(from int) []message.Special {
	sp := b.Info.Specials
	for len(sp) > 0 && sp[0].Index < from {
		sp = sp[1:]
	}
	return sp
}

// addedEvent makes the event that stores what a plan says.
func (c *Core) addedEvent(s *sender, b *waitingBatch, p *plan) Event {
	a := &Added{Count: uint64(p.count), Uniform: b.Info.Uniform}
	if !s.o.Producer.IsZero() {
		a.Producer = s.o.Producer
		a.ProducerSeq = b.ProducerSeq + uint64(p.from)
		a.ProducerLast = b.ProducerSeq + uint64(p.to) - 1
	}
	if d := c.cfg.DefaultDelay.Milliseconds(); d > 0 {
		a.NotBefore = c.now + d
	}
	frame := b.Frame
	if p.count != b.Info.Count {
		frame = p.slice(b.Frame)
	}
	runs := p.runs
	if runs == nil {
		runs = [][2]int{{p.from, p.to}}
	}
	if b.Info.Sizes != nil {
		a.Uniform, a.Sizes = 0, b.Info.Sizes
		if p.count != b.Info.Count {
			a.Sizes = make([]uint32, 0, p.count)
			for _, r := range runs {
				a.Sizes = append(a.Sizes, b.Info.Sizes[r[0]:r[1]]...)
			}
		}
	}
	if len(b.Info.Specials) > 0 {
		a.Specials = make([]Special, 0, len(b.Info.Specials))
		first := 0
		for _, r := range runs {
			for _, sp := range b.specialsFrom(r[0]) {
				if sp.Index >= r[1] {
					break
				}
				t := c.special(&sp.Attrs)
				t.Index, t.DedupHash = uint32(first+sp.Index-r[0]), p.hashes[sp.Index]
				a.Specials = append(a.Specials, t)
			}
			first += r[1] - r[0]
		}
		if len(a.Specials) == 0 {
			a.Specials = nil
		}
	}
	return Event{Kind: KindAdded, Added: a, Frames: [][]byte{frame}}
}

// special turns what a message says about time into queue time, from now on.
func (c *Core) special(a *message.Attrs) Special {
	s := Special{NotBefore: a.NotBeforeMs, ExpiresAt: a.ExpiresAtMs, Priority: uint8(a.Priority), Foreign: a.HasOrigin}
	if a.DelayMs != 0 {
		s.NotBefore = c.now + a.DelayMs
	}
	if a.TTLMs != 0 {
		s.ExpiresAt = c.now + a.TTLMs
	}
	if len(a.Key) > 0 {
		s.KeyHash = HashKey(a.Key)
	}
	return s
}

// slice makes a frame of the messages that a plan stores.
func (p *plan) slice(frame []byte) []byte {
	runs := p.runs
	if runs == nil {
		runs = [][2]int{{p.from, p.to}}
	}
	cur := message.NewCursor(frame)
	spans := make([][]byte, 0, len(runs))
	size := message.FrameHeaderSize
	for _, r := range runs {
		if _, ok := cur.Span(r[0] - cur.Index()); !ok {
			panic("queue: a frame has fewer messages than its check told")
		}
		span, ok := cur.Span(r[1] - r[0])
		if !ok {
			panic("queue: a frame has fewer messages than its check told")
		}
		spans = append(spans, span)
		size += len(span)
	}
	return message.FrameFromSpans(make([]byte, 0, size), p.count, spans...)
}

// makeRoom drops the oldest ready messages, as many as so many new ones need, and tells whether it could: otherwise it drops none
// (policy drop-oldest).
func (c *Core) makeRoom(needMessages, needBytes uint64) bool {
	needMessages, needBytes = min(needMessages, uint64(c.cfg.MaxMessages)), min(needBytes, uint64(c.cfg.MaxBytes))
	messages, bytes := c.room()
	var spans []Span
	at := uint64(0)
	for messages < needMessages || bytes < needBytes {
		lo, hi, ok := c.oldestReady(at)
		if !ok {
			return false
		}
		n := uint64(0)
		if messages < needMessages {
			n = min(hi-lo, needMessages-messages)
		}
		for short := bytes + c.sizes.Sum(lo, lo+n); short < needBytes && n < hi-lo; n++ {
			short += uint64(c.sizes.At(lo + n))
		}
		messages += n
		bytes += c.sizes.Sum(lo, lo+n)
		spans = appendSpan(spans, lo, lo+n)
		at = lo + n
	}
	c.decide(Event{Kind: KindDropped}, spans)
	return true
}

// oldestReady returns the first run of ready messages from a seq on; those that wait for their key are among them.
func (c *Core) oldestReady(at uint64) (lo, hi uint64, ok bool) {
	lo, hi, ok = c.waiting.NextRun(at, maxSeq)
	for p := range c.ready {
		if a, b, is := c.ready[p].NextRun(at, maxSeq); is && (!ok || a < lo) {
			if ok {
				b = min(b, lo)
			}
			lo, hi, ok = a, b, true
		} else if is && ok {
			hi = min(hi, a)
		}
	}
	return lo, hi, ok
}
