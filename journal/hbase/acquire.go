package hbase

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
)

// Acquire makes the caller the stream's owner: by one check-and-mutate on the head of the last bucket, or by making the next
// bucket if that is closed; then on the fence of the parts.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	s, err := j.take(ctx, name, func(last *entry) (head, error) {
		switch {
		case last == nil:
			return head{uid: newUID(), epoch: 1, low: 1, metas: 1, bodies: 1}, nil
		case last.dropped:
			return head{
				uid: newUID(), epoch: last.epoch + 1, end: last.end, crc: last.crc, time: last.time,
				low: last.end + 1, metas: last.end + 1, bodies: last.end + 1,
			}, nil
		}
		h := last.head
		h.epoch++
		return h, nil
	})
	if err != nil {
		return nil, fmt.Errorf("acquire stream %q: %w", name, err)
	}
	return s, nil
}

// Import makes the caller the owner of a stream's copy.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	s, err := j.take(ctx, name, func(last *entry) (head, error) {
		switch {
		case last == nil:
			low := from.End + 1
			return head{
				uid: from.UID, epoch: from.Epoch, end: from.End, crc: from.EndCRC, time: from.EndTime, low: low, metas: low, bodies: low,
			}, nil
		case last.uid != from.UID || last.dropped:
			return head{}, fmt.Errorf("%w: another stream has that name, of uid %s (dropped: %t)", journal.ErrConflict, last.uid, last.dropped)
		}
		h := last.head
		h.epoch = max(h.epoch+1, from.Epoch)
		return h, nil
	})
	if err != nil {
		return nil, fmt.Errorf("import stream %q: %w", name, err)
	}
	s.importing = true
	return s, nil
}

func newUID() (uid journal.UID) {
	rand.Read(uid[:]) // never fails
	return uid
}

func newNonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// take acquires a stream with the state that next makes of its last head (nil if there is none).
func (j *Journal) take(ctx context.Context, name string, next func(last *entry) (head, error)) (*owner, error) {
	if j.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	c := j.newChain(name)
	nonce := newNonce()
	lost := 0
	for {
		last, err := c.last(ctx)
		if err != nil {
			return nil, err
		}
		if last != nil && last.nonce == nonce {
			return j.taken(ctx, c, last) // by a try whose answer was lost
		}
		h, err := next(last)
		if err != nil {
			return nil, err
		}
		if last != nil && last.dropped {
			if err := j.sweepDropped(ctx, c, last); err != nil {
				return nil, unknown(err)
			}
		}
		h.nonce = nonce
		e, done, err := j.tryTake(ctx, c, last, h)
		switch {
		case done:
			return j.taken(ctx, c, e)
		case err != nil:
			if lost++; lost == tries || givenUp(ctx, err) {
				return nil, unknown(err)
			}
		}
		// Another was quicker, or the answer was lost: look again.
		pause(ctx, 0)
	}
}

// tryTake makes h the stream's last head in place of last.
func (j *Journal) tryTake(ctx context.Context, c *chain, last *entry, h head) (*entry, bool, error) {
	var want []byte
	var ch change
	switch {
	case last == nil:
		h.first = h.end + 1
	case last.closed:
		h.startBucket()
	default:
		want = last.raw
		h.first = last.first
	}
	if last != nil {
		h.rev = last.rev + 1
		ch.put(colEnded(last.epoch), ended{last.end, last.crc}.encode())
	}
	raw := h.encode()
	ch.put(colHead, raw)
	ch.put(colFence, bucketFence(h.epoch, h.nonce))
	done, err := j.swap(ctx, "acquire", c.name, bucketRow(c.base, h.first), colHead, want, &ch)
	return &entry{h, raw}, done, err
}

// startBucket makes h the head of the bucket behind it.
func (h *head) startBucket() {
	h.closed, h.first = false, h.end+1
	h.records, h.metaBytes, h.bodyBytes = 0, 0, 0
}

