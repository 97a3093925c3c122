package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Acquire makes the caller the stream's owner. It writes no record.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	return j.own(ctx, "acquire", name, func(h *head, next *control, k *mark) error {
		if h.ctl == nil || h.ctl.Dropped {
			var uid journal.UID
			rand.Read(uid[:]) // never fails
			next.UID = uid.String()
			// Another one may have begun this life, and not be ready.
			if u := h.tip.uid; u != "" && (h.ctl == nil || u != h.ctl.UID) {
				next.UID = u
			}
			newLife(h, next)
		}
		next.Epoch++
		return nil
	})
}

// newLife makes next the state of a stream that begins, behind whatever there was of that name.
func newLife(h *head, next *control) {
	next.Dropped, next.Low, next.Begin = false, int64(h.tip.end)+1, int64(h.tip.end)+1
	next.Since, next.Gone, next.Parts, next.GoneParts = h.v+1, nil, nil, nil
}

// Import makes the caller the owner of a copy. It writes no record.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	s, err := j.own(ctx, "import", name, func(h *head, next *control, k *mark) error {
		switch {
		case h.ctl == nil && h.tip.uid != "" && h.tip.uid != from.UID.String(),
			h.ctl != nil && (h.uid != from.UID || h.ctl.Dropped):
			return fmt.Errorf("%w: another stream has that name", journal.ErrConflict)
		case h.ctl == nil:
			next.UID = from.UID.String()
			newLife(h, next)
			next.Low, next.Begin, next.End = int64(from.End)+1, int64(from.End)+1, int64(from.End)
			k.End, k.CRC, k.Time = int64(from.End), int64(from.EndCRC), from.EndTime
		}
		next.Epoch = max(next.Epoch+1, int64(from.Epoch))
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.(*owner).importing = true
	return s, nil
}

func (j *Journal) own(ctx context.Context, op, name string, change func(h *head, next *control, k *mark) error) (journal.Stream, error) {
	if j.opts.ReadOnly {
		return nil, fmt.Errorf("%s stream %q: %w", op, name, ErrReadOnly)
	}
	var o *owner
	err := j.call(ctx, func(ctx context.Context) (err error) {
		o, err = j.take(ctx, op, name, change)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s stream %q: %w", op, name, unknown(err))
	}
	return o, nil
}

// take inserts a mark of a higher epoch behind the last record, and then a control state of that epoch behind the last one. From the mark on,
// no older owner's record can be stored; from the control state on, no other change. It begins anew where another one came before.
// change sets what is new; the epoch of next is the highest that there was.
func (j *Journal) take(ctx context.Context, op, name string, change func(h *head, next *control, k *mark) error) (*owner, error) {
	for n := 0; ; n++ {
		if n > 0 && !pause(ctx, time.Duration(mathrand.IntN(5+min(5*n, 50)))*time.Millisecond) {
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		}
		h, err := j.head(ctx, name, false)
		if err != nil {
			return nil, err
		}
		if h.broken != nil {
			return nil, h.broken
		}
		next := &control{}
		if h.ctl != nil {
			next = h.ctl.clone()
		}
		next.Version, next.End = schemaVersion, int64(h.tip.end)
		next.Epoch = max(next.Epoch, int64(h.tip.owner))
		k := &mark{Rec: h.tip.last, End: int64(h.tip.end), CRC: int64(h.tip.crc), Time: h.tip.time}
		if err := change(h, next, k); err != nil {
			return nil, err
		}
		k.UID = next.UID
		if h.ctl != nil {
			next.Fences = append(next.Fences, fence{h.ctl.Epoch, k.End, k.CRC, h.tip.last, h.v + 1})
			if extra := len(next.Fences) - maxFences; extra > 0 {
				next.Fences = next.Fences[extra:]
			}
		}
		err = j.insert(ctx, op, name, j.records, &recordDoc{
			ID: key(name, h.tip.pos+1), Stream: name, Pos: h.tip.pos + 1, Owner: next.Epoch, Mark: k,
		})
		if err == nil {
			err = j.insert(ctx, op, name, j.control, &controlDoc{ID: key(name, h.v+1), Stream: name, V: h.v + 1, Taken: true, State: *next})
		}
		switch {
		case err == nil:
			return j.newOwner(name, next, h.v+1, h.tip.pos+1, k)
		case !errors.Is(err, errTaken):
			return nil, err
		}
	}
}

// newOwner is the hold after take has stored next and k.
func (j *Journal) newOwner(name string, next *control, v, pos int64, k *mark) (*owner, error) {
	uid, err := journal.ParseUID(next.UID)
	if err != nil {
		return nil, err
	}
	o := &owner{reader: reader{j: j, name: name}, ctl: next, ctlV: v, cleaned: map[any]struct{}{}}
	o.head = tip{pos: pos, owner: uint64(next.Epoch), end: uint64(k.End), crc: uint32(k.CRC), time: k.Time, uid: k.UID, last: k.Rec}
	o.acquired = journal.Info{
		Name: name, UID: uid, Epoch: uint64(next.Epoch), End: o.head.end, EndCRC: o.head.crc, EndTime: o.head.time, Low: min(uint64(next.Low), o.head.end+1),
	}
	o.add(o.earlier())
	for _, s := range next.Gone {
		o.add(o.goneBodies(s))
	}
	for _, p := range next.Parts {
		o.add(o.writtenPart(p))
	}
	for _, p := range next.GoneParts {
		o.add(o.gonePart(p))
	}
	return o, nil
}
