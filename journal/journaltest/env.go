package journaltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// env is what a rule works with: a store, a first handle to it, randomness, a deadline.
type env struct {
	testing.TB
	cfg    *Config
	store  Store
	ctx    context.Context //holdfast:allow context: the deadline of the rule, whose calls are all this env makes
	cancel context.CancelFunc
	rng    *rand.Rand
	j      journal.Journal
}

func newEnv(t testing.TB, cfg *Config) *env {
	t.Helper()
	t.Logf("seed %d", cfg.Seed)
	e := &env{TB: t, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	e.ctx, e.cancel = context.WithTimeout(context.Background(), cfg.Timeout)
	e.store = cfg.NewStore(t)
	for what, ok := range map[string]bool{
		"Open":    e.store.Open != nil,
		"SetHook": e.store.SetHook != nil || !cfg.Hooks,
		"Crash":   e.store.Crash != nil || !cfg.Crashes,
		"Damage":  e.store.Damage != nil || !cfg.Damages,
	} {
		if !ok {
			t.Fatalf("journaltest: Store.%s is nil, but Config says that there is one", what)
		}
	}
	if cfg.Hooks {
		e.store.SetHook(callHook)
	}
	e.j = e.open()
	return e
}

// open opens another handle.
func (e *env) open() journal.Journal {
	e.Helper()
	j, err := e.store.Open(e.ctx)
	if err != nil {
		e.Fatalf("open the store: %v", err)
	}
	e.Cleanup(func() { _ = j.Close() })
	return j
}

// second returns a handle of another process where there can be one, or the first one.
func (e *env) second() journal.Journal {
	e.Helper()
	if e.cfg.Shared {
		return e.open()
	}
	return e.j
}

// reopen closes the first handle and opens a new one in its place.
func (e *env) reopen() {
	e.Helper()
	if err := e.j.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.j = e.open()
}

// hookKey is where a context carries the hook for the calls that are made with it.
type hookKey struct{}

// callHook is the Hook of every store: it passes on to the one that the context carries.
func callHook(ctx context.Context, op, stream string, after bool) error {
	if h, ok := ctx.Value(hookKey{}).(Hook); ok {
		return h(ctx, op, stream, after)
	}
	return nil
}

func (e *env) hooked(h Hook) context.Context { return context.WithValue(e.ctx, hookKey{}, h) }

// errInjected is what hooks return to make a request or an answer get lost.
var errInjected = errors.New("connection lost, by the test")

// settled tells whether err says for sure what became of a change.
func settled(err error) bool {
	if err == nil {
		return true
	}
	for _, known := range []error{
		journal.ErrFenced, journal.ErrConflict, journal.ErrFull, journal.ErrTooLarge, journal.ErrInvalid, journal.ErrClosed,
		journal.ErrCorrupt, journal.ErrNotFound, journal.ErrNewerFormat, journal.ErrLocked, journal.ErrWeak,
		errors.ErrUnsupported,
	} {
		if errors.Is(err, known) && !errors.Is(err, journal.ErrUnknown) {
			return true
		}
	}
	return false
}

// settle repeats f until its outcome is known, and returns that.
func (e *env) settle(f func() error) error {
	err := f()
	for wait := time.Millisecond; !settled(err) && e.ctx.Err() == nil; wait = min(2*wait, time.Second) {
		e.pause(wait)
		err = f()
	}
	return err
}

// must requires that a change succeeds.
func (e *env) must(what string, f func() error) {
	e.Helper()
	if err := e.settle(f); err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// refused requires that a change ends with one of the errors.
func (e *env) refused(what string, f func() error, want ...error) {
	e.Helper()
	err := e.settle(f)
	if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) || errors.Is(err, journal.ErrUnknown) {
		e.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

// pause waits for d, or for the end of the rule's time.
func (e *env) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
	}
}

// within requires that f returns within d.
func (e *env) within(what string, d time.Duration, f func()) {
	e.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		e.Fatalf("%s has not returned after %v", what, d)
	}
}

// blob returns n random bytes.
func (e *env) blob(n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.NativeEndian.AppendUint64(b, e.rng.Uint64())
	}
	return b[:n:n]
}

// chunks cuts b into a few chunks, empty ones among them.
func (e *env) chunks(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		n := e.rng.IntN(len(b) + 1)
		out = append(out, b[:n:n])
		b = b[n:]
	}
	return out
}

func (e *env) reader(j journal.Journal, name string) journal.Reader {
	e.Helper()
	r, err := j.Open(e.ctx, name)
	if err != nil {
		e.Fatalf("open stream %q: %v", name, err)
	}
	return r
}