// taken makes an owner of whoever has written e, when nobody who came before can change anything any more.
func (j *Journal) taken(ctx context.Context, c *chain, e *entry) (*owner, error) {
	o := &owner{reader: reader{chain: c}, acquired: e.info(c.name), nonce: e.nonce, cur: *e, metas: e.metas, bodies: e.bodies}
	if e.empty() {
		o.index.begin(e.first)
	}
	for n := 0; ; n++ {
		done, err := o.takeFence(ctx)
		if done && err == nil {
			break
		}
		if err != nil && (n+1 >= tries || givenUp(ctx, err)) {
			return nil, unknown(err)
		}
		pause(ctx, 0)
	}
	return o, nil
}

// takeFence makes the owner the one who writes parts, and finishes the discards of its predecessors, so that what
// is left of them on the way changes nothing any more.
func (o *owner) takeFence(ctx context.Context) (bool, error) {
	j := o.j
	r, err := j.get(ctx, o.base, newGet(), column{family: familyHeads})
	if err != nil {
		return false, err
	}
	var f fence
	raw := r.value(colFence)
	if raw != nil {
		if f, err = decodeFence(raw); err != nil {
			return false, err
		}
	}
	switch {
	case f.there && f.epoch > o.acquired.Epoch:
		// A later owner was quicker: this one is fenced, and will be told so by its first change.
		o.fence = fence{there: true, uid: o.acquired.UID, epoch: o.acquired.Epoch, nonce: o.nonce}
		return true, nil
	case f.epoch == o.acquired.Epoch && f.nonce == o.nonce: // by a try whose answer was lost
		o.fence = f
		return true, o.finishDiscards(ctx, &r)
	}
	mine := fence{there: true, uid: o.acquired.UID, epoch: o.acquired.Epoch, nonce: o.nonce, base: f.base + stampSpan}
	var ch change
	ch.put(colFence, mine.encode())
	if f.there && f.uid != mine.uid {
		ch.delete(int64(f.base+stampSpan-1), column{family: familyParts}) // of the stream's last life
	}
	done, err := j.swap(ctx, "acquire parts", o.name, o.base, colFence, raw, &ch)
	if !done {
		return false, err
	}
	o.fence = mine
	return true, o.finishDiscards(ctx, &r)
}

// finishDiscards repeats the discards that earlier owners may not have finished, as read from the stream's row.
func (o *owner) finishDiscards(ctx context.Context, r *row) error {
	for _, v := range r.cells {
		q := string(v.Qualifier)
		if !strings.HasPrefix(q, discardPrefix) {
			continue
		}
		ranges, err := decodeRanges(v.Value)
		if err != nil {
			return &journal.CorruptError{Stream: o.name, What: "discard under way", Err: err}
		}
		if err := o.sweepBodies(ctx, ranges); err != nil {
			return err
		}
		o.finished = append(o.finished, column{familyHeads, q})
	}
	return nil
}

// sweepDropped deletes what is left of a dropped stream, whose last head is given.
func (j *Journal) sweepDropped(ctx context.Context, c *chain, last *entry) error {
	for seq := min(last.metas, last.bodies); seq <= last.end; {
		e, err := c.at(ctx, seq)
		if err != nil {
			return err
		}
		if e == nil || e.end < seq {
			return nil
		}
		if e.closed && !e.empty() {
			err := j.sweep(ctx, "drop", c.name, bucketRow(c.base, e.first), column{family: familyMetas}, column{family: familyBodies})
			if err != nil {
				return err
			}
		}
		seq = e.end + 1
	}
	return nil
}

// fencedError tells an owner that another has come.
func (o *owner) fencedError(newest uint64) error {
	return fmt.Errorf("%w: own epoch %d, newest %d", journal.ErrFenced, o.acquired.Epoch, newest)
}

// errDropped is told to an owner that has dropped the stream itself.
var errDropped = fmt.Errorf("%w: the stream was dropped", journal.ErrClosed)

// isRefusal tells errors that are answers from those that are not.
func isRefusal(err error) bool {
	return errors.Is(err, journal.ErrFenced) || errors.Is(err, journal.ErrConflict) || errors.Is(err, journal.ErrInvalid) ||
		errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNewerFormat)
}
