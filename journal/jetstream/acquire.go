package jetstream

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
	var o *owner
	err := j.call(ctx, func(ctx context.Context) (err error) {
		o, err = j.take(ctx, "acquire", name, func(h *head, next *control, k *mark) error {
			if h.ctl == nil || h.ctl.Dropped {
				var uid journal.UID
				rand.Read(uid[:]) // never fails
				newLife(h, next, uid)
			}
			next.Epoch++
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, unknown(err))
	}
	return o, nil
}

// newLife makes next the state of a stream that begins, behind whatever there was of that name.
func newLife(h *head, next *control, uid journal.UID) {
	next.UID, next.Dropped = uid.String(), false
	next.Low, next.LowAt = h.tip.end+1, h.tip.seq+1
	next.Since, next.Gone, next.Parts = 0, nil, nil
	next.Unclean = h.ctl != nil
}

// Import makes the caller the owner of a copy. It writes no record.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	var o *owner
	err := j.call(ctx, func(ctx context.Context) (err error) {
		o, err = j.take(ctx, "import", name, func(h *head, next *control, k *mark) error {
			switch {
			case h.ctl == nil:
				newLife(h, next, from.UID)
				next.Low, next.End = from.End+1, from.End
				k.End, k.CRC, k.Time = from.End, from.EndCRC, from.EndTime
			case h.uid != from.UID || h.ctl.Dropped:
				return fmt.Errorf("%w: another stream has that name, of uid %s (dropped: %t)", journal.ErrConflict, h.uid, h.ctl.Dropped)
			}
			next.Epoch = max(next.Epoch+1, from.Epoch)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, unknown(err))
	}
	o.importing = true
	return o, nil
}

// take publishes a mark and a control state of a higher epoch, in one step, on the condition that both are where they were read. change
// sets what is new in them; the epoch of next is the highest that there was.
func (j *Journal) take(ctx context.Context, op, name string, change func(h *head, next *control, k *mark) error) (*owner, error) {
	if j.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	for n := 0; ; n++ {
		h, err := j.head(ctx, name, false)
		if err != nil {
			return nil, err
		}
		if h.broken != nil {
			return nil, h.broken
		}
		next := &control{Version: formatVersion}
		if h.ctl != nil {
			next = h.ctl.clone()
			next.Version = formatVersion
		}
		next.End = h.tip.end
		k := mark{Version: formatVersion, End: h.tip.end, CRC: h.tip.crc, Time: h.tip.time}
		if h.ctl != nil {
			next.Fences = append(next.Fences, fence{h.ctl.Epoch, h.tip.end, h.tip.crc})
			if extra := len(next.Fences) - maxFences; extra > 0 {
				next.Fences = next.Fences[extra:]
			}
			// A body that the owner before sent without its record.
			next.Gone = append(next.Gone, span{From: h.tip.end + 1, To: h.tip.end + 1})
		}
		next.Epoch = max(next.Epoch, h.tip.epoch)
		if err := change(h, next, &k); err != nil {
			return nil, err
		}
		k.UID, k.Epoch = next.UID, next.Epoch
		seq, err := j.write(ctx, op, name,
			message{subject: j.names.records(name), data: [][]byte{encode(k)}, cond: j.names.records(name), last: h.tip.seq},
			message{subject: j.names.control(name), data: [][]byte{encode(next)}, cond: j.names.control(name), last: h.seq})
		if err == nil {
			return j.newOwner(name, next, seq, k)
		}
		if !errors.Is(err, errMismatch) && !errors.Is(err, errBusy) {
			return nil, err
		}
		// Another one takes it at the same time, or a publish is under way.
		if !pause(ctx, time.Duration(mathrand.IntN(5+min(5*n, 50)))*time.Millisecond) {
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// newOwner is the hold after take has stored next and k: the mark has the number before seq.
func (j *Journal) newOwner(name string, next *control, seq uint64, k mark) (*owner, error) {
	uid, err := journal.ParseUID(next.UID)
	if err != nil {
		return nil, err
	}
	next.at(seq)
	o := &owner{reader: reader{j: j, name: name}, ctl: next, ctlSeq: seq}
	o.head = tip{seq: seq - 1, epoch: k.Epoch, end: k.End, crc: k.CRC, time: k.Time}
	o.acquired = journal.Info{
		Name: name, UID: uid, Epoch: k.Epoch, End: k.End, EndCRC: k.CRC, EndTime: k.Time, Low: min(next.Low, k.End+1),
	}
	o.floor = k.End + 1
	o.cleaned = map[any]struct{}{}
	if next.Unclean {
		o.add(o.earlierLives(next.Since))
	}
	for _, s := range next.Gone {
		o.add(o.goneBodies(s))
	}
	for _, p := range next.Parts {
		o.add(o.gonePart(p))
	}
	return o, nil
}
