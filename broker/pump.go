package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/message"
	"github.com/holdfastmq/holdfast/queue"
)

// A hand-over whose bodies are all in the cache goes out at once, from the actor's goroutine. The others go
// through the pump, one after the other: it reads their records, in the order in which the messages are
// handed out, and a receiver's later hand-overs wait behind its earlier ones.
type pump struct {
	o *owner

	mu      sync.Mutex
	jobs    []handover
	running bool

	// Of the goroutine alone: what was read last, since the next hand-over usually goes on in the same record.
	last []*entry
}

// handover is a stored Deliver whose bodies are not all in the cache.
type handover struct {
	r       *receiver
	runs    []queue.Delivery
	records []located
}

// located says in which record the bodies of messages lie.
type located = queue.Located

// locate asks the core where the bodies of messages are. Called by the actor.
func (o *owner) locate(spans []queue.Span) []located {
	var out []located
	for _, s := range spans {
		out = o.core.Locate(out, s)
	}
	return out
}

// deliver hands messages to a receiver. Called by the actor, once their lease is stored.
func (o *owner) deliver(e queue.Deliver) {
	r := o.receivers[e.Receiver]
	if r == nil || r.closed.Load() {
		return // what it was leased returns by the rules of a lost receiver
	}
	runs := o.withoutRefused(e.Runs)
	if len(runs) == 0 {
		return
	}
	if r.cold.Load() == 0 {
		if out, ok := o.assemble(runs, nil); ok {
			r.hand(out)
			return
		}
	}
	records := o.locate(spansOf(runs))
	if runs = runsAt(runs, records); len(runs) == 0 {
		return // all gone since it was decided
	}
	r.cold.Add(1)
	o.pump.add(handover{r, runs, records})
}

// withoutRefused leaves out messages that the store had no room for: their lease is void.
func (o *owner) withoutRefused(runs []queue.Delivery) []queue.Delivery {
	if len(o.refused) == 0 {
		return runs
	}
	var out []queue.Delivery
next:
	for _, d := range runs {
		for _, s := range o.refused {
			if d.Seq < s.Seq+s.Count && s.Seq < d.Seq+d.Count {
				continue next
			}
		}
		out = append(out, d)
	}
	return out
}

// assemble adds the bodies to hand-overs, from the cache or from what was just read. ok is false if any is missing.
func (o *owner) assemble(runs []queue.Delivery, read []*entry) (out []holdfast.Run, ok bool) {
	out = make([]holdfast.Run, 0, len(runs)+2)
	var pieces []piece
	for _, d := range runs {
		left := queue.Span{Seq: d.Seq, Count: d.Count}
		pieces = pieces[:0]
		for left.Count > 0 {
			before := left
			if pieces, left = o.bodies.take(left, pieces); left.Count > 0 {
				pieces, left = takeRead(read, left, pieces)
			}
			if left == before {
				return nil, false
			}
		}
		lease := d.LeaseSpan
		for _, p := range pieces {
			lease.Count = p.Count
			run := d
			run.LeaseSpan = lease
			out = append(out, holdfast.Run{Delivery: run, Data: p.data})
			lease.Lease += p.Count
			lease.Seq += p.Count
		}
	}
	return out, true
}

// takeRead is bodies.take for entries that were read.
func takeRead(read []*entry, span queue.Span, out []piece) ([]piece, queue.Span) {
	for _, e := range read {
		if span.Seq < e.Seq || span.Seq >= e.Seq+e.Count {
			continue
		}
		n := min(span.Count, e.Seq+e.Count-span.Seq)
		data, ok := cutSpan(&e.cursor, e.frame, span.Seq-e.Seq, n)
		if !ok {
			return out, span
		}
		return append(out, piece{queue.Span{Seq: span.Seq, Count: n}, data}), queue.Span{Seq: span.Seq + n, Count: span.Count - n}
	}
	return out, span
}

func (p *pump) add(j handover) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs = append(p.jobs, j)
	if !p.running {
		p.running = p.o.b.background(p.run)
	}
}

func (p *pump) run(ctx context.Context) {
	for {
		p.mu.Lock()
		if len(p.jobs) == 0 || ctx.Err() != nil {
			p.jobs, p.running = nil, false
			p.mu.Unlock()
			return
		}
		j := p.jobs[0]
		p.jobs = p.jobs[1:]
		p.mu.Unlock()
		if !j.r.closed.Load() {
			p.do(ctx, j)
		}
		j.r.cold.Add(-1)
	}
}

func (p *pump) do(ctx context.Context, j handover) {
	for len(j.runs) > 0 {
		read, bad, err := p.o.readRecords(ctx, j.records, p.last)
		if err != nil {
			if ctx.Err() == nil {
				p.o.fail(err)
			}
			return
		}
		p.last = read
		if len(bad) == 0 {
			if out, ok := p.o.assemble(j.runs, read); ok {
				if !j.r.closed.Load() {
					j.r.hand(out)
				}
				return
			}
		}
		now, err := p.without(ctx, j, read, bad)
		if err != nil {
			return // the queue is stopped, and the receiver with it
		}
		j.runs, j.records = runsAt(j.runs, now), now
	}
}

