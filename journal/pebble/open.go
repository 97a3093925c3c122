package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

// Open opens the store in a directory, which is made if there is none.
//
// Errors: journal.ErrLocked, with who has it; journal.ErrNewerFormat; a journal.CorruptError that
// names the file, where metadata is damaged. A store whose log is shorter than it was, or without a
// high-water mark, is opened for reading only; see [Journal.Loss] and [Options.AcceptLoss].
func Open(dir string, opts Options) (*Journal, error) {
	j, err := open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("pebble journal: %w", err)
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
	if dir, err = resolve(opts.FS, dir); err != nil {
		return nil, err
	}
	format, err := readFormat(opts.FS, dir)
	if err != nil {
		return nil, err // before anything is touched
	}
	if _, err := opts.FS.Stat(opts.FS.PathJoin(dir, lockName)); format == 0 && opts.MustExist && err != nil {
		return nil, fmt.Errorf("there is no journal in %s: %w", dir, os.ErrNotExist)
	}
	if !opts.ReadOnly {
		if err := makeDir(opts.FS, dir); err != nil {
			return nil, err
		}
	}
	l, err := lock(opts.FS, dir, !opts.ReadOnly)
	if err != nil {
		return nil, err
	}
	j := newJournal(dir, opts, l)
	if err := j.prepare(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return j, nil
}

func newJournal(dir string, opts Options, l io.Closer) *Journal {
	var total uint64
	if u, err := opts.FS.GetDiskUsage(dir); err == nil {
		total = u.TotalBytes
	}
	opts.fit(total)
	j := &Journal{
		opts: opts, fs: opts.FS, dir: dir, log: opts.Logger, lock: l,
		streams: map[string]*stream{}, nextNo: 1,
		changed:  make(chan struct{}),
		units:    make(chan *unit, 16), // more than maxInFlight only where batches have buffered records too
		markKick: make(chan struct{}, 1),
		closing:  make(chan struct{}),
	}
	j.q.init()
	j.space = space{
		fs: j.fs, dir: dir, log: j.log, kick: j.kickMark, stop: j.closing,
		reserve: uint64(opts.ReserveBytes), size: opts.BallastBytes,
	}
	return j
}

// makeDir makes the directory and its parents, durably.
func makeDir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	for at := dir; ; {
		parent := fs.PathDir(at)
		if parent == at || parent == "." {
			return nil
		}
		if err := syncDir(fs, parent); err != nil {
			if errors.Is(err, os.ErrPermission) {
				return nil // not ours, and there before
			}
			return fmt.Errorf("sync directory %s: %w", parent, err)
		}
		at = parent
	}
}

// prepare opens the engine, after it was made sure that this harms nothing.
func (j *Journal) prepare() error {
	format, err := readFormat(j.fs, j.dir)
	if err != nil {
		return err
	}
	names, err := j.fs.List(j.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", j.dir, err)
	}
	hasEngine := slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "MANIFEST-") || strings.HasPrefix(n, "marker.") || strings.HasSuffix(n, ".sst")
	})
	m, found, err := readMark(j.fs, j.dir)
	if err != nil {
		return err
	}
	switch {
	case format == 0 && hasEngine:
		return damagedFile(formatName, "missing, and there is a database", nil)
	case format == 0 && j.opts.ReadOnly:
		return fmt.Errorf("%s has no store: %w", j.dir, journal.ErrNotFound)
	case format == 0 || m == nil && !found && !hasEngine:
		if m, err = j.create(); err != nil {
			return err
		}
	}
	if !j.opts.ReadOnly {
		j.space.adopt()
		j.space.look(false)
	}
	if err := j.openStore(m, hasEngine); err != nil {
		return err
	}
	var damaged error
	err = j.eng.checkTables(context.Background(), j.dir, readLayout, func(name string, err error) {
		damaged = errors.Join(damaged, damagedFile(name, "footer, index or properties", err))
	})
	if err = errors.Join(damaged, err); err != nil {
		return errors.Join(err, j.eng.close(context.Background()))
	}
	return nil
}

