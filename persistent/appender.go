package persistent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// appender is the goroutine that appends, one record at a time. It repeats what has no answer by itself, and
// so reports nothing but final results.
type appender struct {
	work chan *appendJob   // of capacity 1
	done chan appendResult // of capacity 1: never blocks
	busy bool              // the actor's: a job was given and its result not taken
	job  appendJob         // reused
	log  *slog.Logger
}

// appendJob is one record to be appended behind the record that ends at seq after and has CRC prev.
type appendJob struct {
	after uint64
	prev  uint32
	rec   *journal.Record
	// sealed tells that it was given before: an earlier try may still be reading it, so it is not touched.
	sealed bool
}

// appendResult is what became of it.
type appendResult struct {
	// err is nil: stored; or matches ErrFull, or is the error that ended the actor's hold.
	err error
	// maybe tells that a try of it ended without an answer. If err is not nil, that try's effect may still
	// come, unless the driver settled it.
	maybe bool
	// settled tells that the record is not stored, with proof. It says nothing if err is nil.
	settled bool
}

// give starts an append. The actor must not touch the record until the result is there.
func (p *appender) give(job appendJob) {
	p.job = job
	p.busy = true
	p.work <- &p.job
}

// run appends what it is given until work is closed. ctx ends with the actor.
func (p *appender) run(ctx context.Context, st journal.Stream, o *Options) {
	for job := range p.work {
		p.done <- p.append(ctx, st, job, o)
	}
}

func (p *appender) append(ctx context.Context, st journal.Stream, job *appendJob, o *Options) (res appendResult) {
	if !job.sealed {
		if err := job.rec.Seal(job.prev); err != nil {
			return appendResult{err: err, settled: true}
		}
	}
	wait := o.RetryFirst
	var said time.Time
	for try := 1; ; try++ {
		err := appendOnce(ctx, st, job, o.AppendTimeout)
		switch {
		case err == nil:
			if try > 1 {
				p.log.Info("append has an answer again", "seq", job.rec.First, "tries", try)
			}
			return res
		case errors.Is(err, journal.ErrUnknown):
			// Whatever else it matches: there is no proof.
		case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrConflict),
			errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrInvalid):
			res.err, res.settled = err, true
			return res
		case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
			res.err = err // repeating it would not help
			return res
		}
		res.maybe = true
		if ctx.Err() != nil {
			res.err = context.Cause(ctx)
			return res
		}
		if now := time.Now(); try == 1 || now.Sub(said) >= 10*time.Second {
			said = now
			p.log.Warn("append without an answer, it is repeated", "seq", job.rec.First, "tries", try, "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, o.RetryCap)
	}
}

func appendOnce(ctx context.Context, st journal.Stream, job *appendJob, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return st.Append(ctx, job.after, job.rec)
}
