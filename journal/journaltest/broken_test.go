package journaltest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/journal/journaltest"
	"github.com/holdfastmq/holdfast/journal/journaltest/fault"
	"github.com/holdfastmq/holdfast/journal/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// store is a memory store whose journals break a rule. Its methods may be used by flaws to do
// what a driver with that flaw would do.
type store struct {
	mem    *memory.Store
	direct journal.Journal // without flaws

	mu     sync.Mutex
	newest map[string]journal.Stream // the flawless stream of the newest owner
}

// flaw replaces methods of a driver. A nil field leaves the method as it is. inner is always the
// flawless one.
type flaw struct {
	limits        func(inner journal.Limits) journal.Limits
	acquire       func(ctx context.Context, inner journal.Journal, name string) (journal.Stream, error)
	streams       func(ctx context.Context, inner journal.Journal) iter.Seq2[journal.Info, error]
	close         func(inner journal.Journal) error
	info          func(ctx context.Context, inner journal.Reader) (journal.Info, error)
	readMeta      func(ctx context.Context, inner journal.Reader, from, to uint64) iter.Seq2[*journal.Record, error]
	readBodies    func(ctx context.Context, inner journal.Reader, first []uint64) iter.Seq2[*journal.Record, error]
	readPart      func(ctx context.Context, inner journal.Reader, name string) ([]byte, error)
	parts         func(ctx context.Context, inner journal.Reader, prefix string) ([]string, error)
	append        func(ctx context.Context, inner journal.Stream, after uint64, rec *journal.Record) error
	start         func(inner journal.Stream, after uint64, rec *journal.Record, done func(error))
	discardBodies func(ctx context.Context, inner journal.Stream, ranges []journal.Range) error
	discardMeta   func(ctx context.Context, inner journal.Stream, low uint64) error
	writePart     func(ctx context.Context, inner journal.Stream, name string, data []byte) error
	deleteParts   func(ctx context.Context, inner journal.Stream, names []string) error
	drop          func(ctx context.Context, inner journal.Stream) error
	release       func(inner journal.Stream) error
	imports       func(ctx context.Context, inner *memory.Journal, name string, from journal.Info) (journal.Stream, error)
	putMember     func(ctx context.Context, inner *memory.Journal, id string, data []byte) error
	deleteMember  func(ctx context.Context, inner *memory.Journal, id string) error
	members       func(ctx context.Context, inner *memory.Journal) (map[string][]byte, error)
	// hook changes what a hook of the suite sees.
	hook func(ctx context.Context) context.Context
}

type brokenJournal struct {
	journal.Journal
	st *store
	f  *flaw
}

func (j *brokenJournal) Limits() journal.Limits {
	if j.f.limits != nil {
		return j.f.limits(j.Journal.Limits())
	}
	return j.Journal.Limits()
}

