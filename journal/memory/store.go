package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// Defaults of [Options].
const (
	DefaultMaxRecordBytes = 64 << 20
	DefaultMaxPartBytes   = 4 << 20
)

// Options configure a [Store]. The zero value is the default.
type Options struct {
	// MaxRecordBytes is the limit of a record, in bytes. 0 means DefaultMaxRecordBytes.
	MaxRecordBytes int
	// MaxPartBytes is the limit of a part, in bytes. 0 means DefaultMaxPartBytes.
	MaxPartBytes int
	// EpochRecords makes Acquire write a record of KindEpoch, as the drivers of some
	// databases do: it takes one seq each time.
	EpochRecords bool
}

func (o *Options) validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		val  *int
		def  int
	}{
		{"MaxRecordBytes", &o.MaxRecordBytes, DefaultMaxRecordBytes},
		{"MaxPartBytes", &o.MaxPartBytes, DefaultMaxPartBytes},
	} {
		switch {
		case *f.val < 0:
			errs = append(errs, fmt.Errorf("memory journal: option %s is %d, want 0 (default %d) or more", f.name, *f.val, f.def))
		case *f.val == 0:
			*f.val = f.def
		}
	}
	return errors.Join(errs...)
}

// Store holds the data of memory journals. Its methods may be called concurrently.
type Store struct {
	opts Options

	mu      sync.RWMutex
	streams map[string]*stream
	handles map[*Journal]struct{}
	members map[string][]byte
}

// NewStore returns an empty store.
func NewStore(opts Options) (*Store, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Store{opts: opts, streams: map[string]*stream{}, handles: map[*Journal]struct{}{}, members: map[string][]byte{}}, nil
}

// Open returns a journal on the store. Any number may be open at once, as if by several
// processes.
func (s *Store) Open() *Journal {
	j := &Journal{store: s}
	s.mu.Lock()
	s.handles[j] = struct{}{}
	s.mu.Unlock()
	return j
}

// New returns a journal on a new store with default options.
func New() *Journal {
	s, err := NewStore(Options{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return s.Open()
}

// Open opens the journal of a URL, which must be "memory:": a new, empty store each time.
func Open(_ context.Context, url string) (journal.Journal, error) {
	if url != "memory:" {
		return nil, fmt.Errorf("memory journal: URL %q, want \"memory:\" and nothing behind it", url)
	}
	return New(), nil
}

// Crash is a power cut: every handle is closed, and of each stream the records are lost that
// were appended with Buffered set and had no unbuffered one, or Acquire, behind them.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j := range s.handles {
		j.closed.Store(true)
	}
	clear(s.handles)
	for _, st := range s.streams {
		st.crash()
	}
}

func (s *Store) lookup(name string) *stream {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.streams[name]
}

func (s *Store) lookupOrMake(name string) *stream {
	if st := s.lookup(name); st != nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[name]
	if st == nil {
		st = &stream{name: name, low: 1}
		s.streams[name] = st
	}
	return st
}

// names returns the names of all streams, ascending.
func (s *Store) names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, 0, len(s.streams))
	for name := range s.streams {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
