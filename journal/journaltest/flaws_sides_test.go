package journaltest_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/memory"
)

func (j *brokenJournal) memory() *memory.Journal { return j.Journal.(*memory.Journal) }

func (j *brokenJournal) Import(ctx context.Context, name string, from journal.Info) (s journal.Stream, err error) {
	if j.f.imports != nil {
		s, err = j.f.imports(ctx, j.memory(), name, from)
	} else {
		s, err = j.memory().Import(ctx, name, from)
	}
	if err != nil {
		return nil, err
	}
	return &brokenStream{brokenReader{s, j.f}, s}, nil
}

func (j *brokenJournal) PutMember(ctx context.Context, id string, data []byte) error {
	if j.f.putMember != nil {
		return j.f.putMember(ctx, j.memory(), id, data)
	}
	return j.memory().PutMember(ctx, id, data)
}

func (j *brokenJournal) DeleteMember(ctx context.Context, id string) error {
	if j.f.deleteMember != nil {
		return j.f.deleteMember(ctx, j.memory(), id)
	}
	return j.memory().DeleteMember(ctx, id)
}

func (j *brokenJournal) Members(ctx context.Context) (map[string][]byte, error) {
	if j.f.members != nil {
		return j.f.members(ctx, j.memory())
	}
	return j.memory().Members(ctx)
}

var memberFlaws = map[string]flawed{
	"members truncated": {by: by("members/table", "members/limits"), make: func(*store) *flaw {
		return &flaw{putMember: func(ctx context.Context, in *memory.Journal, id string, data []byte) error {
			return in.PutMember(ctx, id, data[:len(data)/2])
		}}
	}},
	"member entries without a limit": {by: by("members/limits"), make: func(*store) *flaw {
		return &flaw{putMember: func(ctx context.Context, in *memory.Journal, id string, data []byte) error {
			if len(data) > journal.MaxMemberBytes {
				return nil
			}
			return in.PutMember(ctx, id, data)
		}}
	}},
	"member ids cut": {by: by("members/table"), make: func(*store) *flaw {
		return &flaw{putMember: func(ctx context.Context, in *memory.Journal, id string, data []byte) error {
			return in.PutMember(ctx, id[:min(len(id), 100)], data)
		}}
	}},
	"member never deleted": {by: by("members/table", "members/unknown"), make: func(*store) *flaw {
		return &flaw{deleteMember: func(_ context.Context, _ *memory.Journal, id string) error {
			return journal.CheckName("member", id)
		}}
	}},
	"members cached": {by: by("members/table", "members/concurrent", "members/unknown"), make: func(*store) *flaw {
		var mu sync.Mutex
		var cache map[string][]byte
		calls := 0
		return &flaw{members: func(ctx context.Context, in *memory.Journal) (map[string][]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%3 != 1 && cache != nil {
				return cache, nil
			}
			var err error
			cache, err = in.Members(ctx)
			return cache, err
		}}
	}},
	"member data shared": {by: by("members/ownership"), make: func(*store) *flaw {
		var last []byte
		return &flaw{
			putMember: func(ctx context.Context, in *memory.Journal, id string, data []byte) error {
				last = data
				return in.PutMember(ctx, id, data)
			},
			members: func(ctx context.Context, in *memory.Journal) (map[string][]byte, error) {
				all, err := in.Members(ctx)
				for id := range all {
					all[id] = last
				}
				return all, err
			},
		}
	}},
	"members as streams": {by: by("members/apart"), make: func(*store) *flaw {
		return &flaw{putMember: func(ctx context.Context, in *memory.Journal, id string, data []byte) error {
			if _, err := in.Acquire(ctx, id); err != nil {
				return err
			}
			return in.PutMember(ctx, id, data)
		}}
	}},
	"members after Close": {by: by("members/close"), make: func(st *store) *flaw {
		return &flaw{members: func(ctx context.Context, _ *memory.Journal) (map[string][]byte, error) {
			return st.direct.(*memory.Journal).Members(ctx)
		}}
	}},
}

// importing returns a flaw that imports something else than it was told to.
func importing(change func(from *journal.Info)) func(*store) *flaw {
	return func(*store) *flaw {
		return &flaw{imports: func(ctx context.Context, in *memory.Journal, name string, from journal.Info) (journal.Stream, error) {
			if journal.CheckImport(name, from) == nil {
				change(&from)
			}
			return in.Import(ctx, name, from)
		}}
	}
}

// importedAppend returns a flaw of the Append of imported streams only. Of two holds on a stream it
// cannot tell which one is meant, which is no matter to the rules that it has to break.
func importedAppend(change func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error) func(*store) *flaw {
	return func(*store) *flaw {
		return &flaw{append: func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
			if !strings.HasPrefix(in.Acquired().Name, "copy") {
				return in.Append(ctx, after, rec)
			}
			return change(ctx, in, after, rec)
		}}
	}
}

