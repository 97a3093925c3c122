package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
)

// preflight finds out, without changing anything, whether the store is what the mark says.
// An engine that is opened for writing first flushes what it could read of the log, and then
// deletes the log: what it took for a torn tail is gone then. view is what of the logs an engine can be
// shown where there is a loss.
func (j *Journal) preflight(m *mark) (loss *LossError, view *logView, err error) {
	if err := j.checkMetaFiles(m); err != nil {
		return nil, nil, err
	}
	logs, err := scanLogs(j.fs, j.dir)
	if err != nil {
		return nil, nil, err
	}
	need, last := m.commit, uint64(0)
	var bad *logScan // the first log that is not as a log should be
	for i := range logs {
		l := &logs[i]
		need, last = max(need, l.proof), max(last, l.last)
		if bad == nil && (l.damaged || !l.closed && i < len(logs)-1) {
			bad = l
		}
	}
	if bad == nil && last >= need {
		return nil, nil, nil
	}
	// The logs alone do not tell: what they lack may be in tables, and a strange log may be one that the
	// engine does not need any more.
	e, err := j.openEngine(true, nil)
	if err == nil {
		n, err := e.lastCommit()
		if err = errors.Join(err, e.close(context.Background())); err != nil || n >= need {
			return nil, nil, err
		}
		return &LossError{What: describe(logs, bad, n, need)}, nil, nil
	}
	if !errors.Is(err, journal.ErrCorrupt) || bad == nil {
		return nil, nil, err
	}
	return &LossError{What: describe(logs, bad, bad.last, need)}, &logView{bad.num, bad.end}, nil
}

// describe tells what is wrong with the logs: they end with batch last and should reach need.
func describe(logs []logScan, bad *logScan, last, need uint64) string {
	if bad == nil && len(logs) > 0 {
		bad = &logs[len(logs)-1]
	}
	where := "there is no log file"
	if bad != nil {
		where = fmt.Sprintf("file %s is damaged or cut off at byte %d", bad.name, bad.end)
	}
	if need <= last {
		return where
	}
	return fmt.Sprintf("%s, so that the batches %d…%d are lost, which were on stable storage", where, last+1, need)
}

// metaNames are the engine's metadata files of a directory.
type metaNames struct {
	manifest      string // the current one, by its marker
	options       string // the newest one
	formatVersion bool   // there is a marker of the format version
}

func findMetaNames(fs vfs.FS, dir string) (metaNames, error) {
	var n metaNames
	names, err := fs.List(dir)
	if err != nil {
		return n, fmt.Errorf("list %s: %w", dir, err)
	}
	var marker string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.manifest."):
			marker = max(marker, name)
		case strings.HasPrefix(name, "marker.format-version."):
			n.formatVersion = true
		case strings.HasPrefix(name, "OPTIONS-"):
			n.options = max(n.options, name)
		}
	}
	n.manifest = strings.TrimPrefix(path.Ext(marker), ".")
	return n, nil
}

// checkMetaFiles verifies the engine's metadata files against the mark. The engine itself takes a
// damaged end of its manifest for one that was never finished, goes back to an older state, and deletes the
// tables that it then does not know.
func (j *Journal) checkMetaFiles(m *mark) error {
	n, err := findMetaNames(j.fs, j.dir)
	if err != nil {
		return err
	}
	var manifest, options string // the newest that the mark has
	for name := range m.files {
		if strings.HasPrefix(name, "MANIFEST-") {
			manifest = max(manifest, name)
		} else {
			options = max(options, name)
		}
	}
	switch {
	case n.manifest < manifest:
		return damagedFile("marker.manifest.*", fmt.Sprintf("names %q, and %s was in use", n.manifest, manifest), nil)
	case n.options < options:
		return damagedFile(options, "missing", nil)
	case manifest != "" && !n.formatVersion:
		return damagedFile("marker.format-version.*", "missing", nil)
	}
	for _, name := range []string{n.manifest, n.options} {
		want, ok := m.files[name]
		if !ok {
			continue // made after the mark
		}
		got, err := fingerprintOf(j.fs, j.fs.PathJoin(j.dir, name), want.size)
		if errors.Is(err, os.ErrNotExist) {
			return damagedFile(name, "missing", nil)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if got != want {
			return damagedFile(name, fmt.Sprintf("its first %d bytes are not what was written", want.size), nil)
		}
	}
	return nil
}

// fingerprintOf reads up to most bytes of a file.
func fingerprintOf(fs vfs.FS, path string, most int64) (fingerprint, error) {
	var fp fingerprint
	f, err := fs.Open(path)
	if err != nil {
		return fp, err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for fp.size < most {
		n, err := f.Read(buf[:min(int64(len(buf)), most-fp.size)])
		fp.add(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fp, err
		}
	}
	return fp, nil
}

// trackMetaFiles makes the gate know the metadata files that an engine before it wrote.
func (j *Journal) trackMetaFiles(g *gate) error {
	n, err := findMetaNames(j.fs, j.dir)
	if err != nil {
		return err
	}
	for _, name := range []string{n.manifest, n.options} {
		if name == "" {
			continue
		}
		fp, err := fingerprintOf(j.fs, j.fs.PathJoin(j.dir, name), 1<<62)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		g.track(name, fp)
	}
	return nil
}

const damagedExt = ".damaged"

// setAside keeps the damaged logs under another name and leaves the engine what view shows.
func (j *Journal) setAside(view *logView) error {
	if view == nil {
		return nil // the engine reads up to the damage by itself
	}
	logs, err := scanLogs(j.fs, j.dir)
	if err != nil {
		return err
	}
	for _, l := range logs {
		path := j.fs.PathJoin(j.dir, l.name)
		switch {
		case l.num > view.num:
			err = j.fs.Rename(path, path+damagedExt)
		case l.num == view.num:
			var b []byte
			if b, err = readFile(j.fs, path); err == nil {
				err = errors.Join(j.fs.Link(path, path+damagedExt), writeFile(j.fs, j.dir, l.name, b[:view.size]))
			}
		}
		if err != nil {
			return fmt.Errorf("set %s aside: %w", l.name, err)
		}
	}
	return nil
}
