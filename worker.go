package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastmq/holdfast/message"
)

const (
	// maxSlice is how many messages a worker begins with at once, if its handler is fast.
	maxSlice = 256
	// sliceTime: starts are announced ahead for as many messages as take about this long. A crash of the process counts as a
	// failed delivery for all of them; so a handler that takes longer than this announces each message by itself.
	sliceTime = time.Millisecond
	// toldEvery is how often failed handlers are logged.
	toldEvery = time.Second
)

// Handler works on one message. See Queue.Consume.
type Handler = func(ctx context.Context, d *Delivery) error

// worker runs handlers, one at a time.
type worker struct {
	c       *intake
	handler Handler
	//holdfast:allow context: it is the parent of the contexts of handlers, which outlive every call
	base context.Context

	running atomic.Pointer[job]
	slice   int // how many messages it takes at once

	mu      sync.Mutex // taken with or without the intake's, and never before it
	rest    portion    // announced, and not begun with; others may take of it
	results []result   // for the keeper
	spare   []result   // of the keeper
}

// job is a message with its handler's context. Those that a worker takes at once are made at once.
type job struct {
	d   Delivery
	ctx handlerContext
}

// result is what became of messages from…to-1 of a block.
type result struct {
	b        *block
	from, to int
	kind     settleKind
	delay    time.Duration
	bytes    int
}

// run works until the intake stops. gone is called when it has.
func (w *worker) run(gone func()) {
	returned := false
	defer func() {
		if returned {
			gone()
			return
		}
		// A handler has ended the goroutine.
		w.putBack(w.cut(maxSlice))
		go w.run(gone)
	}()
	for {
		p, ok := w.take()
		if !ok {
			returned = true
			return
		}
		if p.announced || w.announce(p) {
			w.work(p)
		} else {
			w.drop(p)
		}
	}
}

// take waits for messages and takes some.
func (w *worker) take() (portion, bool) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.stopping:
			return portion{}, false
		case c.stream == nil:
		case c.waiting.n > 0:
			c.stale(c.waiting.first().b.since)
			first := c.waiting.first()
			n := min(w.slice, max(1, c.waiting.n/len(c.workers)))
			if first.b.confirm && !first.announced {
				n = 1
			}
			return c.waiting.take(n), true
		default:
			// Others may have more than they get done.
			for _, v := range c.workers {
				if p := v.cut(0); p.from < p.to {
					return p, true
				}
			}
			c.starved()
		}
		c.cond.Wait()
	}
}

// cut takes back n messages that were announced and not begun with, the last ones; 0 means half of what there is.
func (w *worker) cut(n int) portion {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := w.rest.to - w.rest.from
	if n == 0 {
		n = (have + 1) / 2
	}
	n = min(n, have)
	out := w.rest
	out.from, out.announced = w.rest.to-n, true
	w.rest.to -= n
	out.cur.Span(have - n)
	return out
}

// announce says that the worker begins with messages. It reports false if they are not to be begun with.
func (w *worker) announce(p portion) bool {
	c := w.c
	for {
		c.mu.Lock()
		for c.stream == nil && !c.stopping {
			c.cond.Wait()
		}
		st, stopping := c.stream, c.stopping
		spans := c.open(p.b, p.from, p.to)
		c.mu.Unlock()
		if stopping || len(spans) == 0 {
			return false
		}
		outcomes, err := st.started(w.base, spans, p.b.confirm)
		if err == nil {
			c.mu.Lock()
			c.extended(outcomes)
			ok := !p.b.confirm || !p.b.done.has(p.from)
			c.mu.Unlock()
			return ok
		}
		if !errors.Is(err, errGone) {
			if w.base.Err() == nil {
				c.log.Warn("the broker did not confirm a start", "seq", p.b.seq+uint64(p.from), "error", err)
			}
			return false
		}
	}
}

// work runs the handler on messages whose start was announced, unless others take them.
func (w *worker) work(p portion) {
	c := w.c
	w.mu.Lock()
	// Whoever ends the stream or the intake sets these first, and then cuts what is here.
	if c.halting.Load() || !c.online.Load() {
		w.mu.Unlock()
		w.putBack(p)
		return
	}
	w.rest = p
	w.mu.Unlock()
	jobs := make([]job, p.to-p.from)
	begin := time.Now()
	k := 0
	for raw, i, ok := w.next(nil); ok; k++ {
		r := w.one(&jobs[k], p.b, i, raw)
		raw, i, ok = w.next(&r)
	}
	w.running.Store(nil)
	switch took := time.Since(begin); {
	case took < sliceTime/2 && len(jobs) == w.slice:
		w.slice = min(2*w.slice, maxSlice)
	case took > sliceTime:
		w.slice = max(1, w.slice/4)
	}
}

