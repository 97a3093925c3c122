package pebble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
)

// §4: the contract, on a file system that can be crashed.
func TestConformance(t *testing.T) {
	journaltest.Run(t, journaltest.Config{
		NewStore:   newMemStore,
		Persistent: true, Crashes: true, Hooks: true, Damages: true, Imports: true,
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
		Persistent: true, Imports: true,
	})
}

// memStore is a store that the suite can crash and damage.
type memStore struct {
	mu   sync.Mutex
	fs   *vfs.MemFS
	opts Options
	open *Journal
	rng  *rand.Rand
}

func newMemStore(testing.TB) journaltest.Store {
	m := &memStore{fs: vfs.NewCrashableMem(), opts: quiet(Options{MemTableBytes: 1 << 20}), rng: rand.New(rand.NewPCG(1, 1))}
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
	m.fs = m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: m.rng})
}

// damage writes around the journal, through its engine.
func (m *memStore) damage(_ context.Context, d journaltest.Damage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.open.lookup(d.Stream)
	db := m.open.engine().db
	flip := func(key []byte, at int) error {
		v, closer, err := db.Get(key)
		if err != nil {
			return fmt.Errorf("damage: %w", err)
		}
		b := append([]byte{}, v...)
		if err := closer.Close(); err != nil {
			return err
		}
		b[at] ^= 0x80
		return db.Set(key, b, pebble.Sync)
	}
	meta := seqKey(kindMeta, st.no, d.Seq)
	body, err := bodyRow(db, st.no, d.Seq)
	if err != nil {
		return err
	}
	switch d.Kind {
	case journaltest.FlipHeader: // which both rows have
		return errors.Join(flip(meta, 20), flip(body, 20))
	case journaltest.FlipMeta:
		return flip(meta, metaOverhead)
	case journaltest.FlipBody:
		return flip(body, journal.HeaderSize)
	case journaltest.NewerVersion:
		return errors.Join(flip(meta, 0), flip(body, 0))
	case journaltest.Remove:
		if body != nil {
			if err := db.Delete(body, pebble.Sync); err != nil {
				return err
			}
		}
		return db.Delete(meta, pebble.Sync)
	}
	return fmt.Errorf("damage %v is not known", d.Kind)
}

// bodyRow returns the key of a record's body, or nil.
func bodyRow(db *pebble.DB, no uint32, first uint64) ([]byte, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: seqKey(kindBody, no, first), UpperBound: seqKey(kindBody, no, first+1)})
	if err != nil {
		return nil, err
	}
	defer it.Close() //nolint:errcheck // what it found is told by Error
	if !it.First() {
		return nil, it.Error()
	}
	return append([]byte{}, it.Key()...), nil
}
