package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/queue"
)

// A body that cannot be read is met where one is needed: at a hand-over, a move to another queue, or when survivors are stored anew. The
// messages of its record are parked then (see queue.Core.Damaged), and the queue goes on with everything else. Peek tells of damage and
// changes nothing.

// unreadable is a record whose body part cannot be read.
type unreadable struct {
	record uint64
	err    error
}

// Error implements error.
func (u *unreadable) Error() string { return u.err.Error() }

// Unwrap returns the cause, which matches journal.ErrCorrupt.
func (u *unreadable) Unwrap() error { return u.err }

func isIn(record uint64, bad []*unreadable) bool {
	return slices.ContainsFunc(bad, func(u *unreadable) bool { return u.record == record })
}

// damagedRecords tells of which located records some messages could not be read, although nothing was said of damage.
func (o *owner) damagedRecords(records []located, read []*entry) (bad []*unreadable) {
	for _, l := range records {
		if !isIn(l.Record, bad) && !holds(read, l.Span) {
			bad = append(bad, &unreadable{l.Record, &journal.CorruptError{Stream: StreamName(o.name), Seq: l.Record,
				What: fmt.Sprintf("the body of the live message at seq %d is missing", l.Seq)}})
		}
	}
	return bad
}

// holds tells whether all messages of a span were read.
func holds(read []*entry, left queue.Span) bool {
	var pieces []piece
	for left.Count > 0 {
		if pieces, left = takeRead(read, left, pieces[:0]); len(pieces) == 0 {
			return false
		}
	}
	return true
}

// setAside has the messages of damaged records parked. leases are those under which messages were to be handed out. It returns, once that is
// stored, where messages of spans are that lie in other records.
func (o *owner) setAside(ctx context.Context, bad []*unreadable, leases []queue.LeaseSpan, spans []queue.Span) ([]located, error) {
	found := make([][]queue.Span, len(bad))
	var at []located
	err := o.ask(ctx, "set damaged messages aside in", func(a *turn) {
		for i, u := range bad {
			if found[i] = o.core.Damaged(a.Now(), u.record, leases); len(found[i]) > 0 {
				o.damage = u.err
				o.damaged.Store(true)
			}
		}
		at = slices.DeleteFunc(o.locate(spans), func(l located) bool { return isIn(l.Record, bad) })
	})
	if err != nil {
		return nil, err // not what was found: see ask
	}
	for i, u := range bad {
		if n := count(found[i]); n > 0 {
			o.log.Error("messages cannot be read and are parked; the queue goes on without them", "messages", n,
				"from", found[i][0].Seq, "to", found[i][len(found[i])-1].Seq+found[i][len(found[i])-1].Count-1, "error", u.err)
		}
	}
	return at, nil
}

func count(spans []queue.Span) (n uint64) {
	for _, s := range spans {
		n += s.Count
	}
	return n
}

// What is parked is looked at after a recovery, since only the bodies tell which of it is damaged: from the lowest seqs on, so much of it.
const (
	checkMessages = 16 << 10
	checkBytes    = 64 << 20
	checkAtOnce   = 256
)

// checkParked looks at parked messages, and notes which of them cannot be read.
func (o *owner) checkParked(ctx context.Context) {
	from, bytes := uint64(0), 0
	for seen := 0; seen < checkMessages && bytes < checkBytes; {
		var infos []queue.MessageInfo
		var records []located
		err := o.ask(ctx, "look at parked messages of", func(*turn) {
			infos = o.core.Peek(queue.StateParked, from, checkAtOnce)
			for _, m := range infos {
				records = o.core.Locate(records, queue.Span{Seq: m.Seq, Count: 1})
			}
		})
		if err != nil || len(infos) == 0 {
			return // it has stopped, and who uses it is told
		}
		for _, m := range infos {
			bytes += int(m.Size)
		}
		seen, from = seen+len(infos), infos[len(infos)-1].Seq+1
		read, bad, err := o.readRecords(ctx, records, nil)
		if err != nil {
			return
		}
		if len(bad) == 0 {
			var now []located
			if now, err = o.locateNow(ctx, spansAt(records)); err != nil {
				return
			}
			bad = o.damagedRecords(slices.DeleteFunc(now, func(l located) bool { return !slices.Contains(records, l) }), read)
		}
		if len(bad) > 0 {
			if _, err := o.setAside(ctx, bad, nil, nil); err != nil {
				return
			}
		}
	}
}

func spansAt(records []located) []queue.Span {
	out := make([]queue.Span, len(records))
	for i, l := range records {
		out[i] = l.Span
	}
	return out
}

// corruptAt returns the record that an error of readOne says cannot be read, nil if it says something else.
func corruptAt(err error) []*unreadable {
	var u *unreadable
	if errors.As(err, &u) {
		return []*unreadable{u}
	}
	return nil
}

// Damaged returns the names of the queues that have messages whose bodies cannot be read, with how many of them there are. It asks those queues alone in
// which any were found since they were recovered.
func (b *Broker) Damaged(ctx context.Context) map[string]uint64 {
	out := map[string]uint64{}
	for _, h := range b.reg.list() {
		o := b.open(h.name)
		if o == nil || !o.damaged.Load() {
			continue
		}
		if n, err := read(ctx, o, "look at", func(a *turn) uint64 { return o.core.Stats(a.Now()).Damaged }); err == nil && n > 0 {
			out[h.name] = n
		}
	}
	return out
}