// without returns where the messages of a hand-over are by now, some of which could not be read: but for those that are damaged, which are
// set aside.
func (p *pump) without(ctx context.Context, j handover, read []*entry, bad []*unreadable) ([]located, error) {
	o, spans := p.o, spansOf(j.runs)
	if len(bad) == 0 {
		// They may have been purged in the meantime, or lie in another record by now.
		now, err := o.locateNow(ctx, spans)
		if err != nil || !slices.Equal(now, j.records) {
			return now, err
		}
		if bad = o.damagedRecords(now, read); len(bad) == 0 {
			err := &journal.CorruptError{Stream: StreamName(o.name), Seq: spans[0].Seq, What: "bodies that were read do not fit their messages"}
			o.fail(err)
			return nil, err
		}
	}
	leases := make([]queue.LeaseSpan, len(j.runs))
	for i, r := range j.runs {
		leases[i] = r.LeaseSpan
	}
	return o.setAside(ctx, bad, leases, spans)
}

func spansOf(runs []queue.Delivery) []queue.Span {
	spans := make([]queue.Span, len(runs))
	for i, d := range runs {
		spans[i] = queue.Span{Seq: d.Seq, Count: d.Count}
	}
	return spans
}

// runsAt returns the parts of runs that are located.
func runsAt(runs []queue.Delivery, at []located) (out []queue.Delivery) {
	for _, d := range runs {
		for ; len(at) > 0 && at[0].Seq >= d.Seq && at[0].Seq < d.Seq+d.Count; at = at[1:] {
			part := d
			part.Lease += at[0].Seq - d.Seq
			part.Seq, part.Count = at[0].Seq, at[0].Count
			out = append(out, part)
		}
	}
	return out
}

// locateNow locates messages as the core has them by now; those that are gone are left out.
func (o *owner) locateNow(ctx context.Context, spans []queue.Span) ([]located, error) {
	return read(ctx, o, "locate messages of", func(*turn) []located { return o.locate(spans) })
}

// fail stops a queue whose storage cannot be read, before worse is done. Other queues go on.
func (o *owner) fail(err error) {
	o.log.Error("queue stopped: its storage cannot be read", "error", err)
	<-o.opened
	if o.actor != nil {
		o.actor.Fail(err)
	}
}

// readRecords reads the bodies of records, all but those that before still holds. If it holds all, it is returned as it is, with what else
// it has: of a record with many frames, that is what the next hand-over goes on with. bad are the records that are damaged. An error other than
// damage is tried again until the broker or the queue stops.
func (o *owner) readRecords(ctx context.Context, records []located, before []*entry) (out []*entry, bad []*unreadable, err error) {
	var want []uint64
	for _, l := range records {
		n, left := len(out), l.Span
		for _, e := range before {
			if left.Count > 0 && left.Seq >= e.Seq && left.Seq < e.Seq+e.Count {
				k := min(left.Count, e.Seq+e.Count-left.Seq)
				left = queue.Span{Seq: left.Seq + k, Count: left.Count - k}
				out = append(out, e)
			}
		}
		if left.Count == 0 {
			continue
		}
		out = out[:n]
		if len(want) == 0 || want[len(want)-1] != l.Record {
			want = append(want, l.Record)
		}
	}
	if len(want) == 0 {
		return before, nil, nil
	}
	n := len(out)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if out, err = o.readBodies(ctx, want, out[:n]); errors.Is(err, journal.ErrCorrupt) {
			out, bad, err = o.readEach(ctx, want, out[:n])
		}
		if err == nil {
			return out, bad, nil
		}
		if errors.Is(err, journal.ErrClosed) || ctx.Err() != nil {
			return nil, nil, err
		}
		o.log.Warn("cannot read message bodies, trying again", "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-o.done:
			return nil, nil, journal.ErrClosed
		}
	}
}

// readEach reads records one by one, and tells which of them are damaged.
func (o *owner) readEach(ctx context.Context, records []uint64, out []*entry) ([]*entry, []*unreadable, error) {
	var bad []*unreadable
	for _, record := range records {
		n := len(out)
		var err error
		out, err = o.readBodies(ctx, []uint64{record}, out)
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			out, bad = out[:n], append(bad, &unreadable{record, err})
		case err != nil:
			return out, nil, err
		}
	}
	return out, bad, nil
}

// readOne reads a message that was located, or takes it from what was read before; it returns what it has read last. ok is false
// for one that is gone. For one that is damaged, the error is an unreadable.
func (o *owner) readOne(ctx context.Context, seq uint64, at []located, before []*entry) (raw message.Raw, read []*entry, ok bool, err error) {
	span := queue.Span{Seq: seq, Count: 1}
	for read = before; ; {
		if pieces, _ := takeRead(read, span, nil); len(pieces) > 0 {
			c := message.NewCursor(message.FrameFromSpans(nil, 1, pieces[0].data))
			raw, ok = c.Next()
			return raw, read, ok, nil
		}
		var bad []*unreadable
		if read, bad, err = o.readRecords(ctx, at, nil); err != nil {
			return raw, nil, false, err
		}
		if pieces, _ := takeRead(read, span, nil); len(pieces) > 0 {
			continue
		}
		// It may have been purged in the meantime, or lie in another record by now.
		now, err := o.locateNow(ctx, []queue.Span{span})
		if err != nil || len(now) == 0 {
			return raw, read, false, err
		}
		if slices.Equal(now, at) {
			return raw, read, false, append(bad, o.damagedRecords(now, read)...)[0]
		}
		at = now
	}
}

func (o *owner) readBodies(ctx context.Context, records []uint64, out []*entry) ([]*entry, error) {
	for rec, err := range o.stream.ReadBodies(ctx, records) {
		if err != nil {
			return out, fmt.Errorf("read bodies of queue %q: %w", o.name, err)
		}
		for be, err := range queue.BodyEntries(rec.Body) {
			if err != nil {
				return out, &journal.CorruptError{Stream: StreamName(o.name), Seq: rec.First, What: "body part", Err: err}
			}
			out = append(out, newEntry(be.Span, be.Frame))
		}
	}
	return out, nil
}
