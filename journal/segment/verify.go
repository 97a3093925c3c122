package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastmq/holdfast/journal"
)

// Damage is one thing that Verify found.
type Damage struct {
	Stream   string // empty where it is of a file and not known of which stream
	From, To uint64 // the seqs that it concerns; 0 where it is none
	File     string // empty where it is not known
	What     string
	Err      error // the cause, or nil
}

// String tells the damage in a line.
func (d Damage) String() string {
	s := d.What
	if d.Err != nil {
		s += ": " + d.Err.Error()
	}
	switch {
	case d.From != 0 && d.From == d.To:
		s = fmt.Sprintf("seq %d: %s", d.From, s)
	case d.From != 0:
		s = fmt.Sprintf("seqs %d…%d: %s", d.From, d.To, s)
	}
	if d.Stream != "" {
		s = fmt.Sprintf("stream %q: %s", d.Stream, s)
	}
	if d.File != "" {
		s = fmt.Sprintf("file %s: %s", d.File, s)
	}
	return s
}

// Verify reads everything that is alive in the store of a directory that no process has open, changes nothing, and reports each
// damage. A store that cannot be opened is one. Its error is nil unless it could not be done: the directory is in use, not a
// store, or ctx ended.
func Verify(ctx context.Context, dir string, opts Options, report func(Damage)) error {
	opts.ReadOnly, opts.AcceptLoss = true, false
	j, err := Open(dir, opts)
	if errors.Is(err, journal.ErrCorrupt) {
		report(Damage{What: "the store cannot be opened", Err: err})
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(j.Verify(ctx, report), j.Close())
}

// Verify reads everything that is alive and reports each damage. It may run beside everything else.
func (j *Journal) Verify(ctx context.Context, report func(Damage)) error {
	if err := j.check(ctx); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if loss := j.Loss(); loss != nil {
		report(Damage{What: loss.What})
		for _, m := range loss.Missing {
			report(Damage{Stream: m.Stream, From: m.From, To: m.To, What: "missing"})
		}
	}
	for _, st := range j.allStreams() {
		v := &verifier{j: j, st: st, report: report}
		if err := v.run(ctx); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

// verifier is Verify of a stream.
type verifier struct {
	j      *Journal
	st     *stream
	report func(Damage)
	chain  journal.Chain
	next   uint64 // the seq behind the last record that was seen
	hole   bool   // something before could not be read
	from   uint64 // the seq to look at next
}

func (v *verifier) found(from, to uint64, file, what string, err error) {
	v.report(Damage{Stream: v.st.name, From: from, To: to, File: file, What: what, Err: err})
}

func (v *verifier) run(ctx context.Context) error {
	for {
		more, err := v.step(ctx)
		if err != nil {
			return err
		}
		if !more {
			return v.parts()
		}
	}
}

// step reads the block that holds from or comes behind it. Between two steps records may have been moved, so that the second finds a
// block that reaches back to what the first has read.
func (v *verifier) step(ctx context.Context) (more bool, err error) {
	if err := v.j.check(ctx); err != nil {
		return false, err
	}
	var buf [blockSlots]slot
	st := v.st
	st.mu.Lock()
	h := st.acked
	i := st.index.find(v.from)
	if i == len(st.index.blocks) {
		st.mu.Unlock()
		if low := max(v.next, h.low); low <= h.end {
			v.found(low, h.end, "", "records missing", nil)
		}
		return false, nil
	}
	b := st.index.blocks[i]
	seg := b.seg
	slots := slices.DeleteFunc(b.slots(&buf), func(s slot) bool { return s.last() < v.from })
	v.from = b.last + 1 // under the lock: what is moved may be added to this block
	seg.pins.Add(1)
	st.mu.Unlock()
	defer seg.pins.Add(-1)
	return true, v.block(seg, slots, &h)
}

// block reads the records of a block.
func (v *verifier) block(seg *segment, slots []slot, h *head) error {
	for i := range slots {
		s := &slots[i]
		if s.live(h.low) == 0 {
			continue
		}
		if from := max(v.next, h.low); s.first > from && s.last() >= h.low {
			v.found(from, s.first-1, "", "records missing", nil)
			v.hole = true
		}
		v.next = s.last() + 1
		rec, err := v.j.readEntry(seg, s, s.alive)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) && !isNotExist(err) {
			return err
		}
		if err == nil && rec.UID != h.uid {
			err = fmt.Errorf("record of stream uid %s in its place: %w", rec.UID, journal.ErrCorrupt)
		}
		if err == nil && s.last() >= h.low {
			if v.hole {
				v.chain, v.hole = journal.Chain{}, false
			}
			err = v.chain.Next(&rec.Header)
		}
		if err != nil {
			v.hole = true
			v.found(s.first, s.last(), seg.name, "record", err)
		}
	}
	return nil
}

func (v *verifier) parts() error {
	v.st.mu.Lock()
	parts := map[string]part{}
	for name, p := range v.st.parts {
		p.seg.pins.Add(1)
		parts[name] = p
	}
	v.st.mu.Unlock()
	var failed error
	for name, p := range parts {
		_, err := v.j.readPart(name, &p)
		p.seg.pins.Add(-1)
		switch {
		case err == nil:
		case errors.Is(err, journal.ErrCorrupt), isNotExist(err):
			v.found(0, 0, p.seg.name, fmt.Sprintf("part %q", name), err)
		default:
			failed = err
		}
	}
	return failed
}
