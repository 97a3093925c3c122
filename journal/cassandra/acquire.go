package cassandra

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// Acquire makes the caller the stream's owner.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	if err := journal.CheckName("stream", name); err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	h, err := j.acquire(ctx, name, nil)
	if err != nil {
		return nil, failed("acquire", name, err)
	}
	return h, nil
}

// Import makes the caller the owner of a copy of another journal's stream.
func (j *Journal) Import(ctx context.Context, name string, from journal.Info) (journal.Stream, error) {
	if err := journal.CheckImport(name, from); err != nil {
		return nil, err
	}
	h, err := j.acquire(ctx, name, &from)
	if err != nil {
		return nil, failed("import", name, err)
	}
	return h, nil
}

// acquire raises the fence in the head of the stream, then in the head of its newest bucket, and notes where the epoch began.
func (j *Journal) acquire(ctx context.Context, name string, from *journal.Info) (*hold, error) {
	if err := j.writable(ctx); err != nil {
		return nil, err
	}
	key := j.key(name)
	own, err := j.raise(ctx, key, from)
	if err != nil {
		return nil, err
	}
	now, err := j.readHead(ctx, key, true)
	if err != nil {
		return nil, unknown(err)
	}
	b, err := j.raiseBucket(ctx, key, &now, own.fence)
	if err != nil {
		return nil, unknown(err)
	}
	info := now.info(name, b.place)
	if now.fence == own.fence && b.fence == own.fence {
		now.fences = append(now.fences, fence{own.epoch(), b.end, b.crc})
		now.fences = slices.Delete(now.fences, 0, max(0, len(now.fences)-maxFences))
		if err := j.write(ctx, "fences", name, func() error {
			_, _, err := j.cas(ctx, cqlFences, encodeFences(now.fences), key, own.fence)
			return err // if it is refused, somebody has acquired the stream meanwhile, which the first change will tell
		}); err != nil {
			return nil, err
		}
	} else {
		// Somebody has acquired the stream meanwhile: this hold is fenced from its beginning.
		info.UID, info.Epoch, info.Dropped, info.Low = own.uid, own.epoch(), false, min(info.Low, info.End+1)
	}
	return newHold(j, info, from != nil, own.fence, &now, b), nil
}

// raise writes the caller's fence into the head of a stream, and makes or revives the stream where that is needed. It returns
// that head.
func (j *Journal) raise(ctx context.Context, key string, from *journal.Info) (head, error) {
	for {
		h, err := j.readHead(ctx, key, true)
		if err != nil {
			return h, unknown(err)
		}
		if from != nil && h.exists && (h.uid != from.UID || h.dropped) {
			return h, fmt.Errorf("another stream of this name is there, of uid %s: %w", h.uid, journal.ErrConflict)
		}
		was := any(h.fence)
		if !h.exists {
			was = nil
		}
		epoch := h.epoch() + 1
		if from != nil {
			epoch = max(epoch, from.Epoch)
		}
		next := h
		next.exists, next.fence = true, int64(2*epoch)
		stmt, args := cqlRaise, []any{next.fence, key, was}
		if !h.exists || h.dropped {
			next.newLife(from)
			stmt = cqlCreate
			args = []any{
				next.fence, next.uid[:], int64(next.low), int64(next.tail), int64(next.base.end), int64(next.base.crc), next.base.time,
				key, int64(next.tail), was,
			}
		}
		applied := false
		err = j.write(ctx, "raise", j.name(key), func() (err error) {
			applied, _, err = j.cas(ctx, stmt, args...)
			return err
		})
		if err != nil || applied {
			return next, err
		}
	}
}

// newLife makes h the head of a stream that begins behind its base, or behind what is imported.
func (h *head) newLife(from *journal.Info) {
	if from != nil {
		h.uid, h.base = from.UID, place{from.End, from.EndCRC, from.EndTime}
	} else {
		rand.Read(h.uid[:]) // never fails
	}
	h.dropped, h.low, h.tail = false, h.base.end+1, h.base.end
}

// raiseBucket raises the fence of the newest bucket, which makes its end final for all older owners. now is the head of the stream: while it
// has the caller's fence, no older owner can begin another bucket. If it has a newer one in the end, nothing was raised.
func (j *Journal) raiseBucket(ctx context.Context, key string, now *head, own int64) (bucketHead, error) {
	for range 100 {
		if now.fence != own {
			return j.newestPlace(ctx, key, now)
		}
		at := row{}
		applied := false
		err := j.write(ctx, "raise bucket", j.name(key), func() (err error) {
			applied, at, err = j.cas(ctx, cqlRaiseBucket, own, key, int64(now.tail), own)
			return err
		})
		if err != nil {
			return bucketHead{}, err
		}
		if applied || at.int("fence") != 0 {
			if b, found, err := j.readBucket(ctx, key, now.tail); err != nil || found {
				return b, err
			}
		}
		// Not there: it is the first of a life of the stream, or the stream has gone on under a newer owner.
		b, err := j.newestPlace(ctx, key, now)
		if err != nil {
			return b, err
		}
		if now.fence == own && b.fence == 0 {
			if err := j.openBucket(ctx, key, b.place, own); err != nil {
				return b, err
			}
		}
	}
	return bucketHead{}, errors.New("the newest bucket is always another one")
}

// openBucket makes the head of the bucket behind p, if there is none.
func (j *Journal) openBucket(ctx context.Context, key string, p place, own int64) error {
	return j.write(ctx, "open bucket", j.name(key), func() error {
		_, _, err := j.cas(ctx, cqlOpen, own, int64(p.end), int64(p.crc), p.time, key, int64(p.end))
		return err
	})
}
