package persistent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/journal"
)

// appender appends, one record at a time. It repeats what has no answer by itself, and so reports nothing but final results.
//
// A journal.Starter is told what to append by the actor itself, and its answer comes by a call. Any other stream needs a goroutine that waits
// for it, which is two more changes of goroutines for each record.
type appender struct {
	done   chan appendResult // of capacity 1: never blocks
	poke   func()            // tells the actor that there is a result
	busy   bool              // the actor's: a job was given and its result not taken
	job    appendJob         // reused
	remind time.Duration     // since the clock's start: when it is said that a Starter has not answered; 0: never

	st      journal.Stream
	starter journal.Starter // nil if the stream is none
	work    chan *appendJob // of capacity 1; nil with a starter
	o       *Options
	log     *slog.Logger
	//holdfast:allow context: it is that of the actor's goroutine, which no call brings along
	ctx     context.Context
	started func(error) // is told the outcome of what the starter was given
	repeats atomic.Bool // that was no answer, and it is tried again
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

// begin makes it ready. ctx ends with the actor.
func (p *appender) begin(ctx context.Context, st journal.Stream, o *Options, log *slog.Logger) {
	p.ctx, p.st, p.o, p.log = ctx, st, o, log
	if s, ok := st.(journal.Starter); ok {
		p.starter, p.started = s, p.outcome
		return
	}
	p.work = make(chan *appendJob, 1)
	go p.run()
}

// end ends it, once nothing more is given.
func (p *appender) end() {
	if p.work != nil {
		close(p.work)
	}
}

// starts tells whether what is given is under way without a goroutine that waits for it, and so without a limit of time.
func (p *appender) starts() bool { return p.starter != nil }

// give starts an append. The actor must not touch the record until the result is there.
func (p *appender) give(job appendJob) {
	p.job = job
	p.busy = true
	if p.starter == nil {
		p.work <- &p.job
		return
	}
	if err := p.seal(); err != nil {
		p.tell(appendResult{err: err, settled: true})
		return
	}
	p.starter.StartAppend(job.after, job.rec, p.started)
}

func (p *appender) seal() error {
	if p.job.sealed {
		return nil
	}
	return p.job.rec.Seal(p.job.prev)
}

func (p *appender) tell(res appendResult) {
	p.done <- res
	p.poke()
}

// outcome takes what the starter answers. What has to be tried again is from then on a goroutine's.
func (p *appender) outcome(err error) {
	if res, final := conclude(err); final {
		p.tell(res)
		return
	}
	p.repeats.Store(true)
	go func() {
		res := p.repeat(err)
		p.repeats.Store(false)
		p.tell(res)
	}()
}

// run appends what it is given until work is closed.
func (p *appender) run() {
	for range p.work {
		p.tell(p.append())
	}
}

func (p *appender) append() appendResult {
	if err := p.seal(); err != nil {
		return appendResult{err: err, settled: true}
	}
	err := p.once()
	if res, final := conclude(err); final {
		return res
	}
	return p.repeat(err)
}

// conclude tells what an answer means for one try of an append, and whether that is final.
func conclude(err error) (res appendResult, final bool) {
	switch {
	case err == nil:
		return res, true
	case errors.Is(err, journal.ErrUnknown):
		// Whatever else it matches: there is no proof.
	case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrFenced), errors.Is(err, journal.ErrConflict),
		errors.Is(err, journal.ErrTooLarge), errors.Is(err, journal.ErrInvalid):
		return appendResult{err: err, settled: true}, true
	case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
		return appendResult{err: err}, true // repeating it would not help
	}
	return res, false
}

// repeat tries again what had no answer, err, until it has one.
func (p *appender) repeat(err error) appendResult {
	wait := p.o.RetryFirst
	var said time.Time
	for try := 1; ; try++ {
		if p.ctx.Err() != nil {
			return appendResult{err: context.Cause(p.ctx), maybe: true}
		}
		if now := time.Now(); try == 1 || now.Sub(said) >= 10*time.Second {
			said = now
			p.log.Warn("append without an answer, it is repeated", "seq", p.job.rec.First, "tries", try, "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-p.ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, p.o.RetryCap)
		err = p.once()
		if res, final := conclude(err); final {
			if err == nil {
				p.log.Info("append has an answer again", "seq", p.job.rec.First, "tries", try+1)
			}
			res.maybe = true
			return res
		}
	}
}

func (p *appender) once() error {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.AppendTimeout)
	defer cancel()
	return p.st.Append(ctx, p.job.after, p.job.rec)
}