var importFlaws = map[string]flawed{
	"import under another uid": {by: by("import/copy", "import/resume"), make: importing(func(from *journal.Info) { from.UID[0]++ })},
	"import from seq 1": {by: by("import/from-the-middle", "import/persistent"), make: importing(func(from *journal.Info) {
		from.End, from.EndCRC, from.EndTime = 0, 0, 0
	})},
	"import without the CRC before": {by: by("import/from-the-middle"), make: importing(func(from *journal.Info) { from.EndCRC = 0 })},
	"import under a low epoch":      {by: by("import/copy", "import/resume"), make: importing(func(from *journal.Info) { from.Epoch = 1 })},
	"import forgets bodies": {by: by("import/copy", "import/without-bodies", "import/persistent"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		if rec.Epoch == in.Acquired().Epoch {
			return in.Append(ctx, after, rec)
		}
		r := *rec
		r.Body = nil
		return in.Append(ctx, after, &r)
	})},
	"import refuses a missing body": {by: by("import/without-bodies", "import/persistent"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		if rec.BodyLen > 0 && len(rec.Body) == 0 {
			return journal.ErrInvalid
		}
		return in.Append(ctx, after, rec)
	})},
	"import takes the size of a missing body for that of the record": {by: by("import/larger-before"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		if rec.Size() > 128<<10 {
			return journal.ErrTooLarge
		}
		return in.Append(ctx, after, rec)
	})},
	"import takes half a body": {by: by("import/without-bodies"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		err := in.Append(ctx, after, rec)
		if err != nil && len(rec.Body) > 0 {
			return nil
		}
		return err
	})},
	"import loses a record on resuming": {by: by("import/resume", "import/unknown"), make: func(st *store) *flaw {
		return &flaw{imports: func(ctx context.Context, in *memory.Journal, name string, from journal.Info) (journal.Stream, error) {
			info, err := infoOf(ctx, in, name)
			if err != nil {
				return nil, err
			}
			if info.End > from.End {
				if err := st.mem.Damage(name, info.Low, memory.DamageRemove); err != nil {
					return nil, err
				}
			}
			return in.Import(ctx, name, from)
		}}
	}},
	"import into any stream": {by: by("import/another-stream"), make: func(*store) *flaw {
		return &flaw{imports: func(ctx context.Context, in *memory.Journal, name string, from journal.Info) (journal.Stream, error) {
			info, err := infoOf(ctx, in, name)
			if err == nil && info.Epoch > 0 && info.UID != from.UID {
				return in.Acquire(ctx, name)
			}
			return in.Import(ctx, name, from)
		}}
	}},
	"import of any record": {by: by("import/refuses"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		if err := in.Append(ctx, after, rec); isFenced(err) {
			return err
		}
		return nil
	})},
	"import fences nobody": {by: by("import/fenced"), make: func(st *store) *flaw {
		// An owner's calls go through whoever is the newest.
		return &flaw{writePart: func(ctx context.Context, in journal.Stream, name string, data []byte) error {
			if err := in.WritePart(ctx, name, data); !isFenced(err) {
				return err
			}
			s, err := st.direct.Acquire(ctx, in.Acquired().Name)
			if err != nil {
				return err
			}
			return s.WritePart(ctx, name, data)
		}}
	}},
	"import is not kept": {by: by("import/persistent"), make: func(*store) *flaw {
		closed := false
		return &flaw{
			close: func(in journal.Journal) error {
				closed = true
				return in.Close()
			},
			info: func(ctx context.Context, in journal.Reader) (journal.Info, error) {
				info, err := in.Info(ctx)
				if closed {
					info.End--
				}
				return info, err
			},
		}
	}},
	"imported record stored twice": {by: by("import/unknown"), make: importedAppend(func(ctx context.Context, in journal.Stream, after uint64, rec *journal.Record) error {
		info, err := in.Info(ctx)
		if err == nil && info.End >= rec.Last() && info.EndCRC == rec.CRC {
			return fmt.Errorf("append after %d, end %d of at most %d: %w", after, info.End, uint64(math.MaxUint64), journal.ErrConflict)
		}
		return in.Append(ctx, after, rec)
	})},
}

// infoOf reads the state of a stream, past all flaws.
func infoOf(ctx context.Context, j journal.Journal, name string) (journal.Info, error) {
	if name == "" {
		return journal.Info{}, nil
	}
	r, err := j.Open(ctx, name)
	if err != nil {
		return journal.Info{}, err
	}
	return r.Info(ctx)
}