func (e *env) info(r journal.Reader) journal.Info {
	e.Helper()
	info, err := r.Info(e.ctx)
	if err != nil {
		e.Fatalf("info: %v", err)
	}
	return info
}

// owner is a hold on a stream, and where its owner believes the stream to end.
type owner struct {
	*env
	s    journal.Stream
	end  uint64
	crc  uint32
	time int64
}

func (e *env) acquire(j journal.Journal, name string) *owner {
	e.Helper()
	var s journal.Stream
	e.must(fmt.Sprintf("acquire stream %q", name), func() (err error) {
		s, err = j.Acquire(e.ctx, name)
		return err
	})
	return e.ownerOf(s)
}

// ownerOf returns the owner that has just acquired s.
func (e *env) ownerOf(s journal.Stream) *owner {
	at := s.Acquired()
	return &owner{env: e, s: s, end: at.End, crc: at.EndCRC, time: at.EndTime}
}

// record makes the owner's next record, of count events, sealed.
func (o *owner) record(count int, meta, body []byte) *journal.Record {
	o.Helper()
	at := o.s.Acquired()
	r := &journal.Record{
		Header: journal.Header{
			UID: at.UID, Epoch: at.Epoch, First: o.end + 1, Count: uint64(count),
			Kind: journal.KindEvents, Time: o.time + 1,
		},
		Meta: meta, Body: o.chunks(body),
	}
	o.seal(r)
	return r
}

func (o *owner) seal(r *journal.Record) {
	o.Helper()
	if err := r.Seal(o.crc); err != nil {
		o.Fatalf("seal: %v", err)
	}
}

// random makes the owner's next record, of a random shape.
func (o *owner) random() *journal.Record {
	o.Helper()
	return o.record(1+o.rng.IntN(5), o.blob(1+o.rng.IntN(60)), o.blob(1+o.rng.IntN(300)))
}

// try appends a copy of r, repeating it while the outcome is unknown, and then destroys the
// copy: a driver that keeps it is found by what is read later.
func (o *owner) try(r *journal.Record) error {
	c := clone(r)
	err := o.settle(func() error { return o.s.Append(o.ctx, r.First-1, c) })
	if err == nil && !sameRecord(r, c) {
		o.Errorf("Append has changed the record that it was given")
	}
	scribble(c)
	if err == nil {
		o.end, o.crc, o.time = r.Last(), r.CRC, r.Time
	}
	return err
}

// put appends r, which must succeed.
func (o *owner) put(r *journal.Record) {
	o.Helper()
	if err := o.try(r); err != nil {
		o.Fatalf("append the record of seqs %d…%d to stream %q: %v", r.First, r.Last(), o.s.Acquired().Name, err)
	}
}

// append appends n random records, which must succeed, and returns them.
func (o *owner) append(n int) []*journal.Record {
	o.Helper()
	var recs []*journal.Record
	for range n {
		r := o.random()
		o.put(r)
		recs = append(recs, r)
	}
	return recs
}

func (o *owner) discardBodies(ranges ...journal.Range) {
	o.Helper()
	o.must("discard bodies", func() error { return o.s.DiscardBodies(o.ctx, ranges) })
}

func (o *owner) discardMeta(low uint64) {
	o.Helper()
	o.must("discard metas", func() error { return o.s.DiscardMeta(o.ctx, low) })
}

func (o *owner) writePart(name string, data []byte) {
	o.Helper()
	c := bytes.Clone(data)
	o.must("write part", func() error { return o.s.WritePart(o.ctx, name, c) })
	clear(c)
}

// clone returns a copy that shares nothing with r.
func clone(r *journal.Record) *journal.Record {
	c := *r
	c.Meta = bytes.Clone(r.Meta)
	c.Body = nil
	for _, b := range r.Body {
		c.Body = append(c.Body, bytes.Clone(b))
	}
	return &c
}

func sameRecord(a, b *journal.Record) bool {
	return a.Header == b.Header && bytes.Equal(a.Meta, b.Meta) && bytes.Equal(bytes.Join(a.Body, nil), bytes.Join(b.Body, nil))
}

// scribble destroys a record.
func scribble(r *journal.Record) {
	for _, b := range append(slices.Clip(r.Body), r.Meta) {
		clear(b[min(1000, len(b)):])
		for i := range b[:min(1000, len(b))] {
			b[i] ^= 0x55
		}
	}
	clear(r.Body)
	r.Header = journal.Header{}
}

// all reads every meta.
const all = uint64(math.MaxUint64)
