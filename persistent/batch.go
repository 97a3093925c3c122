package persistent

import (
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// entry is an event that was decided.
type entry[E any] struct {
	e        E
	seq      uint64 // its first
	count    uint64
	at       int64
	meta     span // its bytes within the batch's meta
	body     span // its chunks within the batch's body
	bodyLen  int
	undoes   uint64 // the seq of the refused event that it undoes, or 0
	bodyless bool   // its body is left out
	head     bool   // first of the events that were persisted together
}

type span struct{ from, to int }

// batch is events on their way to become one record.
type batch[E any] struct {
	rec              journal.Record // all but Kind… is filled in as events are added; sealed by the appender
	events           []entry[E]
	size             int  // bytes of meta and body
	closed           bool // takes no more events
	bodies, bodyless bool // what its events have
	// handed tells that the appender had it; unsure, that its last result is not known or proves nothing;
	// maybe, that one of its tries ended without an answer, so that somebody may still be reading its slices.
	handed, unsure, maybe bool
	sealed                bool
	first                 time.Duration // of the first try, since the clock's start
}

// room returns how large the record is at most once a group of that many bytes and events is added.
func (b *batch[E]) room(bytes, events int) int {
	return journal.HeaderSize + b.size + maxMetaHead + bytes + events*2*maxFrameHead + maxFrameHead
}

// add adds an event, whose bytes and chunks are copied from meta and body.
func (b *batch[E]) add(en entry[E], meta []byte, body [][]byte) {
	r := &b.rec
	before := len(r.Meta)
	if len(b.events) == 0 {
		r.First, r.Count, r.Time = en.seq, 0, en.at
		r.Meta = appendMetaHead(r.Meta, en.at)
	}
	if en.at > r.Time {
		r.Meta = appendFrame(r.Meta, frameTime, uint64(en.at-r.Time))
		r.Time = en.at
	}
	kind := uint64(frameEvent)
	if en.bodyless {
		kind, body, en.bodyLen = frameBodyless, nil, 0
	}
	b.bodies, b.bodyless = b.bodies || en.bodyLen > 0, b.bodyless || en.bodyless
	r.Meta = appendFrame(r.Meta, kind, uint64(len(meta)))
	en.meta.from = len(r.Meta)
	r.Meta = append(r.Meta, meta...)
	en.meta.to = len(r.Meta)
	if en.undoes != 0 {
		r.Meta = appendFrame(r.Meta, frameUndone, en.undoes)
	}
	en.body.from = len(r.Body)
	r.Body = append(r.Body, body...)
	en.body.to = len(r.Body)
	r.Count += en.count
	b.size += len(r.Meta) - before + en.bodyLen
	b.events = append(b.events, en)
}

// last returns the seq of the last event.
func (b *batch[E]) last() uint64 { return b.rec.First + b.rec.Count - 1 }

// maxBatchEvents closes a record like MaxBatchBytes does: more events than that gain nothing by sharing a sync.
const maxBatchEvents = 8 << 10

// recyclable empties it for another use. It returns false if that must not be, since somebody may still read
// it, or is not worth it, since it is large.
func (b *batch[E]) recyclable() bool {
	if b.maybe || cap(b.rec.Meta) > 256<<10 || cap(b.events) > 2*maxBatchEvents {
		return false
	}
	clear(b.events)
	clear(b.rec.Body)
	*b = batch[E]{rec: journal.Record{Meta: b.rec.Meta[:0], Body: b.rec.Body[:0]}, events: b.events[:0]}
	return true
}
