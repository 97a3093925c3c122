package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// Open opens the store in a directory, which is made if there is none.
//
// Errors: journal.ErrLocked, with who has it; journal.ErrNewerFormat; a journal.CorruptError that names the file, where the checkpoint
// or the format is damaged. Where stored data is missing, the streams that lack it are open for reading only, or, where it cannot be told which
// they are, all; see [Journal.Loss] and [Options.AcceptLoss].
func Open(dir string, opts Options) (*Journal, error) {
	j, err := open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("segment journal: %w", err)
	}
	j.start()
	return j, nil
}

// open does all of Open but starting the goroutines.
func open(dir string, opts Options) (_ *Journal, err error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, fmt.Errorf("%w: no directory", journal.ErrInvalid)
	}
	if opts.FS == vfs.OS() {
		if dir, err = resolve(dir); err != nil {
			return nil, err
		}
	}
	format, err := readFormat(opts.FS, dir)
	if err != nil {
		return nil, err // before anything is touched
	}
	if _, err := vfs.Stat(opts.FS, dir, lockName); format == 0 && opts.MustExist && err != nil {
		return nil, fmt.Errorf("there is no journal in %s: %w", dir, fs.ErrNotExist)
	}
	if !opts.ReadOnly {
		if err := opts.FS.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	l, err := lock(opts.FS, dir, !opts.ReadOnly)
	if err != nil {
		return nil, err
	}
	j := newJournal(dir, opts, l)
	if err := j.prepareStore(); err != nil {
		j.files.closeAll()
		return nil, errors.Join(err, l.Close())
	}
	return j, nil
}

// resolve makes equal directories have equal names, for messages.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("directory %s: %w", dir, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}

func newJournal(dir string, opts Options, l io.Closer) *Journal {
	_, total, err := opts.FS.Space(dir)
	if err != nil {
		total = 0
	}
	opts.fit(total)
	j := &Journal{
		patience: closePatience,
		opts:     opts, fs: opts.FS, dir: dir, log: opts.Logger, lock: l,
		streams: map[string]*stream{}, byNo: map[uint32]*stream{}, nextNo: 1,
		files:   &files{fs: opts.FS, dir: dir, size: int64(opts.SegmentBytes), segs: map[uint64]*segment{}},
		broken:  make(chan struct{}),
		kick:    make(chan struct{}, 1),
		prepare: make(chan struct{}, 1),
		closing: make(chan struct{}),

		kickMove: make(chan struct{}, 1),
		kept:     map[uint32]markedStream{},
	}
	j.q.init()
	j.units.wake = make(chan struct{}, 1)
	j.space = space{
		fs: j.fs, dir: dir, log: j.log, kick: j.kickMark, stop: j.closing,
		reserve: uint64(opts.ReserveBytes), size: opts.BallastBytes,
	}
	return j
}

// prepareStore reads what is there, or makes a new store.
func (j *Journal) prepareStore() error {
	format, err := readFormat(j.fs, j.dir)
	if err != nil {
		return err
	}
	list, err := j.fs.List(j.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", j.dir, err)
	}
	segments := false
	for _, i := range list {
		segments = segments || strings.HasSuffix(i.Name, segExt)
	}
	switch {
	case format == 0 && segments:
		return damagedFile(formatName, "missing, and there is a log", nil)
	case format == 0 && j.opts.ReadOnly:
		return fmt.Errorf("%s has no store: %w", j.dir, journal.ErrNotFound)
	case format == 0:
		if err := j.create(); err != nil {
			return err
		}
	}
	if !j.opts.ReadOnly {
		j.space.adopt()
		j.space.look(false)
	}
	r, err := j.recover(nil)
	if err != nil {
		return err
	}
	return j.begin(r)
}

