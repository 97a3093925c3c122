package pebble

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
)

// diskUsage is what du says of a directory.
func diskUsage(t testing.TB, dir string) int64 {
	t.Helper()
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// load appends and discards; peak is what du said at most.
type load struct {
	*writer
	dir  string
	j    *Journal
	peak int64
	n    int
}

// put appends a record with a body of so many bytes and returns its seqs.
func (l *load) put(size int) journal.Range {
	l.Helper()
	r := l.add(10, []byte("meta of ten messages"), random(size))
	if l.n++; l.n%200 == 0 {
		l.peak = max(l.peak, diskUsage(l, l.dir))
	}
	return journal.Range{From: r.First, To: r.Last()}
}

func (l *load) discard(ranges ...journal.Range) {
	l.Helper()
	if err := l.s.DiscardBodies(l.Context(), ranges); err != nil {
		l.Fatal(err)
	}
}

func (l *load) discardMeta(low uint64) {
	l.Helper()
	if err := l.s.DiscardMeta(l.Context(), low); err != nil {
		l.Fatal(err)
	}
}

// §4, §11: the directory stays under max(128 MiB, 4 × live bytes) once the load is over, and under
// 512 MiB before, whatever the load is like.
func TestSizeOnDisk(t *testing.T) {
	const size = 100_000
	records := 1200 * soak // of 100 kB
	for name, run := range map[string]func(l *load){
		"queue that keeps up": func(l *load) {
			for range records {
				l.discard(l.put(size))
			}
		},
		"one record alive for ever": func(l *load) {
			l.put(size)
			for i := range records {
				l.discard(l.put(size))
				if i%300 == 0 {
					l.discardMeta(l.at.End)
				}
			}
		},
		"backlog of which one in a hundred stays": func(l *load) {
			var all []journal.Range
			for range records {
				all = append(all, l.put(size))
			}
			for i, r := range all {
				if i%100 != 7 {
					l.discard(r)
				}
			}
		},
		"backlog that is purged": func(l *load) {
			for range records {
				l.put(size)
			}
			l.discard(journal.Range{From: 1, To: l.at.End})
		},
		"no bodies": func(l *load) {
			for i := range records * 8 {
				l.add(3, random(10_000), nil)
				if i%1000 == 999 {
					l.discardMeta(l.at.End - 100)
				}
			}
			l.discardMeta(l.at.End)
		},
		"large records": func(l *load) {
			for range records / 60 {
				l.discard(l.put(10_000_000))
			}
			for range records / 2 {
				l.discard(l.put(size))
			}
		},
		"snapshots": func(l *load) {
			for i := range records / 10 {
				name := fmt.Sprint("chunk-", i)
				if err := l.s.WritePart(l.Context(), name, random(1_000_000)); err != nil {
					l.Fatal(err)
				}
				if i >= 3 {
					if err := l.s.DeleteParts(l.Context(), []string{fmt.Sprint("chunk-", i-3)}); err != nil {
						l.Fatal(err)
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := mustOpen(t, dir, Options{})
			l := &load{writer: acquire(t, j, "q"), dir: dir, j: j}
			run(l)
			peak := max(l.peak, diskUsage(t, dir))
			live := j.Metrics().LiveBytes
			most := max(128<<20, 4*live)
			eventually(t, fmt.Sprintf("the directory is under %d bytes", most), func() bool { return diskUsage(t, dir) < most })
			t.Logf("peak %d MiB, after the load %d MiB, live %d MiB; %+v", peak>>20, diskUsage(t, dir)>>20, live>>20, j.Metrics())
			if peak > 512<<20 {
				t.Errorf("the directory had up to %d MiB", peak>>20)
			}
			if live < 0 {
				t.Errorf("live bytes: %d", live)
			}
			mustClose(t, j)
		})
	}
}
