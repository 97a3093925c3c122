package persistent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// events is the part of Behavior that does not know the type of commands.
type events[E any] interface {
	Apply(seq uint64, at int64, e E)
	Stored(a *Context[E], h *journal.Header)
	Recovered(a *Context[E])
	Wake(a *Context[E])
	Full(a *Context[E], full bool)
	Refuse(seq uint64, at int64, e E) (undo E, ok bool)
	Stopped(err error)
	Capture() iter.Seq[[]byte]
	Restore(id journal.SnapshotID, chunks iter.Seq2[[]byte, error]) error
}

// phase is where an actor is in its life.
type phase uint8

const (
	recovering phase = iota
	running
	ended
)

// Context is the actor as its behavior sees it. Its methods may be called only by methods of the behavior that got it, and
// by functions given to After, on the actor's goroutine.
type Context[E any] struct {
	stream string
	opts   Options
	log    *slog.Logger
	codec  Codec[E]
	beh    events[E]
	quit   func()                  // what Stop calls
	kill   context.CancelCauseFunc // what Actor.Kill calls
	poke   func()                  // wakes the actor

	st     journal.Stream
	own    journal.Info
	lim    journal.Limits
	clock  clock
	phase  phase
	locked bool // in a call that must not persist

	next     uint64         // seq of the next event to be decided
	stored   journal.Header // of the last stored record; before the first, only Last, CRC and Time mean something
	turn     uint64         // seq of the first event that the call in progress may decide
	now      int64          // queue time of the call in progress, 0: not asked for yet
	hold     uint64         // no command is begun until this seq is stored
	doubt    uint64         // up to this seq something may be stored by a try of a record that was formed anew
	wakeAt   int64          // queue time, 0: never
	buffered bool
	// storedBuffered tells that the last stored record may be lost by a crash of the machine.
	storedBuffered bool

	pending      []*batch[E] // decided and not stored, in order; the first may be with the appender
	pendingBytes int
	pool         sync.Pool // of *batch[E]: unlike a list it gives up what an idle actor does not need
	after        fifo[waiter]
	scratch      scratch[E]

	app   appender
	full  fullness
	snap  snapshotter
	stats statsBox
}

// waiter is a function that waits for storage.
type waiter struct {
	from uint64 // first seq that its own call may have decided
	seq  uint64 // last seq that it waits for
	fn   func(error)
	none bool  // its own call decided nothing
	err  error // what it is to be told once seq is stored
}

// scratch is what persist builds a group of events in.
type scratch[E any] struct {
	entries []entry[E]
	meta    []byte
	body    [][]byte
}

// Stream returns the name of the actor's stream.
func (a *Context[E]) Stream() string { return a.stream }

// UID returns the uid of the stream.
func (a *Context[E]) UID() journal.UID { return a.own.UID }

// Epoch returns the epoch under which the actor owns its stream.
func (a *Context[E]) Epoch() uint64 { return a.own.Epoch }

// NextSeq returns the seq that the next event will get.
func (a *Context[E]) NextSeq() uint64 { return a.next }

// StoredSeq returns the seq up to which everything is stored.
func (a *Context[E]) StoredSeq() uint64 { return a.stored.Last() }

// Now returns the queue time in Unix milliseconds: wall-clock time as it was when the actor was opened, or the
// stream's last queue time if that was later, plus monotonic time since. It never decreases, not even
// from one owner of the stream to the next. It stands still during one call of the behavior, and is the time
// of the events that the call decides.
func (a *Context[E]) Now() int64 {
	if a.now == 0 {
		a.now = a.clock.ms()
	}
	return a.now
}

// begin begins a call of the behavior.
func (a *Context[E]) begin() { a.turn, a.now = a.next, 0 }

// Recovering tells whether stored events are being replayed.
func (a *Context[E]) Recovering() bool { return a.phase == recovering }

// Full tells that the store has no room for bodies: what has one is best refused. See [Behavior.Full].
func (a *Context[E]) Full() bool { return a.full.is }

// SetBuffered says whether records that are begun from now on are stored with journal.Record.Buffered. A
// snapshot's last record never is.
func (a *Context[E]) SetBuffered(buffered bool) { a.buffered = buffered }

// WakeAt says at which queue time Wake is to be called, in Unix milliseconds. It replaces what was said
// before; 0 cancels it. A time that is past means soon. Wake is called once for each WakeAt.
func (a *Context[E]) WakeAt(at int64) { a.wakeAt = at }

// Stop begins what [Actor.Stop] does, and returns at once.
func (a *Context[E]) Stop() { a.quit() }

// Persist decides events: they are applied before it returns, and are stored soon. No later
// command is begun until they are stored. The events of one call are stored together or not at all.
//
// An error refuses all of them, and nothing has happened: it is that of the codec, or matches
// journal.ErrTooLarge if they do not fit into one record. It panics where persisting is not allowed: during
// recovery, in Apply, Refuse, Capture and Restore, and once the actor has stopped.
func (a *Context[E]) Persist(events ...E) error {
	if err := a.persist(events, 0); err != nil {
		return err
	}
	a.hold = a.next - 1
	return nil
}