// create makes the files that a store begins with. FORMAT is the last one: without it, all is made again.
func (j *Journal) create() error {
	for _, gen := range []uint64{1, 2} {
		if err := writeMark(j.fs, j.dir, &mark{gen: gen, clean: true}); err != nil {
			return err
		}
	}
	b, _ := j.encodeCheckpoint(1, position{})
	for _, name := range checkpointFiles {
		if err := overwrite(j.fs, j.dir, name, b); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := j.fs.SyncDir(j.dir); err != nil {
		return fmt.Errorf("sync %s: %w", j.dir, err)
	}
	if err := vfs.WriteFile(j.fs, j.dir, formatName, fmt.Appendf(nil, "%s%d\n", formatPrefix, formatVersion)); err != nil {
		return fmt.Errorf("write %s: %w", formatName, err)
	}
	return nil
}

// begin makes what was read from the store the journal's state, when it is opened.
func (j *Journal) begin(r *recovery) error {
	lost := r.missing()
	if (r.loss != nil || len(lost) > 0) && j.opts.AcceptLoss {
		loss := r.loss
		if loss == nil {
			loss = &LossError{What: r.where, Missing: lost}
		}
		j.log.Error("journal: going on without what is missing, as asked", "dir", j.dir, "err", loss)
		if err := j.accept(r); err != nil {
			return err
		}
		lost = nil
	}
	j.adopt(r)
	if r.m != nil {
		j.marked = *r.m
	}
	switch {
	case j.opts.ReadOnly:
		j.setRefusal(ErrReadOnly)
		if r.loss != nil {
			j.setRefusal(r.loss)
		}
	case r.loss != nil:
		j.log.Error("journal: opened for reading only", "dir", j.dir, "err", r.loss)
		j.setRefusal(r.loss)
	case len(lost) > 0:
		j.log.Error("journal: streams are open for reading only", "dir", j.dir, "err", &LossError{What: r.where, Missing: lost})
	}
	if j.refusal.Load() != nil {
		return nil // only to be read
	}
	if r.clean {
		if err := j.goOn(r); err != nil {
			return err
		}
	}
	// Before anything is written: where the log of a closed store ends, nothing is looked for.
	return j.saveMark(false)
}

// goOn makes the log go on in the segment where it ended.
func (j *Journal) goOn(r *recovery) error {
	s := j.files.get(r.last.seg)
	if s == nil || s.bad.Load() || r.last.first == 0 {
		return nil
	}
	if err := j.files.writable(s); err != nil {
		return err
	}
	j.active, j.pos, j.firstBatch = s, r.last.off, r.last.first
	j.current.Store(s)
	return nil
}

// accept makes the streams end before what is lost, and keeps the damaged files.
func (j *Journal) accept(r *recovery) error {
	for _, st := range r.byNo {
		st.damage = nil
	}
	r.loss = nil
	for name := range r.damaged {
		b, err := vfs.ReadFile(j.fs, filepath.Join(j.dir, name))
		if err == nil {
			err = vfs.WriteFile(j.fs, j.dir, name+".damaged", b)
		}
		if err != nil && !isNotExist(err) {
			return fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	r.damaged = nil
	j.adopt(r)
	r.clean = false
	if r.m != nil {
		j.marked.gen = r.m.gen
	}
	// From here on nothing of the log before is asked any more.
	j.ck.pos = position{n: r.last.n, seg: r.fl.next, off: headerBlock}
	j.setDurable(j.ck.pos)
	if err := j.saveCheckpoint(context.Background()); err != nil {
		return err
	}
	for range markFiles {
		if err := j.saveMark(false); err != nil {
			return err
		}
	}
	m := j.marked
	r.m, r.last = &m, j.ck.pos
	r.ck.gen, r.ck.pos, r.ck.size, r.ck.stale = j.ck.gen, j.ck.pos, j.ck.size, j.ck.stale
	return nil
}

// adopt makes what was read the journal's state. Streams that are known stay the same. files.preparing is held, or nobody else has the
// journal yet.
func (j *Journal) adopt(r *recovery) {
	j.files.adopt(r.fl)
	j.mu.Lock()
	old := j.byNo
	j.byNo, j.streams = map[uint32]*stream{}, map[string]*stream{}
	for no, st := range r.byNo {
		if o := old[no]; o != nil {
			o.restore(st)
			st = o
		} else {
			st.restore(st)
		}
		j.byNo[no], j.streams[st.name] = st, st
	}
	for no, o := range old {
		if r.byNo[no] == nil { // acquired, but not stored
			o.restore(newStream(o.name, no))
			j.byNo[no], j.streams[o.name] = o, o
		}
	}
	j.nextNo = max(j.nextNo, r.nextNo)
	j.mu.Unlock()
	j.markMu.Lock()
	clear(j.kept)
	if r.m != nil {
		for no, s := range r.m.streams {
			if st := r.byNo[no]; st != nil && st.damage != nil {
				j.kept[no] = s
			}
		}
	}
	j.markMu.Unlock()
	j.last, j.prevCRC, j.active, j.unsynced = r.last.n, r.last.crc, nil, 0
	j.current.Store(nil)
	j.ck.gen, j.ck.pos, j.ck.size = r.ck.gen, r.ck.pos, r.ck.size
	j.ck.stale = r.ck.stale
	j.unsaved.Store(0)
	j.setDurable(r.last)
	j.settleLimbo()
}

// restore sets the state to what the store has.
func (st *stream) restore(from *stream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	h := from.acked
	st.next, st.sure, st.acked, st.ackedAt, st.unacked = h, h, h, from.ackedAt, 0
	st.index, st.parts, st.damage = from.index, from.parts, from.damage
	st.discards.again(st)
	if o := st.owner; o != nil && o.last != nil && o.last.Last() > h.end {
		o.last = nil // it was only buffered
	}
}
