package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
	"github.com/holdfastmq/holdfast/journal/segment/vfs"
)

// §4: the contract, on a file system that can be crashed. Segments are small, so that the rules meet many.
func TestConformance(t *testing.T) {
	journaltest.Run(t, journaltest.Config{
		NewStore:   newMemStore,
		Persistent: true, Crashes: true, Hooks: true, Damages: true, Imports: true, Starts: true,
	})
}

// §4: the contract, on a directory of the operating system.
func TestConformanceOnDisk(t *testing.T) {
	journaltest.Run(t, journaltest.Config{
		NewStore: func(t testing.TB) journaltest.Store {
			dir := filepath.Join(t.TempDir(), "store")
			return journaltest.Store{
				Open: func(context.Context) (journal.Journal, error) { return Open(dir, quiet(Options{})) },
			}
		},
		Persistent: true, Imports: true, Starts: true,
	})
}

// memStore is a store that the suite can crash and damage.
type memStore struct {
	mu   sync.Mutex
	fs   *vfs.Mem
	opts Options
	open *Journal
	rng  *rand.Rand
}

func newMemStore(testing.TB) journaltest.Store {
	m := &memStore{fs: vfs.NewMem(), opts: quiet(Options{SegmentBytes: 64 << 10}), rng: rand.New(rand.NewPCG(1, 1))}
	return journaltest.Store{
		Open:    func(context.Context) (journal.Journal, error) { return m.openHandle() },
		SetHook: func(h journaltest.Hook) { m.opts.hook = h },
		Crash:   func(testing.TB) { m.crash() },
		Damage:  m.damage,
	}
}

func (m *memStore) openHandle() (journal.Journal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	opts := m.opts
	opts.FS = m.fs
	j, err := Open("store", opts)
	if err != nil {
		return nil, err
	}
	m.open = j
	return j, nil
}

// crash goes on with what a power cut leaves.
func (m *memStore) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fs = m.fs.Crash(50, m.rng)
}

// damage writes around the journal, into the file that the record is in.
func (m *memStore) damage(_ context.Context, d journaltest.Damage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.open.lookup(d.Stream)
	st.mu.Lock()
	defer st.mu.Unlock()
	seg, s, ok := st.index.get(d.Seq)
	if !ok {
		return fmt.Errorf("damage: no record at seq %d", d.Seq)
	}
	f, err := m.fs.Open(filepath.Join("store", seg.name), vfs.Write)
	if err != nil {
		return err
	}
	b := make([]byte, s.entry()+int64(s.body))
	if _, err := f.ReadAt(b, s.off); err != nil {
		return err
	}
	switch d.Kind {
	case journaltest.FlipHeader:
		b[entryHeaderSize+20] ^= 0x80
	case journaltest.FlipMeta:
		b[entryHeaderSize+journal.HeaderSize] ^= 0x80
	case journaltest.FlipBody:
		b[s.entry()] ^= 0x80
	case journaltest.NewerVersion: // as such a version would write it
		e, _ := parseEntry(b)
		b[entryHeaderSize] = 0x80
		e.payCRC = journal.Checksum(b[entryHeaderSize:][:e.payload])
		e.put(b)
	case journaltest.Remove:
		clear(b)
	}
	if err := f.WriteAt([][]byte{b}, s.off); err != nil {
		return err
	}
	return f.Sync()
}
