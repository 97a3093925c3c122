package segment

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

// settled tells whether everything that was discarded is durable, and so counted. A discard alone is shown before that.
func settled(j *Journal) bool {
	for _, st := range j.allStreams() {
		st.mu.Lock()
		busy := !st.discards.empty() || st.unacked > 0 || st.ackedAt > j.durable.Load()
		st.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
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

// §4: the directory stays under 2 × live bytes + 4 segments once the load is over, whatever the load is like: one old message does not pin the
// log, and space comes back by itself. What is alive is still there.
func TestSizeOnDisk(t *testing.T) {
	const size = 100_000
	records, segment := 600, 4<<20 // of 100 kB
	if soak > 1 {
		records, segment = 12_000, DefaultSegmentBytes
	}
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
			for i := range records * 4 {
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
			j := mustOpen(t, dir, Options{SegmentBytes: segment})
			l := &load{writer: acquire(t, j, "q"), dir: dir, j: j}
			run(l)
			peak := max(l.peak, diskUsage(t, dir))
			most := func() int64 { return 2*j.Metrics().LiveBytes + int64(4*segment) }
			eventually(t, "the directory is small enough", func() bool { return settled(j) && diskUsage(t, dir) < most() })
			m := j.Metrics()
			t.Logf("peak %d MiB, after the load %d MiB, live %d MiB; %+v", peak>>20, diskUsage(t, dir)>>20, m.LiveBytes>>20, m)
			if m.LiveBytes < 0 {
				t.Errorf("live bytes: %d", m.LiveBytes)
			}
			if err := j.Verify(t.Context(), func(d Damage) { t.Error(d) }); err != nil {
				t.Error(err)
			}
			mustClose(t, j)
			j = mustOpen(t, dir, Options{SegmentBytes: segment})
			if again := j.Metrics().LiveBytes; again != m.LiveBytes {
				t.Errorf("live bytes: %d before closing, %d after opening", m.LiveBytes, again)
			}
			if err := j.Verify(t.Context(), func(d Damage) { t.Error(d) }); err != nil {
				t.Error(err)
			}
			mustClose(t, j)
		})
	}
}
