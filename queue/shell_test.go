package queue

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfastmq/holdfast/message"
)

// shell does for a core what a broker does, in memory: it numbers and stores its events in records, carries out its effects once they
// are stored, keeps bodies, crashes and recovers. Everything that goes through it is checked on the way.
type shell struct {
	t    failer
	core *Core
	now  int64
	opts Options

	log     []stored   // all stored events
	records []*testRec // all stored records
	pending []*output  // decided, not stored
	next    uint64     // seq of the next event

	replica *Core // gets every event as it is decided, as on a recovery

	onEvent  func(seq uint64, e *Event) // as it is decided
	onEffect func(e Effect, err error)  // as it is carried out; err if its events were refused
	refused  []Span
}

type failer interface {
	Fatalf(format string, args ...any)
	Helper()
}

type stored struct {
	seq uint64
	e   *Event
}

type testRec struct {
	first, last uint64
	body        [][]byte
	bodyBytes   int
	discarded   bool
}

// output is what one command decided.
type output struct {
	first   uint64
	events  []*Event
	effects []Effect
	refused bool
}

func newShell(t failer, o Options, now int64) *shell {
	s := &shell{t: t, opts: o, now: now, next: 1}
	s.core = s.fresh()
	s.replica = s.fresh()
	s.core.Recovered(now)
	s.take()
	return s
}

func (s *shell) fresh() *Core {
	c, err := New(s.opts, 1)
	if err != nil {
		s.t.Fatalf("new core: %v", err)
	}
	return c
}

// take takes what was decided.
func (s *shell) take() {
	s.t.Helper()
	out := s.core.Take()
	if len(out.Events) == 0 && len(out.Effects) == 0 {
		return
	}
	o := &output{first: s.next, effects: out.Effects}
	for i := range out.Events {
		o.events = append(o.events, s.number(&out.Events[i]))
	}
	if s.next != s.core.NextSeq() {
		s.t.Fatalf("the core is at seq %d, its events at %d", s.core.NextSeq(), s.next)
	}
	s.pending = append(s.pending, o)
}

// number gives an event its seq, and sends it through the codec and to the replica.
func (s *shell) number(e *Event) *Event {
	s.t.Helper()
	seq := s.next
	s.next += Seqs(e)
	b := AppendEvent(nil, e)
	d, err := DecodeEvent(b)
	if err != nil {
		s.t.Fatalf("event %+v does not decode: %v", *e, err)
	}
	if e.Config == nil && len(b) > 200+8*len(e.Spans)+50*len(d.special()) {
		s.t.Fatalf("event of kind %d with %d spans takes %d bytes", e.Kind, len(e.Spans), len(b))
	}
	if err := s.replica.Apply(seq, &d); err != nil {
		s.t.Fatalf("replica: %v", err)
	}
	d.Frames = e.Frames
	if !reflect.DeepEqual(normal(*e), normal(d)) {
		s.t.Fatalf("event\n%+v decodes as\n%+v", *e, d)
	}
	if s.onEvent != nil {
		s.onEvent(seq, e)
	}
	return e
}

func (e *Event) special() []Special {
	if e.Added == nil {
		return nil
	}
	return e.Added.Specials
}

// normal makes events comparable: empty and nil are the same.
func normal(e Event) Event {
	if len(e.Spans) == 0 {
		e.Spans = nil
	}
	return e
}

// step takes what a command decided and stores it, unless it is to be held back.
func (s *shell) step(store bool) {
	s.t.Helper()
	s.take()
	if store {
		s.store()
	}
}

// store stores everything that is pending in one record, and carries out the effects.
func (s *shell) store() {
	s.t.Helper()
	for len(s.pending) > 0 {
		outs := s.pending
		s.pending = nil
		s.write(outs)
		for _, o := range outs {
			for _, e := range o.effects {
				s.do(e, nil)
			}
		}
		s.take() // Stored may have decided something
	}
}

