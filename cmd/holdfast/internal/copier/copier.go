// Package copier copies the streams of one journal into another, unchanged: uids, seqs, epochs and CRCs stay, so
// the ids of messages do, and snapshots fit.
package copier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// Defaults of [Options].
const (
	DefaultParallel = 4
	DefaultPatience = time.Minute
	DefaultAhead    = 64 << 20
)

// Options say how to copy. The zero value means the defaults.
type Options struct {
	// Streams are those to copy; nil means all.
	Streams []string
	// Parallel is how many streams are copied at once. 0 means DefaultParallel.
	Parallel int
	// Patience is for how long a change of the target is repeated that has not been answered. 0 means DefaultPatience.
	Patience time.Duration
	// Ahead is how many bytes of a stream are read before they are written: parts of snapshots, metas, and bodies that are not discarded. What lives in the
	// source only until the target would have taken it has to fit, or the copy cannot be of one moment. 0 means DefaultAhead.
	Ahead int
	// NoVerify leaves out reading everything again at the end.
	NoVerify bool
	// Live returns the first seqs of the records of a stream that hold bodies which are still needed, also where their metas are
	// discarded, ascending, and nil for a stream of which it knows nothing. A nil func knows nothing of any: then there are no such records.
	Live func(ctx context.Context, j journal.Journal, stream string) ([]uint64, error)
	// Progress, if not nil, is told of each piece of work. It is called by several goroutines.
	Progress func(Progress)
	// Logger gets what goes on. nil means slog.Default.
	Logger *slog.Logger
}

// Progress is where the copy of a stream is.
type Progress struct {
	Stream    string
	Measuring bool // before anything is copied: whether all of it fits
	Verifying bool
	Seq, End  uint64 // is at Seq of End
	Records   uint64
	Bytes     int64
}

// Result is what became of a stream.
type Result struct {
	Stream string
	// End is the seq up to which the copy is complete; SourceEnd is where the source was at the end.
	End, SourceEnd uint64
	Dropped        bool
	// Records, Bodies, Parts and Bytes are what this run has copied.
	Records, Bodies, Parts uint64
	Bytes                  int64
	// Damaged is how many records were copied without their bodies, since those cannot be read in the source; Damage is what is wrong with the first
	// of them that was met. The copy says of their messages that they are damaged.
	Damaged uint64
	Damage  error
	// Verified are the records that were compared at the end, bodies included.
	Verified uint64
	Err      error
}

// ErrTarget says that the target has something else under a stream's name, or cannot take a copy.
var ErrTarget = errors.New("the target cannot take it")

// ErrVerify says that the copy is not what the source has.
var ErrVerify = errors.New("the copy differs from the source")

// job is one run.
type job struct {
	src, dst journal.Journal
	imp      journal.Importer
	o        Options
	lim      journal.Limits
}

// Copy copies streams from src to dst, each from where an earlier run has ended. The source may be in use: the copy
// of a stream follows until it is of one moment in the source's life, and Result.End says which. Nobody else may
// use the same streams of dst. Records and parts that are too large for dst are a [LimitError] before anything is changed. It returns a result for each stream that was begun, by name; the error is of the run as a whole,
// or joins those of the streams.
func Copy(ctx context.Context, src, dst journal.Journal, o Options) ([]Result, error) {
	imp, ok := dst.(journal.Importer)
	if !ok {
		return nil, fmt.Errorf("%w: its driver cannot import streams", ErrTarget)
	}
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.Ahead <= 0 {
		o.Ahead = DefaultAhead
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &job{src: src, dst: dst, imp: imp, o: o, lim: dst.Limits()}
	names, err := c.names(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.fits(ctx, names); err != nil {
		return nil, err
	}
	results := make([]Result, len(names))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(o.Parallel, len(names)) {
		wg.Go(func() {
			for i := range next {
				results[i] = c.stream(ctx, names[i])
			}
		})
	}
	begun := 0
	for ; begun < len(names) && ctx.Err() == nil; begun++ {
		select {
		case next <- begun:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	results = results[:begun]
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("stream %q: %w", r.Stream, r.Err))
		}
	}
	if err := context.Cause(ctx); err != nil {
		return results, err
	}
	return results, errors.Join(errs...)
}

// names lists the streams to copy.
func (c *job) names(ctx context.Context) ([]string, error) {
	var names []string
	for info, err := range c.src.Streams(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the streams of the source: %w", err)
		}
		if len(c.o.Streams) == 0 || slices.Contains(c.o.Streams, info.Name) {
			names = append(names, info.Name)
		}
	}
	for _, name := range c.o.Streams {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no stream %q in the source", name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maxLives bounds how often a stream is begun again that is dropped while it is copied.
const maxLives = 10

// errNewLife says that the source's stream was dropped, and perhaps made anew, while it was being copied.
var errNewLife = errors.New("the stream was dropped while it was copied")

func (c *job) stream(ctx context.Context, name string) Result {
	r, err := c.src.Open(ctx, name)
	if err != nil {
		return Result{Stream: name, Err: err}
	}
	s := &stream{job: c, name: name, r: r, res: Result{Stream: name}}
	for range maxLives {
		if err = s.run(ctx); !errors.Is(err, errNewLife) {
			break
		}
	}
	if s.h != nil {
		err = errors.Join(err, s.h.Release())
	}
	s.res.Err = err
	return s.res
}

// settle repeats a change of the target while its outcome is unknown.
func (c *job) settle(ctx context.Context, f func(ctx context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, c.o.Patience)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := f(ctx)
		if !errors.Is(err, journal.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-patient.Done():
			t.Stop()
			return err
		}
	}
}
