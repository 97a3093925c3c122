package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// bodyRef is a stored body.
type bodyRef struct {
	subject     string
	first, last uint64
	seq         uint64 // its message, 0 if that is not known
}

// maxRecent bounds how many bodies an owner knows by heart. Those before are listed by the server when they are discarded.
const maxRecent = 1 << 16

// remember adds the newest body. o.mu is held.
func (o *owner) remember(b bodyRef) {
	if len(o.recent) >= maxRecent {
		o.recent = slices.Delete(o.recent, 0, maxRecent/2)
		o.floor = o.recent[0].first
	}
	o.recent = append(o.recent, b)
}

// DiscardBodies gives back bodies: which ones is stored in the control state, so that a fenced owner discards nothing; their messages are
// deleted afterwards.
func (o *owner) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	return o.call(ctx, "discard bodies of", func(ctx context.Context) error {
		if err := o.makeRoom(ctx); err != nil {
			return err
		}
		sets, err := o.resolve(ctx, ranges)
		if err != nil {
			return err
		}
		seq, err := o.change(ctx, "discard bodies", func(next *control) {
			for _, s := range sets {
				next.Gone = append(next.Gone, s.span)
			}
		})
		if err != nil {
			return err
		}
		for _, s := range sets {
			s.span.Before = seq
			o.forget(s.span)
			o.add(o.deleteBodies(s))
		}
		return nil
	})
}

// forget takes discarded bodies out of those that the owner knows by heart.
func (o *owner) forget(s span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, _ := slices.BinarySearchFunc(o.recent, s.From, byFirst)
	to := from
	for to < len(o.recent) && o.recent[to].first <= s.To {
		to++
	}
	o.recent = slices.Delete(o.recent, from, to)
}

// bodySet is bodies that are discarded together, and no other body has its first seq in the span.
type bodySet struct {
	span   span
	bodies []bodyRef
	blocks []string // filters that match further ones of them, and nothing that is kept
}

// listAll is the number of blocks above which all bodies are listed at once.
const listAll = 16

// resolve finds the bodies that lie wholly inside one of the ranges.
func (o *owner) resolve(ctx context.Context, ranges []journal.Range) ([]bodySet, error) {
	o.mu.Lock()
	end, floor := o.head.end, o.floor
	o.mu.Unlock()
	older := map[uint64][]bodyRef{} // by block
	all := false
	for _, r := range ranges {
		from, to := max(r.From, 1), min(r.To, end, floor-1)
		if from > to || all {
			continue
		}
		if to>>blockBits-from>>blockBits >= listAll {
			all = true
			continue
		}
		for block := from >> blockBits; block <= to>>blockBits; block++ {
			if _, ok := older[block]; ok {
				continue
			}
			refs, err := o.list(ctx, o.j.names.block(o.name, block))
			if err != nil {
				return nil, err
			}
			older[block] = refs
		}
	}
	if all {
		refs, err := o.list(ctx, o.j.names.bodies(o.name))
		if err != nil {
			return nil, err
		}
		clear(older)
		for _, b := range refs {
			older[b.first>>blockBits] = append(older[b.first>>blockBits], b)
		}
	}
	var sets []bodySet
	for _, r := range ranges {
		r.To = min(r.To, end)
		if r.From > r.To {
			continue
		}
		if s := o.take(r, end, floor, older); len(s.bodies) > 0 || len(s.blocks) > 0 {
			sets = append(sets, s)
		}
	}
	return sets, nil
}

// list returns the bodies that the server has, by first seq.
func (o *owner) list(ctx context.Context, filter string) ([]bodyRef, error) {
	subjects, err := o.j.c.subjects(ctx, filter)
	if err != nil {
		return nil, err
	}
	refs := make([]bodyRef, 0, len(subjects))
	for s := range subjects {
		if b, ok := parseBody(s); ok {
			refs = append(refs, b)
		}
	}
	slices.SortFunc(refs, func(a, b bodyRef) int { return cmp.Compare(a.first, b.first) })
	return refs, nil
}

// take makes a set of the bodies inside r. Bodies from floor on are in recent, and in older those before; an
// append may be under way behind end.
func (o *owner) take(r journal.Range, end, floor uint64, older map[uint64][]bodyRef) bodySet {
	s := bodySet{span: span{From: ^uint64(0)}}
	var in []bodyRef
	left := map[uint64]bool{} // blocks of which something is kept
	inside := func(b bodyRef) bool {
		if r.From > b.first || b.last > r.To {
			left[b.first>>blockBits] = true
			return false
		}
		s.span.From, s.span.To = min(s.span.From, b.first), max(s.span.To, b.first)
		in = append(in, b)
		return true
	}
	for block, refs := range older {
		if block < r.From>>blockBits || block > r.To>>blockBits {
			continue
		}
		for _, b := range refs {
			if b.first < floor {
				inside(b)
			}
		}
	}
	o.mu.Lock()
	from, _ := slices.BinarySearchFunc(o.recent, r.From>>blockBits<<blockBits, byFirst)
	to, _ := slices.BinarySearchFunc(o.recent, (r.To>>blockBits+1)<<blockBits, byFirst)
	for _, b := range o.recent[from:to] {
		inside(b)
	}
	o.mu.Unlock()
	left[floor>>blockBits] = true   // whose older bodies may not be listed
	left[(end+1)>>blockBits] = true // where a body may be stored that has no record yet
	byBlock := map[uint64][]bodyRef{}
	for _, b := range in {
		byBlock[b.first>>blockBits] = append(byBlock[b.first>>blockBits], b)
	}
	for block, refs := range byBlock {
		if len(refs) >= 4 && !left[block] {
			s.blocks = append(s.blocks, o.j.names.block(o.name, block))
		} else {
			s.bodies = append(s.bodies, refs...)
		}
	}
	return s
}

func byFirst(b bodyRef, seq uint64) int { return cmp.Compare(b.first, seq) }

// DiscardMeta gives back metas.
func (o *owner) DiscardMeta(ctx context.Context, low uint64) error {
	return o.call(ctx, "discard metas of", func(ctx context.Context) error {
		o.mu.Lock()
		h := &head{ctl: o.ctl, seq: o.ctlSeq, tip: o.head, uid: o.acquired.UID}
		o.mu.Unlock()
		h.low = min(h.ctl.Low, h.tip.end+1)
		first, at := h.tip.end+1, h.tip.seq+1
		if low := max(low, h.low); low <= h.tip.end {
			m, rec, err := o.find(ctx, h, low)
			if err != nil {
				// A successor may have discarded it.
				return cmp.Or(o.reload(ctx, 0), fmt.Errorf("find seq %d: %w", low, err))
			}
			first, at = rec.First, m
		}
		if _, err := o.change(ctx, "discard metas", func(next *control) {
			if first > next.Low {
				next.Low, next.LowAt = first, at
			}
		}); err != nil {
			return err
		}
		before := min(at, h.tip.seq)
		o.add(task{run: func(ctx context.Context) error { return o.j.c.purge(ctx, o.j.names.records(o.name), before) }})
		return nil
	})
}