func (j *brokenJournal) Acquire(ctx context.Context, name string) (s journal.Stream, err error) {
	if j.f.acquire != nil {
		s, err = j.f.acquire(ctx, j.Journal, name)
	} else {
		s, err = j.Journal.Acquire(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	j.st.mu.Lock()
	j.st.newest[name] = s
	j.st.mu.Unlock()
	return &brokenStream{brokenReader{s, j.f}, s}, nil
}

func (j *brokenJournal) Open(ctx context.Context, name string) (journal.Reader, error) {
	r, err := j.Journal.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &brokenReader{r, j.f}, nil
}

func (j *brokenJournal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	if j.f.streams != nil {
		return j.f.streams(ctx, j.Journal)
	}
	return j.Journal.Streams(ctx)
}

func (j *brokenJournal) Close() error {
	if j.f.close != nil {
		return j.f.close(j.Journal)
	}
	return j.Journal.Close()
}

type brokenReader struct {
	inner journal.Reader
	f     *flaw
}

func (r *brokenReader) Info(ctx context.Context) (journal.Info, error) {
	if r.f.info != nil {
		return r.f.info(ctx, r.inner)
	}
	return r.inner.Info(ctx)
}

func (r *brokenReader) ReadMeta(ctx context.Context, from, to uint64) iter.Seq2[*journal.Record, error] {
	if r.f.readMeta != nil {
		return r.f.readMeta(ctx, r.inner, from, to)
	}
	return r.inner.ReadMeta(ctx, from, to)
}

func (r *brokenReader) ReadBodies(ctx context.Context, first []uint64) iter.Seq2[*journal.Record, error] {
	if r.f.readBodies != nil {
		return r.f.readBodies(ctx, r.inner, first)
	}
	return r.inner.ReadBodies(ctx, first)
}

func (r *brokenReader) ReadPart(ctx context.Context, name string) ([]byte, error) {
	if r.f.readPart != nil {
		return r.f.readPart(ctx, r.inner, name)
	}
	return r.inner.ReadPart(ctx, name)
}

func (r *brokenReader) Parts(ctx context.Context, prefix string) ([]string, error) {
	if r.f.parts != nil {
		return r.f.parts(ctx, r.inner, prefix)
	}
	return r.inner.Parts(ctx, prefix)
}

type brokenStream struct {
	brokenReader
	inner journal.Stream
}

func (s *brokenStream) Acquired() journal.Info { return s.inner.Acquired() }

func (s *brokenStream) Append(ctx context.Context, after uint64, rec *journal.Record) error {
	if s.f.append != nil {
		return s.f.append(ctx, s.inner, after, rec)
	}
	return s.inner.Append(ctx, after, rec)
}

func (s *brokenStream) StartAppend(after uint64, rec *journal.Record, done func(error)) {
	if s.f.start != nil {
		s.f.start(s.inner, after, rec, done)
		return
	}
	startAppend(s.inner, after, rec, done)
}

// startAppend is the flawless way.
func startAppend(inner journal.Stream, after uint64, rec *journal.Record, done func(error)) {
	go func() { done(inner.Append(context.Background(), after, rec)) }()
}

func (s *brokenStream) DiscardBodies(ctx context.Context, ranges []journal.Range) error {
	if s.f.discardBodies != nil {
		return s.f.discardBodies(ctx, s.inner, ranges)
	}
	return s.inner.DiscardBodies(ctx, ranges)
}

func (s *brokenStream) DiscardMeta(ctx context.Context, low uint64) error {
	if s.f.discardMeta != nil {
		return s.f.discardMeta(ctx, s.inner, low)
	}
	return s.inner.DiscardMeta(ctx, low)
}

func (s *brokenStream) WritePart(ctx context.Context, name string, data []byte) error {
	if s.f.writePart != nil {
		return s.f.writePart(ctx, s.inner, name, data)
	}
	return s.inner.WritePart(ctx, name, data)
}

func (s *brokenStream) DeleteParts(ctx context.Context, names []string) error {
	if s.f.deleteParts != nil {
		return s.f.deleteParts(ctx, s.inner, names)
	}
	return s.inner.DeleteParts(ctx, names)
}

func (s *brokenStream) Drop(ctx context.Context) error {
	if s.f.drop != nil {
		return s.f.drop(ctx, s.inner)
	}
	return s.inner.Drop(ctx)
}

func (s *brokenStream) Release() error {
	if s.f.release != nil {
		return s.f.release(s.inner)
	}
	return s.inner.Release()
}

// config returns a driver with a flaw that is made anew for each store.
func config(make func(st *store) *flaw) journaltest.Config {
	return journaltest.Config{
		NewStore: func(t testing.TB) journaltest.Store {
			mem, err := memory.NewStore(memory.Options{MaxRecordBytes: 128 << 10, MaxPartBytes: 16 << 10})
			if err != nil {
				t.Fatal(err)
			}
			st := &store{mem: mem, direct: mem.Open(), newest: map[string]journal.Stream{}}
			f := make(st)
			var hook journaltest.Hook
			return journaltest.Store{
				Open: func(context.Context) (journal.Journal, error) {
					j := &brokenJournal{mem.Open(), st, f}
					if hook == nil {
						return j, nil
					}
					// The hook is called around the broken method: as if by the driver itself.
					return fault.New(j, fault.Options{
						Hook: func(ctx context.Context, op, stream string, after bool) error {
							if f.hook != nil {
								ctx = f.hook(ctx)
							}
							return hook(ctx, op, stream, after)
						},
					}), nil
				},
				SetHook: func(h journaltest.Hook) { hook = h },
				Crash: func(testing.TB) {
					mem.Crash()
					st.direct = mem.Open()
				},
				Damage: func(_ context.Context, d journaltest.Damage) error {
					how, ok := map[journaltest.DamageKind]memory.Damage{
						journaltest.FlipHeader: memory.DamageHeader,
						journaltest.FlipMeta:   memory.DamageMeta,
						journaltest.FlipBody:   memory.DamageBody,
						journaltest.Remove:     memory.DamageRemove,
					}[d.Kind]
					if !ok {
						return errors.ErrUnsupported
					}
					return mem.Damage(d.Stream, d.Seq, how)
				},
			}
		},
		Shared: true, Persistent: true, Hooks: true, Crashes: true, Damages: true, Coordinates: true, Imports: true, Starts: true,
		Takeovers: 40, Records: 100, Timeout: 10 * time.Second,
	}
}

// recorder is a testing.TB that notes failures instead of being one.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	first    string // the first failure
	cleanups []func()
}

func (r *recorder) note(msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.failed, r.first = true, msg
	}
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Fail()                             { r.note("Fail") }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// check runs a rule and returns its first failure, or "".
func check(t *testing.T, rule journaltest.Rule, cfg journaltest.Config) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rule.Check(r, cfg)
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.first
}