// PersistAsync is like Persist, but later commands go on at once. They see the state that
// the events made. This is what an actor of many commands uses: what is decided while a record is being stored
// becomes the next one.
func (a *Context[E]) PersistAsync(events ...E) error { return a.persist(events, 0) }

// After has fn called on the actor's goroutine once everything that was decided so far is stored, or will
// never be. All functions are called, each once, in the order of the calls of After, and never before the
// method that called After has returned. They may use the Context as Command does.
//
// err is nil if it is stored. Otherwise it matches ErrNotStored or ErrUnknown, see there. ErrNotStored with
// journal.ErrFull tells that an event which the same call of the behavior had decided was refused
// by the store, and undone by Refuse; or, if the call had decided nothing until then, that the state it saw had an event in it
// that was refused: what it would say was never true. The actor goes on. With all other errors it has stopped:
// the state and the Context are not to be used.
func (a *Context[E]) After(fn func(err error)) {
	a.after.push(waiter{from: min(a.turn, a.next-1), seq: a.next - 1, fn: fn, none: a.turn == a.next})
}

// persist decides a group of events. If undoes is not 0, it is the one event that undoes the one of that seq.
func (a *Context[E]) persist(events []E, undoes uint64) error {
	if a.phase != running || a.locked {
		panic(fmt.Sprintf("persistent: actor %q must not persist here", a.stream))
	}
	if len(events) == 0 {
		return nil
	}
	size, bodies, err := a.encode(events, undoes)
	if err != nil {
		return err
	}
	s := &a.scratch
	if n := (&batch[E]{}).room(size, len(events)); n > a.lim.MaxRecordBytes {
		return fmt.Errorf("persist %d events at seq %d: up to %d bytes, a record has at most %d: %w",
			len(events), a.next, n, a.lim.MaxRecordBytes, journal.ErrTooLarge)
	}
	b := a.openBatch(size, len(events))
	before := b.size
	for i := range s.entries {
		en := &s.entries[i]
		b.add(*en, s.meta[en.meta.from:en.meta.to], s.body[en.body.from:en.body.to])
	}
	a.pendingBytes += b.size - before
	a.snap.count(int64(b.size-before-bodies), int64(len(events)), a.clock.elapsed, a.opts.SnapshotEvery)
	for i := range s.entries {
		en := &s.entries[i]
		a.next += en.count
		a.apply(en)
	}
	clear(s.entries)
	clear(s.body)
	if cap(s.meta) > 64<<10 || cap(s.entries) > 1024 || cap(s.body) > 1024 {
		*s = scratch[E]{} // one large group is no reason to keep that much
	}
	return nil
}

// apply has the behavior apply an event, which must not persist meanwhile.
func (a *Context[E]) apply(en *entry[E]) {
	a.locked = true
	a.beh.Apply(en.seq, en.at, en.e)
	a.locked = false
}

var errNoSeqs = errors.New("codec says that an event takes 0 seqs")

// encode encodes a group into the scratch, and returns its size and how much of it is bodies.
func (a *Context[E]) encode(events []E, undoes uint64) (size, bodies int, err error) {
	s := &a.scratch
	s.entries, s.meta, s.body = s.entries[:0], s.meta[:0], s.body[:0]
	seq, at := a.next, a.Now()
	for _, e := range events {
		en := entry[E]{e: e, seq: seq, count: a.codec.Seqs(e), at: at, undoes: undoes, head: len(s.entries) == 0}
		if en.count == 0 {
			return 0, 0, fmt.Errorf("persist event at seq %d: %w", seq, errNoSeqs)
		}
		en.meta.from, en.body.from = len(s.meta), len(s.body)
		if s.meta, err = a.codec.AppendMeta(s.meta, e); err != nil {
			return 0, 0, fmt.Errorf("persist event at seq %d: %w", seq, err)
		}
		s.body = a.codec.AppendBody(s.body, e)
		en.meta.to, en.body.to = len(s.meta), len(s.body)
		for _, c := range s.body[en.body.from:] {
			en.bodyLen += len(c)
		}
		bodies += en.bodyLen
		s.entries = append(s.entries, en)
		seq += en.count
	}
	return len(s.meta) + bodies, bodies, nil
}

// openBatch returns the batch that a group of that size goes into.
func (a *Context[E]) openBatch(size, events int) *batch[E] {
	if n := len(a.pending); n > 0 {
		b := a.pending[n-1]
		room := b.room(size, events)
		if !b.closed && !b.handed && room <= a.opts.MaxBatchBytes && room <= a.lim.MaxRecordBytes && len(b.events) < maxBatchEvents {
			return b
		}
	}
	b, ok := a.pool.Get().(*batch[E])
	if !ok {
		b = &batch[E]{}
	}
	b.rec.Buffered = a.buffered
	a.pending = append(a.pending, b)
	return b
}

// runAfter calls the functions whose turn has come.
func (a *Context[E]) runAfter() {
	for n := a.after.len(); n > 0 && a.after.front().seq <= a.stored.Last(); n-- {
		w := a.after.pop()
		a.begin()
		w.fn(w.err)
	}
}
