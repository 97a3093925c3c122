package persistent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/journal"
	"github.com/holdfastmq/holdfast/persistent"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if soak() && flag.Lookup("rapid.checks").Value.String() == "100" {
		if err := flag.Set("rapid.checks", "20000"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// soak tells whether full counts are asked for.
func soak() bool { return os.Getenv("HOLDFAST_SOAK") == "1" }

// shelf is the actor of these tests: things are put on it, each with a body, and taken off.
type shelf struct {
	persistent.Base[command, event]
	things map[uint64]thing // by seq
	sum    int64            // of notes
	at     int64            // of the last event
	next   uint64           // seq that the next event must have
	full   bool
	log    []string // what was called, where noting is set
	noting bool
	undoes func(e event) bool // what Refuse says
	groups [][2]uint64        // first and last seq of what was persisted together and is not stored
	broken error              // the first thing that was not as it must be

	undelivered []string
	stopped     error
	recovered   int
	wakes       []int64
	records     []journal.Header
	snapshots   int
	restores    []uint64
}

type thing struct {
	at   int64
	size int
	id   uint64
}

// command does do, and persists.
type command struct {
	name string
	do   func(a *persistent.Context[event], s *shelf)
}

// The kinds of events.
const (
	kindPut  = 'p' // n things, with bodies; m is their id
	kindTake = 't' // the thing at seq n is gone
	kindNote = 'n' // n is added to sum
	kindUndo = 'u' // the put at seq n is undone; m is its count
	kindBad  = 'x' // does not encode
	kindCall = 'c' // call is called when it is applied
)

type event struct {
	kind byte
	n, m uint64
	body [][]byte // of a put, one for each thing
	size int      // of each body
	call func()
}

func put(bodies ...string) event {
	e := event{kind: kindPut, n: uint64(len(bodies))}
	for _, b := range bodies {
		e.body = append(e.body, []byte(b))
		e.size = len(b)
	}
	return e
}

func note(n int) event { return event{kind: kindNote, n: uint64(n)} }

func take(seq uint64) event { return event{kind: kindTake, n: seq} }

type codec struct{}

func (codec) AppendMeta(dst []byte, e event) ([]byte, error) {
	if e.kind == kindBad {
		return dst, errors.New("bad event")
	}
	dst = append(dst, e.kind)
	for _, v := range []uint64{e.n, e.m, uint64(e.size)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst, nil
}

func (codec) DecodeMeta(b []byte) (event, error) {
	e := event{}
	if len(b) == 0 {
		return e, errors.New("empty event")
	}
	e.kind = b[0]
	b = b[1:]
	for _, v := range []*uint64{&e.n, &e.m} {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return e, errors.New("short event")
		}
		*v, b = x, b[n:]
	}
	x, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return e, errors.New("short event")
	}
	e.size = int(x)
	return e, nil
}

func (codec) Seqs(e event) uint64 {
	if e.kind == kindPut {
		return e.n
	}
	return 1
}

func (codec) AppendBody(dst [][]byte, e event) [][]byte { return append(dst, e.body...) }

func newShelf() *shelf {
	return &shelf{things: map[uint64]thing{}, next: 1, undoes: func(event) bool { return true }}
}

func (s *shelf) fail(format string, args ...any) {
	if s.broken == nil {
		s.broken = fmt.Errorf(format, args...)
	}
}

func (s *shelf) note(format string, args ...any) {
	if s.noting {
		s.log = append(s.log, fmt.Sprintf(format, args...))
	}
}

func (s *shelf) Command(a *persistent.Context[event], c command) {
	s.note("command %s", c.name)
	c.do(a, s)
}

func (s *shelf) Apply(seq uint64, at int64, e event) {
	s.note("apply %c at %d", e.kind, seq)
	if seq != s.next {
		s.fail("event at seq %d, expected %d", seq, s.next)
	}
	if at < s.at {
		s.fail("event at seq %d: time %d after %d", seq, at, s.at)
	}
	s.at, s.next = at, seq+codec{}.Seqs(e)
	switch e.kind {
	case kindPut:
		for i := range e.n {
			s.things[seq+i] = thing{at, e.size, e.m}
		}
	case kindTake:
		delete(s.things, e.n)
	case kindNote:
		s.sum += int64(e.n)
	case kindCall:
		e.call()
	case kindUndo:
		for i := range e.m {
			delete(s.things, e.n+i)
		}
	}
}

func (s *shelf) Stored(a *persistent.Context[event], h *journal.Header) {
	s.note("stored %d…%d", h.First, h.Last())
	if h.Kind == journal.KindEvents && h.Last() >= s.next {
		s.fail("record %d…%d stored before its events were applied", h.First, h.Last())
	}
	if h.Kind != journal.KindEvents {
		if h.First != s.next {
			s.fail("record of kind %d at seq %d, expected %d", h.Kind, h.First, s.next)
		}
		s.next = h.Last() + 1
	}
	if h.Last() != a.StoredSeq() {
		s.fail("record %d…%d stored, StoredSeq is %d", h.First, h.Last(), a.StoredSeq())
	}
	s.groups = slices.DeleteFunc(s.groups, func(g [2]uint64) bool {
		if g[0] <= h.Last() && h.Last() < g[1] {
			s.fail("group %d…%d is split by record %d…%d", g[0], g[1], h.First, h.Last())
		}
		return g[1] <= h.Last()
	})
	s.records = append(s.records, *h)
}

func (s *shelf) Recovered(a *persistent.Context[event]) {
	s.note("recovered")
	s.recovered++
}

func (s *shelf) Wake(a *persistent.Context[event]) { s.wakes = append(s.wakes, a.Now()) }

func (s *shelf) Full(a *persistent.Context[event], full bool) {
	s.note("full %v", full)
	if s.full == full {
		s.fail("Full(%v) twice", full)
	}
	s.full = full
}

func (s *shelf) Refuse(seq uint64, at int64, e event) (event, bool) {
	s.note("refuse %d", seq)
	return event{kind: kindUndo, n: seq, m: e.n}, s.undoes(e)
}

func (s *shelf) Undelivered(c command, err error) {
	if !errors.Is(err, persistent.ErrNotStored) || errors.Is(err, persistent.ErrUnknown) {
		s.fail("undelivered: %v", err)
	}
	s.undelivered = append(s.undelivered, c.name)
}

func (s *shelf) Stopped(err error) {
	s.note("stopped")
	if s.stopped != nil {
		s.fail("Stopped twice")
	}
	s.stopped = err
}

// seqs returns the seqs of the things, in order.
func (s *shelf) seqs() []uint64 { return slices.Sorted(maps.Keys(s.things)) }

// encode returns the state in chunks, the same for the same state.
func (s *shelf) encode() [][]byte {
	out := [][]byte{fmt.Appendf(nil, "%d %d %d", s.next, s.at, s.sum)}
	for _, seq := range s.seqs() {
		t := s.things[seq]
		out = append(out, fmt.Appendf(nil, "%d %d %d %d", seq, t.at, t.size, t.id))
	}
	return out
}

func (s *shelf) state() string { return string(bytes.Join(s.encode(), []byte("\n"))) }

func (s *shelf) Capture() iter.Seq[[]byte] {
	s.snapshots++
	return slices.Values(s.encode())
}

func (s *shelf) Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error {
	s.restores = append(s.restores, id.Seq)
	s.things, s.sum, s.at, s.next = map[uint64]thing{}, 0, 0, id.Seq+1
	if chunks == nil {
		return nil
	}
	first := true
	for c, err := range chunks {
		if err != nil {
			return err
		}
		if first {
			first = false
			_, err = fmt.Sscanf(string(c), "%d %d %d", &s.next, &s.at, &s.sum)
		} else {
			var seq uint64
			var t thing
			_, err = fmt.Sscanf(string(c), "%d %d %d %d", &seq, &t.at, &t.size, &t.id)
			s.things[seq] = t
		}
		if err != nil {
			return err
		}
	}
	if s.next != id.Seq+1 {
		return fmt.Errorf("snapshot at seq %d has next %d", id.Seq, s.next)
	}
	return nil
}

type actor = persistent.Actor[command, event]

func quiet(o persistent.Options) persistent.Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// open opens an actor with a new shelf; the test ends it.
func open(t testing.TB, j journal.Journal, o persistent.Options) (*actor, *shelf) {
	t.Helper()
	s := newShelf()
	return openWith(t, j, s, o), s
}

func openWith(t testing.TB, j journal.Journal, s *shelf, o persistent.Options) *actor {
	t.Helper()
	a, err := persistent.Open(t.Context(), j, "shelf", s, codec{}, quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Kill()
		<-a.Done()
		if s.broken != nil {
			t.Error(s.broken)
		}
	})
	return a
}

// do has the actor do something, and waits for its end on the actor's goroutine, not for storage.
func do(t testing.TB, a *actor, f func(a *persistent.Context[event], s *shelf)) {
	t.Helper()
	done := make(chan struct{})
	err := a.Tell(t.Context(), command{"do", func(c *persistent.Context[event], s *shelf) {
		f(c, s)
		close(done)
	}})
	if err != nil {
		t.Fatal(err)
	}
	<-done
}

// persist has the actor persist events, and waits for the outcome.
func persist(ctx context.Context, a *actor, events ...event) error {
	_, err := persistent.Ask(ctx, a, func(reply persistent.Reply[struct{}]) command {
		return command{"persist", func(c *persistent.Context[event], s *shelf) {
			first := c.NextSeq()
			if err := c.PersistAsync(events...); err != nil {
				reply(struct{}{}, err)
				return
			}
			s.groups = append(s.groups, [2]uint64{first, c.NextSeq() - 1})
			c.After(func(err error) { reply(struct{}{}, err) })
		}}
	})
	return err
}

// pass lets virtual time pass: it is called in a synctest bubble.
func pass(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

// stop stops an actor, and returns the state that it had.
func stop(t testing.TB, a *actor, s *shelf) string {
	t.Helper()
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.state()
}