// §4: without a flaw, the journals of these tests pass; and Run works on what is not a *testing.T.
func TestFlawlessPasses(t *testing.T) {
	cfg := config(func(*store) *flaw { return &flaw{} })
	journaltest.Run(t, cfg)
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cfg := cfg
		cfg.Hooks, cfg.Crashes, cfg.Damages, cfg.Shared, cfg.Persistent = false, false, false, false, false
		cfg.Coordinates, cfg.Imports, cfg.Starts = false, false, false
		journaltest.Run(r, cfg)
	}()
	<-done
	if r.failed {
		t.Errorf("with no ability declared: %s", r.first)
	}
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// §4: each broken journal is rejected, by the rules that are named after what it breaks.
func TestFlawsAreRejected(t *testing.T) {
	t.Setenv("HOLDFAST_SOAK", "") // reduced counts find every flaw, and hangs cost the whole time limit
	rules := map[string]journaltest.Rule{}
	for _, r := range journaltest.Rules() {
		if _, twice := rules[r.Name]; twice {
			t.Errorf("two rules are named %s", r.Name)
		}
		rules[r.Name] = r
	}
	used := map[string]bool{}
	for name, fl := range flaws() {
		t.Run(name, func(t *testing.T) {
			cfg := config(fl.make)
			if fl.hangs {
				cfg.Timeout = 2 * time.Second
			}
			if len(fl.by) == 0 {
				t.Fatal("no rule is named that must reject this")
			}
			for _, ruleName := range fl.by {
				rule, ok := rules[ruleName]
				if !ok {
					t.Fatalf("there is no rule %s", ruleName)
				}
				msg := check(t, rule, cfg)
				for range 3 { // a race may miss it
					if msg == "" && strings.HasPrefix(ruleName, "race/") {
						msg = check(t, rule, cfg)
					}
				}
				if msg == "" {
					t.Errorf("%s lets it pass", ruleName)
				} else {
					t.Logf("%s: %s", ruleName, strings.SplitN(msg, "\n", 2)[0])
				}
			}
		})
		for _, by := range fl.by {
			used[by] = true
		}
	}
	for name := range rules {
		if !used[name] && !slices.Contains(unproved, name) {
			t.Errorf("no flaw proves that rule %s can fail", name)
		}
	}
}