// write stores events in one record, without carrying anything out.
func (s *shell) write(outs []*output) {
	s.t.Helper()
	r := &testRec{first: outs[0].first}
	seq := r.first
	for _, o := range outs {
		for _, e := range o.events {
			if !o.refused {
				r.body = append(r.body, Body(e)...)
			}
			s.log = append(s.log, stored{seq, e})
			seq += Seqs(e)
		}
	}
	if seq == r.first {
		return
	}
	r.last = seq - 1
	for _, b := range r.body {
		r.bodyBytes += len(b)
	}
	s.records = append(s.records, r)
	s.core.Stored(r.first, r.last, r.bodyBytes)
	s.replica.Stored(r.first, r.last, r.bodyBytes)
}

// refuse has the store refuse all pending bodies, and stores the rest with what undoes them.
func (s *shell) refuse() {
	s.t.Helper()
	s.take()
	s.core.StorageFull(s.now, true)
	s.take()
	undo := &output{first: s.next}
	for _, o := range s.pending {
		seq := o.first
		for _, e := range o.events {
			if e.Kind == KindAdded || e.Kind == KindRelocated {
				u := s.core.Undo(seq, e)
				undo.events = append(undo.events, s.number(u))
				o.refused = true
				s.refused = append(s.refused, e.Spans...)
			}
			seq += Seqs(e)
		}
	}
	outs := s.pending
	s.pending = nil
	// Records with and without bodies are apart, so that Stored tells what is there.
	for _, o := range outs {
		s.write([]*output{o})
	}
	if len(undo.events) > 0 {
		s.write([]*output{undo})
	}
	for _, o := range outs {
		for _, e := range o.effects {
			if o.refused {
				s.do(e, ErrStorageFull)
			} else {
				s.do(e, nil)
			}
		}
	}
	s.take()
	s.store()
	s.refused = nil
}

// do carries out an effect.
func (s *shell) do(e Effect, err error) {
	s.t.Helper()
	switch e := e.(type) {
	case Deliver:
		for _, d := range e.Runs {
			s.checkBodies(Span{d.Seq, d.Count})
		}
	case Dead:
		for _, d := range e.Ranges {
			s.discard(d)
		}
	case Relocate:
		if err == nil {
			s.relocate(e.Spans)
		}
		return
	}
	if s.onEffect != nil {
		s.onEffect(e, err)
	}
}

// discard discards the bodies of records inside a range; none may be needed.
func (s *shell) discard(d Span) {
	s.t.Helper()
	if d.Count == 0 || d.Seq+d.Count-1 > s.core.stored {
		s.t.Fatalf("dead range %+v, stored up to %d", d, s.core.stored)
	}
	for _, r := range s.records {
		if r.first >= d.Seq && r.last < d.Seq+d.Count {
			r.discarded = true
		}
	}
}

// body returns the body of a stored live message, by way of Locate.
func (s *shell) body(seq uint64) (message.Raw, bool) {
	s.t.Helper()
	at := s.core.Locate(nil, Span{seq, 1})
	if len(at) == 0 {
		return message.Raw{}, false
	}
	if len(at) != 1 || at[0].Span != (Span{seq, 1}) {
		s.t.Fatalf("message %d located at %+v", seq, at)
	}
	i, ok := slices.BinarySearchFunc(s.records, at[0].Record, func(r *testRec, x uint64) int { return int(r.first) - int(x) })
	if !ok || s.records[i].discarded {
		s.t.Fatalf("message %d is said to lie in record %d, which there is %v", seq, at[0].Record, ok)
	}
	for e, err := range BodyEntries(s.records[i].body) {
		if err != nil {
			s.t.Fatalf("body part of record %d: %v", s.records[i].first, err)
		}
		if seq >= e.Seq && seq < e.Seq+e.Count {
			c := message.NewCursor(e.Frame)
			c.Span(int(seq - e.Seq))
			raw, _ := c.Next()
			return raw, true
		}
	}
	s.t.Fatalf("message %d is not in record %d", seq, at[0].Record)
	return message.Raw{}, false
}

// checkBodies checks that the bodies of live messages can be read, and are of the size that the core knows.
func (s *shell) checkBodies(span Span) {
	s.t.Helper()
	for x := span.Seq; x < span.Seq+span.Count; x++ {
		if !s.core.live.Contains(x) {
			continue
		}
		raw, ok := s.body(x)
		if !ok || raw.Size() != int(s.core.sizes.At(x)) {
			s.t.Fatalf("message %d: found %v, %d bytes, want %d", x, ok, raw.Size(), s.core.sizes.At(x))
		}
	}
}

