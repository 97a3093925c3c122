package fault

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/holdfastmq/holdfast/journal"
)

// Options configure a wrapper. The zero value wraps without any fault.
type Options struct {
	// Crash cuts the power of the store under the journal, e.g. memory.Store's Crash: what was not
	// synced is lost, and the journal is closed. Needed for Fault.Crash only.
	Crash func()
	// Hook, if not nil, is called before and after every change that no other fault has
	// ended. An error ends the call as unknown. It has the form of journaltest.Hook.
	Hook func(ctx context.Context, op, stream string, after bool) error
}

// Journal is a journal with faults. Its control methods may be called at any time,
// concurrently with the journal's.
type Journal struct {
	inner journal.Journal
	opts  Options

	closeOnce sync.Once
	closed    chan struct{}

	mu     sync.Mutex
	plan   Plan
	next   map[Op][]Action
	counts map[Op]int
	full   bool
	paused chan struct{} // closed by Resume; nil when not paused
}

var _ journal.Journal = (*Journal)(nil)

// New wraps a journal.
func New(inner journal.Journal, opts Options) *Journal {
	return &Journal{
		inner: inner, opts: opts, closed: make(chan struct{}),
		next: map[Op][]Action{}, counts: map[Op]int{},
	}
}

// SetPlan sets what happens to calls that Next has nothing for. nil lets them pass.
func (j *Journal) SetPlan(p Plan) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.plan = p
}

// Next plans actions for the next calls of op, one each, behind those planned already.
func (j *Journal) Next(op Op, actions ...Action) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next[op] = append(j.next[op], actions...)
}

// SetFull makes every Append and WritePart end with ErrFull, or no more.
func (j *Journal) SetFull(full bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full = full
}

// Pause makes the store hang: every call waits, before it has an effect, until Resume or
// its context's end.
func (j *Journal) Pause() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.paused == nil {
		j.paused = make(chan struct{})
	}
}

// Resume ends Pause.
func (j *Journal) Resume() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.paused != nil {
		close(j.paused)
		j.paused = nil
	}
}

// Count returns how many calls of op were made.
func (j *Journal) Count(op Op) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts[op]
}

func (j *Journal) choose(c Call) (a Action, pause <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[c.Op]++
	c.N = j.counts[c.Op]
	switch planned := j.next[c.Op]; {
	case len(planned) > 0:
		a, j.next[c.Op] = planned[0], planned[1:]
	case j.full && (c.Op == Append || c.Op == WritePart):
		a = Full()
	case j.plan != nil:
		a = j.plan(c)
	}
	return a, j.paused
}

// call makes one call with its faults.
func (j *Journal) call(ctx context.Context, c Call, f func(context.Context) error) error {
	a, pause := j.choose(c)
	err := (&Fault{Wait: pause}).wait(ctx, j.closed)
	if err == nil {
		err = a.Before.wait(ctx, j.closed)
		if err != nil && a.Before.Late && c.Op.Changes() && ctx.Err() != nil {
			go j.late(context.WithoutCancel(ctx), c, a, f)
		}
	}
	if err != nil {
		return j.ended(c, err)
	}
	if err := j.act(ctx, c, &a.Before, false); err != nil {
		return fmt.Errorf("fault before %s: %w", c.Op, err)
	}
	if err := f(ctx); err != nil {
		return err
	}
	if err := a.After.wait(ctx, j.closed); err != nil {
		return j.ended(c, err)
	}
	if err := j.act(ctx, c, &a.After, true); err != nil {
		return fmt.Errorf("fault after %s: %w", c.Op, err)
	}
	return nil
}

// late goes on with a call that nobody waits for any more.
func (j *Journal) late(ctx context.Context, c Call, a Action, f func(context.Context) error) {
	if a.Before.wait(ctx, j.closed) == nil && j.act(ctx, c, &a.Before, false) == nil {
		_ = f(ctx) // there is nobody to tell
	}
}

func (j *Journal) act(ctx context.Context, c Call, f *Fault, after bool) error {
	if err := f.act(ctx, j.opts.Crash); err != nil {
		return err
	}
	if j.opts.Hook == nil || !c.Op.Changes() {
		return nil
	}
	if err := j.opts.Hook(ctx, string(c.Op), c.Stream, after); err != nil {
		return fmt.Errorf("%w: %w", journal.ErrUnknown, err)
	}
	return nil
}

// ended is the error of a call that was given up while it waited.
func (j *Journal) ended(c Call, err error) error {
	if c.Op.Changes() && !errors.Is(err, journal.ErrClosed) {
		return fmt.Errorf("%s stream %q: %w: %w", c.Op, c.Stream, journal.ErrUnknown, err)
	}
	return fmt.Errorf("%s stream %q: %w", c.Op, c.Stream, err)
}

// iterate is call for a method that returns a sequence.
func iterate[T any](ctx context.Context, j *Journal, c Call, seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		stopped := false
		err := j.call(ctx, c, func(context.Context) error {
			for v, err := range seq {
				if !yield(v, err) || err != nil {
					stopped = true
					break
				}
			}
			return nil
		})
		if err != nil && !stopped {
			yield(zero, err)
		}
	}
}

// Limits returns the journal's.
func (j *Journal) Limits() journal.Limits { return j.inner.Limits() }

// Acquire makes the caller the stream's owner.
func (j *Journal) Acquire(ctx context.Context, name string) (journal.Stream, error) {
	var s journal.Stream
	err := j.call(ctx, Call{Op: Acquire, Stream: name}, func(ctx context.Context) (err error) {
		s, err = j.inner.Acquire(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &stream{reader: reader{j: j, name: name, inner: s}, inner: s}, nil
}

// Open returns a reader of the stream.
func (j *Journal) Open(ctx context.Context, name string) (journal.Reader, error) {
	var r journal.Reader
	err := j.call(ctx, Call{Op: Open, Stream: name}, func(ctx context.Context) (err error) {
		r, err = j.inner.Open(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reader{j: j, name: name, inner: r}, nil
}

// Streams lists the streams.
func (j *Journal) Streams(ctx context.Context) iter.Seq2[journal.Info, error] {
	return iterate(ctx, j, Call{Op: Streams}, j.inner.Streams(ctx))
}

// Close closes the journal; calls that are held up end with ErrClosed.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() { close(j.closed) })
	return j.inner.Close()
}