// next notes a result and begins with the next message.
func (w *worker) next(r *result) (raw message.Raw, i int, ok bool) {
	w.mu.Lock()
	if r != nil {
		w.note(r)
	}
	if i = w.rest.from; i < w.rest.to {
		raw, ok = w.rest.cur.Next()
		w.rest.from++
	}
	w.mu.Unlock()
	if r != nil {
		w.c.noted()
	}
	return raw, i, ok
}

// one runs the handler on one message.
func (w *worker) one(j *job, b *block, i int, raw message.Raw) result {
	c := w.c
	r := result{b: b, from: i, to: i + 1, kind: settleAck, bytes: raw.Size()}
	err := j.d.fill(c, b, i, raw)
	j.ctx.worker, j.ctx.d = w, &j.d
	// First shown, then looked: see intake.loseSpan.
	w.running.Store(j)
	if b.touched.Load() && c.isDone(b, i) {
		return r
	}
	if err == nil {
		err = w.call(j, r)
		j.ctx.release()
	}
	if err != nil {
		r.kind, r.delay = w.failed(&j.d, err)
	}
	return r
}

// call calls the handler. A panic is an error.
func (w *worker) call(j *job, r result) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanicked, p, debug.Stack())
			return
		}
		// The handler ends its goroutine: the message has failed, and run begins another goroutine.
		j.ctx.release()
		r.kind, r.delay = w.failed(&j.d, errGoexit)
		w.settle(r)
	}()
	err = w.handler(&j.ctx, &j.d)
	returned = true
	return err
}

var (
	errPanicked = errors.New("handler panicked")
	errGoexit   = errors.New("handler ended its goroutine")
)

// failed tells about a failed handler and says what to do with its message.
func (w *worker) failed(d *Delivery, err error) (settleKind, time.Duration) {
	c := w.c
	var given *givenBack
	if errors.As(err, &given) {
		return given.kind, given.delay
	}
	if w.base.Err() != nil && errors.Is(err, context.Canceled) {
		return settleRelease, 0 // it was cut off
	}
	held, ok := c.failures.allow(toldEvery)
	if ok {
		level := slog.LevelWarn
		if errors.Is(err, errPanicked) || errors.Is(err, errGoexit) {
			level = slog.LevelError
		}
		c.log.Log(w.base, level, "handler failed", "message", d.ID, "attempt", d.Attempt, "error", err, "others since the last line", held)
	}
	c.failedCount.Add(1)
	return settleNack, -1
}

// note keeps a result for the keeper. Under the worker's lock.
func (w *worker) note(r *result) {
	if k := len(w.results) - 1; k >= 0 {
		last := &w.results[k]
		if last.b == r.b && last.to == r.from && last.kind == r.kind && last.delay == r.delay {
			last.to = r.to
			last.bytes += r.bytes
			return
		}
	}
	w.results = append(w.results, *r)
}

// settle notes a result and tells the keeper.
func (w *worker) settle(r result) {
	w.mu.Lock()
	w.note(&r)
	w.mu.Unlock()
	w.c.kick()
}

// drop gives back messages that are not begun with.
func (w *worker) drop(p portion) {
	if p.from < p.to {
		w.settle(result{b: p.b, from: p.from, to: p.to, kind: settleRelease, bytes: p.size()})
	}
}

// putBack leaves messages whose start was announced to whichever worker is free first.
func (w *worker) putBack(p portion) {
	if p.from == p.to {
		return
	}
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		w.drop(p)
		return
	}
	p.announced = true
	c.waiting.putBack(p)
	c.wakeWorkers()
}

// cancel ends the context of the handler that works on one of messages from…to-1, if this worker runs it.
func (w *worker) cancel(b *block, from, to int, reason string) {
	if j := w.running.Load(); j != nil && j.d.b == b && from <= j.d.i && j.d.i < to {
		j.ctx.cancel(fmt.Errorf("%w: %s", ErrLeaseLost, reason))
	}
}

// noted tells the keeper of a result, if it has a use for it now.
func (c *intake) noted() {
	if c.idle.Load() && !c.sated.Load() {
		c.kick()
	}
}

// collect takes what the workers have settled.
func (c *intake) collect() {
	for _, w := range c.workers {
		w.mu.Lock()
		got := w.results
		w.results = w.spare[:0]
		w.mu.Unlock()
		for i := range got {
			r := &got[i]
			c.settle(r.b, r.from, r.to, r.kind, r.delay)
			if r.b.stream == c.stream {
				c.stream.freed += uint64(r.bytes)
			}
		}
		clear(got)
		w.spare = got
	}
}

// uncollected tells whether workers have settled anything since.
func (c *intake) uncollected() bool {
	return slices.ContainsFunc(c.workers, func(w *worker) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.results) > 0
	})
}

// isDone tells whether a message is settled or lost.
func (c *intake) isDone(b *block, i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return b.done.has(i)
}