// relocate gives the core the bodies that it asked for.
func (s *shell) relocate(spans []Span) {
	s.t.Helper()
	var got []Span
	var frames [][]byte
	for _, sp := range spans {
		for x := sp.Seq; x < sp.Seq+sp.Count; x++ {
			raw, ok := s.body(x)
			if !ok {
				continue
			}
			var b message.Builder
			b.AddRaw(raw)
			got = append(got, Span{x, 1})
			frames = append(frames, b.Finish())
		}
	}
	if err := s.core.Relocated(s.now, got, frames); err != nil {
		s.t.Fatalf("relocated: %v: asked %v, got %v", err, spans, got)
	}
	s.take()
}

// crash loses what is pending, or only its effects if it was written, and recovers, from a snapshot if there is one.
func (s *shell) crash(written bool, snap [][]byte, snapSeq uint64, later int64) {
	s.t.Helper()
	if written && len(s.pending) > 0 {
		s.write(s.pending)
	}
	s.pending = nil
	s.next = s.log0() + 1
	s.core = s.recovered(snap, snapSeq)
	s.replica = s.recovered(nil, 0)
	s.now += later
	s.core.Recovered(s.now)
	s.take()
}

// log0 returns the last stored seq.
func (s *shell) log0() uint64 {
	if n := len(s.records); n > 0 {
		return s.records[n-1].last
	}
	return 0
}

// recovered builds a core from a snapshot, if it is not nil, and the stored events behind it.
func (s *shell) recovered(snap [][]byte, snapSeq uint64) *Core {
	s.t.Helper()
	c := s.fresh()
	if snap != nil {
		var err error
		if c, err = Restore(s.opts, sequence(snap)); err != nil {
			s.t.Fatalf("restore at %d: %v", snapSeq, err)
		}
		if c.NextSeq() != snapSeq+1 {
			s.t.Fatalf("restored at seq %d, want %d", c.NextSeq()-1, snapSeq)
		}
	}
	i := 0
	for _, r := range s.records {
		for ; i < len(s.log) && s.log[i].seq <= r.last; i++ {
			if s.log[i].seq <= snapSeq {
				continue
			}
			e, err := DecodeEvent(AppendEvent(nil, s.log[i].e))
			if err == nil {
				err = c.Apply(s.log[i].seq, &e)
			}
			if err != nil {
				s.t.Fatalf("replay: %v", err)
			}
		}
		if r.last > snapSeq {
			c.Stored(r.first, r.last, r.bodyBytes)
		}
	}
	return c
}

func sequence(chunks [][]byte) func(yield func([]byte, error) bool) {
	return func(yield func([]byte, error) bool) {
		for _, b := range chunks {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// snapshot captures the state; it is encoded once everything that it covers is stored.
func (s *shell) snapshot() (chunks [][]byte, seq uint64) {
	s.t.Helper()
	s.take()
	snap := s.core.Capture()
	// Where bodies lie shows only once they are stored.
	want := dumpAll(s.core, s.now, false)
	now := s.now
	s.store()
	for b := range snap.Chunks() {
		chunks = append(chunks, b)
	}
	c, err := Restore(s.opts, sequence(chunks))
	if err != nil {
		s.t.Fatalf("restore: %v", err)
	}
	if got := dumpAll(c, now, false); got != want {
		s.t.Fatalf("snapshot at %d differs: %s", snap.Seq(), diff(want, got))
	}
	for lo, hi := range c.live.All() {
		for x := lo; x < hi; x++ {
			want, got := s.core.Locate(nil, Span{x, 1}), c.Locate(nil, Span{x, 1})
			if s.core.live.Contains(x) && !slices.Equal(want, got) {
				s.t.Fatalf("snapshot at %d: body of message %d is at %v, want %v", snap.Seq(), x, got, want)
			}
		}
	}
	return chunks, snap.Seq()
}

// frameOf makes a frame of messages.
func frameOf(ms ...message.Message) ([]byte, message.Info) {
	var b message.Builder
	for i := range ms {
		b.Add(&ms[i])
	}
	f := b.Finish()
	info, err := message.Check(f, message.Limits{})
	if err != nil {
		panic(fmt.Sprintf("frame: %v", err))
	}
	return f, info
}
