package hbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// entry is a head as it was read.
type entry struct {
	head
	raw []byte // the cell
}

// maxKnown bounds how many closed buckets a chain remembers.
const maxKnown = 1 << 14

// chain finds the buckets of a stream. It remembers the closed ones, which never change.
type chain struct {
	j    *Journal
	name string
	base string // of the rows

	mu    sync.Mutex
	known []entry // closed buckets by first, without their cells
}

func (j *Journal) newChain(name string) *chain {
	return &chain{j: j, name: name, base: j.streamRow(name)}
}

// last reads the head of the stream's last bucket: the state of the stream. nil means that there is no stream.
func (c *chain) last(ctx context.Context) (*entry, error) {
	return c.find(ctx, c.base+afterBuckets)
}

// at returns the bucket that has seq, or would have it: the last that begins at or before it. nil means that all begin behind it.
func (c *chain) at(ctx context.Context, seq uint64) (*entry, error) {
	if e := c.recall(seq); e != nil {
		return e, nil
	}
	return c.find(ctx, bucketRow(c.base, seq))
}

func (c *chain) recall(seq uint64) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := slices.BinarySearchFunc(c.known, seq, byFirst)
	if !ok {
		i--
	}
	if i < 0 || c.known[i].end < seq {
		return nil
	}
	e := c.known[i]
	return &e
}

func byFirst(e entry, seq uint64) int { return cmp.Compare(e.first, seq) }

// find reads the last head at or before a row.
func (c *chain) find(ctx context.Context, from string) (*entry, error) {
	rows, err := c.j.scan(ctx, from, c.base, true, 1, colHead)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	e, err := c.decode(&rows[0])
	if err != nil {
		return nil, err
	}
	c.learn(e)
	return e, nil
}

func (c *chain) decode(r *row) (*entry, error) {
	raw := r.value(colHead)
	h, err := decodeHead(raw)
	if err == nil && string(r.key) != bucketRow(c.base, h.first) {
		err = fmt.Errorf("head of the bucket at seq %d in the row %q: %w", h.first, r.key, journal.ErrCorrupt)
	}
	if err != nil {
		if errors.Is(err, journal.ErrCorrupt) {
			err = &journal.CorruptError{Stream: c.name, What: fmt.Sprintf("row %q", r.key), Err: err}
		}
		return nil, err
	}
	return &entry{h, raw}, nil
}

// learn remembers a closed bucket.
func (c *chain) learn(e *entry) {
	if !e.closed || e.empty() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := slices.BinarySearchFunc(c.known, e.first, byFirst)
	if ok {
		return
	}
	if len(c.known) >= maxKnown {
		c.known, i = nil, 0
	}
	k := *e
	k.raw = nil
	c.known = slices.Insert(c.known, i, k)
}

// howEnded reads how an epoch ended, from the bucket on that begins with first. ok is false as long as it has not.
func (c *chain) howEnded(ctx context.Context, epoch, first uint64) (e ended, ok bool, err error) {
	rows, err := c.j.scan(ctx, bucketRow(c.base, first), c.base+afterBuckets, false, 1, colEnded(epoch))
	if err != nil || len(rows) == 0 {
		return e, false, err
	}
	if e, err = decodeEnded(rows[0].value(colEnded(epoch))); err != nil {
		return e, false, &journal.CorruptError{Stream: c.name, What: fmt.Sprintf("row %q", rows[0].key), Err: err}
	}
	return e, true, nil
}
