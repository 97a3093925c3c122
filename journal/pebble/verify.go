package pebble

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/sstable"

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

// Verify reads everything in the store of a directory that no process has open, changes
// nothing, and reports each damage. A store that cannot be opened is one. Its error is nil unless it could
// not be done: the directory is in use, not a store, or ctx ended.
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

// Verify reads everything and reports each damage. It may run beside everything else; it reads the
// store as it is when it begins.
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
	e, err := j.use()
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer e.leave()
	err = e.checkTables(ctx, j.dir, (*sstable.Reader).ValidateBlockChecksums, func(name string, err error) {
		report(Damage{File: name, What: "table", Err: err})
	})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for _, st := range j.allStreams() {
		if err := j.verifyStream(ctx, st, report); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

// verifyStream reads all rows of a stream.
func (j *Journal) verifyStream(ctx context.Context, st *stream, report func(Damage)) error {
	r := &reader{j: j, name: st.name}
	for _, rows := range []struct {
		kind byte
		walk func(*walk) func() error
	}{
		{kindMeta, (*walk).metas}, {kindBody, (*walk).bodies}, {kindPart, (*walk).parts},
	} {
		v, err := r.view(rows.kind, nil)
		if err != nil {
			return err
		}
		w := &walk{view: v, kind: rows.kind, report: report, check: func() error { return j.check(ctx) }}
		err = w.run(rows.walk(w))
		if err == nil && rows.kind == kindMeta && w.next <= w.head.end {
			w.found(w.next, w.head.end, "records missing", nil)
		}
		_ = v.close() // its error was dealt with at its step
		if err != nil {
			return err
		}
	}
	return nil
}

// walk reads the rows of one kind of a stream, and goes on behind those that cannot be
// read.
type walk struct {
	*view
	kind   byte
	report func(Damage)
	check  func() error
	next   uint64 // the seq behind the last row that was read
	broken func() // called where rows were left out
}

func (w *walk) found(from, to uint64, what string, err error) {
	w.report(Damage{Stream: w.st.name, From: from, To: to, What: what, Err: oneLine(err)})
}

// run calls row at each row. An error of row ends the walk.
func (w *walk) run(row func() error) error {
	for ok := w.First(); ; {
		for ; ok; ok = w.Next() {
			if err := w.check(); err != nil {
				return err
			}
			if err := row(); err != nil {
				return err
			}
		}
		err := w.Error()
		if err == nil {
			return nil
		}
		if !isDamage(err) {
			return w.e.readError(w.st.name, w.next, "verify", err)
		}
		if w.kind == kindPart {
			w.found(0, 0, "parts cannot be read", err)
			return nil
		}
		next := w.readable()
		w.found(max(w.next, 1), min(next-1, w.head.end), map[byte]string{kindMeta: "metas", kindBody: "bodies"}[w.kind]+" cannot be read", err)
		w.next = next
		w.broken()
		if next > w.head.end {
			return nil
		}
		ok = w.SeekGE(seqKey(w.kind, w.st.no, next))
	}
}

// readable returns the first seq from which on rows can be read again.
func (w *walk) readable() uint64 {
	bad := func(seq uint64) bool {
		w.SeekGE(seqKey(w.kind, w.st.no, seq))
		return w.Error() != nil
	}
	low, step := w.next, uint64(1) // low is bad
	for low+step <= w.head.end && bad(low+step) {
		low += step
		step *= 2
	}
	high := min(low+step, w.head.end+1)
	for high-low > 1 {
		if mid := low + (high-low)/2; bad(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

func (w *walk) metas() func() error {
	var chain journal.Chain
	var rec journal.Record
	behind := false // what is damaged, whose end is not known
	w.next = w.head.low
	w.broken = func() { chain, behind = journal.Chain{}, true }
	return func() error {
		first, err := parseMetaKey(w.Key())
		if err != nil {
			w.found(w.next, w.next, "meta", err)
			return nil
		}
		if first > w.next && !behind {
			w.found(w.next, first-1, "records missing", nil)
			w.next, chain = first, journal.Chain{}
		}
		if err := w.meta(&chain, &rec, first); err != nil {
			var ce *journal.CorruptError
			if !errors.As(err, &ce) && !errors.Is(err, journal.ErrNewerFormat) {
				return err
			}
			w.found(first, first, "meta", err)
			chain, behind = journal.Chain{}, true
			w.next = first + 1
			return nil
		}
		w.next, behind = rec.Last()+1, false
		return nil
	}
}

func (w *walk) bodies() func() error {
	w.broken = func() {}
	return func() error {
		s, err := parseBodyKey(w.Key())
		if err != nil {
			w.found(w.next, w.next, "body", err)
			return nil
		}
		w.next = s.last + 1
		v, err := w.ValueAndErr()
		if err == nil {
			_, err = openBody(v, s, w.head.uid)
		}
		if err != nil {
			w.found(s.first, s.last, "body", err)
		}
		return nil
	}
}

func (w *walk) parts() func() error {
	return func() error {
		v, err := w.ValueAndErr()
		if err == nil {
			_, err = openPart(v)
		}
		if err != nil {
			w.found(0, 0, fmt.Sprintf("part %q", w.Key()[5:]), err)
		}
		return nil
	}
}
