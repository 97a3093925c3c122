package worker

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastmq/holdfast"
	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/bench/measure"
)

// running is a part at work.
type running struct {
	Part
	queue func(name string) *holdfast.Queue

	began     time.Time
	measuring atomic.Bool
	done      atomic.Int64 // messages
	first     atomic.Int64 // ns since began
	last      atomic.Int64
	frames    atomic.Uint64
	stop      chan struct{} // closed when the worker is told to stop

	answer, endToEnd, late measure.Histogram
	atStart, atEnd         mark
}

// mark is how far a part was at a moment.
type mark struct {
	at      time.Time
	done    int64
	cpu     time.Duration
	mallocs uint64
}

func (p *running) mark() mark {
	return mark{at: time.Now(), done: p.done.Load(), cpu: cpuTime(), mallocs: mallocs()}
}

// count notes that messages are done.
func (p *running) count(n int64) (total int64) {
	total = p.done.Add(n)
	return total
}

// note notes when something was done, where that is asked for.
func (p *running) note() {
	now := int64(time.Since(p.began))
	p.first.CompareAndSwap(0, now)
	p.last.Store(now)
}

// watch marks the begin and the end of what is measured, and calls end after that.
func (p *running) watch(ctx context.Context, end func()) {
	if p.Messages > 0 {
		p.atStart = p.mark()
		p.measuring.Store(true)
		return
	}
	if !wait(ctx, p.stop, time.Until(p.began.Add(p.Warmup))) {
		end()
		return
	}
	p.atStart = p.mark()
	p.measuring.Store(true)
	wait(ctx, p.stop, time.Until(p.atStart.at.Add(p.Duration)))
	p.measuring.Store(false)
	p.atEnd = p.mark()
	if p.UntilStopped {
		wait(ctx, p.stop, 1<<62)
	}
	end()
}

// wait waits, and tells whether the time has passed.
func wait(ctx context.Context, stop chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}

// result is what was measured, once everything has ended.
func (p *running) result() Result {
	if p.atEnd.at.IsZero() {
		p.atEnd = p.mark()
	}
	r := Result{
		Kind: p.Kind, Total: p.done.Load(), Measured: p.atEnd.done - p.atStart.done, Took: p.atEnd.at.Sub(p.atStart.at),
		First: time.Duration(p.first.Load()), Last: time.Duration(p.last.Load()),
		CPU: p.atEnd.cpu - p.atStart.cpu, Mallocs: p.atEnd.mallocs - p.atStart.mallocs, Frames: p.frames.Load(),
		Answer: &p.answer, EndToEnd: &p.endToEnd, Late: &p.late,
	}
	return r
}

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