// create makes the files that a store begins with. FORMAT is the last one: without it, all
// is made again.
func (j *Journal) create() (*mark, error) {
	m := &mark{gen: 2}
	for _, gen := range []uint64{1, 2} {
		if err := writeMark(j.fs, j.dir, &mark{gen: gen}); err != nil {
			return nil, err
		}
	}
	if err := syncDir(j.fs, j.dir); err != nil {
		return nil, fmt.Errorf("sync %s: %w", j.dir, err)
	}
	return m, writeFile(j.fs, j.dir, formatName, fmt.Appendf(nil, "%s%d\n", formatPrefix, formatVersion))
}

// openStore opens the engine for writing if everything is there that the mark has, and
// else for reading.
func (j *Journal) openStore(m *mark, hasEngine bool) error {
	var loss *LossError
	var view *logView
	if m == nil {
		loss = &LossError{What: fmt.Sprintf("the high-water mark (files %s, %s) is missing or damaged", markFiles[0], markFiles[1])}
		m = &mark{gen: 2}
	} else if hasEngine || m.commit > 0 {
		var err error
		if loss, view, err = j.preflight(m); err != nil {
			return err
		}
	}
	j.marked = *m
	j.mustExist = m.commit > 0
	if loss == nil {
		err := j.openAs(j.opts.ReadOnly, nil, m)
		switch {
		case err == nil && j.opts.ReadOnly:
			j.setRefusal(ErrReadOnly)
		case errors.Is(err, journal.ErrFull):
			err = j.openFull(m, err)
		}
		if !errors.As(err, &loss) {
			return err
		}
	}
	if j.opts.AcceptLoss {
		j.log.Error("journal: going on without what is missing, as asked", "dir", j.dir, "err", loss)
		if err := j.setAside(view); err != nil {
			return err
		}
		return j.openAs(false, nil, nil)
	}
	if err := j.openAs(true, view, nil); err != nil {
		return errors.Join(loss, err)
	}
	loss.Missing = j.missing(m)
	j.log.Error("journal: opened for reading only", "dir", j.dir, "err", loss)
	j.setRefusal(loss)
	return nil
}

// openAs opens the engine and loads the streams. If something is missing that m has, it
// returns a *LossError.
func (j *Journal) openAs(readOnly bool, view *logView, m *mark) error {
	e, err := j.openEngine(readOnly, view)
	if err != nil {
		return err
	}
	if err = j.adopt(e); err == nil && m != nil {
		if j.applied < m.commit {
			err = &LossError{What: fmt.Sprintf("the last batch is %d, and batch %d was on stable storage", j.applied, m.commit)}
		} else if gone := j.missing(m); len(gone) > 0 {
			err = &LossError{What: "streams end before the high-water mark", Missing: gone}
		}
	}
	if err == nil && !readOnly {
		err = j.trackMetaFiles(e.g)
	}
	if err != nil {
		return errors.Join(err, e.close(context.Background()))
	}
	j.eng = e
	return nil
}

// openFull opens a store for reading only until there is space to open it for writing: the engine
// has to flush what it finds in the log.
func (j *Journal) openFull(m *mark, cause error) error {
	j.space.noSpace()
	j.space.look(false)
	if err := j.openAs(false, nil, m); !errors.Is(err, journal.ErrFull) {
		return err // the ballast was enough
	}
	if err := j.openAs(true, nil, m); err != nil {
		return errors.Join(cause, err)
	}
	j.eng.standIn = true
	j.log.Error("journal: disk full: opened for reading only until there is space", "dir", j.dir, "err", cause)
	return nil
}

// missing returns what m has of the streams and the store has not.
func (j *Journal) missing(m *mark) []Missing {
	var gone []Missing
	for _, s := range m.streams {
		st := j.streams[s.name]
		if st == nil {
			gone = append(gone, Missing{s.name, 1, s.end})
			continue
		}
		switch h := &st.acked; {
		case h.end < s.end:
			gone = append(gone, Missing{s.name, h.end + 1, s.end})
		case h.epoch < s.epoch, h.end == s.end && h.endCRC != s.crc:
			gone = append(gone, Missing{s.name, h.end, h.end})
		}
	}
	slices.SortFunc(gone, func(a, b Missing) int { return strings.Compare(a.Stream, b.Stream) })
	return gone
}
